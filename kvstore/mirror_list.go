// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"errors"
	"time"
)

// listing is a list of all spans in progress. The first page fixes the revision
// of all others.
type listing struct {
	span     int
	key      string // where the next page of the span begins; empty: at its start
	revision int64  // 0: the first page has not come
	events   []Event
	page     pending
	retryAt  time.Duration
	fails    int
}

// relist lists everything anew because of err.
func (m *Mirror) relist(now time.Duration, err error) {
	if m.applied > 0 {
		m.relists++
	}
	m.halt()
	m.state, m.err, m.audit = mirrorListing, err, Never
	m.list = listing{retryAt: now, fails: m.list.fails}
	if m.list.fails > 0 {
		m.list.retryAt = now + m.backoff(m.list.fails)
	}
}

func (m *Mirror) nextPage(now time.Duration) {
	span := m.cfg.Spans[m.list.span]
	key := m.list.key
	if key == "" {
		key = span.Key
	}
	m.list.page = m.ask(now, Call{Kind: CallRange, Timeout: m.cfg.PageTimeout, Range: RangeRequest{
		Key: key, RangeEnd: span.End, Revision: m.list.revision, Limit: m.cfg.PageSize,
	}})
}

// pageFailed tries the page again; once its revision is compacted, or lies beyond
// the head of a store that was restored meanwhile, the whole list.
func (m *Mirror) pageFailed(now time.Duration, err error) {
	m.list.page, m.err = pending{}, err
	m.list.fails++
	m.list.retryAt = now + m.backoff(m.list.fails)
	if errors.Is(err, ErrCompacted) || errors.Is(err, ErrFutureRevision) {
		m.list = listing{retryAt: m.list.retryAt, fails: m.list.fails}
	}
}

func (m *Mirror) page(now time.Duration, a Answer) {
	if a.Err != nil {
		m.pageFailed(now, a.Err)
		return
	}
	m.list.page = pending{}
	if a.Range.Revision < m.head {
		m.backTo(m.head, a.Range.Revision)
		return
	}
	m.head = a.Range.Revision
	for i := range m.watches {
		m.watches[i].sign = now
	}
	if m.list.revision == 0 {
		m.list.revision = a.Range.Revision
	}
	kvs := a.Range.KVs
	for _, kv := range kvs {
		m.list.events = append(m.list.events, Event{KV: kv})
	}
	if a.Range.More && len(kvs) > 0 {
		m.list.key = kvs[len(kvs)-1].Key + "\x00"
		return
	}
	m.list.key = ""
	if m.list.span++; m.list.span == len(m.cfg.Spans) {
		m.listed(now)
	}
}

// listed gives the whole state out and begins to follow from there.
func (m *Mirror) listed(now time.Duration) {
	m.batches = append(m.batches, MirrorBatch{Revision: m.list.revision, Reset: true, Events: m.list.events})
	m.applied = m.list.revision
	m.list = listing{fails: m.list.fails}
	m.state = mirrorFollowing
	for i := range m.watches {
		m.watches[i] = following{done: m.applied, sign: now, asked: Never, retryAt: now}
	}
	if m.cfg.Audit > 0 {
		m.audit = now + m.cfg.Audit
	}
}
