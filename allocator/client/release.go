// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/signet-identity/signet/allocator/labels"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// Release gives one use of the set back; the last one gives the reference
// back. If its answer does not come in time, the error says so, the set is no
// longer pinned, and the next Allocate or Flush settles it. FailedPrecondition
// means that the set was not pinned, or that the reference had another hold.
func (c *Client) Release(ctx context.Context, set labels.Set) error {
	c.pins.mu.Lock()
	e := c.pins.bySet[set]
	if e == nil || e.refs == 0 {
		c.pins.mu.Unlock()
		return &Error{Code: codes.FailedPrecondition, Reason: "not-pinned",
			Message: fmt.Sprintf("release %s: this client does not hold it", labels.Quote(set.Text()))}
	}
	if e.refs--; e.refs > 0 {
		c.pins.mu.Unlock()
		return nil
	}
	f := startRelease(e)
	c.pins.mu.Unlock()
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	if err := c.finishRelease(ctx, set, e, f); err != nil {
		return err
	}
	return nil
}

// releaseInBackground gives back what nobody wants any more. The lock is held.
func (c *Client) releaseInBackground(set labels.Set, e *pin) {
	f := startRelease(e)
	c.work.Go(func() {
		ctx, cancel := c.bounded(c.life)
		defer cancel()
		if err := c.finishRelease(ctx, set, e, f); err != nil {
			c.cfg.Logger.Warn("a reference that nobody wanted is not given back yet; Flush tries again", "labels", set.Text(), "error", err)
		}
	})
}

// startRelease makes later callers of the set wait. The lock is held.
func startRelease(e *pin) *flight {
	f := &flight{done: make(chan struct{})}
	e.flight = f
	return f
}

func (c *Client) finishRelease(ctx context.Context, set labels.Set, e *pin, f *flight) *Error {
	c.pins.mu.Lock()
	held := e.alloc
	c.pins.mu.Unlock()
	hold, err := held.Hold, (*Error)(nil)
	if !held.Number.IsReserved() {
		hold, err = c.sendRelease(ctx, set, hold)
	}
	c.pins.mu.Lock()
	defer c.pins.mu.Unlock()
	c.pins.unhold(set, e)
	if err != nil && !settled(err) {
		e.givenUp, e.orphan = hold, hold == 0
	}
	f.err, e.flight = err, nil
	close(f.done)
	c.pins.tidy(set, e)
	return err
}

// settled says that after this answer the hold is certainly not ours any more.
func settled(err *Error) bool {
	return err.Code == codes.FailedPrecondition || err.Code == codes.NotFound
}

// sendRelease gives the reference back, and returns the hold that it named. An
// unknown hold is asked for first, except of a pin, which needs none.
func (c *Client) sendRelease(ctx context.Context, set labels.Set, hold int64) (int64, *Error) {
	if hold == 0 && !strings.HasPrefix(c.cfg.Holder, "pin-") {
		a, err := c.sendAllocate(ctx, nil, set, 0)
		if err != nil {
			return 0, err
		}
		hold = a.Hold
	}
	_, err := c.release(ctx, set, hold)
	return hold, err
}

func (c *Client) release(ctx context.Context, set labels.Set, hold int64) (bool, *Error) {
	req := &signetv1.ReleaseRequest{Labels: set.Strings(), Holder: c.cfg.Holder, Hold: hold}
	var resp *signetv1.ReleaseResponse
	err := c.call(ctx, "release", func(ctx context.Context, conn *conn) (err error) {
		resp, err = conn.identity.Release(ctx, req)
		return err
	})
	return resp.GetReleased(), err
}

// ReleaseHold gives a reference back that this client did not allocate, by its
// hold; 0 means any and is for pins only. It reports false when there was none.
func (c *Client) ReleaseHold(ctx context.Context, set labels.Set, hold int64) (released bool, err error) {
	released, e := c.release(ctx, set, hold)
	if e != nil {
		return false, e
	}
	return released, nil
}

// Unsettled lists sets whose last Release or Allocate got no answer.
func (c *Client) Unsettled() []labels.Set {
	c.pins.mu.Lock()
	defer c.pins.mu.Unlock()
	var out []labels.Set
	for set, e := range c.pins.bySet {
		if e.flight == nil && !e.have && (e.givenUp != 0 || e.orphan) {
			out = append(out, set)
		}
	}
	return out
}

// Flush settles every unsettled set: what is not in use is given back. Calls
// that their callers gave up are waited for first. It returns the errors of
// the sets that are unsettled still.
func (c *Client) Flush(ctx context.Context) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	for _, f := range c.leftFlights() {
		select {
		case <-f.done:
		case <-ctx.Done():
			return ended(ctx, "flush", f.last.Load())
		}
	}
	var errs []error
	for _, set := range c.Unsettled() {
		if err := c.settle(ctx, set); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// leftFlights are the calls on their way that nobody waits for.
func (c *Client) leftFlights() []*flight {
	c.pins.mu.Lock()
	defer c.pins.mu.Unlock()
	var out []*flight
	for _, e := range c.pins.bySet {
		if e.flight != nil && e.waiters == 0 {
			out = append(out, e.flight)
		}
	}
	return out
}

func (c *Client) settle(ctx context.Context, set labels.Set) error {
	c.pins.mu.Lock()
	e := c.pins.bySet[set]
	if e == nil || e.flight != nil || e.have || (e.givenUp == 0 && !e.orphan) {
		c.pins.mu.Unlock()
		return nil
	}
	f, hold := startRelease(e), e.givenUp
	if e.orphan { // an Allocate may have landed since, with a hold that only the operator knows
		hold = 0
	}
	c.pins.mu.Unlock()
	hold, err := c.sendRelease(ctx, set, hold)
	c.pins.mu.Lock()
	defer c.pins.mu.Unlock()
	if err == nil || settled(err) {
		e.givenUp, e.orphan = 0, false
		err = nil
	} else if hold != 0 {
		e.givenUp, e.orphan = hold, false
	}
	e.flight = nil
	close(f.done)
	c.pins.tidy(set, e)
	if err != nil {
		return err
	}
	return nil
}
