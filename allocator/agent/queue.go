// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
)

// queue is an unbounded first-in-first-out; what bounds it is that the table
// has at most one effect for each thing under way.
type queue[T any] struct {
	mu    sync.Mutex
	items []T
	more  chan struct{} // capacity 1
}

func newQueue[T any]() *queue[T] { return &queue[T]{more: make(chan struct{}, 1)} }

func (q *queue[T]) push(item T) {
	q.mu.Lock()
	q.items = append(q.items, item)
	q.mu.Unlock()
	q.signal()
}

func (q *queue[T]) signal() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// pop takes the first item; false once ctx has ended.
func (q *queue[T]) pop(ctx context.Context) (item T, ok bool) {
	batch, ok := q.popAll(ctx, 1)
	if !ok {
		return item, false
	}
	return batch[0], true
}

// popAll takes all items, or at most so many; false once ctx has ended.
func (q *queue[T]) popAll(ctx context.Context, most int) ([]T, bool) {
	for ctx.Err() == nil {
		if batch := q.take(most); len(batch) > 0 {
			return batch, true
		}
		select {
		case <-q.more:
		case <-ctx.Done():
		}
	}
	return nil, false
}

// take is popAll without waiting. The next waiter is woken if something is left.
func (q *queue[T]) take(most int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	if most <= 0 || most >= len(q.items) {
		batch := q.items
		q.items = nil
		return batch
	}
	batch := q.items[:most:most]
	q.items = q.items[most:]
	q.signal()
	return batch
}
