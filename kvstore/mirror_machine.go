// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"errors"
	"fmt"
	"time"
)

// errCompactedWatch is why a mirror lists anew after compaction.
var errCompactedWatch = fmt.Errorf("a watch was overtaken: %w", ErrCompacted)

// Step takes the answer to a call at time now.
func (m *Mirror) Step(now time.Duration, a Answer) {
	m.answer(now, a)
	m.check(now)
	m.drive(now)
}

// Tick lets time act.
func (m *Mirror) Tick(now time.Duration) {
	m.check(now)
	m.drive(now)
}

// Want says that a reader waits until revision is applied: progress is asked
// for until it is.
func (m *Mirror) Want(now time.Duration, revision int64) {
	if revision > m.wanted {
		m.wanted, m.askGap = revision, m.cfg.AskEvery
	}
	m.drive(now)
}

// Resumed says that answers had to wait until now since the consumer was slow:
// no watch is blamed for that silence.
func (m *Mirror) Resumed(now time.Duration) {
	for i := range m.watches {
		if w := &m.watches[i]; w.asked != Never {
			w.asked = now
		}
	}
}

// Accept takes the store as it is now after a WentBack: everything is listed
// anew, at a revision that may be lower than those before.
func (m *Mirror) Accept(now time.Duration) {
	if m.state != mirrorWentBack {
		return
	}
	m.applied, m.head, m.wanted = 0, 0, 0
	m.relist(now, m.err)
	m.drive(now)
}

// Ready takes what is to be done since the last Ready.
func (m *Mirror) Ready() MirrorReady {
	r := MirrorReady{Batches: m.batches, WentBack: m.wentBack, Calls: m.take(), Wake: m.wake()}
	m.batches, m.wentBack = nil, nil
	return r
}

func (m *Mirror) wake() time.Duration {
	switch m.state {
	case mirrorListing:
		if m.list.page.id != 0 {
			return m.list.page.deadline
		}
		return m.list.retryAt
	case mirrorFollowing:
		wake := min(m.confirm.wake(), m.audit, m.askAt())
		for i := range m.watches {
			wake = min(wake, m.watches[i].wake(m.cfg.Heartbeat))
		}
		return wake
	}
	return Never
}

func (m *Mirror) check(now time.Duration) {
	switch m.state {
	case mirrorListing:
		if m.list.page.silent(now) {
			m.pageFailed(now, errSilent)
		}
	case mirrorFollowing:
		if m.confirm.silent(now) {
			m.confirm = pending{}
		}
		for i := range m.watches {
			if m.watches[i].dead(now, m.cfg.Heartbeat) {
				m.watchFailed(now, i, errors.New("a watch gave no sign of life"))
			}
		}
		if now >= m.audit {
			m.relist(now, m.err)
		}
	}
}

func (m *Mirror) drive(now time.Duration) {
	switch m.state {
	case mirrorListing:
		if m.list.page.id == 0 && now >= m.list.retryAt {
			m.nextPage(now)
		}
	case mirrorFollowing:
		for i := range m.watches {
			m.open(now, i)
		}
		if now >= m.askAt() {
			m.askProgress(now)
		}
	}
}

func (m *Mirror) answer(now time.Duration, a Answer) {
	switch {
	case a.ID == 0:
	case a.ID == m.list.page.id:
		m.page(now, a)
	case a.ID == m.confirm.id:
		m.confirmed(now, a)
	default:
		for i := range m.watches {
			if m.watches[i].call == a.ID {
				m.watched(now, i, a.Batch)
				return
			}
		}
	}
}

// backoff is the pause after so many failures in a row.
func (m *Mirror) backoff(fails int) time.Duration {
	d := m.cfg.Backoff << min(fails, 20)
	if d > m.cfg.MaxBackoff || d <= 0 {
		d = m.cfg.MaxBackoff
	}
	return d/2 + time.Duration(m.rand.Float64()*float64(d/2))
}

// halt ends all watches and drops what was held back.
func (m *Mirror) halt() {
	for i := range m.watches {
		m.cancel(m.watches[i].call)
		m.watches[i].stop(m.applied)
	}
	m.confirm = pending{}
}

// backTo stops the mirror, since the store's head is lower than one seen before.
func (m *Mirror) backTo(have, seen int64) {
	m.halt()
	m.list = listing{}
	m.state = mirrorWentBack
	m.err = fmt.Errorf("the store's head went back from revision %d to %d: it was restored", have, seen)
	m.wentBack = &WentBack{Have: have, Seen: seen}
}
