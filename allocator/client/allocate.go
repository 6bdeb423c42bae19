// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// Allocation is a label set's number, held by the client's holder.
type Allocation struct {
	Number identity.Number
	// Hold is the token of the reference; 0 for reserved numbers.
	Hold int64
	// Created says that this call took the number from the pool.
	Created bool
	// Identity is what the server said of it when it was allocated. It is
	// shared: do not change it.
	Identity *signetv1.Identity
}

// Allocate returns the set's number and pins it: one more use, until Release.
// A pinned set is answered from memory. Otherwise one call for the set is made,
// which all callers share; it goes on until the last of them gives up.
func (c *Client) Allocate(ctx context.Context, set labels.Set) (Allocation, error) {
	c.pins.mu.Lock()
	if e := c.pins.bySet[set]; e != nil && e.have && e.flight == nil {
		defer c.pins.mu.Unlock()
		return e.take(), nil
	}
	c.pins.mu.Unlock()
	if set.IsZero() {
		_, err := labels.NewSet()
		return Allocation{}, asError(err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	for {
		a, done, err := c.join(ctx, set)
		if done {
			return a, err
		}
	}
}

// take hands the pin's allocation out. The lock is held.
func (e *pin) take() Allocation {
	a := e.alloc
	e.refs++
	e.alloc.Created = false
	return a
}

// join takes the allocation if it is there; else it waits for the call on its
// way, or starts one. done is false when the wait is over without a result for
// this caller: a Release landed, so it has to ask again.
func (c *Client) join(ctx context.Context, set labels.Set) (a Allocation, done bool, err error) {
	c.pins.mu.Lock()
	defer c.pins.mu.Unlock()
	if c.life.Err() != nil {
		return Allocation{}, true, ended(c.life, "allocate", nil)
	}
	e := c.pins.get(set)
	if e.have && e.flight == nil {
		return e.take(), true, nil
	}
	if e.flight == nil {
		c.startAllocate(set, e)
	}
	f := e.flight
	e.waiters++
	c.pins.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
	}
	c.pins.mu.Lock()
	e.waiters--
	if e.have && e.flight == nil && ctx.Err() == nil {
		return e.take(), true, nil
	}
	c.abandon(set, e)
	if ctx.Err() != nil {
		return Allocation{}, true, ended(ctx, "allocate", f.last.Load())
	}
	if f.err != nil && f.cancel != nil {
		return Allocation{}, true, f.err
	}
	return Allocation{}, false, nil
}

// abandon cleans up behind the last caller that gave up: a call on its way is
// cancelled, a reference that nobody wants is given back. The lock is held.
func (c *Client) abandon(set labels.Set, e *pin) {
	if e.waiters > 0 || e.refs > 0 {
		return
	}
	switch {
	case e.flight != nil:
		if e.flight.cancel != nil {
			e.flight.cancel()
		}
	case e.have && c.life.Err() == nil:
		c.releaseInBackground(set, e)
	default:
		c.pins.tidy(set, e)
	}
}

// startAllocate sends the set's one Allocate. The lock is held.
func (c *Client) startAllocate(set labels.Set, e *pin) {
	ctx, cancel := context.WithCancel(c.life)
	f := &flight{done: make(chan struct{}), cancel: cancel}
	e.flight = f
	givenUp := e.givenUp
	c.work.Go(func() {
		defer cancel()
		a, err := c.sendAllocate(ctx, f, set, givenUp)
		c.pins.mu.Lock()
		defer c.pins.mu.Unlock()
		f.err, e.flight = err, nil
		close(f.done)
		if err == nil {
			c.pins.hold(set, e, a)
			e.givenUp, e.orphan = 0, false
			c.cache.answer(Identity{Number: a.Number, Labels: set})
		} else if err.Unknown() {
			e.orphan = true
		}
		c.abandon(set, e)
	})
}

func (c *Client) sendAllocate(ctx context.Context, f *flight, set labels.Set, givenUp int64) (Allocation, *Error) {
	req := &signetv1.AllocateRequest{Labels: set.Strings(), Holder: c.cfg.Holder, GivenUpHold: givenUp}
	var resp *signetv1.AllocateResponse
	err := c.repeat(ctx, "allocate", func(ctx context.Context, conn *conn) (err error) {
		if resp, err = conn.identity.Allocate(ctx, req); err != nil && f != nil {
			f.last.Store(asError(err))
		}
		return err
	})
	if err != nil {
		return Allocation{}, err
	}
	if resp.GetIdentity().GetNumber() == 0 {
		return Allocation{}, &Error{Code: codes.Internal, Message: "allocate: the server answered without a number"}
	}
	return Allocation{Number: identity.Number(resp.GetIdentity().GetNumber()), Hold: resp.GetHold(),
		Created: resp.GetCreated(), Identity: resp.GetIdentity()}, nil
}
