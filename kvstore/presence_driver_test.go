// SPDX-License-Identifier: Apache-2.0

package kvstore_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/kvstore"
)

func keepPresence(t *testing.T, b backend, key, instance string) (d *kvstore.PresenceDriver, stop func()) {
	d = kvstore.NewPresenceDriver(b.client(t), kvstore.PresenceConfig{
		Key: key, TTL: 5 * time.Second, Retry: 100 * time.Millisecond,
		Value: allocator.Presence{Node: "n1", Instance: instance},
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx, nil)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return d, stop
}

func readKey(t *testing.T, s kvstore.Store, key string) *kvstore.KV {
	t.Helper()
	r, err := s.Range(t.Context(), kvstore.RangeRequest{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.KVs) == 0 {
		return nil
	}
	return &r.KVs[0]
}

func testDriverPresenceRevoked(t *testing.T, b backend) {
	key, store := t.Name()+"/nodes/n1", b.client(t)
	d, _ := keepPresence(t, b, key, "i1")
	for range 3 {
		eventually(t, 5*time.Second, "present", func() bool { return d.Status().Present })
		lease := d.Status().Lease
		if kv := readKey(t, store, key); kv == nil || kv.Lease != lease {
			t.Fatalf("stored %+v, lease %d", kv, lease)
		}
		if err := store.Revoke(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		eventually(t, 5*time.Second, "under a new lease", func() bool {
			s := d.Status()
			return s.Present && s.Lease != lease
		})
	}
	d.Update(allocator.Presence{Node: "n1", Version: "next"})
	eventually(t, 5*time.Second, "updated", func() bool {
		kv := readKey(t, store, key)
		return kv != nil && string(kv.Value) == `{"node":"n1","addresses":null,"prefixes":null,"version":"next","ttl_s":5,"instance":"i1"}`
	})
}

func testDriverPresenceLeave(t *testing.T, b backend) {
	key, store := t.Name()+"/nodes/n1", b.client(t)
	first, stop := keepPresence(t, b, key, "i1")
	eventually(t, 5*time.Second, "present", func() bool { return first.Status().Present })
	stop()
	if readKey(t, store, key) == nil {
		t.Fatal("a mere stop removed the presence")
	}
	other, _ := keepPresence(t, b, key, "i2")
	eventually(t, 5*time.Second, "refused", func() bool { return errors.Is(other.Status().Err, kvstore.ErrNodeTaken) })
	again, _ := keepPresence(t, b, key, "i1")
	eventually(t, 5*time.Second, "taken over", func() bool { return again.Status().Present })
	if err := again.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "free for the other", func() bool { return other.Status().Present })
	if err := other.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kv := readKey(t, store, key); kv != nil {
		t.Errorf("still there: %+v", kv)
	}
}
