// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/signet-identity/signet/kvstore"
)

// ErrClosed: the store was closed.
var ErrClosed = errors.New("the store is closed")

// Store serves a Model as a kvstore.Store. Its clock is injected: leases end
// when the clock has passed their TTL and any call, or Tick, notices it.
type Store struct {
	now func() time.Duration

	mu       sync.Mutex
	model    *Model
	changed  chan struct{} // closed and replaced at each change
	asked    uint64        // progress requests so far
	broken   uint64        // BreakWatches calls so far
	breakErr error
	fault    func(call string) Fault
	closed   bool
}

// Fault is what a test wants to happen to a call: Before fails it without
// effect, After lets it happen and loses the answer. Both nil: no fault.
type Fault struct{ Before, After error }

var _ kvstore.Store = (*Store)(nil)

// NewStore serves m. now is the clock; nil means one that stands still.
func NewStore(m *Model, now func() time.Duration) *Store {
	if now == nil {
		now = func() time.Duration { return 0 }
	}
	return &Store{now: now, model: m, changed: make(chan struct{})}
}

// SetFault asks fault before each call; call is the method's name. nil: none.
func (s *Store) SetFault(fault func(call string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Do runs f on the model under the lock and wakes the watches: for tests that
// compact, restore or look.
func (s *Store) Do(f func(m *Model)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.model)
	s.wake()
}

// Replace puts another model in place, as a restore does, and ends every watch
// with err.
func (s *Store) Replace(m *Model, err error) {
	s.mu.Lock()
	s.model = m
	s.mu.Unlock()
	s.BreakWatches(err)
}

// BreakWatches ends every open watch with err, as a lost connection does.
func (s *Store) BreakWatches(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken++
	s.breakErr = err
	s.wake()
}

// Tick lets leases end that the clock has overtaken.
func (s *Store) Tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
}

func (s *Store) expire() {
	if len(s.model.Expire(s.now())) > 0 {
		s.wake()
	}
}

// wake must be called with the lock held.
func (s *Store) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// call runs f under the lock, with the fault that the test wants.
func (s *Store) call(ctx context.Context, name string, f func(m *Model) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed {
		return ErrClosed
	}
	var fault Fault
	if s.fault != nil {
		fault = s.fault(name)
	}
	if fault.Before != nil {
		return fault.Before
	}
	s.expire()
	before := s.model.revision
	err := f(s.model)
	if s.model.revision != before {
		s.wake()
	}
	if err == nil {
		err = fault.After
	}
	return err
}

// Txn implements kvstore.Store.
func (s *Store) Txn(ctx context.Context, t kvstore.Txn) (out kvstore.TxnResult, err error) {
	err = s.call(ctx, "Txn", func(m *Model) (err error) {
		out, err = m.Txn(t)
		return err
	})
	if err != nil {
		return kvstore.TxnResult{}, err
	}
	return out, nil
}

// Range implements kvstore.Store.
func (s *Store) Range(ctx context.Context, r kvstore.RangeRequest) (out kvstore.RangeResult, err error) {
	err = s.call(ctx, "Range", func(m *Model) (err error) {
		out, err = m.Range(r)
		return err
	})
	if err != nil {
		return kvstore.RangeResult{}, err
	}
	return out, nil
}

// Grant implements kvstore.Store.
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (id int64, err error) {
	err = s.call(ctx, "Grant", func(m *Model) (err error) {
		id, err = m.Grant(ttl, s.now())
		return err
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}

// KeepAlive implements kvstore.Store.
func (s *Store) KeepAlive(ctx context.Context, id int64) (ttl time.Duration, err error) {
	err = s.call(ctx, "KeepAlive", func(m *Model) (err error) {
		ttl, err = m.KeepAlive(id, s.now())
		return err
	})
	if err != nil {
		return 0, err
	}
	return ttl, nil
}

// Revoke implements kvstore.Store.
func (s *Store) Revoke(ctx context.Context, id int64) error {
	return s.call(ctx, "Revoke", func(m *Model) error { return m.Revoke(id) })
}

// RequestProgress implements kvstore.Store.
func (s *Store) RequestProgress(ctx context.Context) error {
	return s.call(ctx, "RequestProgress", func(*Model) error {
		s.asked++
		s.wake()
		return nil
	})
}

// Close implements kvstore.Store; it ends every watch with ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.wake()
	}
	return nil
}
