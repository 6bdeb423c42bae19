// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// slowConsumer is how long handing over may take before the watches' silence is excused.
const slowConsumer = time.Second

// MirrorConsumer takes what a MirrorDriver follows, in its goroutine.
type MirrorConsumer interface {
	// Apply takes the next batch. While it runs nothing more is read from the
	// store than what is under way. An error ends Run: no batch is skipped.
	Apply(ctx context.Context, batch MirrorBatch) error
	// WentBack is told that the store was restored; nothing follows until Accept.
	WentBack(WentBack)
}

// MirrorDriver runs a Mirror against a Store.
type MirrorDriver struct {
	log    *slog.Logger
	caller *caller
	kick   chan struct{} // an input came in: look at Ready

	mu      sync.Mutex
	machine *Mirror
	applied int64         // the consumer has applied up to here
	moved   chan struct{} // closed and replaced whenever applied moves
}

// NewMirrorDriver returns a driver that Run starts.
func NewMirrorDriver(store Store, cfg MirrorConfig, log *slog.Logger) (*MirrorDriver, error) {
	machine, err := NewMirror(cfg, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	if err != nil {
		return nil, err
	}
	return &MirrorDriver{
		log: log, caller: newCaller(store), kick: make(chan struct{}, 1),
		machine: machine, moved: make(chan struct{}),
	}, nil
}

// Status reports what the mirror knows now.
func (d *MirrorDriver) Status() MirrorStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.machine.Status(d.caller.now())
}

// Applied is the revision up to which the consumer has applied batches.
func (d *MirrorDriver) Applied() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.applied
}

// Wait returns once the consumer has applied revision, and asks for progress
// meanwhile; or with the error of ctx.
func (d *MirrorDriver) Wait(ctx context.Context, revision int64) error {
	for asked := false; ; asked = true {
		d.mu.Lock()
		applied, moved := d.applied, d.moved
		d.mu.Unlock()
		if applied >= revision {
			return nil
		}
		if !asked {
			d.Want(revision)
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Want asks for progress up to revision without waiting.
func (d *MirrorDriver) Want(revision int64) {
	d.input(func(now time.Duration) { d.machine.Want(now, revision) })
}

// Accept takes a restored store as it is; see Mirror.Accept.
func (d *MirrorDriver) Accept() { d.input(d.machine.Accept) }

func (d *MirrorDriver) input(f func(now time.Duration)) {
	d.mu.Lock()
	f(d.caller.now())
	d.mu.Unlock()
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// Run follows the store until ctx ends (it returns nil then) or the consumer
// returns an error (it returns that). It is called once.
func (d *MirrorDriver) Run(ctx context.Context, consumer MirrorConsumer) error {
	defer d.caller.close()
	alarm := newAlarm()
	step := d.machine.Tick
	for {
		ready := d.advance(step)
		for _, call := range ready.Calls {
			d.caller.do(call)
		}
		if err := d.hand(ctx, consumer, ready); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		step = d.next(ctx, alarm, ready.Wake)
		if step == nil {
			return nil
		}
	}
}

// next awaits what is to be stepped; nil: ctx has ended. An answer that is
// there goes before the alarm, so that a watch is not blamed for our delay.
func (d *MirrorDriver) next(ctx context.Context, alarm alarm, wake time.Duration) func(now time.Duration) {
	answered := func(a Answer) func(now time.Duration) {
		d.caller.forget(a)
		return func(now time.Duration) { d.machine.Step(now, a) }
	}
	select {
	case a := <-d.caller.answers:
		return answered(a)
	default:
	}
	select {
	case a := <-d.caller.answers:
		return answered(a)
	case <-alarm.set(d.caller.now(), wake):
		return d.machine.Tick
	case <-d.kick:
		return d.machine.Tick
	case <-ctx.Done():
		return nil
	}
}

func (d *MirrorDriver) advance(step func(now time.Duration)) MirrorReady {
	d.mu.Lock()
	defer d.mu.Unlock()
	step(d.caller.now())
	return d.machine.Ready()
}

// hand gives a Ready's batches to the consumer.
func (d *MirrorDriver) hand(ctx context.Context, consumer MirrorConsumer, ready MirrorReady) error {
	began := d.caller.now()
	for _, batch := range ready.Batches {
		if batch.Reset {
			d.log.Info("mirror: the whole state was listed", "revision", batch.Revision, "keys", len(batch.Events))
		}
		if err := consumer.Apply(ctx, batch); err != nil {
			return err
		}
		d.mu.Lock()
		d.applied = batch.Revision
		close(d.moved)
		d.moved = make(chan struct{})
		d.mu.Unlock()
	}
	if w := ready.WentBack; w != nil {
		d.log.Error("mirror: the store's revision went back; it was restored", "have", w.Have, "seen", w.Seen)
		consumer.WentBack(*w)
	}
	if d.caller.now()-began > slowConsumer {
		d.mu.Lock()
		d.machine.Resumed(d.caller.now())
		d.mu.Unlock()
	}
	return nil
}
