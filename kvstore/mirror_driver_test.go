// SPDX-License-Identifier: Apache-2.0

package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/signet-identity/signet/kvstore"
)

// reader is a MirrorConsumer that keeps a copy.
type reader struct {
	mu     sync.Mutex
	index  kvstore.MirrorIndex
	state  map[string]string
	resets int
	before func() error // called before each batch
}

func (r *reader) Apply(_ context.Context, b kvstore.MirrorBatch) error {
	if r.before != nil {
		if err := r.before(); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.Reset {
		r.resets++
	}
	for _, ev := range r.index.Apply(b) {
		if ev.Delete {
			delete(r.state, ev.KV.Key)
		} else {
			r.state[ev.KV.Key] = string(ev.KV.Value)
		}
	}
	return nil
}

func (r *reader) WentBack(kvstore.WentBack) {}

func (r *reader) copy() (state map[string]string, resets int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	state = map[string]string{}
	for k, v := range r.state {
		state[k] = v
	}
	return state, r.resets
}

// muted is a Store whose watches tell nothing while it is muted, and never again after.
type muted struct {
	kvstore.Store
	mute atomic.Bool
}

func (m *muted) Watch(ctx context.Context, r kvstore.WatchRequest) <-chan kvstore.WatchBatch {
	out := make(chan kvstore.WatchBatch)
	go func() {
		defer close(out)
		dead := false
		for b := range m.Store.Watch(ctx, r) {
			if dead = dead || m.mute.Load(); dead {
				continue
			}
			select {
			case out <- b:
			case <-ctx.Done():
			}
		}
	}()
	return out
}

type following struct {
	*kvstore.MirrorDriver
	*reader
	err chan error
}

func follow(t *testing.T, store kvstore.Store, prefix string, r *reader, cfg kvstore.MirrorConfig) *following {
	cfg.Spans = []kvstore.Span{kvstore.PrefixSpan(prefix + "/id/"), kvstore.PrefixSpan(prefix + "/tomb/")}
	d, err := kvstore.NewMirrorDriver(store, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.index, r.state = kvstore.MirrorIndex{}, map[string]string{}
	f := &following{MirrorDriver: d, reader: r, err: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.err <- d.Run(ctx, r)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

// put writes keys in one transaction and returns its revision; an empty value deletes.
func put(t *testing.T, s kvstore.Store, pairs ...string) int64 {
	t.Helper()
	var txn kvstore.Txn
	for i := 0; i < len(pairs); i += 2 {
		txn.Then = append(txn.Then, kvstore.Action{Key: pairs[i], Put: pairs[i+1] != "", Delete: pairs[i+1] == "", Value: []byte(pairs[i+1])})
	}
	r, err := s.Txn(t.Context(), txn)
	if err != nil {
		t.Fatal(err)
	}
	return r.Revision
}

// reached waits for a revision and compares with the store.
func (f *following) reached(t *testing.T, s kvstore.Store, prefix string, revision int64, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := f.Wait(ctx, revision); err != nil {
		t.Fatalf("revision %d: %v: %+v", revision, err, f.Status())
	}
	r, err := s.Range(t.Context(), kvstore.RangeRequest{Key: prefix + "/", RangeEnd: kvstore.PrefixEnd(prefix + "/")})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, kv := range r.KVs {
		want[kv.Key] = string(kv.Value)
	}
	got, _ := f.copy()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("-store +mirror:\n%s", diff)
	}
}

func testDriverMirrorFollows(t *testing.T, b backend) {
	p, s := t.Name(), b.client(t)
	for i := range 30 {
		put(t, s, fmt.Sprint(p, "/id/", i), "a")
	}
	f := follow(t, b.client(t), p, &reader{}, kvstore.MirrorConfig{PageSize: 7})
	var last int64
	for i := range 100 {
		value := fmt.Sprint(i)
		if i%3 == 0 {
			value = ""
		}
		last = put(t, s, fmt.Sprint(p, "/id/", i%40), value, fmt.Sprint(p, "/tomb/", i%7), fmt.Sprint(i))
	}
	f.reached(t, s, p, last, 5*time.Second)
	if _, resets := f.copy(); resets != 1 {
		t.Errorf("%d lists", resets)
	}
}

func testDriverMirrorWait(t *testing.T, b backend) {
	p, s := t.Name(), b.client(t)
	f := follow(t, b.client(t), p, &reader{}, kvstore.MirrorConfig{})
	for i := range 20 {
		r := put(t, s, p+"-elsewhere", fmt.Sprint(i))
		f.reached(t, s, p, r, 2*time.Second)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := f.Wait(ctx, 1<<40); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a revision of the future: %v", err)
	}
}

func testDriverMirrorCompaction(t *testing.T, b backend) {
	p, s := t.Name(), b.client(t)
	store := &muted{Store: b.client(t)}
	f := follow(t, store, p, &reader{}, kvstore.MirrorConfig{Heartbeat: 200 * time.Millisecond})
	f.reached(t, s, p, put(t, s, p+"/id/1", "a", p+"/id/2", "b"), 2*time.Second)
	store.mute.Store(true)
	put(t, s, p+"/tomb/1", "x")
	gone := put(t, s, p+"/id/1", "")
	b.compact(t, gone)
	store.mute.Store(false)
	f.reached(t, s, p, put(t, s, p+"/id/3", "c"), 10*time.Second)
	if _, resets := f.copy(); resets != 2 || f.Status().Relists != 1 {
		t.Errorf("%d lists: %+v", resets, f.Status())
	}
}

func testDriverMirrorSilent(t *testing.T, b backend) {
	p, s := t.Name(), b.client(t)
	store := &muted{Store: b.client(t)}
	f := follow(t, store, p, &reader{}, kvstore.MirrorConfig{Heartbeat: 200 * time.Millisecond})
	f.reached(t, s, p, put(t, s, p+"/id/1", "a"), 2*time.Second)
	store.mute.Store(true)
	r := put(t, s, p+"/id/1", "", p+"/id/2", "b")
	eventually(t, 5*time.Second, "noticed", func() bool { return f.Status().Rewatches > 0 && f.Status().Err != nil })
	store.mute.Store(false)
	f.reached(t, s, p, r, 10*time.Second)
	if _, resets := f.copy(); resets != 1 {
		t.Errorf("%d lists", resets)
	}
	eventually(t, 5*time.Second, "well again", func() bool { return f.Status().Age() < time.Second })
}

func testDriverMirrorSlow(t *testing.T, b backend) {
	p, s := t.Name(), b.client(t)
	hold := make(chan struct{})
	var once sync.Once
	slow := &reader{before: func() error { once.Do(func() { <-hold }); return nil }}
	f := follow(t, b.client(t), p, slow, kvstore.MirrorConfig{Heartbeat: 100 * time.Millisecond})
	var last int64
	for i := range 200 {
		last = put(t, s, fmt.Sprint(p, "/id/", i), "a")
	}
	time.Sleep(1500 * time.Millisecond) // many heartbeats: the watches must not be blamed
	close(hold)
	f.reached(t, s, p, last, 5*time.Second)
	if st := f.Status(); st.Relists != 0 || st.Held != 0 {
		t.Errorf("status %+v", st)
	}
}

func testDriverMirrorConsumerFails(t *testing.T, b backend) {
	p, s := t.Name(), b.client(t)
	full := errors.New("the map is full")
	n := 0
	f := follow(t, b.client(t), p, &reader{before: func() error {
		if n++; n > 1 {
			return full
		}
		return nil
	}}, kvstore.MirrorConfig{})
	eventually(t, 2*time.Second, "listed", func() bool { return f.Applied() > 0 })
	applied := f.Applied()
	put(t, s, p+"/id/1", "a")
	select {
	case err := <-f.err:
		if !errors.Is(err, full) || f.Applied() != applied {
			t.Errorf("Run returned %v, applied %d after %d", err, f.Applied(), applied)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Run goes on")
	}
}
