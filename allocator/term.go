// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"slices"
	"time"
)

// term is one run of leadership.
type term struct {
	nonce     string
	counting  seen          // from when elapsed time has not yet been stored
	carry     time.Duration // part of a second that was counted and not stored
	writing   bool          // a lineage rewrite is in flight
	begun     int64         // revision of the term's first rewrite; 0: not yet
	serving   bool
	lastSweep seen
	swept     seen // end of the last completed sweep
	brake     brake
	released  bool // the brake was released by hand

	cold      bool                // the mirror did not follow the store before the term
	served    seen                // when the term began to serve
	heard     map[string]bool     // nodes that said hello in this term
	lastHello seen                // the last hello of a node not heard before
	evidence  map[string]HeldPair // recovery: the best pair announced for each label set
	closing   bool                // the window's end is in flight
}

// BeginTerm starts a term of leadership with a fresh nonce. The core serves
// once its rewrite of the lineage has committed and the mirror has applied it.
func (c *Core) BeginTerm(now time.Duration, nonce string) { c.begin(now, nonce, false) }

// BeginColdTerm is BeginTerm for a leader whose mirror did not follow the store
// before: new label sets get no number until every node that is present has said
// what it holds, for two presence TTLs at most.
func (c *Core) BeginColdTerm(now time.Duration, nonce string) { c.begin(now, nonce, true) }

func (c *Core) begin(now time.Duration, nonce string, cold bool) {
	c.now = now
	c.term = &term{nonce: nonce, cold: cold, heard: map[string]bool{}, evidence: map[string]HeldPair{}}
	c.acks, c.floor, c.free, c.again = map[string]ack{}, 0, 0, nil
	for _, name := range sortedKeys(c.t.nodes) {
		c.t.nodes[name].absentSince = seen{}
	}
	c.rewriteLineage()
}

// EndTerm ends the term: whoever waits is told to try again, operations in
// flight are forgotten. The table stays; the core follows on as a standby.
func (c *Core) EndTerm() {
	if c.term == nil {
		return
	}
	c.term = nil
	c.floor, c.free = 0, 0
	for _, id := range sortedKeys(c.inFlight) {
		f := c.inFlight[id]
		delete(c.inFlight, id)
		f.free()
		f.lose()
	}
	for _, id := range sortedKeys(c.requests) {
		c.fail(id, leadershipLost())
	}
	c.dropQueues()
	c.ready.Ops = nil
}

// dropQueues empties every queue of a term that ended.
func (c *Core) dropQueues() {
	c.dirtySets, c.dirtyAddrs, c.dirtyNodes = nil, nil, nil
	for _, text := range sortedKeys(c.t.sets) {
		s := c.t.sets[text]
		s.waiting, s.dirty = nil, false
		c.t.prune(s)
	}
	for _, key := range sortedKeys(c.t.addrs) {
		a := c.t.addrs[key]
		a.waiting, a.dirty = nil, false
		c.t.pruneAddress(a)
	}
	for _, n := range c.t.nodes {
		n.leaving, n.forgetting, n.dirty = nil, nil, false
	}
}

// Serving says whether this core leads and answers requests.
func (c *Core) Serving() bool { return c.term != nil && c.term.serving }

func (c *Core) notServing() *Error {
	e := &Error{Code: Unavailable, Field: "not-serving", Retry: 100 * time.Millisecond,
		Message: "this replica does not lead, or its term has not begun yet; try again"}
	return e
}

func (c *Core) lineage() (Lineage, int64) {
	r, ok := c.t.singles[LineageKey()]
	if !ok {
		return Lineage{}, 0
	}
	l, _ := r.Value.(Lineage)
	return l, r.ModRevision
}

// time is the moment that marks carry: the last stored served time.
func (c *Core) time() Time {
	l, _ := c.lineage()
	return Time{Revision: c.t.applied, ServedS: l.ServedS}
}

// due says whether a grace that began at since has passed in served time.
func (c *Core) due(since Time, grace time.Duration) bool {
	l, _ := c.lineage()
	return time.Duration(l.ServedS-since.ServedS)*time.Second >= grace
}

// Position is how far the core's view has come.
func (c *Core) Position() Position {
	l, _ := c.lineage()
	p := Position{Counter: l.Counter, Revision: c.t.applied}
	if len(l.Terms) > 0 {
		p.Nonce = l.Terms[len(l.Terms)-1].Nonce
	}
	return p
}

func (c *Core) tickTerm() {
	t := c.term
	if !t.writing && (t.begun == 0 || c.now-t.counting.at >= c.cfg.LineageEvery) {
		c.rewriteLineage()
	}
	if t.serving {
		c.tickRecovery()
	}
	if t.serving && (!t.lastSweep.set || c.now-t.lastSweep.at >= c.cfg.SweepInterval) {
		t.lastSweep = seen{c.now, true}
		c.sweep()
	}
}

// rewriteLineage writes the lineage's next counter: the first rewrite of a term
// brings its nonce, later ones the served time counted since.
func (c *Core) rewriteLineage() {
	t := c.term
	old, mod := c.lineage()
	next := Lineage{Counter: old.Counter + 1, ServedS: old.ServedS, Terms: slices.Clone(old.Terms)}
	if mod == 0 {
		next.ServedS = c.newestMark()
	}
	if last := len(next.Terms) - 1; last >= 0 && next.Terms[last].Nonce == t.nonce {
		next.Terms[last].Last = next.Counter
	} else {
		next.Terms = append(next.Terms, Term{Nonce: t.nonce, First: next.Counter, Last: next.Counter})
		next.Terms = next.Terms[max(0, len(next.Terms)-MaxTerms):]
	}
	from, carry := seen{c.now, true}, time.Duration(0)
	if t.counting.set {
		elapsed := min(c.now-t.counting.at, c.cfg.ElectionTTL) + t.carry
		next.ServedS += int64(elapsed / time.Second)
		carry = elapsed % time.Second
	}
	p := &plan{op: Op{Verb: VerbLineage}}
	p.atOrAbsent(LineageKey(), mod)
	p.write(LineageKey(), next)
	if t.begun == 0 {
		c.planCluster(p)
	}
	t.writing = true
	c.submit(p.op, func() {
		t.writing = false
		// What stands says whether it landed, whatever the outcome was called:
		// elapsed time must not be counted twice.
		if l, mod := c.lineage(); l.Counter == next.Counter && l.wroteLast(t.nonce) {
			t.counting, t.carry = from, carry
			if t.begun == 0 {
				t.begun = mod
			}
		}
	}, nil, nil)
}

// newestMark is the latest served time that a mark or tombstone carries. A
// lineage that was lost begins anew there and not at 0: else the marks of a
// cluster that has served for a year would wait for another year.
func (c *Core) newestMark() int64 {
	var newest int64
	for _, i := range c.t.idle {
		newest = max(newest, i.since.ServedS)
	}
	for _, n := range c.t.nodes {
		newest = max(newest, n.gone.since.ServedS)
	}
	for _, tb := range c.t.tombs {
		newest = max(newest, tb.Freed.ServedS)
	}
	return newest
}

// wroteLast says whether the term with this nonce made the newest rewrite.
func (l Lineage) wroteLast(nonce string) bool {
	return len(l.Terms) > 0 && l.Terms[len(l.Terms)-1].Nonce == nonce
}

// planCluster adds the cluster's birth to a term's first rewrite, and the claim on
// its id if somebody deleted that.
func (c *Core) planCluster(p *plan) {
	c.planRecovery(p)
	if !c.hasCluster() {
		p.absent(ClusterKey())
		p.write(ClusterKey(), c.cluster())
	}
	id := ClusterIDKey(c.cfg.Space.ClusterID)
	if _, ok := c.t.singles[id]; !ok {
		p.absent(id)
		p.write(id, Text(c.cfg.Space.ClusterName))
	}
}

func (c *Core) cluster() Cluster {
	s := c.cfg.Space
	return Cluster{Name: s.ClusterName, ID: s.ClusterID, MaxConnectedClusters: s.MaxConnectedClusters,
		LocalBits: uint32(s.LocalBits()), Format: ClusterFormat}
}

func (c *Core) hasCluster() bool {
	_, ok := c.t.singles[ClusterKey()]
	return ok
}

// CheckCluster compares the store's cluster record with the configuration. A
// mismatch can only be mended by people.
func (c *Core) CheckCluster() *Error {
	want := c.cluster()
	if r, ok := c.t.singles[ClusterKey()]; ok {
		if have, _ := r.Value.(Cluster); have != want {
			return &Error{Code: FailedPrecondition, Field: "cluster", Message: fmt.Sprintf(
				"the store belongs to cluster %q with id %d, %d connected clusters at most, %d local bits, format %d; this operator is configured for %q, %d, %d, %d, format %d: use the store's values, or another store (data folder)",
				have.Name, have.ID, have.MaxConnectedClusters, have.LocalBits, have.Format,
				want.Name, want.ID, want.MaxConnectedClusters, want.LocalBits, want.Format)}
		}
	}
	if r, ok := c.t.singles[ClusterIDKey(want.ID)]; ok {
		if name, _ := r.Value.(Text); string(name) != want.Name {
			return &Error{Code: FailedPrecondition, Field: "cluster-id", Message: fmt.Sprintf(
				"cluster id %d belongs to cluster %q in this store; give %q another --cluster-id", want.ID, string(name), want.Name)}
		}
	}
	return nil
}

// advanceTerm begins to serve once the term's first rewrite is applied.
func (c *Core) advanceTerm() {
	t := c.term
	if t == nil || t.serving || t.begun == 0 || c.t.applied < t.begun {
		return
	}
	if err := c.CheckCluster(); err != nil {
		c.ready.Fatal = err
		return
	}
	t.serving, t.served = true, seen{c.now, true}
	c.openWindow()
	c.markEverything()
	c.buryLost()
}

// Begun is the revision that the mirror has to apply before this term serves;
// 0 while there is none, or when the core serves already.
func (c *Core) Begun() int64 {
	if c.term == nil || c.term.serving {
		return 0
	}
	return c.term.begun
}
