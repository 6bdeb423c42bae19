// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errWatchClosed ends a watch whose channel was closed without a word.
var errWatchClosed = errors.New("the watch was closed")

// caller carries out the Calls of one machine and gathers the Answers. Answers
// wait until the driver takes them, so a slow consumer slows the watches down.
type caller struct {
	store   Store
	answers chan Answer
	start   time.Time
	ctx     context.Context // of all calls
	stop    context.CancelFunc
	running sync.WaitGroup
	watches map[uint64]context.CancelFunc // the driver's goroutine alone uses it
}

func newCaller(store Store) *caller {
	ctx, stop := context.WithCancel(context.Background())
	return &caller{
		store: store, answers: make(chan Answer), start: time.Now(),
		ctx: ctx, stop: stop, watches: map[uint64]context.CancelFunc{},
	}
}

// now is the monotonic time since the driver was made.
func (c *caller) now() time.Duration { return time.Since(c.start) }

// close ends all calls and waits for them.
func (c *caller) close() {
	c.stop()
	c.running.Wait()
}

func (c *caller) do(call Call) {
	switch call.Kind {
	case CallCancel:
		if cancel := c.watches[call.Target]; cancel != nil {
			cancel()
			delete(c.watches, call.Target)
		}
	case CallWatch:
		ctx, cancel := context.WithCancel(c.ctx)
		c.watches[call.ID] = cancel
		c.running.Go(func() { c.watch(ctx, call) })
	default:
		c.running.Go(func() { c.give(c.ctx, c.ask(call)) })
	}
}

// forget lets go of a watch that has ended by itself.
func (c *caller) forget(a Answer) {
	if a.Batch.Err == nil {
		return
	}
	if cancel := c.watches[a.ID]; cancel != nil {
		cancel()
		delete(c.watches, a.ID)
	}
}

func (c *caller) give(ctx context.Context, a Answer) {
	select {
	case c.answers <- a:
	case <-ctx.Done():
	}
}

func (c *caller) ask(call Call) Answer {
	ctx := c.ctx
	if call.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, call.Timeout)
		defer cancel()
	}
	a := Answer{ID: call.ID}
	switch call.Kind {
	case CallTxn:
		a.Txn, a.Err = c.store.Txn(ctx, call.Txn)
	case CallRange:
		a.Range, a.Err = c.store.Range(ctx, call.Range)
	case CallGrant:
		a.Lease, a.Err = c.store.Grant(ctx, call.TTL)
	case CallKeepAlive:
		a.TTL, a.Err = c.store.KeepAlive(ctx, call.Lease)
	case CallRevoke:
		a.Err = c.store.Revoke(ctx, call.Lease)
	case CallProgress:
		a.Err = c.store.RequestProgress(ctx)
	}
	return a
}

func (c *caller) watch(ctx context.Context, call Call) {
	for batch := range c.store.Watch(ctx, call.Watch) {
		c.give(ctx, Answer{ID: call.ID, Batch: batch})
		if batch.Err != nil {
			return
		}
	}
	c.give(ctx, Answer{ID: call.ID, Batch: WatchBatch{Err: errWatchClosed}})
}

// alarm is a timer that is set to a machine's Wake.
type alarm struct {
	timer *time.Timer
}

func newAlarm() alarm {
	return alarm{timer: time.NewTimer(time.Hour)}
}

func (a alarm) set(now, wake time.Duration) <-chan time.Time {
	if wake == Never {
		a.timer.Stop()
		return nil
	}
	a.timer.Reset(max(0, wake-now))
	return a.timer.C
}
