// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/signet-identity/signet/bpf"
)

// content is what one address map holds.
type content = map[bpf.AddrKey]bpf.AddrValue

// Verify implements Datapath.
func (e *engine) Verify() (Drift, error) {
	e.pass.Lock()
	defer e.pass.Unlock()
	_, drift, err := e.compare()
	return drift, err
}

// Repair implements Datapath.
func (e *engine) Repair(ctx context.Context) (Drift, error) {
	e.pass.Lock()
	defer e.pass.Unlock()
	actual, drift, err := e.compare()
	if err != nil {
		return drift, errors.Join(err, e.restorePins(drift))
	}
	e.countDrift(drift)
	e.believe(actual)
	pinErr := e.restorePins(drift)
	now := e.cfg.Clock()
	e.work(ctx, func(r *retry) bool { return !r.next.After(now) })
	e.restoreRows()
	return drift, errors.Join(pinErr, e.summary(ctx))
}

// compare reads everything and lists the differences.
func (e *engine) compare() (actual [tableCount]content, drift Drift, err error) {
	if e.isClosed() {
		return actual, drift, ErrClosed
	}
	for t := range tableCount {
		if actual[t], err = e.store.tables[t].Dump(); err != nil {
			e.compared(err)
			return actual, drift, err
		}
	}
	e.compared(nil)
	drift.Items = append(e.addressDrift(actual), e.rowDrift()...)
	if e.store.lostPins != nil {
		for _, name := range e.store.lostPins() {
			drift.Items = append(drift.Items, DriftItem{Kind: DriftPin, Table: name})
		}
	}
	return actual, drift, nil
}

// compared notes that a comparison took place, or could not.
func (e *engine) compared(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.cfg.Clock()
	e.stats.nextVerify = now.Add(e.cfg.VerifyEvery)
	e.stats.verifyFailed = err != nil
	if err != nil {
		e.stats.failures++
		e.stats.lastError = err.Error()
		return
	}
	e.stats.lastVerify = now
}

func (e *engine) addressDrift(actual [tableCount]content) []DriftItem {
	e.mu.Lock()
	defer e.mu.Unlock()
	var items []DriftItem
	look := func(p place, value bpf.AddrValue, present bool) {
		kind := driftKind(e.action(p, value, present), present)
		if kind == "" {
			return
		}
		items = append(items, DriftItem{
			Kind: kind, Table: e.store.tables[p.table].Name(),
			Prefix: p.prefix(), Row: value.Row, Pending: e.pending[p] != nil,
		})
	}
	for t := range tableCount {
		for key, value := range actual[t] {
			look(place{t, key}, value, true)
		}
	}
	for p := range e.desired.places {
		if _, present := actual[p.table][p.key]; !present {
			look(p, bpf.AddrValue{}, false)
		}
	}
	slices.SortFunc(items, func(a, b DriftItem) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), comparePrefix(a.Prefix, b.Prefix), cmp.Compare(a.Row, b.Row))
	})
	return items
}

func driftKind(a action, present bool) DriftKind {
	switch {
	case a == put && present:
		return DriftWrong
	case a == put:
		return DriftMissing
	case a == remove:
		return DriftExtra
	}
	return ""
}

func (e *engine) rowDrift() []DriftItem {
	var items []DriftItem
	e.eachRowDrift(func(index uint32) {
		items = append(items, DriftItem{Kind: DriftRow, Table: rowsName, Row: index})
	})
	return items
}

// eachRowDrift calls for each row whose header is not what it should be. The
// caller holds pass, so that no row changes meanwhile.
func (e *engine) eachRowDrift(found func(index uint32)) {
	for index := range uint32(e.store.rows.Len()) {
		if e.store.rows.Load(int(index), 0) != e.rows.header(index) {
			found(index)
		}
	}
}

func (e *engine) restoreRows() { e.eachRowDrift(e.storeHeader) }

// countDrift counts the differences that were no news, per kind.
func (e *engine) countDrift(drift Drift) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, item := range drift.Items {
		if !item.Pending {
			e.stats.drift[item.Kind]++
		}
	}
	if n := len(drift.Items); n > 0 {
		e.cfg.Log.Warn("the ipcache differs from what is wanted", "differences", n)
	}
}

// believe takes what the maps hold for what is held, wherever that differs.
func (e *engine) believe(actual [tableCount]content) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seq++
	changed := map[place]bool{}
	for t := range tableCount {
		for key, value := range actual[t] {
			p := place{t, key}
			if h, present := e.held[p]; !present || h.value != value {
				e.hold(p, value, e.seq)
				changed[p] = true
			}
		}
	}
	for p := range e.held {
		if _, present := actual[p.table][p.key]; !present {
			e.drop(p, e.seq)
			changed[p] = true
		}
	}
	for p := range changed {
		e.touch(p)
	}
}

func (e *engine) restorePins(drift Drift) error {
	var errs []error
	for _, item := range drift.Items {
		if item.Kind != DriftPin {
			continue
		}
		if err := e.store.restorePin(item.Table); err != nil {
			errs = append(errs, fmt.Errorf("restoring the pin of %s: %w", item.Table, err))
		}
	}
	err := errors.Join(errs...)
	if err != nil {
		e.mu.Lock()
		e.stats.failures++
		e.stats.lastError = err.Error()
		e.mu.Unlock()
	}
	return err
}

// Empty says that nothing differs.
func (d Drift) Empty() bool { return len(d.Items) == 0 }

// Count counts the differences per kind.
func (d Drift) Count() DriftCount {
	count := DriftCount{}
	for _, item := range d.Items {
		count[item.Kind]++
	}
	return count
}
