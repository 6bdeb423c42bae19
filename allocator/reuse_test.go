// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

// few leaves so many numbers to hand out.
func few(n int) func(*allocator.Config) {
	return func(c *allocator.Config) { c.Max = c.Space.Min() + identity.Number(n) - 1 }
}

// outage ends the term and with it all that any operator knows; during it f
// happens. Then a cold leader begins.
func (b *bench) outage(change func(*allocator.Config), f func()) {
	b.t.Helper()
	cfg := testConfig(b.t)
	change(&cfg)
	if err := b.model.Revoke(b.lease); err != nil {
		b.t.Fatal(err)
	}
	f()
	b.core, b.commit = allocator.New(cfg), commit.New(commit.DefaultConfig())
	b.list()
	b.lead()
	b.pass(2 * time.Second)
}

// list brings the core the store as it stands, and nothing of how it came to be so.
func (b *bench) list() {
	b.t.Helper()
	r, err := b.model.Range(kvstore.RangeRequest{Key: "\x00", RangeEnd: "\x00"})
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
}

// simulator, seeds 333, 1606 and 1608: nobody saw the presence lapse, and the
// node held no reference that would tell of it.
func TestReuse_waitsForANodeThatLapsedWhileNobodyLed(t *testing.T) {
	b := newBenchWith(t, few(3))
	lease := b.node("n1")
	b.freeOne()
	b.outage(few(3), func() {
		if err := b.model.Revoke(lease); err != nil {
			t.Fatal(err)
		}
	})
	b.pass(2 * time.Minute)
	if r := b.tryNew(); r.Err == nil || r.Err.Code != allocator.Exhausted {
		t.Errorf("reused although n1 has not acknowledged: %+v", r)
	}
	if bl := b.core.Blockers(); len(bl) != 1 || bl[0].Node != "n1" || !bl[0].Gone {
		t.Errorf("blockers: %+v", bl)
	}
	if r := b.ask(allocator.ForgetRequest{Node: "n1"}); r.Err != nil {
		t.Fatal(r.Err)
	}
	if b.get(allocator.KnownKey("n1")) != nil {
		t.Error("the node is forgotten, and still known")
	}
	if r := b.tryNew(); r.Err != nil {
		t.Errorf("after it is forgotten: %v", r.Err)
	}
}

// simulator, seeds 268 and 1568: a leader that was stopped and deposed does not
// know what was allocated since.
func TestExhaustion_isNotSaidByADeposedLeader(t *testing.T) {
	b := newBenchWith(t, few(3))
	b.fillPool()
	if err := b.model.Revoke(b.lease); err != nil {
		t.Fatal(err)
	}
	id := b.send1(allocator.AllocateRequest{Labels: set(t, "k8s:app=new"), Holder: "pin-ann"})
	b.run()
	b.core.EndTerm()
	b.run()
	if r := b.replies[id]; r.Err == nil || r.Err.Code != allocator.Unavailable {
		t.Errorf("a deposed leader answered %+v", r)
	}
}

// simulator, seeds 239 and 1924: the master was deleted by hand while nobody led.
func TestSweep_removesAnIdleMarkWithoutMaster(t *testing.T) {
	b := newBench(t)
	a := b.allocate("pin-ann", "k8s:app=a")
	b.release("pin-ann", a.Hold, "k8s:app=a")
	b.pass(2 * time.Second)
	none := func(*allocator.Config) {}
	b.outage(none, func() { b.del(b.key(allocator.MasterKey(a.Identity.Number))) })
	b.pass(5 * time.Second)
	if b.get(allocator.IdleKey(a.Identity.Number)) != nil {
		t.Error("the mark still stands")
	}
}

// Label sets that come together take one freed number each, and none is refused
// since another was promised the same.
func TestReuse_oneNumberIsPromisedOnce(t *testing.T) {
	b := newBenchWith(t, few(20))
	for i := range 20 {
		l := fmt.Sprintf("k8s:app=old%d", i)
		a := b.allocate("pin-ann", l)
		b.release("pin-ann", a.Hold, l)
	}
	b.pass(2 * time.Minute)
	before := b.verbs[allocator.VerbCreate]
	var ids []uint64
	for i := range 20 {
		ids = append(ids, b.send1(allocator.AllocateRequest{Labels: set(t, fmt.Sprintf("k8s:app=new%d", i)), Holder: "pin-ann"}))
	}
	b.run()
	seen := map[identity.Number]bool{}
	for _, id := range ids {
		r := b.replies[id]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		seen[r.Value.(allocator.Allocation).Identity.Number] = true
	}
	if n := b.verbs[allocator.VerbCreate] - before; n != 20 || len(seen) != 20 {
		t.Errorf("%d creations for %d numbers", n, len(seen))
	}
}

// Max bounds what is handed out; what was handed out above it before stays good.
func TestMax_boundsNewNumbersOnly(t *testing.T) {
	b := newBench(t)
	old := b.allocate("pin-ann", "k8s:app=old")
	if old.Identity.Number < 260 {
		t.Fatal("choose another label set: this one starts too low")
	}
	b.outage(few(4), func() {})
	for i := range 4 {
		if n := b.allocate("pin-ann", fmt.Sprintf("k8s:app=a%d", i)).Identity.Number; n < 256 || n > 259 {
			t.Errorf("number %d was handed out", n)
		}
	}
	r := b.tryNew()
	if r.Err == nil || r.Err.Code != allocator.Exhausted || r.Err.Limit != 4 {
		t.Errorf("the fifth new label set: %+v", r)
	}
	if again := b.allocate("pin-bob", "k8s:app=old"); again.Identity.Number != old.Identity.Number {
		t.Errorf("the old label set went from %d to %d", old.Identity.Number, again.Identity.Number)
	}
	if n := b.core.Numbers(); n.Capacity != 4 || n.Live != 4 || n.Free != 0 {
		t.Errorf("%+v", n)
	}
	listed := 0
	b.core.Each(0, func(allocator.Identity) bool { listed++; return true })
	if listed != 5 {
		t.Errorf("%d numbers are listed, there are 5", listed)
	}
}
