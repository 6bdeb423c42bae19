// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/e2e/harness"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/embedded"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// TestRecovery_onRealProcesses loses the store under two operators and two
// agents: a wiped data folder, a plain restore of an older copy, and one with
// the revision bumped. The numbers come back, and no address leaves a map.
func TestRecovery_onRealProcesses(t *testing.T) {
	for _, c := range []struct {
		name    string
		restore bool
		bump    uint32
	}{{name: "wiped"}, {name: "older copy", restore: true}, {name: "older copy with a bumped revision", restore: true, bump: 1_000_000}} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{harness.Prepare(t, binary)}
			config := embedded.Config{DataDir: filepath.Join(w.Dir, "etcd"), ClientURL: "http://" + w.Port(), PeerURL: "http://" + w.Port()}
			etcd := w.serve(config)
			w.Endpoints = []string{etcd.Endpoint()}
			ops := []*harness.Operator{w.operator("op-a"), w.operator("op-b")}
			w.AwaitReady(ops...)
			n1, n2 := w.agent("n1", "10.1.0.0/24", ops[0].Address, ops[1].Address), w.agent("n2", "10.2.0.0/24", ops[0].Address, ops[1].Address)
			w.AwaitAgent(n1)
			w.AwaitAgent(n2)
			var got numbers
			w.fill(n1, 10, 10, &got)
			snapshot := w.save(etcd)
			w.fill(n1, 20, 10, &got) // the copy does not know these
			w.fill(n2, 20, 10, &got)
			before := []map[string]uint32{w.endpointNumbers(n1), w.endpointNumbers(n2)}
			mapped := len(w.mapOf(n1))

			etcd.Close()
			if err := os.RemoveAll(config.DataDir); err != nil {
				t.Fatal(err)
			}
			if c.restore {
				if err := embedded.Restore(embedded.Restored{Snapshot: snapshot, DataDir: config.DataDir, PeerURL: config.PeerURL, Bump: c.bump}); err != nil {
					t.Fatal(err)
				}
			}
			w.serve(config)
			w.reconnect()
			w.Until("every label set has its number again", func(ctx context.Context) bool { return w.rebuilt(ctx, got.got) })
			w.Until("the window is closed", func(ctx context.Context) bool { return !w.Exists(ctx, allocator.RecoveryKey()) })
			w.Until("both nodes hold everything", func(ctx context.Context) bool {
				return w.references(ctx, "n1") == 20 && w.references(ctx, "n2") == 20
			})
			for i, a := range []*harness.Agent{n1, n2} {
				for id, n := range w.endpointNumbers(a) {
					if before[i][id] != n {
						t.Errorf("%s %s had number %d, and has %d", a.Node, id, before[i][id], n)
					}
				}
			}
			if now := len(w.mapOf(n1)); now < 20 || mapped < 20 {
				t.Errorf("the map had %d addresses, and has %d", mapped, now)
			}
			w.fill(n1, 22, 10, &got) // new label sets are served again
		})
	}
}

// serve starts etcd, and stops it with the test.
func (w *world) serve(config embedded.Config) *embedded.Server {
	w.T.Helper()
	etcd, err := embedded.Start(context.Background(), config)
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(etcd.Close)
	return etcd
}

// reconnect gives the test a client of its own to the new store.
func (w *world) reconnect() {
	w.T.Helper()
	store, err := kvstore.NewEtcd(context.Background(), kvstore.EtcdConfig{Endpoints: w.Endpoints})
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { store.Close() })
	w.Store = store
}

// save writes a snapshot of etcd.
func (w *world) save(etcd *embedded.Server) string {
	w.T.Helper()
	store, err := etcd.Store(context.Background())
	if err != nil {
		w.T.Fatal(err)
	}
	defer store.Close()
	s, err := store.Snapshot(context.Background())
	if err != nil {
		w.T.Fatal(err)
	}
	defer s.Close()
	path := filepath.Join(w.Dir, "snapshot.db")
	f, err := os.Create(path)
	if err != nil {
		w.T.Fatal(err)
	}
	if _, err := io.Copy(f, s); err != nil {
		w.T.Fatal(err)
	}
	if err := f.Close(); err != nil {
		w.T.Fatal(err)
	}
	return path
}

// rebuilt says whether every label set's master stands under the number it had.
func (w *world) rebuilt(ctx context.Context, want map[string]map[uint32]bool) bool {
	have := map[uint32]bool{}
	for _, kv := range w.Keys(ctx, w.Layout.Masters()) {
		if k, err := w.Layout.Parse(kv.Key); err == nil {
			have[uint32(k.Number)] = true
		}
	}
	for _, ns := range want {
		for n := range ns {
			if !have[n] {
				return false
			}
		}
	}
	return true
}

func (w *world) mapOf(a *harness.Agent) []*signetv1.IPCacheEntry {
	w.T.Helper()
	r, err := w.EndpointsOf(a).ListIPCache(context.Background(), &signetv1.ListIPCacheRequest{Raw: true})
	if err != nil {
		w.T.Fatal(err)
	}
	return r.GetItems()
}
