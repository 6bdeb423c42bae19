// SPDX-License-Identifier: Apache-2.0

package commit_test

import (
	"testing"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
	"pgregory.net/rapid"
)

// someOp draws an op on few keys, so that ops meet; its guards hold or do not.
func (l *line) someOp(t *rapid.T, id uint64) allocator.Op {
	op := allocator.Op{ID: id, Verb: allocator.VerbReference}
	n := rapid.IntRange(1, 3).Draw(t, "keys")
	used := map[allocator.Key]bool{}
	for range n {
		k := rapid.SampledFrom([]allocator.Key{
			allocator.ReferenceKey(text(0), "n1"), allocator.ReferenceKey(text(0), "n2"), allocator.ReferenceKey(text(1), "n1"),
			allocator.ReferenceKey(text(2), "pin-a"), allocator.MasterKey(300), allocator.MasterKey(301), allocator.IdleKey(301),
			allocator.GoneKey("n1"), allocator.AddressKey("10.0.0.1"),
		}).Draw(t, "key")
		if used[k] {
			continue
		}
		used[k] = true
		op.Guards = append(op.Guards, l.someGuard(t, k))
		if rapid.Bool().Draw(t, "write") {
			op.Writes = append(op.Writes, allocator.Write{Key: k, Value: someValue(t, k)})
		}
	}
	return op
}

func (l *line) someGuard(t *rapid.T, k allocator.Key) allocator.Guard {
	switch key, _ := l.layout.Key(k); rapid.IntRange(0, 5).Draw(t, "guard") {
	case 0:
		return allocator.Guard{Kind: allocator.GuardAbsent, Key: k}
	case 1:
		return allocator.Guard{Kind: allocator.GuardPresent, Key: k}
	case 2:
		return allocator.Guard{Kind: allocator.GuardRevision, Key: k, Revision: 3}
	default: // as it stands now, which may change before it lands
		r, _ := l.model.Range(kvstore.RangeRequest{Key: key})
		if len(r.KVs) == 0 {
			return allocator.Guard{Kind: allocator.GuardAbsent, Key: k}
		}
		return allocator.Guard{Kind: allocator.GuardRevision, Key: k, Revision: r.KVs[0].ModRevision}
	}
}

func someValue(t *rapid.T, k allocator.Key) allocator.Value {
	if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
		return nil
	}
	switch k.Kind {
	case allocator.KindMaster:
		return allocator.LabelSet(text(int(k.Number) - 300))
	case allocator.KindReference:
		return allocator.NumberValue(300)
	case allocator.KindAddress:
		return allocator.Address{IP: "10.0.0.1", ID: 300}
	}
	return allocator.Mark{}
}

// Whatever order answers, losses and late arrivals come in: no two transactions
// in flight touch the same thing, nothing but a barrier and a read follows an
// unknown outcome, every op gets one outcome, and it is true.
func TestCommit_anyInterleaving(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLine(t, commit.Config{MaxOps: 16, MaxBytes: 4 << 10, InFlight: 3}, fake.Limits{})
		ids := uint64(0)
		one := func(fs []*flight) *flight {
			if len(fs) == 0 {
				t.Skip("nothing is in flight")
			}
			return fs[rapid.IntRange(0, len(fs)-1).Draw(t, "flight")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"submit": func(t *rapid.T) {
				var ops []allocator.Op
				for range rapid.IntRange(1, 4).Draw(t, "ops") {
					ids++
					ops = append(ops, l.someOp(t, ids))
				}
				l.submit(ops...)
			},
			"land": func(*rapid.T) {
				if f := one(l.flying); !f.landed || f.tx.Kind == commit.Barrier {
					l.land(f)
				}
			},
			"answer": func(*rapid.T) {
				if f := one(l.flying); f.landed {
					l.answer(f)
				}
			},
			"give up": func(*rapid.T) {
				if f := one(l.flying); f.tx.Kind == commit.Work {
					l.giveUp(f)
				}
			},
			"late": func(*rapid.T) {
				if f := one(l.lost); !f.landed {
					l.land(f)
				}
			},
			"edit": func(t *rapid.T) { l.put("cilium/state/identities/v1/id/301", "k8s:app=x;", 0) },
			"":     func(*rapid.T) {},
		})
		l.settle()
		for _, f := range l.lost {
			if !f.landed {
				l.land(f)
			}
		}
		l.atRest(t)
	})
}

// atRest is what holds once nothing is in flight: every op has its one outcome,
// and what touches the same thing committed in the order of submission.
func (l *line) atRest(t *rapid.T) {
	if l.deposed {
		t.Fatalf("deposed although nobody touched the own key")
	}
	if n := l.c.Queued(); n > 0 || len(l.outcomes) != len(l.order) {
		t.Fatalf("%d ops, %d outcomes, %d in the queue", len(l.order), len(l.outcomes), n)
	}
	last := map[allocator.Touched]int64{}
	for _, op := range l.order {
		o := l.outcomes[op.ID]
		if o.Kind != allocator.Committed {
			continue
		}
		for _, x := range op.Touches() {
			if o.Revision < last[x] {
				t.Fatalf("op %d was committed at %d, an earlier one that touches %+v at %d", op.ID, o.Revision, x, last[x])
			}
			last[x] = o.Revision
		}
	}
	for _, o := range l.outcomes {
		if o.Kind == allocator.Committed {
			continue
		}
		op := l.op(o.Op)
		if want := len(op.Guards) + len(op.Writes); len(o.Observed) != want {
			t.Fatalf("op %d is %v with %d keys observed, it has %d", o.Op, o.Kind, len(o.Observed), want)
		}
	}
}
