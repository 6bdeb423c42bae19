// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
)

// Backoff between rounds of tries.
const (
	backoffBase = 50 * time.Millisecond
	backoffMax  = 2 * time.Second
)

// call makes one idempotent call: at the server in use, then at the others in
// turn, again and again until ctx ends. Only UNAVAILABLE and lost answers are
// repeated. It returns early when the next try would come after the deadline.
func (c *Client) call(ctx context.Context, what string, try func(context.Context, *conn) error) *Error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return c.repeat(ctx, what, try)
}

// bounded gives ctx a deadline if it has none, and ends it with the client.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	var cancel context.CancelFunc
	if _, ok := ctx.Deadline(); ok {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Timeout)
	}
	stop := context.AfterFunc(c.life, cancel)
	return ctx, func() { stop(); cancel() }
}

func (c *Client) repeat(ctx context.Context, what string, try func(context.Context, *conn) error) *Error {
	var last *Error
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return ended(ctx, what, last)
		}
		at := c.at.Load()
		err := c.attempt(ctx, at, try)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ended(ctx, what, keepUnavailable(last, err))
		}
		if !again(err) {
			return err
		}
		last = err
		c.at.CompareAndSwap(at, at+1)
		if !sleep(ctx, c.pause(n, err)) {
			if ctx.Err() == nil {
				return lateRetry(what, err)
			}
			return ended(ctx, what, last)
		}
	}
}

func (c *Client) attempt(ctx context.Context, at uint32, try func(context.Context, *conn) error) *Error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AttemptTimeout)
	defer cancel()
	if err := try(ctx, c.conns[int(at)%len(c.conns)]); err != nil {
		return asError(err)
	}
	return nil
}

// keepUnavailable prefers the server's word over the deadline that cut the
// last try short.
func keepUnavailable(last, err *Error) *Error {
	if err.Code == codes.Unavailable || last == nil {
		return err
	}
	return last
}

// lateRetry is the error when there is time left, but less than the next try
// has to wait.
func lateRetry(what string, err *Error) *Error {
	return &Error{Code: codes.Unavailable, Field: err.Field, Reason: err.Reason, Retry: err.Retry, cause: err,
		Message: what + ": no server could answer: " + err.Message}
}

// again says whether a failed try is worth another: nothing was decided.
func again(e *Error) bool {
	return e.Code == codes.Unavailable || e.Code == codes.DeadlineExceeded || e.Code == codes.Unknown || e.Code == codes.Canceled
}

// pause is how long to wait before try n+1: nothing while there are servers
// not yet asked in this round and the last one gave no hint, else exponential
// with full jitter, and never less than the hint.
func (c *Client) pause(n int, err *Error) time.Duration {
	if err.Retry == 0 && (n+1)%len(c.conns) != 0 {
		return 0
	}
	round := min(n/len(c.conns), 10)
	most := min(backoffBase<<round, backoffMax)
	return max(time.Duration(rand.Int64N(int64(most)))+time.Millisecond, err.Retry)
}

// sleep reports false without sleeping when d reaches past the deadline.
func sleep(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
