// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"maps"
	"slices"
	"time"

	"github.com/signet-identity/signet/allocator/identity"
)

// Identity is the picture of one number: live, idle, or freed. It reports false
// for a number that the store says nothing of.
func (c *Core) Identity(n identity.Number) (Identity, bool) {
	if m := c.t.masters[n]; m != nil {
		s := c.t.sets[m.text]
		id := Identity{Number: n, Labels: m.text, State: Live, Holders: s.holders(n),
			CreateRevision: m.create, Revision: m.mod}
		if i, ok := c.t.idle[n]; ok {
			id.State, id.IdleSince = IdleState, i.since
		}
		return id, true
	}
	if tb := c.t.tombs[n]; tb != nil {
		id := Identity{Number: n, Labels: tb.Labels, State: Quarantined, CreateRevision: tb.Born.Revision,
			Revision: tb.Freed.Revision, Freed: tb.Freed}
		if c.reusable(tb, c.floor) {
			id.State = Free
		}
		return id, true
	}
	return Identity{}, false
}

// ByLabels is the picture of the identity that a label set has; of a freed one
// if it has none.
func (c *Core) ByLabels(text string) (Identity, bool) {
	if s := c.t.sets[text]; s != nil {
		if m := s.winner(c.cfg.Space); m != nil {
			return c.Identity(m.number)
		}
		if len(s.masters) > 0 {
			return c.Identity(s.masters[0].number)
		}
	}
	if n, tb := c.t.newestTombstone(text); tb != nil {
		return c.Identity(n)
	}
	return Identity{}, false
}

// Each calls f with every identity from number start on, ascending, freed ones
// included, until f says stop. Live numbers of other ranges come in their order.
func (c *Core) Each(start identity.Number, f func(Identity) bool) {
	pool := c.t.pool
	var below, above []identity.Number
	for n := range c.t.masters {
		switch {
		case n >= start && n < pool.min:
			below = append(below, n)
		case n >= start && n > pool.max:
			above = append(above, n)
		}
	}
	more := true
	visit := func(n identity.Number) bool {
		if id, ok := c.Identity(n); ok {
			more = f(id)
		}
		return more
	}
	slices.Sort(below)
	slices.Sort(above)
	for _, n := range below {
		if !visit(n) {
			return
		}
	}
	c.t.pool.walk(start, visit)
	for _, n := range above {
		if !more || !visit(n) {
			return
		}
	}
}

// Numbers counts the own range.
type Numbers struct {
	Live, Idle, Quarantined, Free, Capacity, References uint64
}

// Numbers counts the own range's numbers and all references.
func (c *Core) Numbers() Numbers {
	out := Numbers{Capacity: c.t.pool.capacity()}
	for n := range c.t.masters {
		if !c.t.pool.contains(n) {
			continue
		}
		if _, idle := c.t.idle[n]; idle {
			out.Idle++
		} else {
			out.Live++
		}
	}
	for n, tb := range c.t.tombs {
		if c.t.masters[n] == nil && c.t.pool.contains(n) && !c.reusable(tb, c.floor) {
			out.Quarantined++
		}
	}
	for _, s := range c.t.sets {
		out.References += uint64(len(s.refs))
	}
	out.Free = out.Capacity - out.Live - out.Idle - out.Quarantined
	return out
}

// Nodes lists the nodes that are present, gone, or hold something, by name.
func (c *Core) Nodes() []NodeInfo {
	out := make([]NodeInfo, 0, len(c.t.nodes))
	for _, name := range sortedKeys(c.t.nodes) {
		n := c.t.nodes[name]
		info := NodeInfo{Name: name, GoneSince: n.gone.since, References: len(n.refs), Addresses: len(n.addrs)}
		if n.present() {
			info.Presence = n.presence
		}
		out = append(out, info)
	}
	return out
}

// Addresses lists the published addresses by key.
func (c *Core) Addresses() []AddressInfo {
	out := make([]AddressInfo, 0, len(c.t.addrs))
	for _, key := range sortedKeys(c.t.addrs) {
		if a := c.t.addrs[key]; a.mod != 0 {
			out = append(out, AddressInfo{Key: key, Pair: a.pair, Revision: a.mod})
		}
	}
	return out
}

// AddressCount is how many addresses are published.
func (c *Core) AddressCount() int {
	count := 0
	for _, a := range c.t.addrs {
		if a.mod != 0 {
			count++
		}
	}
	return count
}

// SweepState is how the collection stands.
type SweepState struct {
	IdleWaiting, GoneWaiting int
	LastSweep                time.Duration // leader's clock; valid when Swept
	Swept                    bool
	Served                   time.Duration
	IdentityGrace            time.Duration // in force
	Brake                    string        // why something is held back; empty: nothing is
	Paused                   *Pause        // nil: not paused
	Overdue                  time.Duration // how long the oldest candidate that nothing holds back has been due
}

// SweepState is how the collection stands.
func (c *Core) SweepState() SweepState {
	l, _ := c.lineage()
	out := SweepState{IdleWaiting: len(c.t.idle), Served: time.Duration(l.ServedS) * time.Second, IdentityGrace: c.identityGrace()}
	for _, n := range c.t.nodes {
		if n.gone.mod != 0 {
			out.GoneWaiting++
		}
	}
	if p, ok := c.paused(); ok {
		out.Paused = &p
	}
	if c.Serving() {
		out.LastSweep, out.Swept = c.term.swept.at, c.term.swept.set
		out.Brake, out.Overdue = c.Brake(), c.overdue()
	}
	return out
}

// Stats counts what the core did since it was made.
func (c *Core) Stats() Stats {
	s := c.stats
	s.Refusals = maps.Clone(s.Refusals)
	return s
}

// Continues says whether the store continues a view that had come to p: its
// lineage lists the view's nonce with a counter at or past the view's (I7).
func (c *Core) Continues(p Position) bool { return c.extends(p) }

// Applied is the store revision that the mirror has brought.
func (c *Core) Applied() int64 { return c.t.applied }

// Waiting counts the requests that wait for an answer.
func (c *Core) Waiting() int { return len(c.requests) }
