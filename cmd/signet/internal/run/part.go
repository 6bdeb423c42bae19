// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// stopLimit bounds the stop of one part.
const stopLimit = 5 * time.Second

// part is something that runs until it is stopped or fails.
type part struct {
	name   string
	failed <-chan error // delivers once, when it ended by itself; nil: it left in peace
	stop   func(context.Context)
}

// parts are running parts, in the order of their start.
type parts struct {
	log  *slog.Logger
	list []*part
	// ctx ends with the context that they were made with, or when a part ends
	// by itself; failure says why then.
	ctx    context.Context
	cancel context.CancelFunc

	mu  sync.Mutex
	err error // why a part ended by itself
}

func newParts(ctx context.Context, log *slog.Logger) *parts {
	ctx, cancel := context.WithCancel(ctx)
	return &parts{log: log, ctx: ctx, cancel: cancel}
}

// add takes a running part in.
func (ps *parts) add(p *part) {
	ps.list = append(ps.list, p)
	go func() {
		select {
		case err := <-p.failed:
			ps.ended(p, err)
		case <-ps.ctx.Done():
		}
	}()
}

func (ps *parts) ended(p *part, err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if err != nil && ps.err == nil {
		ps.err = fmt.Errorf("%s: %w", p.name, err)
	}
	ps.cancel()
}

// failure is why a part ended by itself; nil: none did, or it left in peace.
func (ps *parts) failure() error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.err
}

// cause is the better reason of two: a part that ended by itself a moment ago
// explains err, which was met by someone who talked to it.
func (ps *parts) cause(err error) error {
	select {
	case <-ps.ctx.Done():
	case <-time.After(200 * time.Millisecond):
	}
	if failure := ps.failure(); failure != nil {
		return failure
	}
	return err
}

// wait blocks until ctx ends, and says why: nil when it was asked for.
func (ps *parts) wait() error {
	<-ps.ctx.Done()
	return ps.failure()
}

// stop stops all parts, the last one first, each within its limit.
func (ps *parts) stop() {
	ps.cancel()
	for i := len(ps.list) - 1; i >= 0; i-- {
		p := ps.list[i]
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		done := make(chan struct{})
		go func() { defer close(done); p.stop(ctx) }()
		select {
		case <-done:
			ps.log.Debug("stopped", "part", p.name)
		case <-ctx.Done():
			ps.log.Warn("it did not stop in time and is left behind", "part", p.name, "limit", stopLimit)
		}
		cancel()
	}
	ps.list = nil
}

// background runs f in a goroutine; stop cancels its context and waits for it.
func background(name string, f func(context.Context) error) *part {
	ctx, cancel := context.WithCancel(context.Background())
	failed, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		err := f(ctx)
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			err = nil
		}
		failed <- err
	}()
	return &part{name: name, failed: failed, stop: func(limit context.Context) {
		cancel()
		select {
		case <-done:
		case <-limit.Done():
		}
	}}
}
