// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/bpf"
)

// Rows run out, and come back after grace and quarantine.
func TestRowsFull(t *testing.T) {
	both(t, Config{Addresses: 100, Prefixes: 10, Rows: 12}, func(t *testing.T, b *bench) {
		b.Synced()
		for i := range 12 {
			b.upsert(t, host(i), identity.Number(1000+i), SourceRemote)
		}
		if pending := asPending(t, b.Reconcile(t.Context())); pending.Failing != 2 || !errors.Is(pending, ErrRowsFull) {
			t.Fatalf("%d failing: %v", pending.Failing, pending)
		}
		gone := 0
		for _, r := range b.list(t)[:3] {
			b.delete(t, r.Prefix.String(), SourceRemote)
			gone++
		}
		if pending := asPending(t, b.Reconcile(t.Context())); pending.Failing != 2 {
			t.Fatalf("%d failing before the quarantine is over", pending.Failing)
		}
		_ = b.tick(b.cfg.Grace)
		if s := b.Status().Rows; s.Quarantine != gone || s.Clearing != 0 {
			t.Fatalf("rows %+v", s)
		}
		if err := b.tick(b.cfg.Quarantine); err != nil {
			t.Fatal(err)
		}
		if got := len(b.list(t)); got != 9 {
			t.Fatalf("%d entries, want 9", got)
		}
	})
}

// Entries with one number share a row; the row follows the rules of reuse.
func TestRowsAreSharedAndReused(t *testing.T) {
	both(t, small, func(t *testing.T, b *bench) {
		b.Synced()
		for i := range 20 {
			b.upsert(t, host(i), 1001, SourceRemote)
		}
		b.reconcileAll(t)
		row := b.list(t)[0].Row
		if s := b.Status().Rows; s.Used != 1 {
			t.Fatalf("rows %+v, want one for one number", s)
		}
		for i := range 20 {
			b.delete(t, host(i), SourceRemote)
		}
		b.reconcileAll(t)
		p := b.Progress()
		if p.Cleared == p.Last {
			t.Fatal("the clearing is still to come, but counts as done")
		}
		_ = b.tick(b.cfg.Grace - time.Millisecond)
		if number, _ := bpf.UnpackHeader(b.store.rows.Load(int(row), 0)); number != 1001 {
			t.Fatal("the row was cleared before its grace was over")
		}
		_ = b.tick(time.Millisecond)
		if word := b.store.rows.Load(int(row), 0); word != bpf.PackHeader(0, FlagCleared) {
			t.Fatalf("the row's header is %#x", word)
		}
		if p := b.Progress(); p.Cleared != p.Last || p.Applied != p.Last {
			t.Fatalf("progress %+v after the clearing", p)
		}
		b.restart(t) // the quarantine outlives the process
		b.upsert(t, host(1), 1002, SourceRemote)
		b.reconcileAll(t)
		if got, _ := b.Lookup(netip.MustParseAddr("10.0.0.1")); got.Row == row {
			t.Fatal("the row was reused in its quarantine")
		}
		_ = b.tick(b.cfg.Quarantine)
		b.upsert(t, host(2), 1003, SourceRemote)
		b.reconcileAll(t)
		if got, _ := b.Lookup(netip.MustParseAddr("10.0.0.2")); got.Row != row {
			t.Fatalf("row %d, want %d reused", got.Row, row)
		}
	})
}
