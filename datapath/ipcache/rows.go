// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"math"
	"slices"
	"time"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/bpf"
)

// rowTable decides which row a number has. It does no I/O: the caller stores
// what acquire calls fresh and what expire calls changed.
//
// The life of an index:
//
//	free ──acquire──▶ used ──last release──▶ grace ──expire──▶ quarantine ──expire──▶ free
//	                   ▲────────acquire────────┘
//
// Invariants: a number has at most one row that acquire gives out; an index is
// in one state; the row of a number in grace still holds it, so that it can
// return; an index leaves quarantine only after the whole of grace and quarantine;
// an index that any address points to is never given out.
//
// What a former process or someone else left may break the first: a second row
// of a number, or a row without a number, is an orphan. It is kept as long as an
// address points to it, and goes the way of the others then.
type rowTable struct {
	limit      uint32 // indexes are below it
	grace      time.Duration
	quarantine time.Duration

	rows     map[uint32]*row // used or in grace
	byNumber map[identity.Number]uint32
	waiting  []waiting            // in grace, by due; some are cancelled
	cleared  []waiting            // in quarantine, by due; some are claimed
	resting  map[uint32]time.Time // in quarantine: when it ends
	free     []uint32             // out of quarantine, longest first
	next     uint32               // from here on no index was ever used
	graced   int                  // rows in grace
}

type row struct {
	number identity.Number
	refs   int
	since  uint64 // the change that took the last address away; noChange for none
	due    time.Time
}

type waiting struct {
	index uint32
	due   time.Time
}

func newRowTable(limit uint32, grace, quarantine time.Duration) *rowTable {
	return &rowTable{
		limit: limit, grace: grace, quarantine: quarantine,
		rows:     map[uint32]*row{},
		byNumber: map[identity.Number]uint32{},
		resting:  map[uint32]time.Time{},
		next:     bpf.RowFirst,
	}
}

// noChange is later than every change.
const noChange = math.MaxUint64

// acquire gives the number's row and counts one reference, for an address that
// is about to point to it. Fresh: its header
// must be stored before any address points to it.
func (t *rowTable) acquire(n identity.Number) (index uint32, fresh bool, err error) {
	if index, ok := t.byNumber[n]; ok {
		r := t.rows[index]
		if r.refs == 0 {
			t.graced--
		}
		r.refs++
		return index, false, nil
	}
	switch {
	case len(t.free) > 0:
		index = t.free[0]
		t.free = t.free[1:]
	case t.next < t.limit:
		index = t.next
		t.next++
	default:
		return 0, false, ErrRowsFull
	}
	t.rows[index] = &row{number: n, refs: 1, since: noChange}
	t.byNumber[n] = index
	return index, true, nil
}

// retain counts one more reference, of an address that points to the index.
// What was left of the number is in use again. An index without
// a number becomes an orphan. False for what is no index of a number's row.
func (t *rowTable) retain(index uint32) bool {
	if index < bpf.RowFirst || index >= t.limit {
		return false
	}
	r := t.rows[index]
	if r == nil {
		r = t.claim(index, 0)
	}
	if r.refs == 0 {
		t.graced--
	}
	r.refs++
	r.since = noChange
	return true
}

// claim takes an index out of wherever it is, into grace without an end.
func (t *rowTable) claim(index uint32, n identity.Number) *row {
	for ; t.next < index; t.next++ {
		t.free = append(t.free, t.next)
	}
	if t.next == index {
		t.next++
	} else {
		t.free = slices.DeleteFunc(t.free, func(i uint32) bool { return i == index })
		delete(t.resting, index)
	}
	r := &row{number: n, since: noChange}
	t.rows[index] = r
	t.graced++
	return r
}

// release takes one reference back; with the last one the grace begins.
func (t *rowTable) release(index uint32, now time.Time, since uint64) {
	r := t.rows[index]
	r.refs--
	if r.refs == 0 {
		t.begin(index, r, now, since)
	}
}

func (t *rowTable) begin(index uint32, r *row, now time.Time, since uint64) {
	r.since = min(r.since, since)
	r.due = now.Add(t.grace)
	t.graced++
	t.waiting = append(t.waiting, waiting{index, r.due})
}

// expire moves what is due from grace to quarantine and from there to free. The
// headers of the rows it returns have changed and are to be stored now; freed
// says how many indexes became free.
func (t *rowTable) expire(now time.Time) (changed []uint32, freed int) {
	for len(t.cleared) > 0 && !t.cleared[0].due.After(now) {
		w := t.cleared[0]
		t.cleared = t.cleared[1:]
		if due, resting := t.resting[w.index]; !resting || !due.Equal(w.due) {
			continue // an address was found that points to it
		}
		delete(t.resting, w.index)
		t.free = append(t.free, w.index)
		changed = append(changed, w.index)
		freed++
	}
	for len(t.waiting) > 0 && !t.waiting[0].due.After(now) {
		w := t.waiting[0]
		t.waiting = t.waiting[1:]
		r := t.rows[w.index]
		if r == nil || r.refs > 0 || !r.due.Equal(w.due) {
			continue // the number returned
		}
		t.graced--
		delete(t.rows, w.index)
		if t.byNumber[r.number] == w.index {
			delete(t.byNumber, r.number)
		}
		t.rest(w.index, now)
		changed = append(changed, w.index)
	}
	return changed, freed
}

// rest begins the quarantine of an index.
func (t *rowTable) rest(index uint32, now time.Time) {
	due := now.Add(t.quarantine)
	t.resting[index] = due
	t.cleared = append(t.cleared, waiting{index, due})
}

// due is when expire has something to do next; zero for never.
func (t *rowTable) due() time.Time {
	var due time.Time
	for _, queue := range [][]waiting{t.waiting, t.cleared} {
		if len(queue) > 0 && (due.IsZero() || queue[0].due.Before(due)) {
			due = queue[0].due
		}
	}
	return due
}

// oldest is the first change whose clearing is still to come; false for none.
func (t *rowTable) oldest() (uint64, bool) {
	oldest := uint64(noChange)
	for _, w := range t.waiting {
		if r := t.rows[w.index]; r != nil && r.refs == 0 {
			oldest = min(oldest, r.since)
		}
	}
	return oldest, oldest != noChange
}

// adopt takes over a row that a former process left, from its header, without
// a reference. Rows are adopted in the order of their index, before anything else.
func (t *rowTable) adopt(index uint32, header uint64, now time.Time) {
	n, flags := bpf.UnpackHeader(header)
	number := identity.Number(n)
	t.claim(index, number)
	if flags&FlagCleared != 0 {
		delete(t.rows, index)
		t.graced--
		t.rest(index, now)
		return
	}
	if _, twice := t.byNumber[number]; !twice && number != 0 {
		t.byNumber[number] = index
	}
}

// adopted ends adoption: rows without a reference begin their grace.
func (t *rowTable) adopted(now time.Time, since uint64) {
	for index := uint32(bpf.RowFirst); index < t.next; index++ {
		if r := t.rows[index]; r != nil && r.refs == 0 {
			t.graced--
			t.begin(index, r, now, since)
		}
	}
}

// header is what the row's header has to be.
func (t *rowTable) header(index uint32) uint64 {
	if index == bpf.RowDeny {
		return bpf.PackHeader(0, FlagValid|FlagDeny)
	}
	r := t.rows[index]
	if r != nil && r.number != 0 {
		return bpf.PackHeader(uint32(r.number), FlagValid)
	}
	// An orphan may have come out of quarantine: a restart must not take it for free.
	if _, resting := t.resting[index]; resting || r != nil {
		return bpf.PackHeader(0, FlagCleared)
	}
	return 0
}

func (t *rowTable) status() RowStatus {
	return RowStatus{
		Used:       len(t.rows) - t.graced,
		Clearing:   t.graced,
		Quarantine: len(t.resting),
		Capacity:   int(t.limit) - bpf.RowFirst,
	}
}
