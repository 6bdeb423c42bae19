// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// listAll reads every page, of the given size.
func listAll(t *testing.T, r *replica, req *signetv1.ListIdentitiesRequest) []*signetv1.Identity {
	t.Helper()
	var out []*signetv1.Identity
	for {
		page, err := r.identity.ListIdentities(testContext(t), req)
		if err != nil {
			t.Fatal(err)
		}
		if req.GetPageSize() > 0 && len(page.GetItems()) > int(req.GetPageSize()) {
			t.Fatalf("a page of %d has %d items", req.GetPageSize(), len(page.GetItems()))
		}
		out = append(out, page.GetItems()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return out
		}
	}
}

// P-01: anything listed can be looked up, by number and by labels, and says its scope.
func TestScenario_P_01_ListedIsFound(t *testing.T) {
	r := start(t)
	r.remote = []allocator.Identity{{Number: 2<<16 + 7, Labels: "k8s:far=away;", State: allocator.Live}}
	for _, app := range []string{"a", "b", "c"} {
		if _, err := r.identity.Allocate(testContext(t), allocateReq("node-a", "k8s:app="+app)); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int32{0, 1, 3, 10} {
		all := listAll(t, r, &signetv1.ListIdentitiesRequest{IncludeReserved: true, PageSize: size})
		scopes := map[signetv1.Scope]int{}
		for _, i := range all {
			scopes[i.GetScope()]++
			n := uint64(i.GetNumber())
			byNumber, err := r.identity.GetIdentity(testContext(t), &signetv1.GetIdentityRequest{Number: &n})
			if err != nil || !slices.Equal(byNumber.GetIdentity().GetLabels(), i.GetLabels()) || byNumber.GetIdentity().GetScope() != i.GetScope() {
				t.Errorf("number %d is listed, but its look-up says %v, %v", n, byNumber, err)
			}
			byLabels, err := r.identity.GetIdentity(testContext(t), &signetv1.GetIdentityRequest{Labels: i.GetLabels()})
			if err != nil || byLabels.GetIdentity().GetNumber() != i.GetNumber() {
				t.Errorf("labels %v are listed as %d, but their look-up says %v, %v", i.GetLabels(), n, byLabels, err)
			}
		}
		if scopes[signetv1.Scope_SCOPE_CLUSTER] != 3 || scopes[signetv1.Scope_SCOPE_REMOTE] != 1 || scopes[signetv1.Scope_SCOPE_RESERVED] != 10 {
			t.Errorf("pages of %d: scopes %v", size, scopes)
		}
		if !slices.IsSortedFunc(all, func(a, b *signetv1.Identity) int { return int(a.GetNumber()) - int(b.GetNumber()) }) {
			t.Errorf("pages of %d are not in order", size)
		}
	}
	if some := listAll(t, r, &signetv1.ListIdentitiesRequest{IncludeReserved: true, Selector: "app in (a,b)"}); len(some) != 2 {
		t.Errorf("the selector lets %d through, want 2", len(some))
	}
}

// P-02: a number that cannot be is INVALID_ARGUMENT, one that is not there
// NOT_FOUND, and none is taken for another.
func TestScenario_P_02_NumbersAreNeverCut(t *testing.T) {
	r := start(t)
	r.remote = []allocator.Identity{{Number: 256, Labels: "k8s:low=est;", State: allocator.Live}}
	want := map[uint64]codes.Code{
		0: codes.InvalidArgument, ^uint64(0): codes.InvalidArgument, 255: codes.NotFound, 256: codes.OK, 65535: codes.NotFound,
		65536: codes.NotFound, 65792: codes.NotFound, 1<<24 - 1: codes.NotFound, 1 << 24: codes.NotFound, 1<<32 - 1: codes.NotFound,
		1 << 32: codes.InvalidArgument, 1<<32 + 256: codes.InvalidArgument, 1 << 63: codes.InvalidArgument,
	}
	for n, code := range want {
		_, err := r.identity.GetIdentity(testContext(t), &signetv1.GetIdentityRequest{Number: u64(n)})
		if status.Code(err) != code {
			t.Errorf("GetIdentity %d: %v, want %s", n, err, code)
		}
		_, err = r.identity.ExplainIdentity(testContext(t), &signetv1.ExplainIdentityRequest{Number: u64(n)})
		if status.Code(err) != code {
			t.Errorf("ExplainIdentity %d: %v, want %s", n, err, code)
		}
	}
}

// D-03: reserved label sets have their fixed number and are never stored.
func TestScenario_D_03_ReservedLabels(t *testing.T) {
	r := start(t)
	for name, number := range map[string]uint32{"health": 4, "world": 2, "host": 1, "kube-apiserver": 7} {
		ls := []string{"reserved:" + name}
		if name == "kube-apiserver" {
			ls = append(ls, "reserved:remote-node")
		}
		resp, err := r.identity.Allocate(testContext(t), allocateReq("node-a", ls...))
		if err != nil || resp.GetIdentity().GetNumber() != number || resp.GetHold() != 0 || resp.GetCreated() {
			t.Errorf("Allocate %v: %v, %v; want %d", ls, resp, err, number)
		}
		rel, err := r.identity.Release(testContext(t), &signetv1.ReleaseRequest{Holder: "pin-a", Labels: ls})
		if err != nil || rel.GetReleased() {
			t.Errorf("Release %v: %v, %v", ls, rel, err)
		}
	}
	for _, ls := range [][]string{{"reserved:host", "k8s:x=y"}, {"reserved:nonsense"}} {
		if _, err := r.identity.Allocate(testContext(t), allocateReq("node-a", ls...)); status.Code(err) != codes.InvalidArgument {
			t.Errorf("Allocate %v: %v, want INVALID_ARGUMENT", ls, err)
		}
	}
	if n := r.count("allocate") + r.count("release"); n != 0 {
		t.Errorf("%d calls for reserved labels reached the backend", n)
	}
}

// M-13: the empty set is refused on leader and follower, by every call alike,
// while others allocate.
func TestScenario_M_13_EmptySet(t *testing.T) {
	n := newNetwork()
	leader, follower := n.start(t, "leader"), n.start(t, "follower")
	follower.set(func(m *memory) { m.self, m.leader = false, "leader" })
	var all sync.WaitGroup
	for i := range 20 {
		r := []*replica{leader, follower}[i%2]
		all.Go(func() {
			if _, err := r.identity.Allocate(testContext(t), allocateReq("node-a")); read(err).reason != "EMPTY_SET" {
				t.Errorf("Allocate of nothing: %v", err)
			}
			if _, err := r.identity.Allocate(testContext(t), allocateReq("node-a", "k8s:app=l")); err != nil {
				t.Errorf("Allocate beside it: %v", err)
			}
			if _, err := r.identity.Release(testContext(t), &signetv1.ReleaseRequest{Holder: "node-a", Hold: 1}); read(err).reason != "EMPTY_SET" {
				t.Errorf("Release of nothing: %v", err)
			}
			if _, err := r.identity.GetIdentity(testContext(t), &signetv1.GetIdentityRequest{}); read(err).reason != "EMPTY_SET" {
				t.Errorf("GetIdentity of nothing: %v", err)
			}
			batch, err := r.identity.BatchAllocate(testContext(t), &signetv1.BatchAllocateRequest{Items: []*signetv1.AllocateRequest{allocateReq("node-a")}})
			if err != nil || codes.Code(batch.GetResults()[0].GetError().GetCode()) != codes.InvalidArgument {
				t.Errorf("BatchAllocate of nothing: %v, %v", batch, err)
			}
		})
	}
	all.Wait()
	if len(leader.items) != 1 || len(follower.items) != 0 {
		t.Errorf("the leader stores %d sets and the follower %d, want 1 and 0", len(leader.items), len(follower.items))
	}
}

func TestListCutsPagesByBytes(t *testing.T) {
	r := start(t)
	big := strings.Repeat("x", 30<<10)
	for i := range 200 {
		text := fmt.Sprintf("k8s:a%d=%s;", i, big)
		r.items[text] = &allocator.Identity{Number: r.space.Min() + identity.Number(1+i), Labels: text, State: allocator.Live}
	}
	if all := listAll(t, r, &signetv1.ListIdentitiesRequest{}); len(all) != 200 {
		t.Errorf("listed %d of 200 large identities", len(all))
	}
	if calls := r.count("list"); calls < 4 {
		t.Errorf("12 MiB came in %d pages; they have to stay below the client's default of 4 MiB", calls)
	}
}

func TestExplainTellsTheStory(t *testing.T) {
	r := start(t)
	resp, err := r.identity.Allocate(testContext(t), allocateReq("node-a", "k8s:app=web"))
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []allocator.State{allocator.Live, allocator.IdleState, allocator.Quarantined, allocator.Free} {
		r.set(func(m *memory) { m.items["k8s:app=web;"].State = state })
		e, err := r.identity.ExplainIdentity(testContext(t), &signetv1.ExplainIdentityRequest{Labels: []string{"k8s:app=web"}})
		if err != nil || len(e.GetStory()) < 2 || e.GetIdentity().GetNumber() != resp.GetIdentity().GetNumber() {
			t.Errorf("state %s: %v, %v", state, e, err)
		}
	}
}

func TestWatchFiltersAndEnds(t *testing.T) {
	r := start(t)
	w, err := r.identity.WatchIdentities(testContext(t), &signetv1.WatchIdentitiesRequest{Selector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	web := allocator.Identity{Number: 1<<16 + 1, Labels: "k8s:app=web;", State: allocator.Live}
	db := allocator.Identity{Number: 1<<16 + 2, Labels: "k8s:app=db;", State: allocator.Live}
	for _, ev := range watchEvents(web, db) {
		r.events <- ev
	}
	close(r.events)
	var kinds []signetv1.WatchIdentitiesResponse_Kind
	for {
		ev, err := w.Recv()
		if err != nil {
			if got := read(err); got.reason != "SLOW_READER" || got.retry == 0 {
				t.Errorf("the watch ended with %v", err)
			}
			break
		}
		kinds = append(kinds, ev.GetKind())
	}
	want := []signetv1.WatchIdentitiesResponse_Kind{1, 2, 4, 3, 4}
	if !slices.Equal(kinds, want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
	if _, err := w.Recv(); errors.Is(err, io.EOF) {
		t.Error("the reason of the end is lost")
	}
}
