// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/signet-identity/signet/bpf"
)

// eventually waits for a condition without sleeping for a fixed time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		runtime.Gosched()
	}
}

// Run follows changes, retries and clears with the real clock, and ends with
// its context.
func TestRun(t *testing.T) {
	var log syncBuffer
	d, err := NewMemory(Config{
		Addresses: 10, Prefixes: 10, Rows: 10,
		Grace: 20 * time.Millisecond, Quarantine: 20 * time.Millisecond,
		RetryMin: time.Millisecond, RetryMax: 2 * time.Millisecond, VerifyEvery: 10 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}, "a test")
	if err != nil {
		t.Fatal(err)
	}
	e := d.(*engine)
	var mu sync.Mutex
	tries := 3
	e.store.tables[hosts] = &fault{e.store.tables[hosts], func(bpf.AddrKey) error {
		mu.Lock()
		defer mu.Unlock()
		if tries--; tries >= 0 {
			return unix.ENOMEM
		}
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()

	d.Synced()
	if err := d.Upsert(Entry{Prefix: pfx("10.0.0.1/32"), Number: 1001, Source: SourceEndpoint}); err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr("10.0.0.1")
	eventually(t, "the address is realised after its failures", func() bool {
		r, err := d.Lookup(addr)
		return err == nil && r.Number == 1001
	})
	if err := d.Delete(pfx("10.0.0.1/32"), SourceEndpoint); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the row is free again", func() bool {
		s, p := d.Status(), d.Progress()
		return s.Rows == RowStatus{Capacity: 8} && p.Applied == p.Last
	})
	eventually(t, "the maps are compared", func() bool { return !d.Status().LastVerify.IsZero() })
	cancel()
	if err := <-done; err != nil {
		t.Fatalf("Run: %v", err)
	}
	if text := log.String(); !strings.Contains(text, "not fully realised") || !strings.Contains(text, "realised again") {
		t.Errorf("log: %s", text)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Close ends Run and makes every call fail by name.
func TestClosed(t *testing.T) {
	both(t, small, func(t *testing.T, b *bench) {
		done := make(chan error, 1)
		go func() { done <- b.Run(context.Background()) }()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Fatalf("Run: %v", err)
		}
		b.Synced()
		for name, call := range map[string]func() error{
			"Upsert":    func() error { return b.Upsert(Entry{Prefix: pfx("10.0.0.1/32"), Number: 7, Source: SourceNode}) },
			"Delete":    func() error { return b.Delete(pfx("10.0.0.1/32"), SourceNode) },
			"Reconcile": func() error { return b.Reconcile(context.Background()) },
			"Tick":      func() error { return b.Tick(context.Background(), time.Now()) },
			"Verify":    func() error { _, err := b.Verify(); return err },
			"Repair":    func() error { _, err := b.Repair(context.Background()); return err },
			"List":      func() error { _, err := b.List(); return err },
			"Lookup":    func() error { _, err := b.Lookup(netip.MustParseAddr("10.0.0.1")); return err },
		} {
			if err := call(); !errors.Is(err, ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		b.engine = b.reopen() // for the removal of the pins
	})
}

// A pass that is cut off by its context leaves the rest pending, and says so.
func TestCancelledPass(t *testing.T) {
	b := newMemoryBench(t, small)
	b.Synced()
	for i := range 10 {
		b.upsert(t, host(i), 1001, SourceRemote)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Reconcile(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	if s := b.Status(); s.Pending != 10 || s.Failing != 0 || !s.LastSuccess.IsZero() {
		t.Fatalf("%+v", s)
	}
	b.reconcileAll(t)
	if s := b.Status(); s.Pending != 0 || s.LastSuccess.IsZero() {
		t.Fatalf("%+v", s)
	}
}

// A change that comes while the one before is being written is not lost.
func TestChangeDuringWrite(t *testing.T) {
	b := newMemoryBench(t, small)
	b.Synced()
	b.upsert(t, host(1), 1001, SourceRemote)
	once := true
	b.injectFaults(hosts, func(bpf.AddrKey) error {
		if once {
			once = false
			b.upsert(t, host(1), 1002, SourceRemote)
		}
		return nil
	})
	b.reconcileAll(t)
	if p := b.Progress(); p.Applied >= p.Last {
		t.Fatalf("progress %+v although the second change is not written", p)
	}
	b.reconcileAll(t)
	b.wantLookup(t, "10.0.0.1", hit(1002))
	b.noDrift(t)
}

func TestBackoff(t *testing.T) {
	want := []time.Duration{100, 200, 400, 800, 1000, 1000}
	for attempts, ms := range want {
		if got := backoff(100*time.Millisecond, time.Second, attempts); got != ms*time.Millisecond {
			t.Errorf("after %d tries: %s", attempts, got)
		}
	}
	if got := backoff(time.Millisecond, time.Hour, 1<<20); got != time.Hour {
		t.Errorf("after very many: %s", got)
	}
}

func TestPendingSaysWhat(t *testing.T) {
	b := newMemoryBench(t, small)
	b.Synced()
	b.upsert(t, host(1), 1001, SourceRemote)
	b.upsert(t, host(2), 1002, SourceRemote)
	b.reconcileAll(t)
	b.delete(t, host(1), SourceRemote)
	b.upsert(t, host(2), 1003, SourceRemote)
	list := b.Pending()
	if len(list) != 2 || !list[0].Remove || list[0].Prefix != pfx(host(1)) || list[1].Number != 1003 || list[1].Remove {
		t.Fatalf("%+v", list)
	}
	var refused *EntryError
	if err := b.Delete(netip.Prefix{}, SourceNode); !errors.As(err, &refused) {
		t.Fatal(err)
	}
	if text := (&PendingError{Failing: 3, First: unix.ENOMEM}).Error(); !strings.Contains(text, "3 ipcache entries") {
		t.Fatal(text)
	}
}
