// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signet-identity/signet/kvstore"
)

// askEvery is how often Follow asks for progress while it waits: a store that
// still catches up does not answer, so it has to be asked again.
const askEvery = 20 * time.Millisecond

// allKeys is the range of every key, in etcd's reading.
const allKeys = "\x00"

// errWatchEnded: the store closed a watch and gave no reason.
var errWatchEnded = errors.New("follow the store: the watch ended")

// Follow feeds the history from a watch over the whole store, beginning after
// the newest revision that was judged (a new History: at revision 1). With
// until > 0 it returns nil once everything up to that revision is judged; else
// it goes on until ctx ends, and returns its error. A watch that ends returns
// why (kvstore.ErrCompacted: events are lost); Follow may then be called again
// and goes on where it was.
func (h *History) Follow(ctx context.Context, s kvstore.Store, until int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	batches := s.Watch(ctx, kvstore.WatchRequest{Key: allKeys, RangeEnd: allKeys, Revision: h.Revision() + 1})
	ask := time.NewTicker(askEvery)
	defer ask.Stop()
	for until <= 0 || h.Revision() < until {
		select {
		case b, ok := <-batches:
			if !ok {
				return cmp.Or(ctx.Err(), errWatchEnded)
			}
			if err := h.take(b); err != nil {
				return fmt.Errorf("follow the store: %w", err)
			}
		case <-ask.C:
			if until > 0 {
				if err := s.RequestProgress(ctx); err != nil {
					return fmt.Errorf("follow the store: %w", err)
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// take judges one batch. A batch without events says that all up to its
// revision has been delivered, except the first one, which names the head.
func (h *History) take(b kvstore.WatchBatch) error {
	if b.Err != nil {
		return b.Err
	}
	if err := h.Add(b.Events); err != nil {
		return err
	}
	if len(b.Events) == 0 && !b.Created {
		h.mu.Lock()
		h.revision = max(h.revision, b.Revision)
		h.mu.Unlock()
	}
	return nil
}
