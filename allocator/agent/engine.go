// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/client"
)

// Retries of what did not succeed, with jitter.
const (
	retryFirst     = 100 * time.Millisecond
	retryMost      = 5 * time.Second
	retrySlowFirst = 2 * time.Second // what was refused
	retrySlowMost  = time.Minute
)

// acquirers is how many allocations and releases run at a time.
const acquirers = 16

// publishBatch bounds the addresses of one PublishEndpoints call.
const publishBatch = 256

// engine runs the table and the view: it carries effects to the workers and
// their results back. Its lock is held for memory only, never over I/O.
type engine struct {
	node     string
	hostIP   string
	log      *slog.Logger
	dp       Datapath
	client   *client.Client
	callTime time.Duration
	now      func() time.Time
	rehello  func() // asks for a new Welcome
	gate     *gate  // open while the node's presence is this agent's

	ids   *queue[effect]
	maps  *queue[effect]
	store *queue[effect]

	mu       sync.Mutex
	table    *table
	view     *view
	saver    *saver
	stopped  bool
	timers   map[timerKey]*time.Timer
	waits    map[string]chan struct{} // closed when the thing of that name changes
	watchers map[*watcher]bool
	since    map[string]time.Time // when an endpoint began to be not ready
	synced   bool

	taken     bool  // another instance has the node's presence
	trusted   bool  // the node's addresses in the store are known
	presentAt int64 // revision of the own presence, as of the last time it stood; 0: never

	surplus    map[string]surplus       // references that the operator lists and nobody uses
	leftovers  map[netip.Addr]time.Time // addresses likewise, and since when
	scanned    time.Time                // when leftovers were last looked for
	restoredAt time.Time

	mark  mark  // what is to be acknowledged next
	acked int64 // revision acknowledged last

	mapSeq  uint64 // map effects handed out
	mapDone uint64 // and carried out
	stats   counters

	readySeconds prometheus.Histogram
}

// counters only rise.
type counters struct {
	renumbered uint64
	restores   uint64
	dpErrors   uint64
	refusals   map[string]uint64
}

// update runs f under the lock and sees to what follows from it.
func (e *engine) update(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return
	}
	f()
	e.drain()
}

// drain hands out what the table has ready. The lock is held.
func (e *engine) drain() {
	r := e.table.ready()
	for _, at := range r.stated {
		e.show(e.view.claimed(at))
	}
	if len(r.gone) > 0 {
		e.show(e.view.released(r.gone))
		for _, d := range r.gone {
			e.wake("address " + d.addr.String())
		}
	}
	for _, eff := range r.effects {
		e.dispatch(eff)
	}
	for _, n := range r.renumbered {
		e.stats.renumbered++
		e.log.Warn("an address changed its number under equal labels", "address", n.addr, "from", n.from, "to", n.to)
	}
	if r.dirty {
		e.saver.mark()
	}
	for _, c := range r.changes {
		e.announce(c)
	}
}

func (e *engine) dispatch(eff effect) {
	switch eff.kind {
	case effectAcquire, effectRelease:
		e.ids.push(eff)
	case effectMap, effectUnmap:
		e.mapSeq++
		e.maps.push(eff)
	case effectPublish, effectWithdraw:
		e.store.push(eff)
	case effectTimer:
		e.arm(eff)
	}
}

// arm starts the backoff of an effect that failed.
func (e *engine) arm(eff effect) {
	if old := e.timers[eff.key]; old != nil {
		old.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(pause(eff), func() {
		e.update(func() {
			if e.timers[eff.key] == timer {
				delete(e.timers, eff.key)
				e.table.due(eff.key)
			}
		})
	})
	e.timers[eff.key] = timer
}

// pause is how long to wait: doubled with each attempt, between half and the
// whole of it, and never less than the other side asked for.
func pause(eff effect) time.Duration {
	first, most := retryFirst, retryMost
	if eff.slow {
		first, most = retrySlowFirst, retrySlowMost
	}
	d := most
	if shift := eff.attempts - 1; shift < 10 {
		d = min(most, first<<max(shift, 0))
	}
	d = d/2 + rand.N(d/2+1)
	return max(d, eff.after)
}

// show states the view's entries. The lock is held; the datapath only notes them.
func (e *engine) show(entries []entryChange) {
	for _, c := range entries {
		var err error
		if c.entry.number == 0 {
			err = e.dp.Delete(c.prefix, SourceRemote)
		} else {
			err = e.dp.Upsert(Entry{Prefix: c.prefix, Number: c.entry.number, Source: SourceRemote, Dead: c.entry.dead})
		}
		if err != nil {
			e.stats.dpErrors++
			e.log.Error("the datapath refuses an entry of the store", "prefix", c.prefix, "error", err)
		}
	}
}

// announce passes a change of an endpoint on. The lock is held.
func (e *engine) announce(c change) {
	e.wake("endpoint " + c.id)
	for w := range e.watchers {
		w.send(c)
	}
	switch since, waits := e.since[c.id]; {
	case c.view == nil:
		delete(e.since, c.id)
	case c.view.State != StateReady && !waits:
		e.since[c.id] = e.now()
	case c.view.State == StateReady && waits:
		e.readySeconds.Observe(e.now().Sub(since).Seconds())
		delete(e.since, c.id)
	}
}

// waitFor gives a channel that is closed at the next change of name. The lock is held.
func (e *engine) waitFor(name string) <-chan struct{} {
	ch := e.waits[name]
	if ch == nil {
		ch = make(chan struct{})
		e.waits[name] = ch
	}
	return ch
}

func (e *engine) wake(name string) {
	if ch := e.waits[name]; ch != nil {
		delete(e.waits, name)
		close(ch)
	}
}

// stop ends the timers and takes no more inputs.
func (e *engine) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = true
	for _, t := range e.timers {
		t.Stop()
	}
	for w := range e.watchers {
		w.end()
	}
	for name := range e.waits {
		e.wake(name)
	}
}

// put makes or changes an endpoint and waits until it is ready and written
// down. When ctx ends first, the endpoint stays and becomes ready later.
func (e *engine) put(ctx context.Context, spec Spec) (*View, error) {
	if err := e.admit(ctx, spec.ID); err != nil {
		return nil, err
	}
	var gen uint64
	err := error(stopping())
	e.update(func() { gen, err = e.table.put(spec) })
	if err != nil {
		return nil, err
	}
	for {
		e.mu.Lock()
		ep := e.table.endpoints[spec.ID]
		var v *View
		if ep != nil {
			v = ep.view
		}
		changed, saved, stopped := e.waitFor("endpoint "+spec.ID), e.saver.seq(), e.stopped
		e.mu.Unlock()
		switch {
		case stopped:
			return nil, stopping()
		case ep == nil:
			return nil, refuse(allocator.FailedPrecondition, "id", "endpoint %s was deleted meanwhile", spec.ID)
		case v != nil && v.gen >= gen && v.State == StateReady:
			return v, e.saver.wait(ctx, saved)
		case v != nil && v.gen >= gen && v.Failure != nil:
			return nil, v.Failure
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, stillWaiting(spec.ID, v)
		}
	}
}

func stopping() *allocator.Error {
	return refuse(allocator.Unavailable, "", "the agent is stopping; try again when it runs")
}

func stillWaiting(id string, v *View) error {
	reason := "its turn"
	if v != nil && v.Reason != "" {
		reason = v.Reason
	}
	return refuse(allocator.Unavailable, "id",
		"endpoint %s is kept and will become ready; until now it waits: %s", id, reason)
}

// remove deletes an endpoint and waits until its addresses are out of the map,
// but no longer than ctx: what is left then follows by itself.
func (e *engine) remove(ctx context.Context, id string) (bool, error) {
	deleted := false
	var addrs []netip.Addr
	e.update(func() {
		if ep := e.table.endpoints[id]; ep != nil {
			addrs = ep.addrs
		}
		deleted = e.table.remove(id)
	})
	if !deleted {
		return false, nil
	}
	e.mu.Lock()
	saved := e.saver.seq()
	e.mu.Unlock()
	for _, at := range addrs {
		e.awaitGone(ctx, at)
	}
	return true, e.saver.wait(context.WithoutCancel(ctx), saved)
}

// awaitGone waits until an address has left the table or found a new owner.
func (e *engine) awaitGone(ctx context.Context, at netip.Addr) {
	for {
		e.mu.Lock()
		a := e.table.addresses[at]
		gone := a == nil || a.owner != nil
		changed := e.waitFor("address " + at.String())
		stopped := e.stopped
		e.mu.Unlock()
		if gone || stopped {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
