// SPDX-License-Identifier: Apache-2.0

package kvstore_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/embedded"
)

const patience = 20 * time.Second

func startServer(t *testing.T) *embedded.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := embedded.Start(ctx, embedded.Config{DataDir: t.TempDir(), ClientURL: "http://127.0.0.1:0", PeerURL: "http://127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A Work transaction without writes, whichever branch runs, leaves no entry in
// raft's log; one with writes leaves one even when it is refused.
func TestFencedReadTakesNoRaftEntry(t *testing.T) {
	server := startServer(t)
	t.Cleanup(server.Close)
	store, err := server.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	layout, err := kvstore.NewLayout("", "default")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease, err := store.Grant(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	own, err := store.Txn(ctx, kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: layout.ElectionKey(lease), Value: []byte("{}"), Lease: lease}}})
	if err != nil {
		t.Fatal(err)
	}
	run := func(lease int64, op allocator.Op) (commit.Result, uint64) {
		t.Helper()
		before := server.Etcd().Server.AppliedIndex()
		fence := commit.Fence{Lease: lease, Epoch: own.Revision, Mod: own.Revision}
		r, err := layout.Run(ctx, store, commit.Transaction{Kind: commit.Work, Fence: fence, Ops: []allocator.Op{op}}, allocator.Candidate{})
		if err != nil || r.Revision != own.Revision {
			t.Fatalf("%+v, %v", r, err)
		}
		return r, server.Etcd().Server.AppliedIndex() - before
	}
	read := allocator.Op{Guards: []allocator.Guard{{Kind: allocator.GuardAbsent, Key: allocator.MasterKey(256)}}}
	for _, c := range []struct {
		lease     int64
		succeeded bool
	}{{lease, true}, {lease + 1, false}} {
		if r, entries := run(c.lease, read); r.Succeeded != c.succeeded || entries != 0 {
			t.Errorf("a fenced read: succeeded %v with %d raft entries", r.Succeeded, entries)
		}
	}
	write := read
	write.Writes = []allocator.Write{{Key: allocator.MasterKey(256), Value: allocator.LabelSet("k8s:a=b;")}}
	if r, entries := run(lease+1, write); r.Succeeded || entries != 1 {
		t.Errorf("a refused write: succeeded %v with %d raft entries", r.Succeeded, entries)
	}
}

func TestOutcomeIsUnknownOnceEtcdIsGone(t *testing.T) {
	server := startServer(t)
	store, err := server.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	put := kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: "a", Value: []byte("1")}}}
	if _, err := store.Txn(ctx, put); err != nil {
		t.Fatal(err)
	}
	watch := store.Watch(ctx, kvstore.WatchRequest{Key: "a"})
	if b := <-watch; !b.Created {
		t.Fatalf("the first batch: %+v", b)
	}
	server.Close()
	if b := <-watch; b.Err == nil || errors.Is(b.Err, kvstore.ErrCompacted) {
		t.Errorf("the watch after etcd went away: %+v", b)
	}
	if _, open := <-watch; open {
		t.Error("the watch is still open")
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := store.Txn(short, put); !errors.Is(err, kvstore.ErrUnknownOutcome) {
		t.Errorf("a write: %v", err)
	}
	short, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := store.Txn(short, kvstore.Txn{Then: []kvstore.Action{{Key: "a"}}}); err == nil || errors.Is(err, kvstore.ErrUnknownOutcome) {
		t.Errorf("a read: %v", err)
	}
}

func TestCloseEndsWatches(t *testing.T) {
	server := startServer(t)
	t.Cleanup(server.Close)
	store, err := server.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	watch := store.Watch(t.Context(), kvstore.WatchRequest{Key: "a"})
	if b := <-watch; !b.Created {
		t.Fatalf("the first batch: %+v", b)
	}
	if err := store.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if b, open := <-watch; open {
		t.Errorf("after Close: %+v", b)
	}
}

// syncBuffer is a log that a test may read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestWaitReady(t *testing.T) {
	server := startServer(t)
	endpoint := server.Endpoint()
	var log syncBuffer
	open := func() *kvstore.Etcd {
		store, err := kvstore.NewEtcd(t.Context(), kvstore.EtcdConfig{
			Endpoints: []string{endpoint}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	store := open()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := store.WaitReady(ctx); err != nil || log.String() != "" {
		t.Errorf("with etcd there: %v, log %q", err, log.String())
	}
	store.Close()
	server.Close()

	store = open()
	defer store.Close()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var want *kvstore.NotReadyError
	if err := store.WaitReady(short); !errors.As(err, &want) || !strings.Contains(err.Error(), endpoint) {
		t.Errorf("without etcd: %v", err)
	}
}
