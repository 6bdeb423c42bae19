// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
)

// watcher collects changes for one reader: for each endpoint the newest only,
// so that a slow reader costs no more than the endpoints there are.
type watcher struct {
	mu      sync.Mutex
	changes map[string]*View
	order   []string
	ended   bool
	more    chan struct{} // capacity 1
}

func newWatcher() *watcher {
	return &watcher{changes: make(map[string]*View), more: make(chan struct{}, 1)}
}

func (w *watcher) send(c change) {
	w.mu.Lock()
	if _, waits := w.changes[c.id]; !waits {
		w.order = append(w.order, c.id)
	}
	w.changes[c.id] = c.view
	w.mu.Unlock()
	w.signal()
}

func (w *watcher) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.signal()
}

func (w *watcher) signal() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// next waits for changes.
func (w *watcher) next(ctx context.Context) ([]change, error) {
	for {
		w.mu.Lock()
		var out []change
		for _, id := range w.order {
			out = append(out, change{id: id, view: w.changes[id]})
		}
		w.order, w.changes = nil, make(map[string]*View)
		ended := w.ended
		w.mu.Unlock()
		switch {
		case len(out) > 0:
			return out, nil
		case ended:
			return nil, stopping()
		}
		select {
		case <-w.more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// watch adds a watcher and returns what there is.
func (e *engine) watch(w *watcher) []*View {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watchers[w] = true
	if e.stopped {
		w.end()
	}
	var out []*View
	for _, ep := range e.table.endpoints {
		if ep.view != nil {
			out = append(out, ep.view)
		}
	}
	return out
}

func (e *engine) unwatch(w *watcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.watchers, w)
}
