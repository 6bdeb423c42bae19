// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"slices"
	"time"

	"github.com/signet-identity/signet/allocator/identity"
)

// Config is what a Core needs to know. Durations of graces count served time.
type Config struct {
	Space         identity.Space
	Max           identity.Number // the highest number to hand out, so that policy maps need not hold more; 0: the space's
	NewCluster    bool            // a store without S/cluster becomes this cluster's
	NodeGrace     time.Duration   // from the gone mark until references and addresses go
	IdentityGrace time.Duration   // from the idle mark until collection
	ForgetAfter   time.Duration   // from the gone mark until the node is forgotten
	SweepInterval time.Duration   // between sweeps, leader's clock
	PresenceTTL   time.Duration   // assumed for a node that never told its own
	ElectionTTL   time.Duration   // one lineage rewrite adds at most this much served time
	LineageEvery  time.Duration   // between rewrites of the lineage
	Quarantine    time.Duration   // least time between freeing a number and giving it to other labels
	MaxWaiting    int             // requests that may wait at once; more are refused
}

// minIdentityGrace is what pressure may shorten the identity grace to.
const minIdentityGrace = time.Minute

// Stats counts what the core did since it was made.
type Stats struct {
	MarkedIdle, Collected, PurgedReferences, PurgedAddresses, MarkedGone, Healed, Buried uint64
	Refusals                                                                             map[string]uint64 // by reason
}

// Ready is what a Core wants done. Replies of a committed operation come in the
// Ready after its outcome.
type Ready struct {
	Ops     []Op
	Replies []Reply
	Changed []identity.Number // numbers whose picture changed, ascending
	Fatal   *Error            // the store belongs to another cluster: stop
}

// Core is the pure state machine. It is not safe for concurrent use.
type Core struct {
	cfg   Config
	t     *table
	now   time.Duration
	stats Stats

	term       *term
	nextOp     uint64
	inFlight   map[uint64]*flight
	requests   map[uint64]*request // external ones, for Cancel
	dirtySets  []*set
	dirtyAddrs []*address
	dirtyNodes []*node
	tired      map[string]bool // label sets left alone until the next sweep
	ready      Ready
	eater      eater
	stale      string         // why the view may be stale; empty: it is not
	acks       map[string]ack // by node; empty at the start of a term
	floor      int64          // acknowledged, as of the last sweep
	free       uint64         // freed numbers that were reusable at the last sweep
	conflicts  []Conflict     // numbers claimed twice in a recovery window
	again      []string       // label sets to look at again with the next tick
	suspect    string         // why the store looks restored, until a window has been opened for it
}

// flight is an operation whose outcome is awaited. land runs when it
// committed; free always, before land or a new decision.
type flight struct {
	op   Op
	free func()
	land func(rev int64)
	lose func() // the term ended
	then func() // after any outcome but the end of the term; may be nil
	// unsure runs before free when no answer came and the store was read: the
	// operation may have committed. May be nil.
	unsure func()
}

// New makes a core that follows nothing yet.
func New(cfg Config) *Core {
	return &Core{
		cfg: cfg, t: newTable(cfg.Space, cfg.Max),
		inFlight: map[uint64]*flight{}, requests: map[uint64]*request{}, tired: map[string]bool{},
		stats: Stats{Refusals: map[string]uint64{}}, acks: map[string]ack{},
	}
}

// Apply takes a step of the mirror.
func (c *Core) Apply(b Batch) {
	before := c.Position()
	if b.Reset {
		if b.Revision < c.t.applied { // a restored store: its revisions say nothing about ours
			c.suspect = fmt.Sprintf("the store's revision went back from %d to %d", c.t.applied, b.Revision)
			c.t.applied = 0
			clear(c.t.ahead)
		}
		c.dropMissing(b)
	}
	for _, r := range b.Records {
		if c.t.ahead[r.Key] < r.ModRevision {
			c.touchBefore(r.Key)
			c.t.put(r)
			c.touch(r.Key)
		}
	}
	for _, d := range b.Deleted {
		if c.t.ahead[d.Key] < d.Revision {
			c.touchBefore(d.Key)
			c.t.remove(d.Key)
			c.touch(d.Key)
		}
	}
	c.t.caughtUp(b.Revision)
	c.noticeRestore(before)
	c.buryLost()
	c.advanceTerm()
}

// dropMissing removes what a complete list no longer names.
func (c *Core) dropMissing(b Batch) {
	named := make(map[Key]bool, len(b.Records))
	for _, r := range b.Records {
		named[r.Key] = true
	}
	for _, k := range c.t.keys() {
		if !named[k] && c.t.ahead[k] <= b.Revision {
			c.touchBefore(k)
			c.t.remove(k)
			c.touch(k)
		}
	}
}

// Request hands in a caller's request under an id that Reply repeats.
// req is an AllocateRequest, ReleaseRequest, PublishRequest, LeaveRequest,
// ForgetRequest, HelloRequest, LookupRequest, SweepRequest, PauseRequest or
// ResumeRequest.
func (c *Core) Request(id uint64, req any) {
	if !c.Serving() {
		c.fail(id, c.notServing())
		return
	}
	if c.cfg.MaxWaiting > 0 && len(c.requests) >= c.cfg.MaxWaiting {
		c.fail(id, &Error{Code: Exhausted, Field: "queue-full", Retry: time.Second,
			Message: fmt.Sprintf("%d requests already wait; try again", len(c.requests))})
		return
	}
	switch r := req.(type) {
	case AllocateRequest:
		c.requestReference(id, r)
	case ReleaseRequest:
		c.requestRelease(id, r)
	case PublishRequest:
		c.requestPublish(id, r)
	case LeaveRequest:
		c.requestLeave(id, r)
	case ForgetRequest:
		c.requestForget(id, r)
	case HelloRequest:
		c.requestHello(id, r)
	case LookupRequest:
		c.requestLookup(id, r, 0)
	case SweepRequest:
		c.requestSweep(id, r)
	case PauseRequest:
		c.requestPause(id, &Pause{By: r.By, Reason: r.Reason}, 0)
	case ResumeRequest:
		c.requestPause(id, nil, 0)
	default:
		c.fail(id, &Error{Code: InvalidArgument, Message: fmt.Sprintf("unknown request %T", req)})
	}
}

// Cancel withdraws a request whose caller has gone. Nothing is written for it
// any more, unless its operation is already in flight. No reply follows.
func (c *Core) Cancel(id uint64) {
	r := c.requests[id]
	if r == nil {
		return
	}
	delete(c.requests, id)
	r.id = 0
	if r.group != nil {
		r.group.id = 0
		return
	}
	if s := c.t.sets[r.text]; s != nil {
		s.waiting = slices.DeleteFunc(s.waiting, func(x *request) bool { return x == r })
	}
}

// Tick tells the leader's monotonic time, and lets graces pass.
func (c *Core) Tick(now time.Duration) {
	c.now = max(c.now, now)
	if c.term != nil {
		c.tickTerm()
	}
}

// Done takes the outcome of an operation of this term. Outcomes of operations
// that the core does not know (of an ended term) only teach it the store's state.
func (c *Core) Done(o Outcome) {
	f := c.inFlight[o.Op]
	if f == nil {
		return
	}
	delete(c.inFlight, o.Op)
	switch o.Kind {
	case Committed:
		for _, w := range f.op.Writes {
			c.learn(w.Key, c.written(w, o.Revision), o.Revision)
		}
		f.free()
		f.land(o.Revision)
	case Refused, Settled:
		for _, ob := range o.Observed {
			c.learn(ob.Key, ob.Record, o.Revision)
		}
		if o.Kind == Settled && f.unsure != nil {
			f.unsure()
		}
		f.free()
	case Abandoned:
		f.free()
		f.lose()
	}
	if f.then != nil && o.Kind != Abandoned {
		f.then()
	}
	c.buryLost()
	c.advanceTerm()
}

// written is the record that a committed write left behind.
func (c *Core) written(w Write, rev int64) *Record {
	if w.Value == nil {
		return nil
	}
	r := &Record{Key: w.Key, Value: w.Value, CreateRevision: rev, ModRevision: rev}
	if w.Key.Kind == KindMaster {
		if m := c.t.masters[w.Key.Number]; m != nil {
			r.CreateRevision = m.create
		}
	}
	return r
}

func (c *Core) learn(k Key, rec *Record, rev int64) {
	if k.Kind == KindReference && k.Name == "" { // a range compare's read: one key under the prefix, or none
		c.learnReferences(k.Labels, rec, rev)
		return
	}
	if k.Kind == KindLock || k.Kind == KindNumberLock {
		return
	}
	c.touchBefore(k)
	c.t.observe(k, rec, rev)
	c.touch(k)
}

func (c *Core) learnReferences(text string, rec *Record, rev int64) {
	if rec != nil {
		if rec.Key.Name != "" { // else it cannot be read, and is nobody's
			c.learn(rec.Key, rec, rev)
		}
		return
	}
	if s := c.t.sets[text]; s != nil {
		for _, holder := range sortedKeys(s.refs) {
			c.learn(ReferenceKey(text, holder), nil, rev)
		}
	}
}

// submit sends an operation on its way.
func (c *Core) submit(op Op, free func(), land func(rev int64), lose func()) {
	c.nextOp++
	op.ID = c.nextOp
	if free == nil {
		free = func() {}
	}
	if land == nil {
		land = func(int64) {}
	}
	if lose == nil {
		lose = func() {}
	}
	c.inFlight[op.ID] = &flight{op: op, free: free, land: land, lose: lose}
	c.ready.Ops = append(c.ready.Ops, op)
}

// submitThen is submit for an operation that touches nothing of the core's:
// then runs after any outcome but the end of the term.
func (c *Core) submitThen(op Op, land func(rev int64), lose, then func()) {
	c.submit(op, nil, land, lose)
	c.inFlight[c.nextOp].then = then
}

// Ready decides what can be decided and returns everything that is to be done.
func (c *Core) Ready() Ready {
	if c.Serving() {
		c.decideAll()
	}
	out := c.ready
	c.ready = Ready{}
	for n := range c.t.changed {
		out.Changed = append(out.Changed, n)
	}
	slices.Sort(out.Changed)
	clear(c.t.changed)
	return out
}

// decideAll works through the queues until nothing is left to decide. What one
// decision touches joins the queue again, so rounds are bounded by the work.
func (c *Core) decideAll() {
	for len(c.dirtySets)+len(c.dirtyAddrs)+len(c.dirtyNodes) > 0 {
		nodes, sets, addrs := c.dirtyNodes, c.dirtySets, c.dirtyAddrs
		c.dirtyNodes, c.dirtySets, c.dirtyAddrs = nil, nil, nil
		for _, n := range nodes {
			n.dirty = false
			c.decideNode(n)
		}
		for _, s := range sets {
			s.dirty = false
			c.decideSet(s)
			c.t.prune(s)
		}
		for _, a := range addrs {
			a.dirty = false
			c.decideAddress(a)
			c.t.pruneAddress(a)
		}
	}
}

func (c *Core) markSet(s *set) {
	if c.term != nil && !s.dirty {
		s.dirty = true
		c.t.sets[s.text] = s
		c.dirtySets = append(c.dirtySets, s)
	}
}

func (c *Core) markAddress(a *address) {
	if c.term != nil && !a.dirty {
		a.dirty = true
		c.t.addrs[a.key] = a
		c.dirtyAddrs = append(c.dirtyAddrs, a)
	}
}

func (c *Core) markNode(n *node) {
	if c.term != nil && !n.dirty {
		n.dirty = true
		c.t.nodes[n.name] = n
		c.dirtyNodes = append(c.dirtyNodes, n)
	}
}

// touchBefore queues what a key speaks of before it changes: a master that
// goes, or changes its labels, concerns the set it had.
func (c *Core) touchBefore(k Key) {
	if k.Kind == KindMaster {
		if m := c.t.masters[k.Number]; m != nil {
			c.markSet(c.t.set(m.text))
		}
	}
}

// touch queues whatever a changed key speaks of.
func (c *Core) touch(k Key) {
	switch k.Kind {
	case KindMaster, KindIdle:
		if m := c.t.masters[k.Number]; m != nil {
			c.markSet(c.t.set(m.text))
		} else if s := c.t.sets[c.t.lost[k.Number]]; s != nil {
			c.markSet(s)
		}
	case KindReference:
		if s := c.t.sets[k.Labels]; s != nil {
			c.markSet(s)
		}
		if n := c.t.nodes[k.Name]; n != nil {
			c.markNode(n)
		}
	case KindPresence, KindGone, KindKnown:
		if n := c.t.nodes[k.Name]; n != nil {
			c.markNode(n)
		}
	case KindAddress:
		if a := c.t.addrs[k.Name]; a != nil {
			c.markAddress(a)
			if n := c.t.nodes[c.t.ownerOf(a.pair)]; n != nil {
				c.markNode(n)
			}
		}
	}
}

func (c *Core) reply(id uint64, v any) {
	if id != 0 {
		delete(c.requests, id)
		c.ready.Replies = append(c.ready.Replies, Reply{ID: id, Value: v})
	}
}

// fail refuses a request: a reply, and a count under the refusal's reason.
func (c *Core) fail(id uint64, err *Error) {
	c.stats.Refusals[err.Code.String()]++
	if id != 0 {
		delete(c.requests, id)
		c.ready.Replies = append(c.ready.Replies, Reply{ID: id, Err: err})
	}
}

func (c *Core) wait(r *request) {
	if r.id != 0 {
		c.requests[r.id] = r
	}
}
