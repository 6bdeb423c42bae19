// SPDX-License-Identifier: Apache-2.0

package commit_test

import (
	"testing"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore/fake"
)

func number(i int) identity.Number { return identity.Number(300 + i) }

func plain(t *testing.T) *line { return newLine(t, commit.DefaultConfig(), fake.Limits{}) }

func TestCommit_packsWhatWaitsIntoOneTransaction(t *testing.T) {
	l := plain(t)
	for i := range 10 {
		l.c.Submit(create(uint64(i+1), i))
		l.order = append(l.order, create(uint64(i+1), i))
	}
	l.pump()
	l.settle()
	if len(l.sent) != 1 || len(l.outcomes) != 10 || l.outcomes[10].Kind != allocator.Committed {
		t.Errorf("%d transactions, outcomes %+v", len(l.sent), l.outcomes)
	}
}

func TestCommit_oneBadItemFailsAlone(t *testing.T) {
	l := plain(t)
	l.put("cilium/state/identities/v1/id/301", "k8s:app=x;", 0)
	for i := range 3 {
		l.order = append(l.order, create(uint64(i+1), i))
		l.c.Submit(l.order[i])
	}
	l.pump()
	l.settle()
	outcomes(t, l, allocator.Committed, allocator.Refused, allocator.Committed)
	o := l.outcomes[2]
	if len(o.Observed) != 4 || o.Observed[0].Record == nil || o.Observed[0].Record.Value != allocator.LabelSet("k8s:app=x;") {
		t.Errorf("observed: %+v", o.Observed)
	}
	if l.kinds() != "work work" {
		t.Errorf("sent: %s", l.kinds())
	}
}

func TestCommit_unknownBarrierSettle(t *testing.T) {
	for _, lands := range []string{"never", "before", "behind"} {
		t.Run(lands, func(t *testing.T) {
			l := plain(t)
			l.submit(create(1, 0))
			f := l.flying[0]
			if lands == "before" {
				l.land(f)
			}
			l.giveUp(f)
			l.submit(create(2, 1)) // waits for the outcome of the first
			if l.kinds() != "work barrier" {
				t.Fatalf("sent: %s", l.kinds())
			}
			l.settle()
			if lands == "behind" {
				if l.land(f); f.result.Succeeded {
					t.Fatal("landed behind the barrier")
				}
			}
			outcomes(t, l, allocator.Settled, allocator.Committed)
			if l.kinds() != "work barrier settle work" {
				t.Errorf("sent: %s", l.kinds())
			}
			if there := l.outcomes[1].Observed[0].Record != nil; there != (lands == "before") {
				t.Errorf("observed: %+v", l.outcomes[1].Observed)
			}
			if s := l.c.Stats(); s.Unknown != 1 || s.Barriers != 1 || l.c.Fence().Count != 1 {
				t.Errorf("stats %+v, fence %+v", s, l.c.Fence())
			}
		})
	}
}

// A barrier whose first copy landed without an answer is repeated; the count
// says that it is ours.
func TestCommit_repeatedBarrier(t *testing.T) {
	l := plain(t)
	l.submit(create(1, 0))
	l.giveUp(l.flying[0])
	l.land(l.flying[0])
	l.land(l.flying[0]) // the same bytes again
	if l.flying[0].result.Succeeded {
		t.Fatal("a barrier landed twice")
	}
	l.settle()
	outcomes(t, l, allocator.Settled)
	if l.deposed {
		t.Error("deposed by an own barrier")
	}
}

// What is in flight when a barrier lands is refused by it, and goes again.
func TestCommit_overtaken(t *testing.T) {
	l := plain(t)
	l.submit(create(1, 0))
	l.submit(create(2, 1))
	first, second := l.flying[0], l.flying[1]
	l.giveUp(first)
	l.land(l.flying[1]) // the barrier
	l.land(second)
	l.answer(second)
	l.settle()
	outcomes(t, l, allocator.Settled, allocator.Committed)
	if s := l.c.Stats(); s.Overtaken != 1 || s.StaleWritesRejected != 0 || l.deposed {
		t.Errorf("stats %+v, deposed %v", s, l.deposed)
	}
}

// The refusal of a guard, given before a barrier and answered after it, deposes nobody.
func TestCommit_refusalFromBeforeTheBarrier(t *testing.T) {
	l := plain(t)
	l.put("cilium/state/identities/v1/id/301", "k8s:app=x;", 0)
	l.submit(create(1, 0))
	l.submit(create(2, 1))
	first, second := l.flying[0], l.flying[1]
	l.land(second) // refused by its guard
	l.giveUp(first)
	l.land(l.flying[1])
	l.answer(l.flying[1]) // the barrier stands
	l.answer(second)
	l.settle()
	if l.deposed {
		t.Fatal("deposed although the own key stands")
	}
	outcomes(t, l, allocator.Settled, allocator.Refused)
}

func TestCommit_deposed(t *testing.T) {
	cases := map[string]struct {
		act     func(l *line)
		foreign bool
	}{
		"the own key is gone": {func(l *line) { _ = l.model.Revoke(l.lease) }, false},
		"somebody wrote the own key": {func(l *line) {
			l.put(l.layout.ElectionKey(l.lease), `{"who":"test","barrier":7}`, l.lease)
		}, true},
	}
	for name, c := range cases {
		for _, with := range []commit.Kind{commit.Work, commit.Barrier} {
			t.Run(name, func(t *testing.T) {
				l := plain(t)
				l.submit(create(1, 0))
				if with == commit.Barrier {
					l.giveUp(l.flying[0])
				}
				c.act(l)
				l.settle()
				if !l.deposed || l.foreign != c.foreign || len(l.landed) != 0 {
					t.Errorf("deposed %v, foreign %v, landed %v", l.deposed, l.foreign, l.landed)
				}
				if l.c.Queued() != 0 {
					t.Errorf("%d ops are left", l.c.Queued())
				}
				l.submit(create(9, 3))
				if l.outcomes[9].Kind != allocator.Abandoned {
					t.Errorf("outside of a term: %+v", l.outcomes[9])
				}
			})
		}
	}
}

// A new term starts clean: answers of the old one change nothing.
func TestCommit_answersOfAnEndedTerm(t *testing.T) {
	l := plain(t)
	l.submit(create(1, 0))
	old := l.flying[0]
	l.land(old)
	l.c.EndTerm()
	_ = l.model.Revoke(l.lease)
	l.begin()
	l.answer(old)
	if len(l.outcomes) != 0 || l.deposed {
		t.Errorf("outcomes %+v, deposed %v", l.outcomes, l.deposed)
	}
	l.submit(create(2, 1))
	l.settle()
	if l.outcomes[2].Kind != allocator.Committed {
		t.Errorf("the new term: %+v", l.outcomes)
	}
}

// The store takes fewer ops than it is asked for: the limit is learned, nothing is lost.
func TestCommit_learnsTheStoresLimit(t *testing.T) {
	l := newLine(t, commit.DefaultConfig(), fake.Limits{Ops: 30})
	for i := range 60 {
		l.order = append(l.order, create(uint64(i+1), i))
		l.c.Submit(l.order[i])
	}
	l.pump()
	l.settle()
	for i := range 60 {
		if o := l.outcomes[uint64(i+1)]; o.Kind != allocator.Committed {
			t.Fatalf("op %d: %+v", i+1, o)
		}
	}
}

func TestCommit_tooLargeByItself(t *testing.T) {
	l := newLine(t, commit.DefaultConfig(), fake.Limits{Bytes: 200})
	l.submit(create(1, 0))
	l.settle()
	outcomes(t, l, allocator.Abandoned)
}

// Two ops that write one key, which no transaction can: one after the other.
func TestCommit_oneKeyInTwoOps(t *testing.T) {
	l := plain(t)
	a, b := create(1, 0), create(2, 1)
	b.Guards[0].Key, b.Writes[0].Key = a.Guards[0].Key, a.Writes[0].Key
	l.order = []allocator.Op{a, b}
	l.c.Submit(a)
	l.c.Submit(b)
	l.pump()
	l.settle()
	outcomes(t, l, allocator.Committed, allocator.Refused)
}
