// SPDX-License-Identifier: Apache-2.0

package commit

import "github.com/signet-identity/signet/allocator"

// Result takes the answer to a transaction of this term.
func (c *Committer) Result(r Result) {
	switch {
	case !c.active:
	case r.ID == c.barrier && c.barrier != 0:
		c.barrierResult(r)
	case c.settle[r.ID] != nil:
		ops := c.settle[r.ID]
		delete(c.settle, r.ID)
		c.settled(ops, r)
	case c.flights[r.ID] != nil:
		t := c.flights[r.ID]
		c.land(t)
		c.workResult(t, r)
	}
}

func (c *Committer) workResult(t *Transaction, r Result) {
	switch {
	case r.Unknown:
		c.stats.Unknown++
		c.unknown = append(c.unknown, t.Ops...)
	case r.Succeeded:
		for _, op := range t.Ops {
			c.outcome(allocator.Outcome{Op: op.ID, Kind: allocator.Committed, Revision: r.Revision})
		}
	case r.TooLarge:
		c.split(t)
	case !c.ownStands(t.Fence, r):
		c.depose(r)
	case r.Own.ModRevision != t.Fence.Mod:
		c.stats.Overtaken++ // by an own barrier: nothing was written
		c.requeue(t.Ops, false)
	default:
		c.refused(t, r)
	}
}

// ownStands says whether the own key stood at one of our barriers, at the one
// of the transaction or a later one, and was the oldest candidate. An answer
// may have been given before the newest barrier and come in after its answer.
func (c *Committer) ownStands(sent Fence, r Result) bool {
	return r.Own.Present && r.Own.CreateRevision == c.fence.Epoch && r.Oldest == c.fence.Epoch &&
		r.Own.ModRevision >= sent.Mod && (r.Own.ModRevision <= c.fence.Mod || c.barrier != 0)
}

// depose ends the term after a refusal by the fence.
func (c *Committer) depose(r Result) {
	c.stats.StaleWritesRejected++
	c.ready.Deposed = true
	c.ready.Foreign = r.Own.Present
	c.reset()
}

// refused finds the ops whose guards failed; the others go again. If every
// guard holds by now, the ops go again one by one.
func (c *Committer) refused(t *Transaction, r Result) {
	var again []allocator.Op
	for i, op := range t.Ops {
		if holds(op, r.Observed[i]) {
			again = append(again, op)
			continue
		}
		c.outcome(allocator.Outcome{Op: op.ID, Kind: allocator.Refused, Revision: r.Revision, Observed: r.Observed[i]})
	}
	if len(again) > 0 {
		c.stats.Splits++
	}
	c.requeue(again, len(again) == len(t.Ops))
}

func holds(op allocator.Op, seen []allocator.Observed) bool {
	for i, g := range op.Guards {
		if !g.Holds(seen[i]) {
			return false
		}
	}
	return true
}

// requeue puts ops back at the queue's head, in order.
func (c *Committer) requeue(ops []allocator.Op, alone bool) {
	items := make([]item, 0, len(ops)+len(c.queue))
	for _, op := range ops {
		items = append(items, item{op: op, alone: alone})
	}
	c.queue = append(items, c.queue...)
}

// split answers "too large": halves are tried, and an op too large by itself is refused.
func (c *Committer) split(t *Transaction) {
	if len(t.Ops) == 1 {
		c.outcome(allocator.Outcome{Op: t.Ops[0].ID, Kind: allocator.Abandoned})
		return
	}
	c.stats.Splits++
	c.cfg.MaxOps = max(c.cfg.MaxOps/2, 16) // learn the store's limit
	c.requeue(t.Ops, len(t.Ops) <= 4)
}

// sendBarrier rewrites the own key once every answer that will come has come
// or is unknown; what is still in flight is refused by it.
func (c *Committer) sendBarrier() {
	c.stats.Barriers++
	c.send(Transaction{Kind: Barrier})
	c.barrier = c.nextID
}

// barrierResult takes the answer to the barrier. The driver repeats a barrier
// byte-identical, so "refused" with the count that it wrote means that an
// earlier copy landed.
func (c *Committer) barrierResult(r Result) {
	want := c.fence.Count + 1
	switch {
	case r.Succeeded:
		c.fence.Mod, c.fence.Count = r.Revision, want
	case r.Own.Present && r.Own.CreateRevision == c.fence.Epoch && r.Own.Count == want:
		c.fence.Mod, c.fence.Count = r.Own.ModRevision, want
	default:
		c.depose(r)
		return
	}
	c.barrier = 0
	c.sendSettle()
}

// sendSettle reads the keys of the ops whose outcome is unknown. Answers of
// other transactions that are still in flight can only be refusals now, or
// unknown, which asks for the next barrier.
func (c *Committer) sendSettle() {
	var batch []allocator.Op
	reads := 0
	for _, op := range c.unknown {
		n := len(op.Keys())
		if len(batch) > 0 && reads+n > c.cfg.MaxOps {
			break
		}
		batch, reads = append(batch, op), reads+n
	}
	c.unknown = c.unknown[len(batch):]
	c.send(Transaction{Kind: Settle, Ops: batch})
	c.settle[c.nextID] = batch
}

// settled reports how the keys of the ops stand now that none of them can land
// any more. Ops that did not fit into the read
// stay unknown, and the next barrier covers them.
func (c *Committer) settled(ops []allocator.Op, r Result) {
	for i, op := range ops {
		c.outcome(allocator.Outcome{Op: op.ID, Kind: allocator.Settled, Revision: r.Revision, Observed: r.Observed[i]})
	}
}
