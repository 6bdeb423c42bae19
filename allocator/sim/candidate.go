// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/kvstore"
)

const (
	commitTimeout = 700 * time.Millisecond
	tickEvery     = 250 * time.Millisecond
)

// candidate is one operator: four machines and what joins them.
type candidate struct {
	process
	link     *link
	election *kvstore.Election
	mirror   *kvstore.Mirror
	core     *allocator.Core
	commit   *commit.Committer
	term     int          // counts begins and ends of terms of this life
	fence    commit.Fence // as the term began
	ticked   time.Duration
	listedAt time.Duration // when the first list came in; 0: not yet
	alarm    time.Duration // when the next one rings; 0: none is set
	nextID   uint64
	callers  map[uint64]func(allocator.Reply)
	terms    uint64 // begun, over all lives
}

func (w *world) addCandidate(name string) {
	c := &candidate{process: process{w: w, name: name, rate: w.someRate()}}
	w.candidates = append(w.candidates, c)
	c.start()
}

// start begins a life with nothing remembered.
func (c *candidate) start() {
	w := c.w
	c.life++
	c.up = true
	c.link = newLink(&c.process)
	random := rand.New(rand.NewPCG(w.random.Uint64(), 1))
	c.election = kvstore.NewElection(kvstore.ElectionConfig{
		Prefix: w.layout.Election(), TTL: electionTTL, ProgressLimit: 3 * electionTTL,
		Candidate: allocator.Candidate{Who: c.name, Address: c.name, Version: "sim"},
	}, random)
	var spans []kvstore.Span
	for _, p := range w.layout.LeaderPrefixes() {
		spans = append(spans, kvstore.PrefixSpan(p))
	}
	mirror, err := kvstore.NewMirror(kvstore.MirrorConfig{Spans: spans, Heartbeat: 2 * time.Second, PageTimeout: time.Second,
		PageSize: 50, AskEvery: 40 * time.Millisecond, MaxBackoff: time.Second}, random)
	if err != nil {
		panic(err)
	}
	c.mirror = mirror
	c.core = allocator.New(w.coreConfig())
	c.commit = commit.New(commitConfig())
	c.term, c.ticked, c.alarm, c.nextID, c.listedAt = 0, 0, 0, 0, 0
	c.callers = map[uint64]func(allocator.Reply){}
	w.log(c.name, "starts, life %d", c.life)
	c.wake()
}

// wake lets every machine look at the clock.
func (c *candidate) wake() {
	now := c.clock()
	c.election.Tick(now)
	c.mirror.Tick(now)
	if now >= c.ticked+tickEvery {
		c.ticked = now
		c.forgeAcks()
		c.core.Tick(now)
	}
	c.pump()
}

// pump carries on until nothing is left to do.
func (c *candidate) pump() {
	var wake time.Duration
	for moved := true; moved && c.w.failure == nil; {
		er := c.election.Ready()
		for _, change := range er.Changes {
			c.change(change)
		}
		for _, call := range er.Calls {
			c.link.carry(laneElection, call, func(a kvstore.Answer) { c.election.Step(c.clock(), a); c.pump() })
		}
		mr := c.mirror.Ready()
		c.apply(mr)
		for _, call := range mr.Calls {
			c.link.carry(laneMirror, call, func(a kvstore.Answer) { c.mirror.Step(c.clock(), a); c.pump() })
		}
		moved = c.pumpCore()
		moved = moved || len(er.Changes)+len(mr.Batches) > 0
		wake = min(er.Wake, mr.Wake)
	}
	if c.core.Serving() || c.term > 0 {
		wake = min(wake, c.ticked+tickEvery)
	}
	c.ring(wake)
}

// ring sets the alarm, unless an earlier one is set already.
func (c *candidate) ring(at time.Duration) {
	if c.alarm != 0 && c.alarm <= at || at == kvstore.Never {
		return
	}
	c.alarm = max(at, c.clock()+1)
	set := c.alarm
	c.later(c.world(set-c.clock()), laneTimer, func() {
		if c.alarm == set {
			c.alarm = 0
			c.wake()
		}
	})
}

// apply hands the mirror's batches to the core.
func (c *candidate) apply(mr kvstore.MirrorReady) {
	for _, b := range mr.Batches {
		batch, _ := kvstore.DecodeBatch(c.w.layout, b)
		before := c.core.Applied()
		if c.listedAt == 0 {
			c.listedAt = c.clock()
		}
		c.w.log(c.name, "applies %d (reset %v): %d records, %d deleted", batch.Revision, batch.Reset, len(batch.Records), len(batch.Deleted))
		c.core.Apply(batch)
		if c.core.Applied() < before {
			c.w.violate(Violation{Invariant: allocator.I7, Text: fmt.Sprintf("%s went back from revision %d to %d", c.name, before, c.core.Applied())})
		}
	}
	if mr.WentBack != nil {
		c.w.violate(Violation{Invariant: allocator.I7, Text: fmt.Sprintf("%s took the store for a restored one: %+v", c.name, *mr.WentBack)})
	}
}

// pumpCore passes ops to the committer, outcomes to the core and replies to callers.
func (c *candidate) pumpCore() bool {
	ready := c.core.Ready()
	for _, r := range ready.Replies {
		if f := c.callers[r.ID]; f != nil {
			delete(c.callers, r.ID)
			f(r)
		}
	}
	if ready.Fatal != nil {
		c.w.violate(Violation{Invariant: allocator.I12, Text: c.name + " gives up for good: " + ready.Fatal.Error()})
	}
	for _, op := range ready.Ops {
		c.submit(op)
	}
	cr := c.commit.Ready()
	for _, o := range cr.Outcomes {
		c.outcome(o)
	}
	for _, tx := range cr.Send {
		c.send(tx)
	}
	if cr.Deposed {
		c.w.log(c.name, "is deposed, foreign %v", cr.Foreign)
		c.w.stats.Deposed++
		c.w.checker.deposed(c.name, c.fence.Lease)
		c.abandon("deposed")
	}
	return len(ready.Replies)+len(ready.Ops)+len(cr.Outcomes)+len(cr.Send) > 0 || cr.Deposed
}

func (c *candidate) submit(op allocator.Op) {
	c.setWallClock(op)
	c.w.log(c.name, "op %d %s", op.ID, opText(op))
	if c.w.opt.mutation.confirmAtOnce && len(op.Writes) == 0 {
		c.core.Done(allocator.Outcome{Op: op.ID, Kind: allocator.Committed, Revision: c.core.Applied()})
		return
	}
	c.commit.Submit(op)
}

func (c *candidate) outcome(o allocator.Outcome) {
	c.w.log(c.name, "op %d is %v at %d", o.Op, o.Kind, o.Revision)
	c.w.checker.outcome(opKey{c.name, c.life, o.Op}, o)
	if o.Kind == allocator.Committed {
		c.election.Progress(c.clock())
		c.mirror.Want(c.clock(), o.Revision)
	}
	c.core.Done(o)
}

// change enters or leaves a term.
func (c *candidate) change(change kvstore.RoleChange) {
	if change.Role == kvstore.RoleFollower {
		c.w.log(c.name, "leads no more: %s", change.Reason)
		c.end()
		return
	}
	c.term++
	c.terms++
	c.w.stats.Terms++
	c.w.log(c.name, "leads, epoch %d", change.Fence.Epoch)
	c.fence = change.Fence
	c.commit.BeginTerm(c.fence)
	c.resetMarks()
	nonce := fmt.Sprintf("%s-%d-%d", c.name, c.life, c.term)
	if c.listedAt == 0 || c.clock()-c.listedAt < 2*presenceTTL { // as the operator does
		c.w.stats.Cold++
		c.core.BeginColdTerm(c.clock(), nonce)
	} else {
		c.core.BeginTerm(c.clock(), nonce)
	}
}

func (c *candidate) end() {
	c.core.EndTerm()
	c.commit.EndTerm()
	c.term++
}

// abandon ends the term from within.
func (c *candidate) abandon(reason string) {
	c.core.EndTerm()
	c.election.Abandon(c.clock(), reason)
}

// send carries out one transaction of the committer. The process may stand
// still just before or just after it.
func (c *candidate) send(tx commit.Transaction) {
	w := c.w
	term := c.term
	if tx.Kind == commit.Work {
		w.stats.Transactions++
	} else if tx.Kind == commit.Barrier {
		w.stats.Barriers++
	}
	w.meddle(tx)
	if w.fault("pause before a transaction", w.faults.pauseAtTxn) {
		c.pause(w.pauseLength())
		c.later(0, laneCommit, func() { c.try(term, tx) })
		return
	}
	c.try(term, tx)
	if w.fault("pause after a transaction", w.faults.pauseAtTxn) {
		c.pause(w.pauseLength())
	}
}

// try sends the transaction once. Barriers and reads are repeated until they
// are answered or the term is over.
func (c *candidate) try(term int, tx commit.Transaction) {
	w := c.w
	txn, err := c.encode(tx)
	if err != nil {
		w.violate(Violation{Invariant: allocator.I12, Text: fmt.Sprintf("%s cannot encode %+v: %v", c.name, tx, err)})
		return
	}
	var r kvstore.TxnResult
	o := origin{kind: byCommitter, who: c.name, life: c.life, tx: tx}
	serve := func() (err error) {
		w.change(o, func() { r, err = w.model.Txn(txn) })
		w.log(c.name, "tx %d (%v) at the store: %v, error %v", tx.ID, txText(tx), r.Succeeded, err)
		return err
	}
	c.link.request(commitTimeout, w.faults.late, laneCommit, serve, func(err error) {
		c.answered(term, tx, r, err)
	})
}

func (c *candidate) answered(term int, tx commit.Transaction, r kvstore.TxnResult, err error) {
	w := c.w
	if c.term != term {
		return
	}
	switch {
	case errors.Is(err, kvstore.ErrUnknownOutcome) && tx.Kind != commit.Work:
		c.try(term, tx)
		return
	case errors.Is(err, kvstore.ErrUnknownOutcome):
		w.stats.Unknown++
		w.log(c.name, "tx %d is unknown", tx.ID)
		c.commit.Result(c.unknown(tx))
	case errors.Is(err, kvstore.ErrTooLarge):
		c.commit.Result(commit.Result{ID: tx.ID, TooLarge: true})
	case err != nil:
		c.abandon(err.Error())
	default:
		res, err := w.layout.Answer(tx, r)
		if err != nil {
			w.violate(Violation{Invariant: allocator.I12, Text: fmt.Sprintf("%s cannot read the answer to %+v: %v", c.name, tx, err)})
			return
		}
		c.commit.Result(res)
	}
	c.pump()
}

// ask is a request that has reached the candidate.
func (c *candidate) ask(req any, reply func(allocator.Reply)) (cancel func()) {
	if f := c.w.opt.mutation.request; f != nil {
		req = f(c.core, req)
	}
	c.nextID++
	id := c.nextID
	c.callers[id] = reply
	c.core.Request(id, req)
	c.pump()
	return func() {
		delete(c.callers, id)
		c.core.Cancel(id)
		c.pump()
	}
}
