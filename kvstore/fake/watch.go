// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"

	"github.com/signet-identity/signet/kvstore"
)

// watch is one open watch; its goroutine alone touches it.
type watch struct {
	s       *Store
	request kvstore.WatchRequest
	created bool
	next    int64  // first revision not delivered yet
	asked   uint64 // progress requests answered
	broken  uint64 // BreakWatches calls seen
}

// Watch implements kvstore.Store. A watch from beyond the head stays silent
// until the head has come that far, as etcd's does.
func (s *Store) Watch(ctx context.Context, r kvstore.WatchRequest) <-chan kvstore.WatchBatch {
	out := make(chan kvstore.WatchBatch)
	w := &watch{s: s, request: r, next: r.Revision}
	s.mu.Lock()
	w.asked, w.broken = s.asked, s.broken
	s.mu.Unlock()
	go func() {
		defer close(out)
		for {
			batch, changed := w.step()
			if batch == nil {
				select {
				case <-changed:
					continue
				case <-ctx.Done():
					return
				}
			}
			select {
			case out <- *batch:
			case <-ctx.Done():
				return
			}
			if batch.Err != nil {
				return
			}
		}
	}()
	return out
}

// step is the next batch, or nil and the channel that closes when something
// may have changed.
func (w *watch) step() (*kvstore.WatchBatch, <-chan struct{}) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	head := s.model.revision
	switch {
	case s.closed:
		return &kvstore.WatchBatch{Err: ErrClosed}, nil
	case w.broken != s.broken:
		return &kvstore.WatchBatch{Err: s.breakErr}, nil
	case !w.created:
		w.created = true
		if w.next == 0 {
			w.next = head + 1
		}
		return &kvstore.WatchBatch{Created: true, Revision: head}, nil
	}
	if batch := w.events(head); batch != nil {
		return batch, nil
	}
	if w.asked != s.asked {
		w.asked = s.asked
		return &kvstore.WatchBatch{Revision: head}, nil
	}
	return nil, s.changed
}

// events is everything since the last batch, or nil if there is nothing.
func (w *watch) events(head int64) *kvstore.WatchBatch {
	if w.next > head {
		return nil
	}
	m := w.s.model
	events, compacted := m.Events(w.next, w.request.Key, w.request.RangeEnd)
	if compacted {
		return &kvstore.WatchBatch{Err: kvstore.ErrCompacted, CompactRevision: m.compacted}
	}
	w.next = head + 1
	if len(events) == 0 {
		return nil
	}
	return &kvstore.WatchBatch{Events: events, Revision: events[len(events)-1].KV.ModRevision}
}
