// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"container/heap"
	"time"

	"github.com/signet-identity/signet/allocator/identity"
)

// ack is how far a node's agent has come, as it said in this term.
type ack struct {
	instance string
	revision int64
}

// foreignQuarantine is the least quarantine while somebody reads the store who
// cannot acknowledge.
const foreignQuarantine = time.Hour

// Acknowledge notes that a node's agent has applied everything up to a
// position. One of another instance, or from a lineage that this store does not
// continue, says nothing.
func (c *Core) Acknowledge(r AckRequest) {
	n := c.t.nodes[r.Node]
	if c.term == nil || n == nil || !n.present() || n.presence.Instance != r.Instance || !c.continues(r.Position) {
		return
	}
	c.acks[r.Node] = ack{instance: r.Instance, revision: max(r.Position.Revision, c.acked(n))}
}

// continues says whether the store continues the view's lineage.
func (c *Core) continues(p Position) bool {
	l, _ := c.lineage()
	return l.Continues(p)
}

// acked is the revision that the node has acknowledged to this leader; 0: none.
func (c *Core) acked(n *node) int64 {
	a, ok := c.acks[n.name]
	if !ok || n.presence != nil && n.presence.Instance != a.instance {
		return 0
	}
	return a.revision
}

// Blocker is a node whose acknowledgement the reuse of numbers waits for.
type Blocker struct {
	Node  string
	Gone  bool
	Acked int64 // the revision it acknowledged; 0: none in this term
}

// acknowledged is the revision up to which every node that is not forgotten has
// let go of freed numbers: of those present, and of those marked gone.
func (c *Core) acknowledged() int64 {
	least := c.t.applied
	for _, n := range c.t.nodes {
		if n.awaited() {
			least = min(least, c.acked(n))
		}
	}
	return least
}

// awaited says whether the reuse of numbers waits for the node: it is present,
// marked gone, or about to be marked.
func (n *node) awaited() bool {
	return n.presence != nil || n.gone.mod != 0 || n.known != 0 || n.lapsed || len(n.refs)+len(n.addrs) > 0
}

// Blockers lists the nodes that hold back the reuse of a number that could be
// reused by now, by name.
func (c *Core) Blockers() []Blocker {
	if !c.Serving() {
		return nil
	}
	_, tb := c.t.oldestFreed()
	if tb == nil || tb.Quarantine == QuarantineDone || !c.rested(tb) || c.acknowledged() >= tb.mod {
		return nil
	}
	var out []Blocker
	for _, name := range sortedKeys(c.t.nodes) {
		nd := c.t.nodes[name]
		if nd.awaited() && c.acked(nd) < tb.mod {
			out = append(out, Blocker{Node: name, Gone: nd.presence == nil, Acked: c.acked(nd)})
		}
	}
	return out
}

// rested says whether the quarantine's least time is over.
func (c *Core) rested(tb *tomb) bool { return c.due(tb.Freed, c.leastQuarantine()) }

// leastQuarantine is the least time in force.
func (c *Core) leastQuarantine() time.Duration {
	if c.t.foreign > 0 {
		return max(c.cfg.Quarantine, foreignQuarantine)
	}
	return c.cfg.Quarantine
}

// reusable says whether a freed number may go to other labels: its quarantine
// is stored as over, or its least time is over and every node has let go.
func (c *Core) reusable(tb *tomb, acknowledged int64) bool {
	return tb.Quarantine == QuarantineDone || c.rested(tb) && acknowledged >= tb.mod
}

// countReusable counts the freed numbers that may go to other labels by now,
// and remembers up to where for the pictures of single numbers.
func (c *Core) countReusable() {
	c.floor, c.free = c.acknowledged(), 0
	for n, tb := range c.t.tombs {
		if c.t.masters[n] == nil && c.t.pool.contains(n) && c.reusable(tb, c.floor) {
			c.free++
		}
	}
}

// oldestFree is the reusable number that was freed longest ago. Only when the
// oldest is not reusable are younger ones looked at, and then only those whose
// quarantine is stored as over.
func (c *Core) oldestFree() (identity.Number, bool) {
	if n, tb := c.t.oldestFreed(); tb != nil && c.reusable(tb, c.acknowledged()) {
		return n, true
	}
	return c.t.oldestDone()
}

// oldestFreed is the tombstone of a number without a master that was written
// longest ago, and that no operation in flight takes: who takes one that is
// promised would be refused, and the next as well.
func (t *table) oldestFreed() (identity.Number, *tomb) {
	for t.freed.Len() > 0 {
		f := t.freed[0]
		if tb := t.tombs[f.number]; tb != nil && tb.mod == f.mod && !t.promised[f.number] && t.masters[f.number] == nil && !t.malformed[f.number] && t.pool.contains(f.number) {
			return f.number, tb
		}
		heap.Pop(&t.freed)
	}
	return 0, nil
}

// oldestDone is the number whose quarantine is stored as over that was freed longest ago.
func (t *table) oldestDone() (identity.Number, bool) {
	var best identity.Number
	if t.done == 0 {
		return 0, false
	}
	for n, tb := range t.tombs {
		if tb.Quarantine != QuarantineDone || t.promised[n] || t.masters[n] != nil || t.malformed[n] || !t.pool.contains(n) {
			continue
		}
		if b := t.tombs[best]; b == nil || tb.mod < b.mod || tb.mod == b.mod && n < best {
			best = n
		}
	}
	return best, best != 0
}

// freedQueue is a heap of tombstones by mod revision. Entries that the table
// has moved on from are dropped when they come up.
type freedQueue []freedNumber

type freedNumber struct {
	number identity.Number
	mod    int64
}

func (q freedQueue) Len() int { return len(q) }
func (q freedQueue) Less(i, j int) bool {
	return q[i].mod < q[j].mod || q[i].mod == q[j].mod && q[i].number < q[j].number
}
func (q freedQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *freedQueue) Push(x any) { *q = append(*q, x.(freedNumber)) }

// Pop implements heap.Interface.
func (q *freedQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}

func (q *freedQueue) push(n identity.Number, mod int64) { heap.Push(q, freedNumber{n, mod}) }
