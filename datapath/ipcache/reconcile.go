// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"context"
	"errors"
	"time"

	"github.com/signet-identity/signet/bpf"
	"github.com/signet-identity/signet/datapath/maps"
)

// batchSize is how many entries go into one system call; more gains little.
const batchSize = 256

// Run implements Datapath.
func (e *engine) Run(ctx context.Context) error {
	failing := false
	for {
		err := e.Tick(ctx, e.cfg.Clock())
		if errors.Is(err, ErrClosed) || ctx.Err() != nil {
			return errOf(ctx, err)
		}
		if (err != nil) != failing {
			failing = err != nil
			e.report(err)
		}
		timer := time.NewTimer(e.wait(e.cfg.Clock()))
		select {
		case <-ctx.Done():
		case <-e.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func errOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (e *engine) report(err error) {
	if err == nil {
		e.cfg.Log.Info("the ipcache is realised again")
		return
	}
	e.cfg.Log.Warn("the ipcache is not fully realised", "error", err)
}

// wait is how long nothing is due.
func (e *engine) wait(now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := now.Add(e.cfg.VerifyEvery)
	if e.synced && e.stats.nextVerify.Before(next) {
		next = e.stats.nextVerify
	}
	if due := e.rows.due(); !due.IsZero() && due.Before(next) {
		next = due
	}
	for _, r := range e.pending {
		if r.next.Before(next) {
			next = r.next
		}
	}
	return max(next.Sub(now), 0)
}

// Tick implements Datapath.
func (e *engine) Tick(ctx context.Context, now time.Time) error {
	e.mu.Lock()
	verify := e.synced && !e.stats.nextVerify.After(now)
	e.mu.Unlock()
	if verify {
		_, err := e.Repair(ctx)
		return err
	}
	return e.reconcile(ctx, func(r *retry) bool { return !r.next.After(now) })
}

// Reconcile implements Datapath.
func (e *engine) Reconcile(ctx context.Context) error {
	return e.reconcile(ctx, func(*retry) bool { return true })
}

func (e *engine) reconcile(ctx context.Context, due func(*retry) bool) error {
	e.pass.Lock()
	defer e.pass.Unlock()
	if e.isClosed() {
		return ErrClosed
	}
	e.work(ctx, due)
	return e.summary(ctx)
}

// work does one pass: rows that are due, then changes and additions, then
// removals, then once more the additions that found no room before.
func (e *engine) work(ctx context.Context, due func(*retry) bool) {
	e.expire()
	plan := e.plan(due)
	for t := range tableCount {
		e.putAll(ctx, t, plan[t].replace)
		e.putAll(ctx, t, plan[t].insert)
	}
	for t := range tableCount {
		if e.removeAll(ctx, t, plan[t].remove) > 0 {
			e.putAll(ctx, t, e.unfit(t, maps.ErrFull))
		}
	}
}

type plan struct{ replace, insert, remove []place }

func (e *engine) plan(due func(*retry) bool) [tableCount]plan {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out [tableCount]plan
	for p, r := range e.pending {
		if !due(r) {
			continue
		}
		to := &out[p.table]
		_, present := e.held[p]
		switch {
		case e.todo(p) == remove:
			to.remove = append(to.remove, p)
		case present:
			to.replace = append(to.replace, p)
		default:
			to.insert = append(to.insert, p)
		}
	}
	return out
}

// unfit lists what could not be realised for want of room.
func (e *engine) unfit(t table, reason error) []place {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []place
	for p, r := range e.pending {
		if p.table == t && errors.Is(r.err, reason) {
			out = append(out, p)
		}
	}
	return out
}

// expire clears the rows whose grace is over and frees those whose quarantine
// is; entries that wait for a row are due when an index has become free.
func (e *engine) expire() {
	e.mu.Lock()
	changed, freed := e.rows.expire(e.cfg.Clock())
	if freed > 0 {
		for _, r := range e.pending {
			if errors.Is(r.err, ErrRowsFull) {
				r.next = time.Time{}
			}
		}
	}
	e.mu.Unlock()
	for _, index := range changed {
		e.storeHeader(index)
	}
}

// write is one planned change of an address map.
type write struct {
	place place
	value bpf.AddrValue
	ref   bool // a reference to the row is counted until the outcome is noted
}

// putAll writes the places in batches. One that fails does not hold up the
// others; but when the map is full, all further additions are.
func (e *engine) putAll(ctx context.Context, t table, places []place) {
	var full error
	for len(places) > 0 && ctx.Err() == nil {
		n := min(batchSize, len(places))
		chunk := places[:n]
		places = places[n:]
		if full != nil {
			e.failAll(chunk, full)
			continue
		}
		full = e.putChunk(t, e.prepare(chunk))
	}
}

// prepare gives each place its row; fresh rows are stored before any address
// points to them.
func (e *engine) prepare(places []place) []write {
	e.mu.Lock()
	var writes []write
	var fresh []uint32
	for _, p := range places {
		if e.todo(p) != put {
			continue // it changed meanwhile, and is looked at again
		}
		w, _ := e.desired.winner(p)
		if w.dead {
			writes = append(writes, write{place: p, value: bpf.Value(p.key, bpf.RowDeny)})
			continue
		}
		index, isFresh, err := e.rows.acquire(w.number)
		if err != nil {
			e.fail(p, err)
			continue
		}
		if isFresh {
			fresh = append(fresh, index)
		}
		writes = append(writes, write{place: p, value: bpf.Value(p.key, index), ref: true})
	}
	e.mu.Unlock()
	for _, index := range fresh {
		e.storeHeader(index)
	}
	return writes
}

// putChunk returns the error when the map is full.
func (e *engine) putChunk(t table, writes []write) (full error) {
	keys := make([]bpf.AddrKey, len(writes))
	values := make([]bpf.AddrValue, len(writes))
	for i, w := range writes {
		keys[i], values[i] = w.place.key, w.value
	}
	for i := 0; i < len(writes); {
		n, err := e.store.tables[t].PutBatch(keys[i:], values[i:])
		if err == nil {
			n = len(writes) - i
		}
		e.mu.Lock()
		for _, w := range writes[i : i+n] {
			e.written(w)
		}
		i += n
		switch {
		case err == nil:
		case errors.Is(err, maps.ErrFull):
			for _, w := range writes[i:] {
				e.unwritten(w, err)
			}
			i, full = len(writes), err
		case i < len(writes):
			e.unwritten(writes[i], err)
			i++
		}
		e.mu.Unlock()
	}
	return full
}

// removeAll removes the places in batches, and says how many are gone. A key
// that is missing already is as good as removed.
func (e *engine) removeAll(ctx context.Context, t table, places []place) (gone int) {
	for len(places) > 0 && ctx.Err() == nil {
		n := min(batchSize, len(places))
		chunk := e.stillToRemove(places[:n])
		places = places[n:]
		keys := make([]bpf.AddrKey, len(chunk))
		for i, p := range chunk {
			keys[i] = p.key
		}
		for i := 0; i < len(chunk); {
			n, err := e.store.tables[t].DeleteBatch(keys[i:])
			if errors.Is(err, maps.ErrNotFound) {
				n, err = n+1, nil
			}
			e.mu.Lock()
			for _, p := range chunk[i : i+n] {
				e.removed(p)
			}
			i, gone = i+n, gone+n
			if err != nil && i < len(chunk) {
				e.fail(chunk[i], err)
				i++
			}
			e.mu.Unlock()
		}
	}
	return gone
}

func (e *engine) stillToRemove(places []place) []place {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []place
	for _, p := range places {
		if e.todo(p) == remove {
			out = append(out, p)
		}
	}
	return out
}
