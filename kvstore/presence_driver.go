// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/signet-identity/signet/allocator"
)

// PresenceDriver runs a Presence against a Store. The Store should be one that
// does no other work, so that renewals never wait behind it.
type PresenceDriver struct {
	log    *slog.Logger
	caller *caller
	kick   chan struct{} // an input came in: look at Ready
	left   chan struct{} // closed once Run has returned

	noted string // the error that was logged last; Run's alone

	mu      sync.Mutex
	machine *Presence
}

// NewPresenceDriver returns a driver that Run starts.
func NewPresenceDriver(store Store, cfg PresenceConfig, log *slog.Logger) *PresenceDriver {
	return &PresenceDriver{
		log: log, caller: newCaller(store),
		kick: make(chan struct{}, 1), left: make(chan struct{}),
		machine: NewPresence(cfg),
	}
}

// Status reports what the presence knows now.
func (d *PresenceDriver) Status() PresenceStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.machine.Status(d.caller.now())
}

// Update changes what the key says.
func (d *PresenceDriver) Update(v allocator.Presence) {
	d.input(func(now time.Duration) { d.machine.Update(now, v) })
}

// Leave removes the key for good and waits until Run has returned. It is not
// for a mere restart: then the lease is to live on.
func (d *PresenceDriver) Leave(ctx context.Context) error {
	d.input(d.machine.Leave)
	select {
	case <-d.left:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *PresenceDriver) input(f func(now time.Duration)) {
	d.mu.Lock()
	f(d.caller.now())
	d.mu.Unlock()
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// Run keeps the presence until ctx ends, which leaves key and lease as they are
// (the same instance takes over when it starts again), or until Leave is done.
// It is called once. changed, if not nil, is told of each change of state.
func (d *PresenceDriver) Run(ctx context.Context, changed func(PresenceStatus)) {
	defer close(d.left)
	defer d.caller.close()
	alarm := newAlarm()
	step := d.machine.Tick
	for {
		ready, status := d.advance(step)
		if ready.Changed {
			d.note(status)
			if changed != nil {
				changed(status)
			}
		}
		for _, call := range ready.Calls {
			d.caller.do(call)
		}
		if ready.Stopped {
			return
		}
		select {
		case a := <-d.caller.answers:
			d.caller.forget(a)
			step = func(now time.Duration) { d.machine.Step(now, a) }
		case <-alarm.set(d.caller.now(), ready.Wake):
			step = d.machine.Tick
		case <-d.kick:
			step = d.machine.Tick
		case <-ctx.Done():
			return
		}
	}
}

// note logs a change of state: a lease in hex as etcd's tools print it, and an
// error once, not again with the states that mend it.
func (d *PresenceDriver) note(s PresenceStatus) {
	args := []any{"state", s.State}
	if s.Lease != 0 {
		args = append(args, "lease", strconv.FormatInt(s.Lease, 16))
	}
	err := ""
	if s.Err != nil {
		err = s.Err.Error()
	}
	if err != "" && err != d.noted {
		args = append(args, "error", err)
	}
	d.noted = err
	d.log.Info("presence", args...)
}

func (d *PresenceDriver) advance(step func(now time.Duration)) (PresenceReady, PresenceStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.caller.now()
	step(now)
	return d.machine.Ready(), d.machine.Status(now)
}
