// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"context"
	"errors"
	"time"
)

// written notes a change that is in the map.
func (e *engine) written(w write) {
	e.hold(w.place, w.value, e.since(w.place))
	e.unrefWrite(w)
	e.settle(w.place)
}

// unwritten notes a change that is not.
func (e *engine) unwritten(w write, err error) {
	e.unrefWrite(w)
	e.fail(w.place, err)
}

// unrefWrite ends the reference that an unfinished write has; when it was the
// only one, no address ever pointed there on its behalf.
func (e *engine) unrefWrite(w write) {
	if w.ref {
		e.rows.release(w.value.Row, e.cfg.Clock(), noChange)
	}
}

func (e *engine) removed(p place) {
	e.drop(p, e.since(p))
	e.settle(p)
}

// settle ends the waiting of a place, or begins it anew when the desired entry
// changed during the write: the older change stays the one that counts.
func (e *engine) settle(p place) {
	e.stats.writes++
	if e.todo(p) == nothing {
		delete(e.pending, p)
		return
	}
	e.touch(p)
}

// since is the change that is being brought into the map at a place.
func (e *engine) since(p place) uint64 {
	if r := e.pending[p]; r != nil {
		return r.since
	}
	return e.seq
}

// fail puts a place off, each time for longer.
func (e *engine) fail(p place, err error) {
	e.stats.failures++
	e.stats.lastError = err.Error()
	r := e.pending[p]
	if r == nil {
		return // wanted no more
	}
	r.err = err
	r.next = e.cfg.Clock().Add(backoff(e.cfg.RetryMin, e.cfg.RetryMax, r.attempts))
	r.attempts++
}

func (e *engine) failAll(places []place, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range places {
		e.fail(p, err)
	}
}

func backoff(least, most time.Duration, attempts int) time.Duration {
	d := least
	for ; attempts > 0 && d < most; attempts-- {
		d *= 2
	}
	return min(d, most)
}

// summary ends a pass: nothing failing is a success.
func (e *engine) summary(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	failing, first := e.failing()
	if failing > 0 {
		return &PendingError{Failing: failing, First: first}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	e.stats.lastSuccess = e.cfg.Clock()
	return nil
}

func (e *engine) failing() (n int, first error) {
	for _, r := range e.pending {
		if r.attempts == 0 {
			continue
		}
		n++
		if first == nil {
			first = r.err
		}
	}
	return n, first
}

func (e *engine) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// shut closes the store once, after doing what goes before.
func (e *engine) shut(before func() error) error {
	e.pass.Lock()
	defer e.pass.Unlock()
	if e.isClosed() {
		return nil
	}
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.nudge()
	var errs []error
	if before != nil {
		errs = append(errs, before())
	}
	for t := range tableCount {
		errs = append(errs, e.store.tables[t].Close())
	}
	errs = append(errs, e.store.rows.Close())
	if e.store.close != nil {
		errs = append(errs, e.store.close())
	}
	return errors.Join(errs...)
}
