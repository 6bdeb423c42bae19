// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator/check"
	"github.com/signet-identity/signet/kvstore"
)

// Seen is one event of the store with the moment at which the recorder
// received it: it happened before that.
type Seen struct {
	kvstore.Event
	At time.Time
}

// Recorder watches the store from revision 1, judges each revision and keeps
// the events.
type Recorder struct {
	History *check.History

	store kvstore.Store
	mu    sync.Mutex
	seen  []Seen
	last  int64
	lost  error
}

// Record starts a recorder that ends with the test.
func Record(t testing.TB, store kvstore.Store, layout kvstore.Layout) *Recorder {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Recorder{History: check.NewHistory(check.Options{Layout: layout}), store: store}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.follow(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return r
}

// follow goes on over broken watches, and stops when events were lost.
func (r *Recorder) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.History.Follow(ctx, tee{r.store, r}, 0)
		var order *check.OrderError
		if errors.Is(err, kvstore.ErrCompacted) || errors.As(err, &order) {
			r.mu.Lock()
			r.lost = err
			r.mu.Unlock()
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// Lost is why the recorder cannot go on: events were compacted before it saw them.
func (r *Recorder) Lost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// Events lists what was seen so far, in the order in which it happened.
func (r *Recorder) Events() []Seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[:len(r.seen):len(r.seen)]
}

// keep takes a batch's events; those that a new watch repeats are there already.
func (r *Recorder) keep(b kvstore.WatchBatch) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.last
	for _, ev := range b.Events {
		if ev.KV.ModRevision > before {
			r.seen = append(r.seen, Seen{Event: ev, At: now})
			r.last = ev.KV.ModRevision
		}
	}
}

// CaughtUp waits until everything that was written so far is judged.
func (r *Recorder) CaughtUp(ctx context.Context) error {
	head, err := r.store.Range(ctx, kvstore.RangeRequest{Key: "x"})
	if err != nil {
		return err
	}
	for r.History.Revision() < head.Revision {
		if err := r.Lost(); err != nil {
			return err
		}
		if err := r.store.RequestProgress(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// Judge waits until everything is judged, and fails the test for each violation.
func (r *Recorder) Judge(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.CaughtUp(ctx); err != nil {
		t.Fatalf("the recorder: %v", err)
	}
	for _, v := range r.History.Violations() {
		t.Errorf("violation: %s", v)
	}
	t.Logf("history: %d revisions, %d events, %d violations", r.History.Revision(), r.History.Events(), len(r.History.Violations()))
}

// tee is a store whose watches the recorder reads along.
type tee struct {
	kvstore.Store
	to *Recorder
}

// Watch implements kvstore.Store.
func (s tee) Watch(ctx context.Context, req kvstore.WatchRequest) <-chan kvstore.WatchBatch {
	in, out := s.Store.Watch(ctx, req), make(chan kvstore.WatchBatch)
	go func() {
		defer close(out)
		for b := range in {
			s.to.keep(b)
			select {
			case out <- b:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
