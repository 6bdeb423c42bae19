// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/e2e/harness"
	"github.com/signet-identity/signet/kvstore"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// app is the label set of endpoint i: shared by both nodes up to shared, and
// the node's own above.
func app(node string, i, shared int) []string {
	name := fmt.Sprintf("app-%d", i)
	if i >= shared {
		name += "-" + node
	}
	return []string{"k8s:app=" + name, "k8s:io.kubernetes.pod.namespace=shop"}
}

// numbers maps a label set to the numbers it was given.
type numbers struct {
	mu  sync.Mutex
	got map[string]map[uint32]bool
}

func (n *numbers) note(ls []string, number uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := fmt.Sprint(ls)
	if n.got == nil {
		n.got = map[string]map[uint32]bool{}
	}
	if n.got[key] == nil {
		n.got[key] = map[uint32]bool{}
	}
	n.got[key][number] = true
}

// fill puts count endpoints on a node, several at once.
func (w *world) fill(a *harness.Agent, count, shared int, n *numbers) {
	eps := w.EndpointsOf(a)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i := range count {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			ls := app(a.Node, i, shared)
			r, err := eps.PutEndpoint(ctx, &signetv1.PutEndpointRequest{Endpoint: &signetv1.Endpoint{Id: fmt.Sprintf("ep-%d", i), Labels: ls}})
			if err != nil {
				w.T.Errorf("%s: endpoint %d: %v", a.Node, i, err)
				return
			}
			n.note(ls, r.GetEndpoint().GetNumber())
		})
	}
	wg.Wait()
}

// references counts a holder's references in the store.
func (w *world) references(ctx context.Context, holder string) int {
	n := 0
	for _, kv := range w.Keys(ctx, w.Layout.References()) {
		if k, err := w.Layout.Parse(kv.Key); err == nil && k.Name == holder {
			n++
		}
	}
	return n
}

// TestCluster_lifeUnderKills is the story of the main job on real processes:
// both nodes allocate at once while the leader is killed, a node dies and is
// collected, and comes back to the same numbers.
func TestCluster_lifeUnderKills(t *testing.T) {
	w := newWorld(t)
	ops := []*harness.Operator{w.operator("op-a"), w.operator("op-b"), w.operator("op-c")}
	w.AwaitReady(ops...)
	var servers []string
	for _, o := range ops {
		servers = append(servers, o.Address)
	}
	n1, n2 := w.agent("n1", "10.1.0.0/24", servers...), w.agent("n2", "10.2.0.0/24", servers...)
	w.AwaitAgent(n1)
	w.AwaitAgent(n2)

	const count, shared = 60, 40
	var got numbers
	leader := w.Leader(ops...)
	var wg sync.WaitGroup
	for _, a := range []*harness.Agent{n1, n2} {
		wg.Go(func() { w.fill(a, count, shared, &got) })
	}
	w.Until("the work has begun", func(ctx context.Context) bool { return len(w.Keys(ctx, w.Layout.Masters())) >= 10 })
	leader.Kill()
	wg.Wait()
	if len(got.got) != shared+2*(count-shared) {
		t.Errorf("%d label sets were given numbers, want %d", len(got.got), shared+2*(count-shared))
	}
	for ls, ns := range got.got {
		if len(ns) != 1 {
			t.Errorf("%s has numbers %v", ls, ns)
		}
	}
	before := w.endpointNumbers(n2)
	w.Recorder.Judge(t)

	t.Log("node n2 dies")
	n2.Kill()
	w.Until("n2 is marked gone", func(ctx context.Context) bool { return w.Exists(ctx, allocator.GoneKey("n2")) })
	if w.references(context.Background(), "n2") != count {
		t.Error("references went before the node grace was over")
	}
	w.Until("what n2 held is removed", func(ctx context.Context) bool { return w.references(ctx, "n2") == 0 })
	w.Until("what only n2 used is collected", func(ctx context.Context) bool {
		return len(w.Keys(ctx, w.Layout.Masters())) == count && len(w.Keys(ctx, w.Layout.Tombstones())) == count-shared
	})
	for _, kv := range w.Keys(context.Background(), w.Layout.Addresses()) {
		if string(kv.Value) == "" || len(kv.Key) == 0 {
			t.Errorf("address %s", kv.Key)
		}
	}
	if n := len(w.Keys(context.Background(), w.Layout.Addresses())); n != count {
		t.Errorf("%d addresses are left, want %d", n, count)
	}

	t.Log("node n2 comes back")
	w.restart(n2)
	w.AwaitAgent(n2)
	w.Until("n2 has all its numbers again", func(ctx context.Context) bool { return w.references(ctx, "n2") == count })
	after := w.endpointNumbers(n2)
	for id, n := range before {
		if after[id] != n {
			t.Errorf("%s had number %d before, %d after", id, n, after[id])
		}
	}
	w.Until("n2's addresses are published again", func(ctx context.Context) bool {
		return len(w.Keys(ctx, w.Layout.Addresses())) == 2*count
	})
	w.Recorder.Judge(t)
	if out, code := w.Run("check", "--etcd-endpoints", w.Endpoints[0]); code != 0 {
		t.Errorf("signet check: exit %d\n%s", code, out)
	}
}

// endpointNumbers lists a node's endpoints with their numbers.
func (w *world) endpointNumbers(a *harness.Agent) map[string]uint32 {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := w.EndpointsOf(a).ListEndpoints(ctx, &signetv1.ListEndpointsRequest{})
	if err != nil {
		w.T.Fatal(err)
	}
	out := map[string]uint32{}
	for _, e := range r.GetItems() {
		out[e.GetId()] = e.GetNumber()
	}
	return out
}

// TestScenario_L01_revokedPresenceIsBackAndNothingLeft: a lease that is revoked
// takes the presence, and nothing else.
func TestScenario_L01_revokedPresenceIsBackAndNothingLeft(t *testing.T) {
	w := newWorld(t)
	op := w.operator("op-a")
	w.AwaitReady(op)
	n1 := w.agent("n1", "10.1.0.0/24", op.Address)
	w.AwaitAgent(n1)
	var got numbers
	w.fill(n1, 20, 20, &got)
	for round := range 5 {
		ctx := context.Background()
		key, _ := w.Layout.Key(allocator.PresenceKey("n1"))
		r, err := w.Store.Range(ctx, kvstore.RangeRequest{Key: key})
		if err != nil || len(r.KVs) != 1 {
			t.Fatalf("round %d: presence: %v %v", round, r.KVs, err)
		}
		began := time.Now()
		if err := w.Store.Revoke(ctx, r.KVs[0].Lease); err != nil {
			t.Fatal(err)
		}
		w.Until("the presence is back", func(ctx context.Context) bool { return w.Exists(ctx, allocator.PresenceKey("n1")) })
		t.Logf("round %d: back after %s", round, time.Since(began).Round(time.Millisecond))
		if n := w.references(ctx, "n1"); n != 20 {
			t.Fatalf("round %d: %d references are left", round, n)
		}
	}
	w.Until("the gone mark is cancelled", func(ctx context.Context) bool { return !w.Exists(ctx, allocator.GoneKey("n1")) })
	w.Recorder.Judge(t)
}
