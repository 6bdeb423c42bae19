// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"time"

	"github.com/signet-identity/signet/kvstore"
)

var errReset = errors.New("the connection was reset")

// link is a process's way to the store and back, for one life of the process.
type link struct {
	p       *process
	life    int
	cutOut  time.Duration // requests are lost until then
	cutIn   time.Duration // answers are lost, and watches silent, until then
	watches []*watch
}

// watch is an open watch; its batches keep their order.
type watch struct {
	id     uint64
	lane   lane
	r      kvstore.WatchRequest
	answer func(kvstore.Answer)
	next   int64
	last   time.Duration
	made   bool
	ended  bool
}

func newLink(p *process) *link {
	l := &link{p: p, life: p.life}
	p.w.links = append(p.w.links, l)
	return l
}

// close forgets the link of a life that ended.
func (l *link) close() {
	links := l.p.w.links
	for i, o := range links {
		if o == l {
			l.p.w.links = append(links[:i:i], links[i+1:]...)
			return
		}
	}
}

// delay is how long a message takes.
func (w *world) delay() time.Duration {
	if !w.quiet && w.chance(w.faults.slow) {
		return w.between(10*time.Millisecond, 400*time.Millisecond)
	}
	return w.between(200*time.Microsecond, 4*time.Millisecond)
}

// carry carries out a machine's call. Each answer comes in as an input of the process.
func (l *link) carry(ln lane, c kvstore.Call, answer func(kvstore.Answer)) {
	switch c.Kind {
	case kvstore.CallCancel:
		l.cancel(c.Target, ln)
	case kvstore.CallWatch:
		l.watch(ln, c, answer)
	case kvstore.CallProgress:
		l.request(c.Timeout, 0, ln, func() error { l.progress(ln); return nil }, func(err error) { answer(kvstore.Answer{ID: c.ID, Err: err}) })
	default:
		var a kvstore.Answer
		late := 0.0
		if c.Kind == kvstore.CallTxn {
			late = l.p.w.faults.late / 4
		}
		serve := func() error { a = l.serve(c); return a.Err }
		l.request(c.Timeout, late, ln, serve, func(err error) {
			a.ID, a.Err = c.ID, err
			answer(a)
		})
	}
}

// request sends a request on its way: serve runs at the store, done in the
// process with serve's error, or with ErrUnknownOutcome at the timeout. late is
// the chance that the request reaches the store only after that.
func (l *link) request(timeout time.Duration, late float64, ln lane, serve func() error, done func(error)) {
	w := l.p.w
	finished := false
	finish := func(err error) {
		if !finished {
			finished = true
			done(err)
		}
	}
	timeout = l.p.world(timeout)
	l.later(timeout, ln, func() { finish(kvstore.ErrUnknownOutcome) })
	out := w.delay()
	switch {
	case w.now < l.cutOut:
		if !w.fault("late", w.faults.late) {
			return
		}
		out = l.cutOut - w.now + w.delay() // it sat in a buffer
	case w.fault("late", late):
		out = timeout + w.between(0, 4*time.Second)
	case w.fault("lost request", w.faults.loseRequest):
		return
	}
	w.in(out, func() {
		err := serve()
		if w.now < l.cutIn || w.fault("lost answer", w.faults.loseAnswer) {
			return
		}
		l.later(w.delay(), ln, func() { finish(err) })
	})
}

func (l *link) later(d time.Duration, ln lane, f func()) {
	l.p.w.in(d, func() { l.p.deliver(l.life, ln, f) })
}

func (l *link) serve(c kvstore.Call) (a kvstore.Answer) {
	w := l.p.w
	w.change(origin{kind: byMachine, who: l.p.name}, func() {
		switch c.Kind {
		case kvstore.CallTxn:
			a.Txn, a.Err = w.model.Txn(c.Txn)
		case kvstore.CallRange:
			a.Range, a.Err = w.model.Range(c.Range)
			l.overlook(c, &a)
		case kvstore.CallGrant:
			a.Lease, a.Err = w.model.Grant(c.TTL, w.now)
		case kvstore.CallKeepAlive:
			a.TTL, a.Err = w.model.KeepAlive(c.Lease, w.now)
		case kvstore.CallRevoke:
			a.Err = w.model.Revoke(c.Lease)
		}
	})
	return a
}

func (l *link) watch(ln lane, c kvstore.Call, answer func(kvstore.Answer)) {
	w := l.p.w
	o := &watch{id: c.ID, lane: ln, r: c.Watch, next: c.Watch.Revision, answer: answer}
	l.watches = append(l.watches, o)
	if w.now < l.cutOut {
		return
	}
	w.in(w.delay(), func() {
		o.made = true
		l.batch(o, kvstore.WatchBatch{Created: true, Revision: w.model.Revision()})
		l.tellOne(o)
	})
}

func (l *link) cancel(id uint64, ln lane) {
	for i, o := range l.watches {
		if o.id == id && o.lane == ln {
			o.ended = true
			l.watches = append(l.watches[:i:i], l.watches[i+1:]...)
			return
		}
	}
}

// tell sends the watches what has happened.
func (l *link) tell() {
	for _, o := range append([]*watch(nil), l.watches...) {
		if o.made && o.next <= l.p.w.model.Revision() {
			l.tellOne(o)
		}
	}
}

func (l *link) tellOne(o *watch) {
	w := l.p.w
	if o.ended {
		return
	}
	events, compacted := w.model.Events(o.next, o.r.Key, o.r.RangeEnd)
	if compacted {
		l.cancel(o.id, o.lane)
		l.batch(o, kvstore.WatchBatch{Err: kvstore.ErrCompacted, CompactRevision: w.model.Compacted()})
		return
	}
	o.next = w.model.Revision() + 1
	if len(events) > 0 {
		l.batch(o, kvstore.WatchBatch{Events: events, Revision: w.model.Revision()})
	}
}

// batch sends one batch; while the way in is cut it waits for the end of the cut.
func (l *link) batch(o *watch, b kvstore.WatchBatch) {
	w := l.p.w
	o.last = max(o.last, w.now+w.delay(), l.cutIn)
	w.at(o.last, func() {
		l.p.deliver(l.life, o.lane, func() { o.answer(kvstore.Answer{ID: o.id, Batch: b}) })
	})
}

func (l *link) progress(ln lane) {
	for _, o := range l.watches {
		if o.made && o.lane == ln {
			l.batch(o, kvstore.WatchBatch{Revision: l.p.w.model.Revision()})
		}
	}
}

// breakWatches ends every watch as a lost connection does.
func (l *link) breakWatches() {
	watches := l.watches
	l.watches = nil
	for _, o := range watches {
		o.ended = true
		l.batch(o, kvstore.WatchBatch{Err: errReset})
	}
}
