// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/kvstore"
)

// mutation takes a part of the protection away, to see that the checker notices.
type mutation struct {
	noFence       bool                                        // Work transactions without the fence's compares
	noOwnCompare  bool                                        // of the fence, only "no older candidate" is compared
	noPrefix      bool                                        // of the fence, only the own key is compared
	phantom       bool                                        // an election may overlook older candidates: no protection of its own
	noBarrier     bool                                        // an unknown outcome counts as refused at once
	confirmAtOnce bool                                        // a repeated Allocate is answered without the fenced read
	noAcks        bool                                        // every node counts as having acknowledged everything
	marksInMemory bool                                        // each term takes the marks for new
	wallClock     bool                                        // served time is what the leader's wall clock says
	strip         func(allocator.Op) allocator.Op             // what the store is asked to compare
	request       func(core *allocator.Core, request any) any // what reaches the core
}

// encode puts a transaction into the store's form, less what a mutation strips.
func (c *candidate) encode(tx commit.Transaction) (kvstore.Txn, error) {
	who := c.election.Candidate()
	txn, err := c.w.layout.Encode(tx, who)
	m := c.w.opt.mutation
	if err != nil || tx.Kind != commit.Work {
		return txn, err
	}
	if m.strip != nil {
		stripped := tx
		stripped.Ops = nil
		for _, op := range tx.Ops {
			stripped.Ops = append(stripped.Ops, m.strip(op))
		}
		less, err := c.w.layout.Encode(stripped, who)
		if err != nil {
			return txn, err
		}
		txn.If = less.If
	}
	own, prefix, guards := txn.If[0], txn.If[1], txn.If[kvstore.FenceCompares:]
	switch {
	case m.noFence:
		txn.If = guards
	case m.noOwnCompare:
		txn.If = append([]kvstore.Compare{prefix}, guards...)
	case m.noPrefix:
		txn.If = append([]kvstore.Compare{own}, guards...)
	}
	return txn, err
}

// unknown is what the committer is told of a transaction without an answer.
func (c *candidate) unknown(tx commit.Transaction) commit.Result {
	if !c.w.opt.mutation.noBarrier {
		return commit.Result{ID: tx.ID, Unknown: true}
	}
	r := commit.Result{ID: tx.ID, Oldest: tx.Fence.Epoch,
		Own: commit.OwnKey{Present: true, CreateRevision: tx.Fence.Epoch, ModRevision: tx.Fence.Mod, Count: tx.Fence.Count}}
	for _, op := range tx.Ops { // a picture in which no guard holds, of a revision that teaches nothing
		var seen []allocator.Observed
		for _, g := range op.Guards {
			o := allocator.Observed{Key: g.Key}
			if g.Kind == allocator.GuardAbsent || g.Kind == allocator.GuardEmpty {
				o.Record = &allocator.Record{Key: g.Key}
				o.Record.Key.Name = "somebody"
			}
			seen = append(seen, o)
		}
		r.Observed = append(r.Observed, seen)
	}
	return r
}

// overlook makes a phantom leader, for a mutation: of an answer to a read of the
// candidates, only the own key is left.
func (l *link) overlook(c kvstore.Call, a *kvstore.Answer) {
	w := l.p.w
	if !w.opt.mutation.phantom || c.Kind != kvstore.CallRange || c.Range.Key != w.layout.Election() || !w.fault("phantom leader", 0.3) {
		return
	}
	for _, o := range w.candidates {
		for i, kv := range a.Range.KVs {
			if &o.process == l.p && kv.Key == w.layout.ElectionKey(o.election.Status(o.clock()).Lease) {
				a.Range.KVs = a.Range.KVs[i : i+1]
				return
			}
		}
	}
}

// forgeAcks lets every node acknowledge everything, for a mutation.
func (c *candidate) forgeAcks() {
	if !c.w.opt.mutation.noAcks || !c.core.Serving() {
		return
	}
	for _, n := range c.core.Nodes() {
		if n.Presence != nil {
			c.core.Acknowledge(allocator.AckRequest{Node: n.Name, Instance: n.Presence.Instance, Position: c.core.Position()})
		}
	}
}

// resetMarks makes the marks look new to a term that begins, for a mutation.
func (c *candidate) resetMarks() {
	w := c.w
	if !w.opt.mutation.marksInMemory {
		return
	}
	since := allocator.Mark{Since: allocator.Time{Revision: c.core.Applied(), ServedS: int64(c.core.SweepState().Served / time.Second)}}
	batch := allocator.Batch{Revision: c.core.Applied()}
	for _, prefix := range []string{w.layout.Own() + "idle/", w.layout.Own() + "gone/"} {
		for _, kv := range w.under(prefix) {
			if r, err := w.layout.Decode(kv); err == nil && kv.ModRevision <= batch.Revision {
				r.Value = since
				batch.Records = append(batch.Records, r)
			}
		}
	}
	c.core.Apply(batch)
}

// setWallClock lets a rewrite of the lineage say what the leader's wall clock
// says, for a mutation. Each operator's is off by up to half a minute.
func (c *candidate) setWallClock(op allocator.Op) {
	if !c.w.opt.mutation.wallClock || op.Verb != allocator.VerbLineage {
		return
	}
	for i, wr := range op.Writes {
		if l, ok := wr.Value.(allocator.Lineage); ok {
			skew := int64(c.name[len(c.name)-1]-'0') * 15
			l.ServedS = max(l.ServedS, int64(c.w.now/time.Second)+skew)
			op.Writes[i].Value = l
		}
	}
}
