// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
)

// Text that cannot be read is no master, yet its number is taken: a new label
// set goes past it.
func TestAllocate_goesPastAMalformedMaster(t *testing.T) {
	b := newBench(t)
	start := identity.Start(testConfig(t).Space, "k8s:app=web;")
	b.put(b.key(allocator.MasterKey(start)), "no label set", 0)
	b.run()
	if a := b.allocate("pin-ann", "k8s:app=web"); a.Identity.Number != start+1 {
		t.Errorf("number %d, the one after %d is free", a.Identity.Number, start)
	}
	if kv := b.get(allocator.MasterKey(start)); kv == nil || string(kv.Value) != "no label set" {
		t.Errorf("the malformed master: %+v", kv)
	}
}

// A key under a label set's references whose holder is missing blocks the idle
// mark, and nothing worse.
func TestMarkIdle_survivesAReferenceWithoutAHolder(t *testing.T) {
	b := newBench(t)
	a := b.allocate("pin-ann", "k8s:app=web")
	bad := b.layout.References() + "k8s:app=web;/"
	b.put(bad, "300", 0)
	b.send1(allocator.ReleaseRequest{Labels: set(t, "k8s:app=web"), Holder: "pin-ann", Hold: a.Hold})
	b.run()
	if b.get(allocator.ReferenceKey("k8s:app=web;", "pin-ann")) != nil {
		t.Error("not released")
	}
	b.del(bad)
	b.pass(3 * time.Second)
	if b.get(allocator.IdleKey(a.Identity.Number)) == nil {
		t.Error("no idle mark although the key is gone")
	}
}

// A master that is deleted by hand while it is idle leaves no idle mark behind.
func TestBury_takesTheIdleMarkAlong(t *testing.T) {
	b := newBench(t)
	a := b.allocate("pin-ann", "k8s:app=web")
	b.release("pin-ann", a.Hold, "k8s:app=web")
	b.del(b.key(allocator.MasterKey(a.Identity.Number)))
	b.run()
	if b.get(allocator.TombstoneKey(a.Identity.Number)) == nil {
		t.Error("no tombstone")
	}
	if kv := b.get(allocator.IdleKey(a.Identity.Number)); kv != nil {
		t.Errorf("the idle mark stays: %+v", kv)
	}
}
