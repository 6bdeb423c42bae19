// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"errors"
	"reflect"
	"testing"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
)

func testFence() commit.Fence { return commit.Fence{Lease: 0x1f, Epoch: 40, Mod: 44, Count: 2} }

func collectOp() allocator.Op {
	return allocator.Op{
		ID: 9, Verb: allocator.VerbCollect,
		Guards: []allocator.Guard{
			{Kind: allocator.GuardRevision, Key: allocator.MasterKey(256), Revision: 41},
			{Kind: allocator.GuardEmpty, Key: allocator.ReferenceKey("k8s:a=b;", "")},
			{Kind: allocator.GuardValue, Key: allocator.IdleKey(256), Value: allocator.Mark{}},
			{Kind: allocator.GuardPresent, Key: allocator.IdleKey(256)},
			{Kind: allocator.GuardAbsent, Key: allocator.PresenceKey("n1")},
			{Kind: allocator.GuardEmpty, Key: allocator.Key{Kind: allocator.KindNumberLock, Number: 256}},
		},
		Writes: []allocator.Write{
			{Key: allocator.MasterKey(256)},
			{Key: allocator.TombstoneKey(256), Value: allocator.Tombstone{Labels: "k8s:a=b;", Quarantine: allocator.QuarantinePending}},
		},
	}
}

func TestEncodeWork(t *testing.T) {
	l := newTestLayout(t)
	txn, err := l.Encode(commit.Transaction{ID: 1, Kind: commit.Work, Fence: testFence(), Ops: []allocator.Op{collectOp()}}, allocator.Candidate{})
	if err != nil {
		t.Fatal(err)
	}
	const (
		election = "signet/v1/default/election/"
		master   = "cilium/state/identities/v1/id/256"
		refs     = "cilium/state/identities/v1/value/k8s:a=b;/"
		idle     = "signet/v1/default/idle/256"
		node     = "signet/v1/default/nodes/n1"
		locks    = "cilium/state/identities/v1/locks/id/256/"
		tomb     = "signet/v1/default/tombstones/256"
	)
	want := Txn{
		If: []Compare{
			{Key: election + "1f", Target: CompareMod, Op: '=', Revision: 44},
			{Key: election, RangeEnd: PrefixEnd(election), Target: CompareCreate, Op: '>', Revision: 39},
			{Key: master, Target: CompareMod, Op: '=', Revision: 41},
			{Key: refs, RangeEnd: PrefixEnd(refs), Target: CompareCreate, Op: '='},
			{Key: idle, Target: CompareValue, Op: '=', Value: []byte(`{"since":{"revision":0,"served_s":0}}`)},
			{Key: idle, Target: CompareCreate, Op: '>'},
			{Key: node, Target: CompareCreate, Op: '='},
			{Key: locks, RangeEnd: PrefixEnd(locks), Target: CompareCreate, Op: '='},
		},
		Then: []Action{
			{Delete: true, Key: master},
			{Put: true, Key: tomb, Value: []byte(`{"labels":"k8s:a=b;","born":{"revision":0,"served_s":0},"freed":{"revision":0,"served_s":0},"quarantine":"pending"}`)},
		},
		Else: []Action{
			{Key: election, RangeEnd: PrefixEnd(election)},
			{Key: master},
			{Key: refs, RangeEnd: PrefixEnd(refs), Limit: 1},
			{Key: idle},
			{Key: node},
			{Key: locks, RangeEnd: PrefixEnd(locks), Limit: 1},
			{Key: tomb},
		},
	}
	if !reflect.DeepEqual(txn, want) {
		t.Errorf("Encode:\n%+v, want\n%+v", txn, want)
	}
}

func TestEncodeBarrierRepeatsTheSameBytes(t *testing.T) {
	l := newTestLayout(t)
	barrier := commit.Transaction{ID: 1, Kind: commit.Barrier, Fence: testFence()}
	who := allocator.Candidate{Who: "op-1", Barrier: 77, TTLS: 5}
	one, err := l.Encode(barrier, who)
	if err != nil {
		t.Fatal(err)
	}
	two, err := l.Encode(barrier, who)
	if err != nil || !reflect.DeepEqual(one, two) {
		t.Errorf("two encodings differ: %+v, %+v, %v", one, two, err)
	}
	put := one.Then[0]
	if put.Lease != 0x1f || string(put.Value) != `{"who":"op-1","address":"","version":"","ttl_s":5,"barrier":3}` {
		t.Errorf("the barrier writes %+v %s", put, put.Value)
	}
	if len(one.If) != 1 || one.If[0].Target != CompareMod || one.If[0].Revision != 44 {
		t.Errorf("the barrier compares %+v", one.If)
	}
}

func TestEncodeRefuses(t *testing.T) {
	l := newTestLayout(t)
	write := func(w ...allocator.Write) allocator.Op { return allocator.Op{ID: 7, Writes: w} }
	guard := func(g allocator.Guard) allocator.Op { return allocator.Op{ID: 7, Guards: []allocator.Guard{g}} }
	for name, op := range map[string]allocator.Op{
		"a key that cannot be spelled": write(allocator.Write{Key: allocator.ReferenceKey("k8s:a=x//y;", "n"), Value: allocator.NumberValue(5)}),
		"a value of another kind":      write(allocator.Write{Key: allocator.MasterKey(5), Value: allocator.NumberValue(5)}),
		"one key twice":                write(allocator.Write{Key: allocator.MasterKey(5)}, allocator.Write{Key: allocator.MasterKey(5), Value: allocator.LabelSet("k8s:a=b;")}),
		"a guard without a kind":       guard(allocator.Guard{Key: allocator.MasterKey(5)}),
		"a guard without a value":      guard(allocator.Guard{Kind: allocator.GuardValue, Key: allocator.MasterKey(5)}),
		"an empty prefix of a master":  guard(allocator.Guard{Kind: allocator.GuardEmpty, Key: allocator.MasterKey(5)}),
	} {
		var want *TxnError
		_, err := l.Encode(commit.Transaction{Kind: commit.Work, Fence: testFence(), Ops: []allocator.Op{collectOp(), op}}, allocator.Candidate{})
		if !errors.As(err, &want) || want.Op != 7 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.Encode(commit.Transaction{}, allocator.Candidate{}); err == nil {
		t.Error("a transaction without a kind is encoded")
	}
}

func TestAnswerRefusesWhatDoesNotFit(t *testing.T) {
	l := newTestLayout(t)
	work := commit.Transaction{ID: 3, Kind: commit.Work, Fence: testFence(), Ops: []allocator.Op{collectOp()}}
	for name, r := range map[string]TxnResult{
		"no read":        {},
		"too few reads":  {Reads: make([][]KV, 2)},
		"too many reads": {Reads: make([][]KV, 9)},
	} {
		if got, err := l.Answer(work, r); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	r, err := l.Answer(commit.Transaction{ID: 3, Kind: commit.Barrier, Fence: testFence()}, TxnResult{Revision: 50, Reads: [][]KV{{
		{Key: l.ElectionKey(0x1f), Value: []byte("{"), CreateRevision: 40, ModRevision: 45},
		{Key: l.Election() + "zz", Value: []byte("x"), CreateRevision: 12, ModRevision: 12},
	}}})
	want := commit.Result{ID: 3, Revision: 50, Oldest: 12, Own: commit.OwnKey{Present: true, CreateRevision: 40, ModRevision: 45}}
	if err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("malformed candidates: %+v, %v; want %+v", r, err, want)
	}
}

func TestCostBoundsTheTransaction(t *testing.T) {
	l := newTestLayout(t)
	ops := []allocator.Op{
		collectOp(),
		{Guards: []allocator.Guard{{Kind: allocator.GuardPresent, Key: allocator.PresenceKey("n1")}}},
		{Writes: []allocator.Write{{Key: allocator.ReferenceKey("k8s:a=b;", "n2"), Value: allocator.NumberValue(3)}}},
	}
	var sum Cost
	for _, op := range ops {
		c := l.Cost(op)
		sum = Cost{sum.Compares + c.Compares, sum.Writes + c.Writes, sum.Reads + c.Reads, sum.Bytes + c.Bytes}
	}
	txn, err := l.Encode(commit.Transaction{Kind: commit.Work, Fence: testFence(), Ops: ops}, allocator.Candidate{})
	if err != nil {
		t.Fatal(err)
	}
	if len(txn.If) != sum.Compares+FenceCompares || len(txn.Then) != sum.Writes || len(txn.Else) > sum.Reads+FenceReads {
		t.Errorf("%d compares, %d writes, %d reads; cost %+v", len(txn.If), len(txn.Then), len(txn.Else), sum)
	}
	bytes := 0
	for _, c := range txn.If[FenceCompares:] {
		bytes += len(c.Key) + len(c.RangeEnd) + len(c.Value)
	}
	for _, a := range append(txn.Then, txn.Else[FenceReads:]...) {
		bytes += len(a.Key) + len(a.RangeEnd) + len(a.Value)
	}
	if sum.Bytes < bytes {
		t.Errorf("%d bytes, cost %d", bytes, sum.Bytes)
	}
}
