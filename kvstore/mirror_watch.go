// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"sort"
	"time"
)

// following is the watch of one span.
//
//	held = the events told of revisions in (applied, done]
type following struct {
	call    uint64 // 0: not open
	done    int64  // all events up to here were told
	held    []Event
	sign    time.Duration // the last sign of life
	asked   time.Duration // when one was first asked for since; Never: it was not
	retryAt time.Duration // when to open it (again)
	fails   int           // failures since anything was applied
	opened  bool          // since the last list
}

func (w *following) dead(now, heartbeat time.Duration) bool {
	return w.call != 0 && w.asked != Never && now >= w.asked+2*heartbeat
}

func (w *following) wake(heartbeat time.Duration) time.Duration {
	switch {
	case w.call == 0:
		return w.retryAt
	case w.asked != Never:
		return w.asked + 2*heartbeat
	}
	return Never // askAt sees to it that it is asked
}

func (w *following) stop(applied int64) {
	w.call, w.done, w.held, w.asked = 0, applied, nil, Never
}

func (m *Mirror) open(now time.Duration, i int) {
	w := &m.watches[i]
	if w.call != 0 || now < w.retryAt {
		return
	}
	if w.opened {
		m.rewatches++
	}
	w.opened = true
	span := m.cfg.Spans[i]
	w.call = m.send(Call{Kind: CallWatch, Watch: WatchRequest{Key: span.Key, RangeEnd: span.End, Revision: m.applied + 1}})
	w.done, w.asked = m.applied, now // its creation is a sign of life that is due
}

// watchFailed ends a watch; it begins again behind what has been applied.
func (m *Mirror) watchFailed(now time.Duration, i int, err error) {
	w := &m.watches[i]
	m.cancel(w.call)
	w.stop(m.applied)
	w.fails++
	w.retryAt = now + m.backoff(w.fails)
	m.err = err
}

func (m *Mirror) watched(now time.Duration, i int, b WatchBatch) {
	w := &m.watches[i]
	if b.CompactRevision > 0 {
		w.call = 0
		m.list.fails++
		m.relist(now, errCompactedWatch)
		return
	}
	if b.Err != nil {
		w.call = 0
		m.watchFailed(now, i, b.Err)
		return
	}
	w.sign, w.asked = now, Never
	switch {
	case b.Revision < max(m.applied, w.done):
		m.suspect(now, max(m.applied, w.done))
	case len(b.Events) > 0:
		w.take(b.Events)
	case !b.Created:
		w.done = b.Revision
	}
	m.head = max(m.head, b.Revision)
	m.advance()
	m.bound(now)
}

// take keeps the events that are new. The header's revision of a batch with
// events says nothing of completeness: a watch that catches up tells old events
// under a new header.
func (w *following) take(events []Event) {
	for _, ev := range events {
		if ev.KV.ModRevision > w.done {
			w.held = append(w.held, ev)
		}
	}
	w.done = max(w.done, events[len(events)-1].KV.ModRevision)
}

// suspect asks whether a revision lower than one seen before comes from a
// member that lags (harmless) or from a restored store. Nothing is applied until then.
func (m *Mirror) suspect(now time.Duration, have int64) {
	if m.confirm.id == 0 {
		m.seen = have
		m.confirm = m.ask(now, Call{Kind: CallRange, Timeout: m.cfg.PageTimeout,
			Range: RangeRequest{Key: m.cfg.Spans[0].Key, KeysOnly: true, Limit: 1}})
	}
}

func (m *Mirror) confirmed(now time.Duration, a Answer) {
	m.confirm = pending{}
	if a.Err != nil {
		return // the next sign of that watch raises the suspicion again
	}
	if a.Range.Revision < m.seen {
		m.backTo(m.seen, a.Range.Revision)
		return
	}
	m.advance()
	m.bound(now)
}

// advance gives out what every watch has told.
func (m *Mirror) advance() {
	upTo := Never.Nanoseconds()
	for i := range m.watches {
		upTo = min(upTo, m.watches[i].done)
	}
	if upTo <= m.applied || m.confirm.id != 0 {
		return
	}
	var events []Event
	for i := range m.watches {
		events = append(events, m.watches[i].release(upTo)...)
	}
	sort.SliceStable(events, func(i, j int) bool { return events[i].KV.ModRevision < events[j].KV.ModRevision })
	m.batches = append(m.batches, batchesOf(events, upTo)...)
	m.applied, m.askGap, m.list.fails, m.err = upTo, m.cfg.AskEvery, 0, m.trouble()
	for i := range m.watches {
		m.watches[i].fails = 0
	}
}

// batchesOf makes one batch of each revision's events; the last one says upTo.
func batchesOf(events []Event, upTo int64) []MirrorBatch {
	var batches []MirrorBatch
	for len(events) > 0 {
		revision := events[0].KV.ModRevision
		n := sort.Search(len(events), func(i int) bool { return events[i].KV.ModRevision > revision })
		batches = append(batches, MirrorBatch{Revision: revision, Events: events[:n:n]})
		events = events[n:]
	}
	if len(batches) == 0 {
		return []MirrorBatch{{Revision: upTo}}
	}
	batches[len(batches)-1].Revision = upTo
	return batches
}

// trouble is the last error while a watch is down, else nil.
func (m *Mirror) trouble() error {
	for i := range m.watches {
		if m.watches[i].call == 0 {
			return m.err
		}
	}
	return nil
}

// release takes the held events up to a revision out.
func (w *following) release(upTo int64) []Event {
	n := sort.Search(len(w.held), func(i int) bool { return w.held[i].KV.ModRevision > upTo })
	out := w.held[:n:n]
	w.held = w.held[n:]
	if len(w.held) == 0 {
		w.held = nil
	}
	return out
}

func (m *Mirror) held() int {
	n := 0
	for i := range m.watches {
		n += len(m.watches[i].held)
	}
	return n
}

// ranAheadLimit is how often a watch may run ahead, without anything having
// been applied meanwhile, before a list takes the place of catching up.
const ranAheadLimit = 8

// bound closes the watch that is furthest ahead when too much is held back.
func (m *Mirror) bound(now time.Duration) {
	if m.held() <= m.cfg.MaxHeld {
		return
	}
	most := 0
	for i := range m.watches {
		if len(m.watches[i].held) > len(m.watches[most].held) {
			most = i
		}
	}
	if m.watches[most].fails >= ranAheadLimit {
		m.relist(now, ErrRanAhead)
		return
	}
	m.watchFailed(now, most, ErrRanAhead)
}

// waits says that somebody waits for progress: a reader, or held events.
func (m *Mirror) waits() bool { return m.wanted > m.applied || m.held() > 0 }

// askAt is when progress is to be asked for next.
func (m *Mirror) askAt() time.Duration {
	at, live := Never, false
	for i := range m.watches {
		if w := &m.watches[i]; w.call != 0 {
			live = true
			at = min(at, max(w.sign, m.asked)+m.cfg.Heartbeat)
		}
	}
	if live && m.waits() {
		at = min(at, m.asked+m.askGap)
	}
	return at
}

func (m *Mirror) askProgress(now time.Duration) {
	m.send(Call{Kind: CallProgress, Timeout: m.cfg.Heartbeat})
	m.asked = now
	if m.waits() {
		m.askGap = min(2*m.askGap, m.cfg.Heartbeat)
	}
	for i := range m.watches {
		if w := &m.watches[i]; w.call != 0 && w.asked == Never {
			w.asked = now
		}
	}
}
