// SPDX-License-Identifier: Apache-2.0

package commit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
)

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// line is a committer in a term on a modelled store, and what is between them.
type line struct {
	t        tester
	c        *commit.Committer
	layout   kvstore.Layout
	model    *fake.Model
	lease    int64
	flying   []*flight // sent, and the committer awaits the answer
	lost     []*flight // the committer was told "unknown"; it may still land
	outcomes map[uint64]allocator.Outcome
	landed   map[uint64]int64 // ops whose writes are in the store, and since when
	order    []allocator.Op   // as submitted
	sent     []commit.Transaction
	deposed  bool
	foreign  bool
}

type flight struct {
	tx     commit.Transaction
	landed bool
	result commit.Result
}

func newLine(t tester, cfg commit.Config, limits fake.Limits) *line {
	layout, err := kvstore.NewLayout("", "default")
	if err != nil {
		t.Fatalf("%v", err)
	}
	l := &line{t: t, c: commit.New(cfg), layout: layout, model: fake.NewModel(limits, 1),
		outcomes: map[uint64]allocator.Outcome{}, landed: map[uint64]int64{}}
	l.begin()
	return l
}

// begin puts an election key and begins a term.
func (l *line) begin() {
	l.t.Helper()
	lease, err := l.model.Grant(time.Hour, 0)
	if err != nil {
		l.t.Fatalf("%v", err)
	}
	l.lease = lease
	rev := l.put(l.layout.ElectionKey(lease), `{"who":"test"}`, lease)
	l.c.BeginTerm(commit.Fence{Lease: lease, Epoch: rev, Mod: rev})
}

func (l *line) put(key, value string, lease int64) int64 {
	l.t.Helper()
	r, err := l.model.Txn(kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: key, Value: []byte(value), Lease: lease}}})
	if err != nil {
		l.t.Fatalf("%v", err)
	}
	return r.Revision
}

func (l *line) submit(ops ...allocator.Op) {
	for _, op := range ops {
		l.order = append(l.order, op)
		l.c.Submit(op)
	}
	l.pump()
}

// pump takes what the committer has to say, and checks what may be in flight.
func (l *line) pump() {
	l.t.Helper()
	for {
		r := l.c.Ready()
		for _, o := range r.Outcomes {
			l.outcome(o)
		}
		l.deposed, l.foreign = l.deposed || r.Deposed, l.foreign || r.Foreign
		for _, tx := range r.Send {
			l.check(tx)
			l.sent = append(l.sent, tx)
			l.flying = append(l.flying, &flight{tx: tx})
		}
		if len(r.Send)+len(r.Outcomes) == 0 {
			return
		}
	}
}

// outcome is the truth test: what the core is told is what the store holds.
func (l *line) outcome(o allocator.Outcome) {
	l.t.Helper()
	if before, twice := l.outcomes[o.Op]; twice {
		l.t.Fatalf("op %d has two outcomes: %v and %v", o.Op, before.Kind, o.Kind)
	}
	l.outcomes[o.Op] = o
	rev, landed := l.landed[o.Op]
	switch {
	case o.Kind == allocator.Refused && landed:
		l.t.Fatalf("op %d is refused, and landed at %d", o.Op, rev)
	case o.Kind == allocator.Committed && landed && o.Revision != rev:
		l.t.Fatalf("op %d is committed at %d, and landed at %d", o.Op, o.Revision, rev)
	case o.Kind == allocator.Committed && !landed && len(l.op(o.Op).Writes) > 0:
		l.t.Fatalf("op %d is committed, and never landed", o.Op)
	}
}

func (l *line) op(id uint64) allocator.Op {
	for _, op := range l.order {
		if op.ID == id {
			return op
		}
	}
	l.t.Fatalf("op %d was never submitted", id)
	return allocator.Op{}
}

// check judges a transaction that is about to be sent.
func (l *line) check(tx commit.Transaction) {
	l.t.Helper()
	unknown := 0
	for _, f := range l.lost {
		for _, op := range f.tx.Ops {
			if _, known := l.outcomes[op.ID]; !known && f.tx.Fence.Epoch == tx.Fence.Epoch {
				unknown++
			}
		}
	}
	if unknown > 0 && tx.Kind == commit.Work {
		l.t.Fatalf("work is sent while %d ops are unknown: %+v", unknown, tx)
	}
	if tx.Kind != commit.Work {
		return
	}
	touched := map[allocator.Touched]uint64{}
	for _, f := range l.flying {
		for _, op := range f.tx.Ops {
			for _, x := range op.Touches() {
				touched[x] = f.tx.ID
			}
		}
	}
	for _, op := range tx.Ops {
		for _, x := range op.Touches() {
			if other := touched[x]; other != 0 {
				l.t.Fatalf("transactions %d and %d in flight both touch %+v", other, tx.ID, x)
			}
		}
	}
	txn := l.encode(tx)
	if n := max(len(txn.If), len(txn.Then), len(txn.Else)); n > kvstore.MaxTxnOps {
		l.t.Fatalf("a transaction of %d ops has %d elements", len(tx.Ops), n)
	}
}

func (l *line) encode(tx commit.Transaction) kvstore.Txn {
	l.t.Helper()
	txn, err := l.layout.Encode(tx, allocator.Candidate{Who: "test"})
	if err != nil {
		l.t.Fatalf("%v", err)
	}
	return txn
}

// land lets a transaction reach the store; a barrier that lands again is its repetition.
func (l *line) land(f *flight) {
	l.t.Helper()
	r, err := l.model.Txn(l.encode(f.tx))
	if err == kvstore.ErrTooLarge {
		f.landed, f.result = true, commit.Result{ID: f.tx.ID, TooLarge: true}
		return
	}
	if err != nil {
		l.t.Fatalf("%v", err)
	}
	if r.Succeeded && f.tx.Kind == commit.Work {
		for _, op := range f.tx.Ops {
			if o, told := l.outcomes[op.ID]; told && o.Kind != allocator.Abandoned {
				l.t.Fatalf("op %d landed after it was %v", op.ID, o.Kind)
			}
			l.landed[op.ID] = r.Revision
		}
	}
	f.landed = true
	if f.result, err = l.layout.Answer(f.tx, r); err != nil {
		l.t.Fatalf("%v", err)
	}
}

// answer gives the committer the answer to a transaction that has landed.
func (l *line) answer(f *flight) {
	l.drop(f)
	l.c.Result(f.result)
	l.pump()
}

// giveUp tells the committer that no answer came.
func (l *line) giveUp(f *flight) {
	l.drop(f)
	l.lost = append(l.lost, f)
	l.c.Result(commit.Result{ID: f.tx.ID, Unknown: true})
	l.pump()
}

func (l *line) drop(f *flight) {
	for i, o := range l.flying {
		if o == f {
			l.flying = append(l.flying[:i:i], l.flying[i+1:]...)
		}
	}
}

// settle answers everything, in order, until nothing is in flight.
func (l *line) settle() {
	l.t.Helper()
	for round := 0; len(l.flying) > 0; round++ {
		if round > 10_000 {
			l.t.Fatalf("the committer does not come to rest")
		}
		f := l.flying[0]
		if !f.landed {
			l.land(f)
		}
		l.answer(f)
	}
}

func (l *line) kinds() string {
	var out []string
	for _, tx := range l.sent {
		out = append(out, [...]string{"", "work", "barrier", "settle"}[tx.Kind])
	}
	return strings.Join(out, " ")
}

func text(i int) string { return fmt.Sprintf("k8s:app=a%d;", i) }

// create is an op that succeeds once: a master and a first reference.
func create(id uint64, i int) allocator.Op {
	n := allocator.MasterKey(number(i))
	ref := allocator.ReferenceKey(text(i), fmt.Sprintf("pin-%d", i))
	return allocator.Op{ID: id, Verb: allocator.VerbCreate,
		Guards: []allocator.Guard{{Kind: allocator.GuardAbsent, Key: n}, {Kind: allocator.GuardAbsent, Key: ref}},
		Writes: []allocator.Write{{Key: n, Value: allocator.LabelSet(text(i))}, {Key: ref, Value: allocator.NumberValue(number(i))}}}
}

func outcomes(t *testing.T, l *line, want ...allocator.OutcomeKind) {
	t.Helper()
	for i, kind := range want {
		if got := l.outcomes[uint64(i+1)]; got.Kind != kind {
			t.Errorf("op %d is %v, expected is %v", i+1, got.Kind, kind)
		}
	}
	if len(l.outcomes) != len(want) {
		t.Errorf("%d outcomes for %d ops", len(l.outcomes), len(want))
	}
}
