// SPDX-License-Identifier: Apache-2.0

package storetest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/embedded"
	"github.com/signet-identity/signet/kvstore/fake"
	"github.com/signet-identity/signet/kvstore/storetest"
)

func startEtcd(t *testing.T) *embedded.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), storetest.Patience)
	defer cancel()
	s, err := embedded.Start(ctx, embedded.Config{
		DataDir: t.TempDir(), ClientURL: "http://127.0.0.1:0", PeerURL: "http://127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func openEtcd(t *testing.T, s *embedded.Server) *kvstore.Etcd {
	t.Helper()
	store, err := s.Store(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return store
}

func etcdFixture(store *kvstore.Etcd) storetest.Fixture {
	return storetest.Fixture{
		Store: store,
		Compact: func(t *testing.T, rev int64) {
			if _, err := store.Client().Compact(t.Context(), rev, clientv3.WithCompactPhysical()); err != nil {
				t.Fatal(err)
			}
		},
		Pass: func(t *testing.T, d time.Duration) {
			select { // etcd follows the real clock
			case <-time.After(d):
			case <-t.Context().Done():
			}
		},
	}
}

func fakeFixture(t *testing.T) storetest.Fixture {
	var now atomic.Int64
	store := fake.NewStore(fake.NewModel(fake.Limits{}, 1), func() time.Duration { return time.Duration(now.Load()) })
	t.Cleanup(func() { store.Close() })
	return storetest.Fixture{
		Store: store,
		Compact: func(t *testing.T, rev int64) {
			store.Do(func(m *fake.Model) {
				if err := m.Compact(rev); err != nil {
					t.Fatal(err)
				}
			})
		},
		Pass: func(_ *testing.T, d time.Duration) {
			now.Add(int64(d))
			store.Tick()
		},
	}
}

func TestFake(t *testing.T) { storetest.Run(t, fakeFixture(t), "suite") }

func TestEtcd(t *testing.T) { storetest.Run(t, etcdFixture(openEtcd(t, startEtcd(t))), "suite") }
