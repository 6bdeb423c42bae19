// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/signet-identity/signet/allocator"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

func watchEvents(web, db allocator.Identity) []allocator.WatchEvent {
	return []allocator.WatchEvent{
		{Kind: allocator.WatchReset}, {Kind: allocator.WatchUpsert, Identity: web}, {Kind: allocator.WatchUpsert, Identity: db},
		{Kind: allocator.WatchCurrent}, {Kind: allocator.WatchDelete, Identity: db}, {Kind: allocator.WatchDelete, Identity: web},
		{Kind: allocator.WatchCurrent},
	}
}

func pair(t *testing.T) (leader, follower *replica) {
	t.Helper()
	n := newNetwork()
	leader, follower = n.start(t, "leader"), n.start(t, "follower")
	follower.set(func(m *memory) { m.self, m.leader = false, "leader" })
	return leader, follower
}

func TestFollowerForwardsWritesAndServesReads(t *testing.T) {
	leader, follower := pair(t)
	ctx := testContext(t)
	a, err := follower.identity.Allocate(ctx, allocateReq("node-a", "k8s:app=web"))
	if err != nil || a.GetIdentity().GetNumber() == 0 {
		t.Fatalf("Allocate at the follower: %v, %v", a, err)
	}
	n := uint64(a.GetIdentity().GetNumber())
	if _, err := follower.identity.GetIdentity(ctx, &signetv1.GetIdentityRequest{Number: &n}); status.Code(err) != codes.NotFound {
		t.Errorf("a plain read is the follower's own, got %v", err)
	}
	if _, err := follower.identity.GetIdentity(ctx, &signetv1.GetIdentityRequest{Number: &n, Linearizable: true}); err != nil {
		t.Errorf("a linearizable read is the leader's, got %v", err)
	}
	if _, err := follower.identity.BatchAllocate(ctx, &signetv1.BatchAllocateRequest{Items: []*signetv1.AllocateRequest{allocateReq("b", "k8s:app=db")}}); err != nil {
		t.Error(err)
	}
	if _, err := follower.identity.Release(ctx, &signetv1.ReleaseRequest{Holder: "node-a", Labels: []string{"k8s:app=web"}, Hold: a.GetHold()}); err != nil {
		t.Error(err)
	}
	if _, err := follower.node.PublishEndpoints(ctx, &signetv1.PublishEndpointsRequest{Node: "node-a", Withdraw: []string{"10.0.0.1"}}); err != nil {
		t.Error(err)
	}
	if _, err := follower.node.Leave(ctx, &signetv1.LeaveRequest{Node: "node-a"}); err != nil {
		t.Error(err)
	}
	if _, err := follower.node.Forget(ctx, &signetv1.ForgetRequest{Node: "unknown"}); read(err).reason != "NOT_FOUND" {
		t.Errorf("the leader's refusal keeps its details, got %v", err)
	}
	if was, err := follower.admin.StepDown(ctx, &signetv1.StepDownRequest{}); err != nil || was.GetWasLeader() != "replica-1" {
		t.Errorf("StepDown: %v, %v", was, err)
	}
	for _, call := range []string{"allocate", "release", "publish", "leave", "forget", "stepdown"} {
		if leader.count(call) == 0 || follower.count(call) != 0 {
			t.Errorf("%s: %d at the leader, %d at the follower", call, leader.count(call), follower.count(call))
		}
	}
}

func TestForwardingStopsAfterOneHop(t *testing.T) {
	n := newNetwork()
	one, two := n.start(t, "one"), n.start(t, "two")
	one.set(func(m *memory) { m.self, m.leader = false, "two" })
	two.set(func(m *memory) { m.self, m.leader = false, "one" })
	_, err := one.identity.Allocate(testContext(t), allocateReq("a", "k8s:a=b"))
	if got := read(err); got.code != codes.Unavailable || got.reason != "FORWARDED_TWICE" || got.retry == 0 {
		t.Errorf("two followers that take each other for the leader: %+v", got)
	}
	if one.count("allocate")+two.count("allocate") != 0 {
		t.Error("a call without a leader reached a backend")
	}
}

func TestWithoutALeader(t *testing.T) {
	r := start(t)
	for _, leader := range []string{"", "nowhere"} {
		r.set(func(m *memory) { m.self, m.leader = false, leader })
		_, err := r.identity.Allocate(testContext(t), allocateReq("a", "k8s:a=b"))
		if got := read(err); got.code != codes.Unavailable || got.reason != "NO_LEADER" || got.retry == 0 {
			t.Errorf("leader %q: %v", leader, err)
		}
		s, err := r.node.Session(testContext(t))
		if err == nil {
			_, err = s.Recv()
		}
		if got := read(err); got.code != codes.Unavailable || got.reason != "NO_LEADER" {
			t.Errorf("session, leader %q: %v", leader, err)
		}
	}
}

func TestFollowerFindsTheNextLeader(t *testing.T) {
	n := newNetwork()
	a, b, f := n.start(t, "a"), n.start(t, "b"), n.start(t, "f")
	for _, leader := range []string{"a", "b", "a"} {
		f.set(func(m *memory) { m.self, m.leader = false, leader })
		if _, err := f.identity.Allocate(testContext(t), allocateReq("x", "k8s:a=b")); err != nil {
			t.Errorf("leader %s: %v", leader, err)
		}
	}
	if a.count("allocate") != 2 || b.count("allocate") != 1 {
		t.Errorf("a has %d calls and b %d", a.count("allocate"), b.count("allocate"))
	}
}

func TestForwardedRoleIsKept(t *testing.T) {
	r := start(t)
	as := func(role, name string) error {
		ctx := metadata.AppendToOutgoingContext(testContext(t), "signet-forwarded", "1",
			"signet-caller-name-bin", name, "signet-caller-role-bin", role)
		_, err := r.identity.Allocate(ctx, allocateReq("node-a", "k8s:a=b"))
		return err
	}
	if err := as("signet:node", "node-a"); err != nil {
		t.Errorf("forwarded for the node itself: %v", err)
	}
	if err := as("signet:node", "nöde-b"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("forwarded for another node: %v", err)
	}
	if err := as("king", "a"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("forwarded for a role that is none: %v", err)
	}
}
