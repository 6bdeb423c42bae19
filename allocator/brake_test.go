// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
)

// fleet makes nodes that each hold one reference, and returns their leases.
func (b *bench) fleet(count int) []int64 {
	b.t.Helper()
	leases := make([]int64, count)
	for i := range count {
		name := fmt.Sprintf("n%d", i)
		leases[i] = b.node(name)
		b.send1(allocator.AllocateRequest{Labels: set(b.t, fmt.Sprintf("k8s:on=%d", i)), Holder: name})
	}
	b.run()
	return leases
}

func (b *bench) lapse(leases []int64) {
	b.t.Helper()
	for _, l := range leases {
		if err := b.model.Revoke(l); err != nil {
			b.t.Fatal(err)
		}
	}
	b.run()
}

func (b *bench) references() uint64 { return b.core.Numbers().References }

func TestBrake_aThousandNodesThatLapseTogetherAreHeldBack(t *testing.T) {
	b := newBench(t)
	b.lapse(b.fleet(1000))
	b.pass(20 * time.Second)
	if n := b.references(); n != 1000 {
		t.Fatalf("%d of 1000 references are left: the brake did not hold", n)
	}
	if why := b.core.Brake(); !strings.Contains(why, "1000 of 1000 nodes") {
		t.Errorf("the brake says %q", why)
	}
	held := 0
	for _, k := range b.core.Candidates(2000) {
		if k.Kind == "node" && strings.HasPrefix(k.Why, "held back: ") {
			held++
		}
	}
	if held != 1000 {
		t.Errorf("the plan explains %d held nodes", held)
	}
	b.pass(25 * time.Second) // four graces: the absence is proven
	if n := b.references(); n != 0 {
		t.Errorf("%d references are left after four graces", n)
	}
}

func TestBrake_isReleasedByHandAndTakesHoldAgain(t *testing.T) {
	b := newBench(t)
	b.lapse(b.fleet(100))
	b.pass(20 * time.Second)
	if b.core.Brake() == "" || b.references() != 100 {
		t.Fatalf("brake %q, %d references", b.core.Brake(), b.references())
	}
	if r := b.ask(allocator.SweepRequest{ReleaseBrake: true}); r.Err != nil {
		t.Fatal(r.Err)
	}
	b.pass(3 * time.Second)
	if n := b.references(); n != 0 {
		t.Errorf("%d references are left after the release", n)
	}
	for i := range 100 { // the gone ones are forgotten, and a new fleet comes
		b.ask(allocator.ForgetRequest{Node: fmt.Sprintf("n%d", i)})
	}
	b.lapse(b.fleet(100))
	b.pass(20 * time.Second)
	if b.core.Brake() == "" || b.references() != 100 {
		t.Errorf("the second time: brake %q, %d references", b.core.Brake(), b.references())
	}
}

func TestBrake_smallClustersAndScaleDownsPass(t *testing.T) {
	for _, c := range []struct{ all, go_ int }{{5, 5}, {8, 8}, {100, 20}, {1000, 200}} {
		t.Run(fmt.Sprintf("%d of %d", c.go_, c.all), func(t *testing.T) {
			b := newBench(t)
			b.lapse(b.fleet(c.all)[:c.go_])
			b.pass(20 * time.Second)
			if n := b.references(); n != uint64(c.all-c.go_) || b.core.Brake() != "" {
				t.Errorf("%d references are left, brake %q", n, b.core.Brake())
			}
		})
	}
}

func TestBrake_identities(t *testing.T) {
	b := newBench(t)
	for i := range 3000 {
		b.send1(allocator.AllocateRequest{Labels: set(t, fmt.Sprintf("k8s:n=%d", i)), Holder: "pin-ann"})
	}
	b.run()
	for i := range 2000 {
		b.send1(allocator.ReleaseRequest{Labels: set(t, fmt.Sprintf("k8s:n=%d", i)), Holder: "pin-ann"})
	}
	b.run()
	b.pass(20 * time.Second)
	if n := b.core.Numbers(); n.Idle != 2000 || !strings.Contains(b.core.Brake(), "2000 of 3000 identities") {
		t.Fatalf("%+v, brake %q", n, b.core.Brake())
	}
	b.pass(25 * time.Second)
	if n := b.core.Numbers(); n.Idle != 0 {
		t.Errorf("after four graces: %+v", n)
	}
}

func TestPause_isStoredAndSurvivesAFailover(t *testing.T) {
	b := newBench(t)
	a := b.allocate("pin-ann", "k8s:app=web")
	if r := b.ask(allocator.PauseRequest{By: "ann", Reason: "looking into it"}); r.Err != nil {
		t.Fatal(r.Err)
	}
	b.release("pin-ann", a.Hold, "k8s:app=web")
	b.core.EndTerm()
	b.commit.EndTerm()
	if err := b.model.Revoke(b.lease); err != nil {
		t.Fatal(err)
	}
	b.lead()
	b.pass(time.Minute)
	if b.get(allocator.MasterKey(a.Identity.Number)) == nil {
		t.Fatal("collected while paused")
	}
	if s := b.core.SweepState(); s.Paused == nil || s.Paused.By != "ann" || !strings.Contains(s.Brake, "looking into it") {
		t.Errorf("state: %+v", s)
	}
	if r := b.ask(allocator.ResumeRequest{}); r.Err != nil {
		t.Fatal(r.Err)
	}
	b.pass(3 * time.Second)
	if b.get(allocator.MasterKey(a.Identity.Number)) != nil {
		t.Error("not collected after the pause")
	}
}

func TestStaleView_collectsNothing(t *testing.T) {
	b := newBench(t)
	a := b.allocate("pin-ann", "k8s:app=web")
	b.release("pin-ann", a.Hold, "k8s:app=web")
	b.core.SetView("the watch is silent")
	b.pass(30 * time.Second)
	if b.get(allocator.MasterKey(a.Identity.Number)) == nil {
		t.Fatal("collected on a stale view")
	}
	b.core.SetView("")
	b.pass(3 * time.Second)
	if b.get(allocator.MasterKey(a.Identity.Number)) != nil {
		t.Error("not collected afterwards")
	}
}
