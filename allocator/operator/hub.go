// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"sync"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
)

const (
	// hubKeeps bounds the events kept for readers that resume.
	hubKeeps = 16384
	// hubSlack bounds the events that may wait for one reader beyond its snapshot.
	hubSlack = 65536
)

// hub hands the changes of identities to readers. The loop owns it.
type hub struct {
	readers map[*subscription]bool
	recent  []allocator.WatchEvent // ends with a Current, if not empty
	from    allocator.Position     // recent is complete after this position
}

func newHub() hub { return hub{readers: map[*subscription]bool{}} }

// publish sends the new picture of the changed numbers.
func (h *hub) publish(core *allocator.Core, changed []identity.Number) {
	at := core.Position()
	events := make([]allocator.WatchEvent, 0, len(changed)+1)
	for _, n := range changed {
		events = append(events, picture(core, n, at))
	}
	events = append(events, allocator.WatchEvent{Kind: allocator.WatchCurrent, Position: at})
	h.recent = append(h.recent, events...)
	h.trim()
	for s := range h.readers {
		if !s.push(events) {
			delete(h.readers, s)
		}
	}
}

func picture(core *allocator.Core, n identity.Number, at allocator.Position) allocator.WatchEvent {
	id, ok := core.Identity(n)
	ev := allocator.WatchEvent{Kind: allocator.WatchUpsert, Identity: id, Position: at}
	if !ok || id.State == allocator.Quarantined || id.State == allocator.Free {
		ev.Kind = allocator.WatchDelete
		ev.Identity.Number = n
	}
	return ev
}

// trim drops the oldest events, in whole steps (up to a Current).
func (h *hub) trim() {
	for len(h.recent) > hubKeeps {
		i := 0
		for h.recent[i].Kind != allocator.WatchCurrent {
			i++
		}
		h.from = h.recent[i].Position
		h.recent = h.recent[i+1:]
	}
}

// subscribe begins with what followed after, if that is still known, else with
// a reset and a snapshot.
func (h *hub) subscribe(core *allocator.Core, after *allocator.Position) *subscription {
	if h.from.Revision == 0 {
		h.from, h.recent = core.Position(), nil // what came before is in the snapshot
	}
	s := &subscription{wake: make(chan struct{}, 1)}
	if events, ok := h.since(core, after); ok {
		s.queue = events
	} else {
		s.queue = snapshotEvents(core)
	}
	s.limit = len(s.queue) + hubSlack
	h.readers[s] = true
	return s
}

// since is what followed after. A position that this store does not continue, or
// that lies past all that is known, is not resumed: what followed there never
// happened here (I7).
func (h *hub) since(core *allocator.Core, after *allocator.Position) ([]allocator.WatchEvent, bool) {
	if after == nil || h.from.Revision == 0 || after.Revision < h.from.Revision || after.Counter < h.from.Counter {
		return nil, false
	}
	if !core.Continues(*after) || after.Revision > core.Applied() {
		return nil, false
	}
	i := len(h.recent)
	// Own commits are shown before the mirror brings their revision, so events at
	// the very position may have come after it: they are sent again.
	for i > 0 && h.recent[i-1].Position.Revision >= after.Revision {
		i--
	}
	return append([]allocator.WatchEvent(nil), h.recent[i:]...), true
}

func snapshotEvents(core *allocator.Core) []allocator.WatchEvent {
	at := core.Position()
	out := []allocator.WatchEvent{{Kind: allocator.WatchReset, Position: at}}
	core.Each(0, func(id allocator.Identity) bool {
		if id.State == allocator.Live || id.State == allocator.IdleState {
			out = append(out, allocator.WatchEvent{Kind: allocator.WatchUpsert, Identity: id, Position: at})
		}
		return true
	})
	return append(out, allocator.WatchEvent{Kind: allocator.WatchCurrent, Position: at})
}

func (h *hub) leave(s *subscription) { delete(h.readers, s) }

func (h *hub) close() {
	for s := range h.readers {
		s.end()
		delete(h.readers, s)
	}
}

// subscription is one reader's queue.
type subscription struct {
	wake  chan struct{}
	limit int

	mu    sync.Mutex
	queue []allocator.WatchEvent
	ended bool
}

// push queues events; it reports false when the reader is too slow, and ends it.
func (s *subscription) push(events []allocator.WatchEvent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue)+len(events) > s.limit {
		s.ended = true
		s.queue = nil
	} else {
		s.queue = append(s.queue, events...)
	}
	s.signal()
	return !s.ended
}

func (s *subscription) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.signal()
}

func (s *subscription) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run moves the queue into out until ctx ends or the subscription does.
func (s *subscription) run(ctx context.Context, out chan<- allocator.WatchEvent) {
	defer close(out)
	for {
		s.mu.Lock()
		events, ended := s.queue, s.ended
		s.queue = nil
		s.mu.Unlock()
		for _, e := range events {
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
		}
		if ended {
			return
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}
