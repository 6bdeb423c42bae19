// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
)

// Lead is the work of one term. term is cancelled, with the reason as its
// cause, the moment the term ends; Lead returns then. If it returns before, the
// term is abandoned for the reason of its error.
type Lead func(term context.Context, fence commit.Fence) error

// ElectionDriver runs an Election against a Store. The Store should be one that
// does no other work, so that renewals never wait behind it.
type ElectionDriver struct {
	log    *slog.Logger
	prefix string
	caller *caller
	kick   chan struct{} // an input came in: look at Ready

	stopping atomic.Bool // a clean stop: losing the leadership is no news

	mu      sync.Mutex
	machine *Election
}

// NewElectionDriver returns a driver that Run starts.
func NewElectionDriver(store Store, cfg ElectionConfig, log *slog.Logger) *ElectionDriver {
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	return &ElectionDriver{
		log: log, prefix: cfg.Prefix, caller: newCaller(store), kick: make(chan struct{}, 1),
		machine: NewElection(cfg, random),
	}
}

// Status reports what the election knows now.
func (d *ElectionDriver) Status() ElectionStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.machine.Status(d.caller.now())
}

// Candidate is what the own key says, with all fields but Barrier filled in: a
// barrier writes it back with another count.
func (d *ElectionDriver) Candidate() allocator.Candidate { return d.machine.Candidate() }

// Progress says that the leader got something done.
func (d *ElectionDriver) Progress() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.machine.Progress(d.caller.now())
}

// Abandon gives up the present candidacy or term; see Election.Abandon.
func (d *ElectionDriver) Abandon(reason string) {
	d.input(func(now time.Duration) { d.machine.Abandon(now, reason) })
}

func (d *ElectionDriver) input(f func(now time.Duration)) {
	d.mu.Lock()
	f(d.caller.now())
	d.mu.Unlock()
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// Run campaigns until ctx ends, then resigns and returns once the lease is
// given back (or cannot be) and the last Lead has returned. It is called once.
// A term's Lead starts only after the one before has returned.
func (d *ElectionDriver) Run(ctx context.Context, lead Lead) {
	defer d.caller.close()
	t := terms{driver: d, lead: lead, end: func(error) {}}
	defer t.wait()
	alarm := newAlarm()
	stop := ctx.Done()
	step := d.machine.Tick
	for {
		ready := d.advance(step)
		for _, change := range ready.Changes {
			t.change(change)
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
		case <-stop:
			d.stopping.Store(true)
			stop, step = nil, d.machine.Resign
		}
	}
}

func (d *ElectionDriver) advance(step func(now time.Duration)) ElectionReady {
	d.mu.Lock()
	defer d.mu.Unlock()
	step(d.caller.now())
	return d.machine.Ready()
}

// terms runs one Lead after the other.
type terms struct {
	driver *ElectionDriver
	lead   Lead
	end    func(reason error) // ends the present term
	last   sync.WaitGroup
	before chan struct{} // closed when the Lead before has returned
}

func (t *terms) change(c RoleChange) {
	if c.Role == RoleFollower {
		level := slog.LevelWarn
		if t.driver.stopping.Load() {
			level = slog.LevelInfo
		}
		t.driver.log.Log(context.Background(), level, "leadership ended", t.driver.about(c.Fence, "cause", c.Reason, "store_answered_ago", t.driver.Status().Age)...)
		t.end(errors.New(c.Reason))
		return
	}
	t.driver.log.Info("leadership won", t.driver.about(c.Fence)...)
	term, end := context.WithCancelCause(context.Background())
	t.end = end
	before, done := t.before, make(chan struct{})
	t.before = done
	t.last.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		if term.Err() != nil {
			return
		}
		err := t.lead(term, c.Fence)
		if term.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("the leader's work ended by itself")
		}
		t.driver.abandonTerm(c.Fence, err.Error())
	})
}

// about names a term for the log, before what else is to be said.
func (d *ElectionDriver) about(f commit.Fence, more ...any) []any {
	lease := LeaseName(f.Lease)
	return append([]any{"component", "election", "key", d.prefix + lease, "lease", lease, "epoch", f.Epoch}, more...)
}

func (t *terms) wait() {
	t.end(errors.New("the candidate stopped"))
	t.last.Wait()
}

// abandonTerm abandons the term with this fence, if it is still the present one.
func (d *ElectionDriver) abandonTerm(fence commit.Fence, reason string) {
	d.input(func(now time.Duration) {
		if s := d.machine.Status(now); s.Role == RoleLeader && s.Fence.Epoch == fence.Epoch {
			d.machine.Abandon(now, reason)
		}
	})
}
