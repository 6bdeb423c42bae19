// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"net/netip"
	"sync"
	"time"

	"github.com/signet-identity/signet/bpf"
	"github.com/signet-identity/signet/datapath/maps"
)

// addressMap is one of the two maps from address to row.
type addressMap = maps.Map[bpf.AddrKey, bpf.AddrValue]

// store is what the engine writes to: the kernel's maps or memory.
type store struct {
	kind, reason, path string
	tables             [tableCount]addressMap
	rows               maps.Array
	lookup             func(netip.Addr) (Result, error)
	lostPins           func() []string // names of maps whose pin is gone; nil without pins
	restorePin         func(name string) error
	destroy            func() error // removes the pins
	close              func() error // what is beside the maps: program, lock
}

// held is what a map holds at a place, as far as we know.
type held struct {
	value   bpf.AddrValue
	counted bool // the row table counts a reference for it
}

// retry is the state of an entry whose map content is not what is wanted.
type retry struct {
	since    uint64 // the first change that is not in the map
	attempts int
	next     time.Time // not before; zero for at once
	err      error
}

// engine brings a store to the desired table. Two locks: pass is held by
// whoever does I/O, mu guards the state and is never held during I/O. Only the
// holder of pass changes held and rows, so they stand still during I/O.
type engine struct {
	cfg   Config
	store store
	wake  chan struct{}

	pass sync.Mutex

	mu      sync.Mutex
	desired *desired
	held    map[place]held
	count   [tableCount]int // held, per table
	rows    *rowTable
	pending map[place]*retry
	seq     uint64
	synced  bool
	closed  bool
	stats   stats
}

type stats struct {
	failures, writes uint64
	drift            DriftCount
	lastError        string
	lastSuccess      time.Time
	lastVerify       time.Time
	verifyFailed     bool
	nextVerify       time.Time
}

// newEngine takes over what the store holds. It writes only the deny row.
func newEngine(cfg Config, s store) (*engine, error) {
	now := cfg.Clock()
	e := &engine{
		cfg: cfg, store: s,
		wake:    make(chan struct{}, 1),
		desired: newDesired(),
		held:    map[place]held{},
		rows:    newRowTable(uint32(s.rows.Len()), cfg.Grace, cfg.Quarantine),
		pending: map[place]*retry{},
	}
	e.stats.drift = DriftCount{}
	e.stats.nextVerify = now.Add(cfg.VerifyEvery)
	for index := bpf.RowFirst; index < s.rows.Len(); index++ {
		if word := s.rows.Load(index, 0); word != 0 {
			e.rows.adopt(uint32(index), word, now)
		}
	}
	for t := range tableCount {
		all, err := s.tables[t].Dump()
		if err != nil {
			return nil, err
		}
		for key, value := range all {
			e.hold(place{t, key}, value, 0)
		}
	}
	e.rows.adopted(now, 0)
	e.storeHeader(bpf.RowDeny)
	return e, nil
}

// Upsert implements Datapath.
func (e *engine) Upsert(entry Entry) error {
	if err := entry.check(); err != nil {
		return err
	}
	w := want{number: entry.Number, source: entry.Source, dead: entry.Dead}
	return e.change(placeOf(entry.Prefix), func(p place) { e.desired.set(p, w) })
}

// Delete implements Datapath.
func (e *engine) Delete(prefix netip.Prefix, source Source) error {
	if err := checkPlace(prefix, source); err != nil {
		return err
	}
	return e.change(placeOf(prefix), func(p place) { e.desired.unset(p, source) })
}

func (e *engine) change(p place, do func(place)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	e.seq++
	do(p)
	e.touch(p)
	return nil
}

// Synced implements Datapath.
func (e *engine) Synced() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.synced || e.closed {
		return
	}
	e.synced = true
	e.seq++
	for p := range e.desired.places {
		e.touch(p)
	}
	for p := range e.held {
		e.touch(p)
	}
}

// action is what has to be done at a place.
type action uint8

const (
	nothing action = iota
	put
	remove
)

// action compares what is wanted with what a map holds. Before the desired
// table is complete, what is held stays, unless the strongest source speaks.
func (e *engine) action(p place, value bpf.AddrValue, present bool) action {
	w, wanted := e.desired.winner(p)
	switch {
	case !wanted && present && e.synced:
		return remove
	case !wanted:
		return nothing
	case !present:
		return put
	case !e.synced && w.source != SourceEndpoint:
		return nothing
	}
	if target, ok := e.target(p, w); !ok || value != target {
		return put
	}
	return nothing
}

// target is the value that a place should have; false while its number has no row.
func (e *engine) target(p place, w want) (bpf.AddrValue, bool) {
	if w.dead {
		return bpf.Value(p.key, bpf.RowDeny), true
	}
	index, ok := e.rows.byNumber[w.number]
	return bpf.Value(p.key, index), ok
}

func (e *engine) todo(p place) action {
	h, present := e.held[p]
	return e.action(p, h.value, present)
}

// touch looks at a place again after a change, and makes it due at once.
func (e *engine) touch(p place) {
	if e.todo(p) == nothing {
		delete(e.pending, p)
		return
	}
	r := e.pending[p]
	if r == nil {
		r = &retry{since: e.seq}
		e.pending[p] = r
	}
	r.attempts, r.next = 0, time.Time{}
	e.nudge()
}

// nudge wakes Run.
func (e *engine) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// hold notes that a map holds a value, and counts the reference to its row
// before it takes back the one of the value before.
func (e *engine) hold(p place, value bpf.AddrValue, since uint64) {
	before, present := e.held[p]
	e.held[p] = held{value, e.rows.retain(value.Row)}
	if !present {
		e.count[p.table]++
	}
	e.unref(before, since)
}

// drop notes that a map holds nothing at a place.
func (e *engine) drop(p place, since uint64) {
	before, present := e.held[p]
	if !present {
		return
	}
	delete(e.held, p)
	e.count[p.table]--
	e.unref(before, since)
}

func (e *engine) unref(h held, since uint64) {
	if h.counted {
		e.rows.release(h.value.Row, e.cfg.Clock(), since)
	}
}

// storeHeader writes a row's header, one store for number and flags. A row
// that is out of use loses its header first and its bitmap then.
func (e *engine) storeHeader(index uint32) {
	header := e.rows.header(index)
	e.store.rows.Store(int(index), 0, header)
	if _, flags := bpf.UnpackHeader(header); flags&FlagValid != 0 {
		return
	}
	for word := 1; word < e.store.rows.Words(); word++ {
		e.store.rows.Store(int(index), word, 0)
	}
}

// Close implements Datapath.
func (e *engine) Close() error { return e.shut(nil) }

// Destroy implements Datapath.
func (e *engine) Destroy() error { return e.shut(e.store.destroy) }
