// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	"github.com/signet-identity/signet/allocator/operator"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// etcd starts a real etcd on loopback.
func etcd(t *testing.T) *embedded.Server {
	t.Helper()
	s := mortalEtcd(t)
	t.Cleanup(s.Close)
	return s
}

// mortalEtcd starts an etcd that the test closes itself.
func mortalEtcd(t *testing.T) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(context.Background(), embedded.Config{
		DataDir: t.TempDir(), ClientURL: "http://" + freePort(t), PeerURL: "http://" + freePort(t)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

type replica struct {
	*operator.Operator
	stop func()
	err  chan error
}

func config(t *testing.T, s *embedded.Server, name string) operator.Config {
	t.Helper()
	space, err := identity.NewSpace("default", 0, 255, false)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := kvstore.NewLayout("cilium", "default")
	if err != nil {
		t.Fatal(err)
	}
	store := func() kvstore.Store {
		st, err := s.Store(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		return st
	}
	return operator.Config{
		Core: allocator.Config{Space: space, NewCluster: true, NodeGrace: time.Second, IdentityGrace: time.Second, ForgetAfter: time.Hour,
			SweepInterval: 200 * time.Millisecond, PresenceTTL: time.Second, ElectionTTL: 2 * time.Second, LineageEvery: 500 * time.Millisecond},
		Commit: commit.DefaultConfig(), Layout: layout, Store: store(), Election: store(),
		Replica: name, Address: name + ":7472", Version: "test", Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}
}

func start(t *testing.T, cfg operator.Config) *replica {
	t.Helper()
	o, err := operator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{Operator: o, err: make(chan error, 1)}
	go func() { r.err <- o.Run(ctx) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-r.err; err != nil {
				t.Errorf("run: %v", err)
			}
		})
	}
	t.Cleanup(r.stop)
	return r
}

// until polls a condition that nothing announces.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

func set(t *testing.T, ls ...string) labels.Set {
	t.Helper()
	s, err := labels.ParseSet(ls...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOperator_lifeOfAnIdentityOnRealEtcd(t *testing.T) {
	s := etcd(t)
	o := start(t, config(t, s, "a"))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	until(t, "the replica serves", o.Ready)

	watch, err := o.Watch(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	web := set(t, "k8s:app=web")
	first, err := o.Allocate(ctx, allocator.AllocateRequest{Labels: web, Holder: "pin-ann"})
	if err != nil {
		t.Fatal(err)
	}
	n := first.Identity.Number
	got, _, err := o.Get(ctx, allocator.GetQuery{Number: &n, Linearizable: true})
	if err != nil || got.Labels != web.Text() || len(got.Holders) != 1 {
		t.Fatalf("get: %+v %v", got, err)
	}
	if items, more, _, err := o.List(ctx, allocator.ListQuery{Limit: 10}); err != nil || more || len(items) != 1 {
		t.Fatalf("list: %v %v %v", items, more, err)
	}
	if r, err := o.Release(ctx, allocator.ReleaseRequest{Labels: web, Holder: "pin-ann", Hold: first.Hold}); err != nil || !r.Done {
		t.Fatalf("release: %+v %v", r, err)
	}
	var kinds []allocator.WatchKind
	for ev := range watch {
		if ev.Kind != allocator.WatchCurrent {
			kinds = append(kinds, ev.Kind)
		}
		if ev.Kind == allocator.WatchDelete && ev.Identity.Number == n {
			break
		}
	}
	if kinds[0] != allocator.WatchReset {
		t.Errorf("the watch began with %v", kinds[0])
	}
	back, err := o.Allocate(ctx, allocator.AllocateRequest{Labels: web, Holder: "pin-ann"})
	if err != nil || back.Identity.Number != n {
		t.Errorf("the same labels got %d, had %d (%v)", back.Identity.Number, n, err)
	}
	st, err := o.Status(ctx)
	if err != nil || st.GetElection().GetRole() != "leader" || st.GetSweep().GetCollected() != 1 {
		t.Errorf("status: %v %v", st, err)
	}
}

func TestOperator_manyCallersOneNumberEach(t *testing.T) {
	s := etcd(t)
	o := start(t, config(t, s, "a"))
	until(t, "the replica serves", o.Ready)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	const callers, sets = 16, 200
	var mu sync.Mutex
	numbers := map[string]identity.Number{}
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range sets {
				a, err := o.Allocate(ctx, allocator.AllocateRequest{Labels: set(t, fmt.Sprintf("k8s:n=%d", (i+c*7)%sets)), Holder: fmt.Sprintf("pin-%d", c)})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if have, ok := numbers[a.Identity.Labels]; ok && have != a.Identity.Number {
					t.Errorf("%s has %d and %d", a.Identity.Labels, have, a.Identity.Number)
				}
				numbers[a.Identity.Labels] = a.Identity.Number
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(numbers) != sets {
		t.Errorf("%d label sets, want %d", len(numbers), sets)
	}
}

func TestOperator_standbyTakesOverAtOnce(t *testing.T) {
	s := etcd(t)
	a := start(t, config(t, s, "a"))
	until(t, "the first replica serves", func() bool { _, self := a.Leader(); return self && a.Ready() })
	b := start(t, config(t, s, "b"))
	until(t, "the second one follows", func() bool { addr, self := b.Leader(); return addr == "a:7472" && !self && b.Ready() })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	first, err := a.Allocate(ctx, allocator.AllocateRequest{Labels: set(t, "k8s:app=web"), Holder: "pin-ann"})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	a.stop()
	until(t, "the standby serves", func() bool { _, self := b.Leader(); return self && b.Ready() })
	t.Logf("hand-over took %s", time.Since(began).Round(time.Millisecond))
	again, err := b.Allocate(ctx, allocator.AllocateRequest{Labels: set(t, "k8s:app=web"), Holder: "pin-ann"})
	if err != nil || again.Identity.Number != first.Identity.Number || again.Hold != first.Hold {
		t.Errorf("after the hand-over: %+v %v, before: %+v", again, err, first)
	}
}

func TestOperator_refusesAnotherClustersStore(t *testing.T) {
	s := etcd(t)
	a := start(t, config(t, s, "a"))
	until(t, "the first replica serves", a.Ready)
	a.stop()
	cfg := config(t, s, "b")
	space, err := identity.NewSpace("default", 0, 511, false)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Core.Space = space
	o, err := operator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := o.Run(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("an operator with another bit split ran on the store: %v", err)
	}
}

func TestScenario_P09_OneChangeIsOneEvent(t *testing.T) {
	s := etcd(t)
	o := start(t, config(t, s, "a"))
	until(t, "the replica serves", o.Ready)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for i := range 100 {
		if _, err := o.Allocate(ctx, allocator.AllocateRequest{Labels: set(t, fmt.Sprintf("k8s:n=%d", i)), Holder: "pin-ann"}); err != nil {
			t.Fatal(err)
		}
	}
	watch, err := o.Watch(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	var at allocator.Position
	for ev := range watch {
		if at = ev.Position; ev.Kind == allocator.WatchCurrent {
			break
		}
	}
	began := time.Now()
	a, err := o.Allocate(ctx, allocator.AllocateRequest{Labels: set(t, "k8s:n=new"), Holder: "pin-ann"})
	if err != nil {
		t.Fatal(err)
	}
	events := 0
	for ev := range watch {
		if ev.Kind == allocator.WatchUpsert && ev.Identity.Number == a.Identity.Number {
			break
		}
		if events++; events > 10 {
			t.Fatalf("the whole state was sent again for one change: %+v", ev)
		}
	}
	t.Logf("the change arrived %s after the call", time.Since(began).Round(time.Microsecond))
	resumed, err := o.Watch(ctx, &at)
	if err != nil {
		t.Fatal(err)
	}
	if first := <-resumed; first.Kind == allocator.WatchReset {
		t.Error("a reader that resumes got the whole state again")
	}
}

// findings are the codes of the findings of status, with their objects.
func findings(t *testing.T, o *replica) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	st, err := o.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range st.GetFindings() {
		out[f.GetCode()] = f.GetObject()
	}
	return out
}

func TestOperator_malformedKeysComeAndGo(t *testing.T) {
	s := etcd(t)
	cfg := config(t, s, "a")
	o := start(t, cfg)
	until(t, "the replica serves", o.Ready)
	ctx := context.Background()
	cluster := kvstore.RangeRequest{Key: "signet/v1/default/cluster"}
	had, err := cfg.Store.Range(ctx, cluster)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ key, code string }{
		{"cilium/state/identities/v1/id/nonsense", "MALFORMED-KEY"}, // its name cannot be read
		{"signet/v1/default/idle/300", "MALFORMED-KEY"},             // its value cannot
		{cluster.Key, "RECORD-MALFORMED"},
	} {
		do := func(a kvstore.Action) {
			if _, err := cfg.Store.Txn(ctx, kvstore.Txn{Then: []kvstore.Action{a}}); err != nil {
				t.Fatal(err)
			}
		}
		do(kvstore.Action{Put: true, Key: tc.key, Value: []byte("junk")})
		until(t, tc.key+" is named", func() bool { return findings(t, o)[tc.code] == tc.key })
		if tc.key == cluster.Key {
			do(kvstore.Action{Put: true, Key: tc.key, Value: had.KVs[0].Value})
		} else {
			do(kvstore.Action{Delete: true, Key: tc.key})
		}
		until(t, tc.key+" is named no more", func() bool { return findings(t, o)[tc.code] == "" })
	}
}

func TestOperator_manyMalformedKeysAreCounted(t *testing.T) {
	s := etcd(t)
	cfg := config(t, s, "a")
	o := start(t, cfg)
	until(t, "the replica serves", o.Ready)
	for i := range 100 {
		a := kvstore.Action{Put: true, Key: fmt.Sprintf("cilium/state/identities/v1/id/x%d", i), Value: []byte("junk")}
		if _, err := cfg.Store.Txn(context.Background(), kvstore.Txn{Then: []kvstore.Action{a}}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all are counted", func() bool {
		st, err := o.Status(context.Background())
		return err == nil && st.GetStore().GetMalformed() == 100 && len(st.GetFindings()) < 50
	})
}

func TestOperator_saysWhatBlocksTheElection(t *testing.T) {
	s := etcd(t)
	cfg := config(t, s, "a")
	stray := kvstore.Action{Put: true, Key: cfg.Layout.Election() + "77", Value: []byte(`{"who":"nobody","address":"127.0.0.1:1"}`)}
	if _, err := cfg.Store.Txn(context.Background(), kvstore.Txn{Then: []kvstore.Action{stray}}); err != nil {
		t.Fatal(err)
	}
	o := start(t, cfg)
	until(t, "the stray key is named", func() bool { return findings(t, o)["ELECTION-BLOCKED"] == stray.Key })
	if address, _ := o.Leader(); address != "" || o.Ready() {
		t.Errorf("a stray key was taken for a leader at %q, ready %v", address, o.Ready())
	}
	if _, err := cfg.Store.Txn(context.Background(), kvstore.Txn{Then: []kvstore.Action{{Delete: true, Key: stray.Key}}}); err != nil {
		t.Fatal(err)
	}
	until(t, "the replica serves", o.Ready)
}

func TestOperator_aLeaderThatLostTheStoreIsNotItsOwnLeader(t *testing.T) {
	s := mortalEtcd(t)
	o := start(t, config(t, s, "a"))
	until(t, "the replica serves", o.Ready)
	s.Close()
	until(t, "the store's silence is a finding", func() bool { return findings(t, o)["STORE-AWAY"] != "" })
	if address, self := o.Leader(); address != "" || self || o.Ready() {
		t.Errorf("leader %q, self %v, ready %v", address, self, o.Ready())
	}
}

// I7: what a reader saw of a store that is no more is not resumed.
func TestOperator_watchDoesNotResumeAnotherLineage(t *testing.T) {
	s := etcd(t)
	o := start(t, config(t, s, "a"))
	until(t, "the replica serves", o.Ready)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if first, err := o.Watch(ctx, nil); err != nil || (<-first).Kind != allocator.WatchReset {
		t.Fatalf("the first watch: %v", err)
	}
	for _, after := range []allocator.Position{
		{Nonce: "of another store", Counter: 1 << 40, Revision: 1 << 40},
		{Nonce: "of another store", Counter: 1 << 40, Revision: 3},
	} {
		w, err := o.Watch(ctx, &after)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case ev := <-w:
			if ev.Kind != allocator.WatchReset {
				t.Errorf("after %+v the watch began with %v", after, ev.Kind)
			}
		case <-ctx.Done():
			t.Fatalf("after %+v nothing came", after)
		}
	}
}
