// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/signet-identity/signet/kvstore"
)

// watcher is an open watch on the case's keys.
type watcher struct {
	c       *caseOf
	batches <-chan kvstore.WatchBatch
	cancel  context.CancelFunc
}

// watch opens a watch; its first batch says that it is created.
func (c *caseOf) watch(t *testing.T, from int64) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(c.ctx)
	t.Cleanup(cancel)
	head := c.list(t, kvstore.RangeRequest{Key: c.prefix}).Revision
	w := &watcher{c: c, cancel: cancel, batches: c.Store.Watch(ctx, kvstore.WatchRequest{Key: c.prefix, RangeEnd: c.end(), Revision: from})}
	if first := w.next(t); !first.Created || first.Revision < head || len(first.Events) != 0 || first.Err != nil {
		t.Fatalf("the first batch of a watch at %d: %+v", head, first)
	}
	return w
}

func (w *watcher) next(t *testing.T) kvstore.WatchBatch {
	t.Helper()
	select {
	case b, open := <-w.batches:
		if !open {
			t.Fatal("the watch's channel is closed")
		}
		return b
	case <-w.c.ctx.Done():
		t.Fatal("the watch is silent")
	}
	return kvstore.WatchBatch{}
}

// until gathers the events up to a revision.
func (w *watcher) until(t *testing.T, rev int64) (events []kvstore.Event) {
	t.Helper()
	for {
		b := w.next(t)
		if b.Err != nil {
			t.Fatalf("the watch ended: %v", b.Err)
		}
		events = append(events, b.Events...)
		if n := len(b.Events); n > 0 && b.Revision != b.Events[n-1].KV.ModRevision {
			t.Errorf("a batch with events up to %d says revision %d", b.Events[n-1].KV.ModRevision, b.Revision)
		}
		if b.Revision >= rev {
			return events
		}
	}
}

func testWatchPast(t *testing.T, c *caseOf) {
	first := c.put(t, "a", "1")
	c.put(t, "a", "2")
	c.delete(t, "a")
	w := c.watch(t, first)
	last := c.put(t, "b", "3")
	got := ""
	for _, e := range w.until(t, last) {
		got += fmt.Sprintf("%d %v %s=%s v%d c%d; ", e.KV.ModRevision-first, e.Delete, e.KV.Key[len(c.prefix):], e.KV.Value, e.KV.Version, max(0, e.KV.CreateRevision-first+1))
	}
	want := "0 false a=1 v1 c1; 1 false a=2 v2 c1; 2 true a= v0 c0; 3 false b=3 v1 c4; "
	if got != want {
		t.Errorf("events\n%s, want\n%s", got, want)
	}
}

func testWatchWhole(t *testing.T, c *caseOf) {
	var txn kvstore.Txn
	for i := range 100 {
		txn.Then = append(txn.Then, c.putAction(fmt.Sprintf("%03d", i), "1"))
	}
	start := c.txn(t, txn).Revision
	for range 20 {
		c.txn(t, txn)
	}
	w := c.watch(t, start)
	seen := map[int64]int{}
	for covered := start - 1; covered < start+20; {
		b := w.next(t)
		if b.Err != nil {
			t.Fatal(b.Err)
		}
		inBatch := map[int64]int{}
		for _, e := range b.Events {
			inBatch[e.KV.ModRevision]++
			if e.KV.ModRevision <= covered {
				t.Errorf("revision %d in two batches", e.KV.ModRevision)
			}
		}
		for rev, n := range inBatch {
			seen[rev] += n
			if n != 100 {
				t.Errorf("%d events of revision %d in one batch", n, rev)
			}
		}
		covered = max(covered, b.Revision)
	}
	if len(seen) != 21 {
		t.Errorf("%d revisions", len(seen))
	}
}

func testWatchProgress(t *testing.T, c *caseOf) {
	w := c.watch(t, 0)
	other := *c
	other.prefix = c.prefix[:len(c.prefix)-1] + "-elsewhere/"
	at := other.put(t, "a", "1")
	for {
		if err := c.Store.RequestProgress(c.ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case b := <-w.batches:
			if b.Err != nil || len(b.Events) != 0 || b.Created {
				t.Fatalf("instead of progress: %+v", b)
			}
			if b.Revision >= at {
				return
			}
		case <-time.After(50 * time.Millisecond): // a watch that catches up does not answer
		case <-c.ctx.Done():
			t.Fatalf("no progress to %d", at)
		}
	}
}

// testWatchFuture: a watch beyond the head is silent about what comes before.
func testWatchFuture(t *testing.T, c *caseOf) {
	head := c.put(t, "a", "1")
	w := c.watch(t, head+3)
	c.put(t, "a", "2")
	c.put(t, "a", "3")
	last := c.put(t, "a", "4")
	events := w.until(t, last)
	if len(events) != 1 || string(events[0].KV.Value) != "4" {
		t.Errorf("events from %d on: %+v", head+3, events)
	}
}

func testWatchCompacted(t *testing.T, c *caseOf) {
	first := c.put(t, "a", "1")
	c.put(t, "a", "2")
	at := c.put(t, "a", "3")
	c.Compact(t, at)
	w := c.watch(t, first)
	b := w.next(t)
	if !errors.Is(b.Err, kvstore.ErrCompacted) || b.CompactRevision != at || len(b.Events) != 0 {
		t.Errorf("a watch from before the compaction at %d: %+v", at, b)
	}
	if _, open := <-w.batches; open {
		t.Error("a batch came after the error")
	}
	w = c.watch(t, at)
	if events := w.until(t, at); len(events) != 1 || string(events[0].KV.Value) != "3" {
		t.Errorf("a watch from the compaction on: %+v", events)
	}
}

func testWatchEnds(t *testing.T, c *caseOf) {
	w := c.watch(t, 0)
	w.cancel()
	for b := range w.batches {
		if b.Err == nil {
			t.Errorf("a batch after the end: %+v", b)
		}
	}
}
