// SPDX-License-Identifier: Apache-2.0

package kvstore_test

import (
	"container/heap"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
)

// machine is what Election, Mirror and Presence have in common.
type machine interface {
	Step(now time.Duration, a kvstore.Answer)
	Tick(now time.Duration)
}

// world runs machines against one modelled store in virtual time.
type world struct {
	model  *fake.Model
	random *rand.Rand
	now    time.Duration // of the store
	queue  happenings
	order  int
	peers  []*peer
	after  func() // called after everything that happens
}

// peer is one machine with its clock and its way to the store.
type peer struct {
	w       *world
	m       machine
	ready   func() ([]kvstore.Call, time.Duration)
	rate    float64       // how fast its clock runs
	offset  time.Duration // of its clock
	delay   func() time.Duration
	loseReq func(c kvstore.Call) bool
	loseAns func(c kvstore.Call) bool
	mangle  func(c kvstore.Call, a *kvstore.Answer)
	paused  time.Duration // the process stands still until then
	deaf    bool          // watches tell nothing, and say so to nobody
	// forgetful: the server leaves events out of watches that live on.
	forgetful bool
	skew      int64 // how far behind the peer's member is, as its watches' headers show
	// muteWatch picks watches that tell nothing.
	muteWatch func(r kvstore.WatchRequest) bool
	dead      bool
	inbox     []func(now time.Duration) // what came in while the process stood still
	watches   map[uint64]*worldWatch
	alarm     int // number of the last alarm set
	sent      []kvstore.Call
}

type worldWatch struct {
	r    kvstore.WatchRequest
	next int64
	last time.Duration // nothing overtakes what was sent before
	made bool
	dead bool // something was lost: it never tells anything again
}

type happening struct {
	at    time.Duration
	order int
	f     func()
}

type happenings []happening

func (h happenings) Len() int { return len(h) }
func (h happenings) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h happenings) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *happenings) Push(x any)   { *h = append(*h, x.(happening)) }
func (h *happenings) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func newWorld(seed uint64) *world {
	return &world{
		model: fake.NewModel(fake.Limits{}, seed), random: rand.New(rand.NewPCG(seed, 1)), after: func() {},
	}
}

func (w *world) at(t time.Duration, f func()) {
	w.order++
	heap.Push(&w.queue, happening{at: max(t, w.now), order: w.order, f: f})
}

func (w *world) in(d time.Duration, f func()) { w.at(w.now+d, f) }

// add puts a machine into the world and starts it.
func (w *world) add(m machine, ready func() ([]kvstore.Call, time.Duration)) *peer {
	p := &peer{w: w, m: m, ready: ready, rate: 1, watches: map[uint64]*worldWatch{},
		delay:   func() time.Duration { return time.Millisecond },
		loseReq: func(kvstore.Call) bool { return false }, loseAns: func(kvstore.Call) bool { return false },
		muteWatch: func(kvstore.WatchRequest) bool { return false },
		mangle:    func(kvstore.Call, *kvstore.Answer) {}}
	w.peers = append(w.peers, p)
	w.in(0, func() { p.do(p.m.Tick) })
	return p
}

// run lets time pass until t.
func (w *world) run(t time.Duration) {
	w.tell()
	for {
		next := t
		if len(w.queue) > 0 {
			next = min(next, w.queue[0].at)
		}
		if at, any := w.model.NextExpiry(); any && at <= next {
			w.now = max(w.now, at)
			w.model.Expire(w.now)
		} else if len(w.queue) > 0 && w.queue[0].at <= t {
			h := heap.Pop(&w.queue).(happening)
			w.now = max(w.now, h.at)
			h.f()
		} else {
			w.now = max(w.now, t)
			return
		}
		w.tell()
		w.after()
	}
}

// wakeAll lets time pass until no process stands still any more.
func (w *world) wakeAll() {
	for _, p := range w.peers {
		w.run(max(w.now, p.paused))
	}
}

// runUntil lets time pass until ok, at most until t, and says whether it came.
func (w *world) runUntil(t time.Duration, ok func() bool) bool {
	for w.now < t && !ok() {
		w.run(min(t, w.now+10*time.Millisecond))
	}
	return ok()
}

// tell sends the watches what has happened.
func (w *world) tell() {
	for _, p := range w.peers {
		for _, id := range p.watchIDs() {
			if watch := p.watches[id]; watch.made && !watch.dead && watch.next <= w.model.Revision() {
				p.tell(id, watch)
			}
		}
	}
}

func (p *peer) watchIDs() []uint64 { return slices.Sorted(maps.Keys(p.watches)) }

func (p *peer) tell(id uint64, watch *worldWatch) {
	events, compacted := p.w.model.Events(watch.next, watch.r.Key, watch.r.RangeEnd)
	if compacted {
		delete(p.watches, id)
		p.batch(id, watch, kvstore.WatchBatch{Err: kvstore.ErrCompacted, CompactRevision: p.w.model.Compacted()})
		return
	}
	watch.next = p.w.model.Revision() + 1
	if len(events) > 0 && !p.forgetful {
		p.batch(id, watch, kvstore.WatchBatch{Events: events, Revision: p.w.model.Revision()})
	}
}

func (p *peer) batch(id uint64, watch *worldWatch, b kvstore.WatchBatch) {
	if watch.dead = watch.dead || p.deaf || p.muteWatch(watch.r); watch.dead {
		return
	}
	b.Revision -= p.skew
	watch.last = max(watch.last, p.w.now+p.delay())
	p.w.at(watch.last, func() { p.step(kvstore.Answer{ID: id, Batch: b}) })
}

// breakWatches ends the peer's watches as a lost connection does.
func (p *peer) breakWatches() {
	for _, id := range p.watchIDs() {
		delete(p.watches, id)
		p.w.in(0, func() {
			p.step(kvstore.Answer{ID: id, Batch: kvstore.WatchBatch{Err: errors.New("connection reset")}})
		})
	}
}

func (p *peer) clock() time.Duration {
	return p.offset + time.Duration(float64(p.w.now)*p.rate)
}

// trueTime is when the peer's clock shows local.
func (p *peer) trueTime(local time.Duration) time.Duration {
	return time.Duration(float64(local-p.offset)/p.rate) + 1
}

func (p *peer) step(a kvstore.Answer) {
	p.do(func(now time.Duration) { p.m.Step(now, a) })
}

// do runs an input of the machine and carries out its Ready; a process that
// stands still does both later.
func (p *peer) do(input func(now time.Duration)) {
	if p.dead {
		return
	}
	p.inbox = append(p.inbox, input)
	p.drain()
}

// drain runs what came in, in order, unless the process stands still.
func (p *peer) drain() {
	if p.paused > p.w.now {
		p.w.at(p.paused, p.drain)
		return
	}
	for len(p.inbox) > 0 {
		input := p.inbox[0]
		p.inbox = p.inbox[1:]
		p.run(input)
	}
}

func (p *peer) run(input func(now time.Duration)) {
	input(p.clock())
	calls, wake := p.ready()
	for _, c := range calls {
		p.sent = append(p.sent, c)
		p.carry(c)
	}
	p.alarm++
	if number := p.alarm; wake != kvstore.Never {
		p.w.at(p.trueTime(wake), func() {
			if p.alarm == number {
				p.do(p.m.Tick)
			}
		})
	}
}

// carry sends a call on its way.
func (p *peer) carry(c kvstore.Call) {
	switch c.Kind {
	case kvstore.CallCancel:
		delete(p.watches, c.Target)
		return
	case kvstore.CallWatch:
		watch := &worldWatch{r: c.Watch, next: c.Watch.Revision}
		p.watches[c.ID] = watch
		p.w.in(p.delay(), func() {
			watch.made = true
			p.batch(c.ID, watch, kvstore.WatchBatch{Created: true, Revision: p.w.model.Revision()})
		})
		return
	}
	done := false
	answer := func(a kvstore.Answer) {
		done = true
		a.ID = c.ID
		p.step(a) // perhaps after the call has timed out: then nobody waits for it
	}
	p.w.at(p.trueTime(p.clock()+c.Timeout), func() {
		if !done {
			answer(kvstore.Answer{Err: kvstore.ErrUnknownOutcome})
		}
	})
	if p.loseReq(c) {
		return
	}
	p.w.in(p.delay(), func() {
		a := p.serve(c)
		p.mangle(c, &a)
		if !p.loseAns(c) {
			p.w.in(p.delay(), func() { answer(a) })
		}
	})
}

func (p *peer) serve(c kvstore.Call) (a kvstore.Answer) {
	m := p.w.model
	switch c.Kind {
	case kvstore.CallTxn:
		a.Txn, a.Err = m.Txn(c.Txn)
	case kvstore.CallRange:
		a.Range, a.Err = m.Range(c.Range)
	case kvstore.CallGrant:
		a.Lease, a.Err = m.Grant(c.TTL, p.w.now)
	case kvstore.CallKeepAlive:
		a.TTL, a.Err = m.KeepAlive(c.Lease, p.w.now)
	case kvstore.CallRevoke:
		a.Err = m.Revoke(c.Lease)
	case kvstore.CallProgress:
		for _, id := range p.watchIDs() {
			if watch := p.watches[id]; watch.made {
				p.batch(id, watch, kvstore.WatchBatch{Revision: m.Revision()})
			}
		}
	}
	return a
}

// put writes a key past all machines.
func (w *world) put(key, value string, lease int64) int64 {
	r, err := w.model.Txn(kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: key, Value: []byte(value), Lease: lease}}})
	if err != nil {
		panic(err)
	}
	w.tell()
	return r.Revision
}

// remove deletes a key past all machines.
func (w *world) remove(key string) int64 {
	r, err := w.model.Txn(kvstore.Txn{Then: []kvstore.Action{{Delete: true, Key: key}}})
	if err != nil {
		panic(err)
	}
	w.tell()
	return r.Revision
}

// keys lists what lies under a prefix.
func (w *world) keys(prefix string) []kvstore.KV {
	r, err := w.model.Range(kvstore.RangeRequest{Key: prefix, RangeEnd: kvstore.PrefixEnd(prefix)})
	if err != nil {
		panic(err)
	}
	return r.KVs
}
