// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
)

// heldBy is what a node knows of its references: what it would announce.
func (b *bench) heldBy(node string) allocator.HelloRequest {
	b.t.Helper()
	r := b.ask(allocator.HelloRequest{Node: node, Instance: "i-" + node, Position: b.core.Position()})
	if r.Err != nil {
		b.t.Fatal(r.Err)
	}
	w := r.Value.(allocator.Welcome)
	return allocator.HelloRequest{Node: node, Instance: "i-" + node, Position: w.Position, Pairs: w.Holds, Complete: true}
}

// replace puts another store in place, under a core that followed the old one
// (warm) or a new one, and lets it lead.
func (b *bench) replace(m *fake.Model, warm bool, change func(*allocator.Config)) {
	b.t.Helper()
	b.core.EndTerm()
	b.commit.EndTerm()
	_ = m.Revoke(b.lease) // the old leader's key lapses, if the copy has it
	b.model = m
	if !warm {
		cfg := testConfig(b.t)
		change(&cfg)
		b.core = allocator.New(cfg)
	}
	r, err := m.Range(kvstore.RangeRequest{Key: "\x00", RangeEnd: "\x00"})
	if err != nil {
		b.t.Fatal(err)
	}
	list := kvstore.MirrorBatch{Revision: r.Revision, Reset: true}
	for _, kv := range r.KVs {
		list.Events = append(list.Events, kvstore.Event{KV: kv})
	}
	batch, _ := kvstore.DecodeBatch(b.layout, list)
	b.core.Apply(batch)
	b.seen = r.Revision
	lease, err := b.model.Grant(time.Hour, b.now)
	if err != nil {
		b.t.Fatal(err)
	}
	b.lease = lease
	key := b.layout.ElectionKey(lease)
	put, err := b.model.Txn(kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: key, Value: []byte(`{"who":"test"}`), Lease: lease}}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.commit.BeginTerm(kvstoreFence(lease, put.Revision))
	if warm {
		b.core.BeginTerm(b.now, kvstore.LeaseName(lease)+"-again")
	} else {
		b.core.BeginColdTerm(b.now, kvstore.LeaseName(lease)+"-cold")
	}
	b.run()
}

// history makes a cluster of two nodes with ten sets each, five of them shared.
func (b *bench) history() (map[string]identity.Number, []allocator.HelloRequest) {
	b.t.Helper()
	b.node("n1")
	b.node("n2")
	numbers := map[string]identity.Number{}
	for i := range 15 {
		l := fmt.Sprintf("k8s:n=%d", i)
		if i < 10 {
			numbers[l+";"] = b.allocate("n1", l).Identity.Number
		}
		if i >= 5 {
			numbers[l+";"] = b.allocate("n2", l).Identity.Number
		}
	}
	return numbers, []allocator.HelloRequest{b.heldBy("n1"), b.heldBy("n2")}
}

func (b *bench) judgeNumbers(want map[string]identity.Number) {
	b.t.Helper()
	for text, n := range want {
		if kv := b.get(allocator.MasterKey(n)); kv == nil || string(kv.Value) != text {
			b.t.Errorf("%s had number %d: %+v", text, n, kv)
		}
	}
}

func (b *bench) returns(hellos []allocator.HelloRequest) {
	b.t.Helper()
	for _, h := range hellos {
		b.node(h.Node)
		r := b.ask(h)
		if r.Err != nil {
			b.t.Fatal(r.Err)
		}
		w := r.Value.(allocator.Welcome)
		if !w.Recovery || len(w.Holds) != len(h.Pairs) {
			b.t.Errorf("%s announced %d pairs and was welcomed with %d, recovery %v", h.Node, len(h.Pairs), len(w.Holds), w.Recovery)
		}
	}
}

func TestRecovery_wipedStoreIsRebuiltWithTheSameNumbers(t *testing.T) {
	for _, warm := range []bool{true, false} {
		t.Run(fmt.Sprintf("warm %v", warm), func(t *testing.T) {
			b := newBench(t)
			numbers, hellos := b.history()
			b.replace(fake.NewModel(fake.Limits{}, 2), warm, func(c *allocator.Config) { c.NewCluster = false })
			r := b.ask(allocator.AllocateRequest{Labels: set(t, "k8s:brand=new"), Holder: "pin-ann"})
			if r.Err == nil || r.Err.Code != allocator.Unavailable || r.Err.Retry == 0 {
				t.Fatalf("a new set in the window: %+v", r)
			}
			b.returns(hellos)
			b.judgeNumbers(numbers)
			b.pass(30 * time.Second)
			if b.get(allocator.RecoveryKey()) != nil {
				t.Error("the window stays open")
			}
			b.judgeNumbers(numbers)
			a := b.allocate("pin-ann", "k8s:brand=new")
			for text, n := range numbers {
				if n == a.Identity.Number {
					t.Errorf("the new set got the number of %s", text)
				}
			}
		})
	}
}

func TestRecovery_olderCopyIsRecognised(t *testing.T) {
	for _, bump := range []int64{0, 1_000_000} {
		t.Run(fmt.Sprintf("revision bumped by %d", bump), func(t *testing.T) {
			b := newBench(t)
			b.pass(3 * time.Second)
			old := b.model.Revision()
			copyOf, err := b.model.Restore(old, bump, b.now)
			if err != nil {
				t.Fatal(err)
			}
			b.pass(3 * time.Second)
			numbers, hellos := b.history()
			b.replace(copyOf, true, nil)
			if b.get(allocator.RecoveryKey()) == nil {
				t.Fatal("no window was opened")
			}
			b.returns(hellos)
			b.judgeNumbers(numbers)
		})
	}
}

func TestRecovery_coldLeaderLearnsItFromTheNodes(t *testing.T) {
	b := newBench(t)
	b.node("n1")
	b.pass(2 * time.Second)
	copyOf, err := b.model.Restore(b.model.Revision(), 0, b.now)
	if err != nil {
		t.Fatal(err)
	}
	n := b.allocate("n1", "k8s:app=web").Identity.Number
	b.pass(3 * time.Second)
	hello := b.heldBy("n1")
	b.replace(copyOf, false, func(*allocator.Config) {})
	r := b.ask(allocator.AllocateRequest{Labels: set(t, "k8s:brand=new"), Holder: "pin-ann"})
	if r.Err == nil || r.Err.Field != "cold" {
		t.Fatalf("a cold leader gave a number before the nodes had spoken: %+v", r)
	}
	b.returns([]allocator.HelloRequest{hello})
	b.judgeNumbers(map[string]identity.Number{"k8s:app=web;": n})
}

func TestRecovery_laterClaimWinsAndTheLoserMoves(t *testing.T) {
	b := newBench(t)
	b.node("n1")
	b.node("n2")
	a := b.allocate("n1", "k8s:app=old")
	n := a.Identity.Number
	b.pass(2 * time.Second)
	copyOf, err := b.model.Restore(b.model.Revision(), 0, b.now) // here n is old's
	if err != nil {
		t.Fatal(err)
	}
	lost := b.core.Position().Counter + 5
	b.pass(10 * time.Second)
	hello := b.heldBy("n2")
	hello.Pairs = []allocator.HeldPair{{Labels: "k8s:app=young;", Number: n, Hold: 9, CreateRevision: 99, Counter: lost}}
	b.replace(copyOf, true, nil)
	b.returns([]allocator.HelloRequest{hello})
	if kv := b.get(allocator.MasterKey(n)); kv == nil || string(kv.Value) != "k8s:app=young;" {
		t.Fatalf("number %d: %+v; the later claim has to win", n, kv)
	}
	moved, ok := b.core.ByLabels("k8s:app=old;")
	if !ok || moved.Number == n || len(moved.Holders) != 1 {
		t.Errorf("the loser: %+v", moved)
	}
	if c := b.core.Conflicts(); len(c) != 1 || c[0].Winner != "k8s:app=young;" {
		t.Errorf("conflicts: %+v", c)
	}
}

func TestRecovery_earlierClaimLoses(t *testing.T) {
	b := newBench(t)
	b.node("n1")
	b.node("n2")
	n := b.allocate("n1", "k8s:app=old").Identity.Number
	hello := b.heldBy("n2")
	hello.Pairs = []allocator.HeldPair{{Labels: "k8s:app=stale;", Number: n, Hold: 9, CreateRevision: 1, Counter: 1}}
	b.pass(2 * time.Second)
	copyOf, err := b.model.Restore(b.model.Revision(), 0, b.now)
	if err != nil {
		t.Fatal(err)
	}
	b.pass(10 * time.Second)
	hello.Position = b.core.Position()
	b.replace(copyOf, true, nil)
	b.returns([]allocator.HelloRequest{hello})
	if kv := b.get(allocator.MasterKey(n)); kv == nil || string(kv.Value) != "k8s:app=old;" {
		t.Errorf("number %d: %+v", n, kv)
	}
	if id, ok := b.core.ByLabels("k8s:app=stale;"); !ok || id.Number == n {
		t.Errorf("the loser: %+v", id)
	}
}

func TestRecovery_nothingIsCollectedInTheWindow(t *testing.T) {
	b := newBench(t)
	numbers, hellos := b.history()
	b.pass(2 * time.Second)
	copyOf, err := b.model.Restore(b.model.Revision(), 0, b.now)
	if err != nil {
		t.Fatal(err)
	}
	b.pass(3 * time.Second)
	b.replace(copyOf, true, nil)
	for range 20 { // somebody says hello every few seconds: the window stays, ten TTLs at most
		b.pass(2 * time.Second)
	}
	b.judgeNumbers(numbers)
	b.returns(hellos[:0])
}

func TestRecovery_lostLineageStartsNoClockAnew(t *testing.T) {
	b := newBench(t)
	a := b.allocate("pin-ann", "k8s:app=web")
	b.pass(10 * time.Minute)
	b.release("pin-ann", a.Hold, "k8s:app=web")
	b.pass(3 * time.Second)
	if b.get(allocator.IdleKey(a.Identity.Number)) == nil {
		t.Fatal("the identity is not marked idle")
	}
	b.del(b.key(allocator.LineageKey()))
	b.pass(time.Minute)
	if b.get(allocator.MasterKey(a.Identity.Number)) != nil {
		t.Error("an idle mark outlived its grace: the served time went back behind it")
	}
}

// TestRecovery_olderCopyOfTheSameCounter: the copy was made and lost between two
// rewrites of the lineage, so the counter says nothing; the revision does.
func TestRecovery_olderCopyOfTheSameCounter(t *testing.T) {
	b := newBench(t)
	b.node("n1")
	copyOf, err := b.model.Restore(b.model.Revision(), 0, b.now)
	if err != nil {
		t.Fatal(err)
	}
	n := b.allocate("n1", "k8s:app=web").Identity.Number
	for i := range 5 { // the old leader's lapse is a revision of the copy's own
		b.allocate("n1", fmt.Sprintf("k8s:n=%d", i))
	}
	hello := b.heldBy("n1")
	b.replace(copyOf, true, nil)
	if b.get(allocator.RecoveryKey()) == nil {
		t.Fatal("no window was opened")
	}
	b.returns([]allocator.HelloRequest{hello})
	b.judgeNumbers(map[string]identity.Number{"k8s:app=web;": n})
}
