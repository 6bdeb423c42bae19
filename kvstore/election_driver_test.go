// SPDX-License-Identifier: Apache-2.0

package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/embedded"
	"github.com/signet-identity/signet/kvstore/fake"
)

// backend is a store that drivers are tested against, through one client or several.
type backend struct {
	client  func(t *testing.T) kvstore.Store
	compact func(t *testing.T, revision int64)
}

func fakeBackend(t *testing.T) backend {
	start := time.Now()
	model := fake.NewModel(fake.Limits{}, 1)
	store := fake.NewStore(model, func() time.Duration { return time.Since(start) })
	t.Cleanup(func() { _ = store.Close() })
	return backend{
		client:  func(*testing.T) kvstore.Store { return store },
		compact: func(t *testing.T, revision int64) { store.Do(func(m *fake.Model) { _ = m.Compact(revision) }) },
	}
}

func etcdBackend(t *testing.T) backend {
	server, err := embedded.Start(t.Context(), embedded.Config{
		DataDir: t.TempDir(), ClientURL: "http://127.0.0.1:0", PeerURL: "http://127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	open := func(t *testing.T) *kvstore.Etcd {
		store, err := server.Store(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return store
	}
	return backend{
		client: func(t *testing.T) kvstore.Store { return open(t) },
		compact: func(t *testing.T, revision int64) {
			if _, err := open(t).Client().Compact(t.Context(), revision); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// TestScenario_L11_drivers (and L-01, L-09, L-12, W-04, W-05) runs every driver test against the modelled store and a real etcd.
func TestScenario_L11_drivers(t *testing.T) {
	for name, make := range map[string]func(t *testing.T) backend{"fake": fakeBackend, "etcd": etcdBackend} {
		t.Run(name, func(t *testing.T) {
			b := make(t)
			for _, test := range []struct {
				name string
				run  func(t *testing.T, b backend)
			}{
				{"Scenario_L12_cleanStopHandsOver", testDriverHandsOver},
				{"Scenario_L09_zombie", testDriverZombie},
				{"Scenario_L11_renewalBesideWork", testDriverRenewals},
				{"election_leadFails", testDriverLeadFails},
				{"election_termsDoNotOverlap", testDriverTermsDoNotOverlap},
				{"Scenario_L01_presenceRevoked", testDriverPresenceRevoked},
				{"presence_leaveAndRestart", testDriverPresenceLeave},
				{"mirror_follows", testDriverMirrorFollows},
				{"mirror_waitOnIdleSpan", testDriverMirrorWait},
				{"Scenario_W04_compaction", testDriverMirrorCompaction},
				{"Scenario_W05_silentWatch", testDriverMirrorSilent},
				{"mirror_slowConsumer", testDriverMirrorSlow},
				{"mirror_consumerFails", testDriverMirrorConsumerFails},
			} {
				t.Run(test.name, func(t *testing.T) {
					if test.name != "Scenario_W04_compaction" { // it would make the other mirrors list anew
						t.Parallel()
					}
					test.run(t, b)
				})
			}
		})
	}
}

// eventually waits for ok, at most for within, looking every 5 ms.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v: not %s", within, what)
		}
	}
}

// term is one call of a Lead.
type term struct {
	ctx   context.Context
	fence commit.Fence
	end   chan error // what Lead returns, if sent before the term ends
}

// runner is an ElectionDriver that runs.
type runner struct {
	*kvstore.ElectionDriver
	terms chan term
	stop  func() // stops it and waits
}

func run(t *testing.T, b backend, prefix, who string, cfg kvstore.ElectionConfig) *runner {
	cfg.Prefix = prefix + "/election/"
	cfg.Candidate = allocator.Candidate{Who: who, Address: who + ":1"}
	if cfg.TTL == 0 {
		cfg.TTL = 5 * time.Second
	}
	r := &runner{terms: make(chan term, 10), ElectionDriver: kvstore.NewElectionDriver(b.client(t), cfg, slog.New(slog.DiscardHandler))}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx, func(ctx context.Context, fence commit.Fence) error {
			tm := term{ctx: ctx, fence: fence, end: make(chan error, 1)}
			r.terms <- tm
			select {
			case <-ctx.Done():
				return ctx.Err()
			case err := <-tm.end:
				return err
			}
		})
	}()
	r.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(r.stop)
	return r
}

func (r *runner) wins(t *testing.T, within time.Duration) term {
	t.Helper()
	select {
	case tm := <-r.terms:
		return tm
	case <-time.After(within):
		t.Fatalf("no term within %v: %+v", within, r.Status())
		panic("unreachable")
	}
}

func testDriverHandsOver(t *testing.T, b backend) {
	leader := run(t, b, t.Name(), "r0", kvstore.ElectionConfig{})
	leading := leader.wins(t, 3*time.Second)
	for i := range 5 {
		next := run(t, b, t.Name(), fmt.Sprint("r", i+1), kvstore.ElectionConfig{})
		eventually(t, 3*time.Second, "waiting", func() bool { return next.Status().State == "waiting" })
		if who := next.Status().Leader.Who; who != fmt.Sprint("r", i) {
			t.Errorf("the follower takes %q for the leader", who)
		}
		leader.stop()
		if cause := context.Cause(leading.ctx); cause == nil || cause.Error() != "resigned" {
			t.Errorf("the term's cause: %v", cause)
		}
		leading = next.wins(t, 2*time.Second)
		if s := next.Status(); s.Role != kvstore.RoleLeader || s.Fence != leading.fence || s.Candidates != 1 {
			t.Errorf("status of the new leader: %+v", s)
		}
		leader = next
	}
}

func testDriverZombie(t *testing.T, b backend) {
	store := b.client(t)
	leader := run(t, b, t.Name(), "a", kvstore.ElectionConfig{})
	leading := leader.wins(t, 3*time.Second)
	standby := run(t, b, t.Name(), "b", kvstore.ElectionConfig{})
	eventually(t, 3*time.Second, "waiting", func() bool { return standby.Status().State == "waiting" })
	lost := standby.Status().Lease
	if err := store.Revoke(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "in the queue again", func() bool {
		s := standby.Status()
		return s.State == "waiting" && s.Lease != lost && s.Candidates == 2
	})
	if err := store.Revoke(t.Context(), leading.fence.Lease); err != nil {
		t.Fatal(err)
	}
	second := standby.wins(t, 3*time.Second)
	if own := standby.Status(); second.fence.Lease != own.Lease {
		t.Errorf("leads by lease %d, its own is %d", second.fence.Lease, own.Lease)
	}
	eventually(t, 3*time.Second, "ended", func() bool { return leading.ctx.Err() != nil })
}

// L-11: a store that is busy with work for the client of the work does not delay renewals.
func testDriverRenewals(t *testing.T, b backend) {
	leader := run(t, b, t.Name(), "a", kvstore.ElectionConfig{TTL: 3 * time.Second})
	leading := leader.wins(t, 3*time.Second)
	work := b.client(t)
	stop := time.Now().Add(2500 * time.Millisecond)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := 0; time.Now().Before(stop); n++ {
				_, _ = work.Txn(t.Context(), kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: fmt.Sprint(t.Name(), i, n%100), Value: []byte("x")}}})
			}
		})
	}
	wg.Wait()
	if s := leader.Status(); leading.ctx.Err() != nil || s.Won != 1 || s.Age > 2*time.Second {
		t.Errorf("after the load: %+v", s)
	}
}

func testDriverLeadFails(t *testing.T, b backend) {
	r := run(t, b, t.Name(), "a", kvstore.ElectionConfig{Pause: 100 * time.Millisecond})
	first := r.wins(t, 3*time.Second)
	first.end <- errors.New("the own key is foreign")
	second := r.wins(t, 3*time.Second)
	if cause := context.Cause(first.ctx); cause == nil || cause.Error() != "the own key is foreign" {
		t.Errorf("cause %v", cause)
	}
	if s := r.Status(); s.Won != 2 || s.Reason != "the own key is foreign" || second.fence.Lease == first.fence.Lease {
		t.Errorf("status %+v", s)
	}
	if got := r.Candidate(); got.TTLS != 5 || got.Who != "a" {
		t.Errorf("candidate %+v", got)
	}
}

// A Lead that hangs after its term has ended holds the next one up, and nothing else.
func testDriverTermsDoNotOverlap(t *testing.T, b backend) {
	cfg := kvstore.ElectionConfig{Prefix: t.Name() + "/election/", TTL: 5 * time.Second, Pause: 50 * time.Millisecond}
	d := kvstore.NewElectionDriver(b.client(t), cfg, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	began, release, done := make(chan struct{}, 10), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx, func(ctx context.Context, _ commit.Fence) error {
			began <- struct{}{}
			<-release
			return nil
		})
	}()
	<-began
	d.Abandon("asked to")
	eventually(t, 5*time.Second, "won again", func() bool { return d.Status().Won == 2 })
	select {
	case <-began:
		t.Error("the next Lead runs beside the one before")
	case <-time.After(50 * time.Millisecond):
	}
	release <- struct{}{}
	<-began
	cancel()
	close(release)
	<-done
}
