// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"cmp"
	stdmaps "maps"
	"net/netip"
	"slices"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/bpf"
)

// List implements Datapath.
func (e *engine) List() ([]Realised, error) {
	e.pass.Lock()
	defer e.pass.Unlock()
	if e.isClosed() {
		return nil, ErrClosed
	}
	var list []Realised
	for t := range tableCount {
		all, err := e.store.tables[t].Dump()
		if err != nil {
			return nil, err
		}
		for key, value := range all {
			list = append(list, e.realised(place{t, key}, value))
		}
	}
	slices.SortFunc(list, func(a, b Realised) int {
		return cmp.Or(comparePrefix(a.Prefix, b.Prefix), cmp.Compare(a.Table, b.Table))
	})
	return list, nil
}

func (e *engine) realised(p place, value bpf.AddrValue) Realised {
	r := Realised{
		Table:  e.store.tables[p.table].Name(),
		Prefix: p.prefix(),
		Row:    value.Row,
		Proven: value.Check == bpf.Check(p.key),
	}
	if int64(value.Row) < int64(e.store.rows.Len()) {
		number, flags := bpf.UnpackHeader(e.store.rows.Load(int(value.Row), 0))
		r.Number, r.Flags = identity.Number(number), flags
	}
	return r
}

// comparePrefix orders by address, then shorter before longer; invalid first.
func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// Lookup implements Datapath.
func (e *engine) Lookup(addr netip.Addr) (Result, error) {
	e.pass.Lock()
	defer e.pass.Unlock()
	if e.isClosed() {
		return Result{}, ErrClosed
	}
	if !addr.IsValid() || addr.Is4In6() {
		return Result{}, &EntryError{netip.PrefixFrom(addr, -1), "not an IPv4 or IPv6 address"}
	}
	return e.store.lookup(addr.WithZone(""))
}

// Pending implements Datapath.
func (e *engine) Pending() []Pending {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]Pending, 0, len(e.pending))
	for p, r := range e.pending {
		w, wanted := e.desired.winner(p)
		item := Pending{Prefix: p.prefix(), Remove: !wanted, Attempts: r.attempts, Next: r.next, Err: r.err}
		if !w.dead {
			item.Number = w.number
		}
		list = append(list, item)
	}
	slices.SortFunc(list, func(a, b Pending) int { return comparePrefix(a.Prefix, b.Prefix) })
	return list
}

// Progress implements Datapath.
func (e *engine) Progress() Progress {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := Progress{Last: e.seq}
	if !e.synced {
		return out
	}
	out.Cleared = e.seq
	if since, any := e.rows.oldest(); any {
		out.Cleared = before(since)
	}
	out.Applied = out.Cleared
	for p, r := range e.pending {
		out.Applied = min(out.Applied, before(r.since))
		if _, present := e.held[p]; present {
			out.Cleared = min(out.Cleared, before(r.since))
		}
	}
	return out
}

// before is the change before another one; there is none before the first.
func before(seq uint64) uint64 { return max(seq, 1) - 1 }

// Status implements Datapath.
func (e *engine) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	failing, _ := e.failing()
	s := Status{
		Kind: e.store.kind, Reason: e.store.reason, PinPath: e.store.path,
		Rows:        e.rows.status(),
		Synced:      e.synced,
		Degraded:    failing > 0 || e.stats.verifyFailed,
		Pending:     len(e.pending),
		Failing:     failing,
		Failures:    e.stats.failures,
		Writes:      e.stats.writes,
		Drift:       stdmaps.Clone(e.stats.drift),
		LastError:   e.stats.lastError,
		LastSuccess: e.stats.lastSuccess,
		LastVerify:  e.stats.lastVerify,
	}
	for t := range tableCount {
		s.Tables = append(s.Tables, TableStatus{
			Name:     e.store.tables[t].Name(),
			Entries:  e.count[t],
			Wanted:   e.desired.count[t],
			Capacity: e.store.tables[t].Capacity(),
		})
	}
	return s
}
