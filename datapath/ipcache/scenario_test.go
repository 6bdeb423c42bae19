// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/bpf"
	"github.com/signet-identity/signet/datapath/maps"
)

// host is the i-th address of 10.0.0.0/8.
func host(i int) string { return fmt.Sprintf("10.%d.%d.%d/32", i>>16, i>>8&0xff, i&0xff) }

// B-05: a restarted agent touches nothing until it knows everything; then it
// adds and changes before it removes. Rows stay with their numbers.
func TestScenario_B05_RestartOpensNoGap(t *testing.T) {
	both(t, small, func(t *testing.T, b *bench) {
		b.Synced()
		for i := range 500 {
			b.upsert(t, host(i), identity.Number(1000+i%50), SourceRemote)
		}
		b.upsert(t, "10.0.0.0/8", 77, SourceCIDR)
		b.reconcileAll(t)
		before := b.list(t)
		for round := range 3 {
			b.restart(t)
			if s := b.Status(); s.Tables[hosts].Entries != 500 || s.Synced {
				t.Fatalf("after the restart: %+v", s)
			}
			b.wantLookup(t, "10.0.0.9", hit(1009))
			// An incomplete cache: some addresses, one with a weaker source's number.
			for i := range 100 {
				b.upsert(t, host(i), identity.Number(1000+i%50), SourceRemote)
			}
			b.upsert(t, host(300), 99, SourceCIDR)
			b.delete(t, host(301), SourceRemote)
			b.reconcileAll(t)
			if err := b.tick(b.cfg.Grace); err != nil {
				t.Fatal(err)
			}
			if err := b.tick(b.cfg.Quarantine); err != nil {
				t.Fatal(err)
			}
			if after := b.list(t); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Fatalf("round %d: the maps changed before synced", round)
			}
			if p := b.Progress(); p.Applied != 0 || p.Cleared != 0 {
				t.Fatalf("progress is claimed before synced: %+v", p)
			}
		}
		// A new address is added, and the strongest source may change its own.
		b.upsert(t, host(900), 1001, SourceRemote)
		b.upsert(t, host(7), 1050, SourceEndpoint)
		b.reconcileAll(t)
		b.wantLookup(t, "10.0.3.132", hit(1001))
		b.wantLookup(t, "10.0.0.7", hit(1050))

		b.Synced()
		b.reconcileAll(t)
		got := b.numbers(t)
		if len(got) != 102 { // 100, the CIDR's claim on one more, and the new one
			t.Fatalf("%d entries after synced", len(got))
		}
		b.wantLookup(t, "10.0.1.44", hit(99))
		b.wantLookup(t, "10.200.0.1", missed)
		b.noDrift(t)
	})
}

// B-05, order: in one pass, the addition is in the map before the removal.
func TestScenario_B05_AddsBeforeDeletes(t *testing.T) {
	b := newMemoryBench(t, small)
	b.Synced()
	b.upsert(t, host(1), 1001, SourceRemote)
	b.reconcileAll(t)
	b.delete(t, host(1), SourceRemote)
	b.upsert(t, host(2), 1002, SourceRemote)
	watched := false
	b.injectFaults(hosts, func(bpf.AddrKey) error {
		_, err := b.store.tables[hosts].Get(placeOf(pfx(host(1))).key)
		watched = err == nil
		return nil
	})
	b.reconcileAll(t)
	if !watched {
		t.Fatal("the removal came before the addition")
	}
}

// B-07: what finds no room is counted, listed and retried; the rest works.
func TestScenario_B07_FullMap(t *testing.T) {
	both(t, Config{Addresses: 1000, Prefixes: 100, Rows: 2000}, func(t *testing.T, b *bench) {
		b.Synced()
		for i := range 1200 {
			b.upsert(t, host(i), identity.Number(1000+i%7), SourceRemote)
		}
		for i := range 120 {
			b.upsert(t, fmt.Sprintf("172.16.%d.0/24", i), identity.Number(3000+i), SourceCIDR)
		}
		pending := asPending(t, b.Reconcile(t.Context()))
		if !errors.Is(pending, maps.ErrFull) || pending.Failing != 220 {
			t.Fatalf("error %v with %d failing, want 220 for want of room", pending, pending.Failing)
		}
		s := b.Status()
		if s.Pending != 220 || !s.Degraded || len(b.Pending()) != 220 {
			t.Fatalf("status %+v", s)
		}
		if h := s.Tables[hosts]; h.Entries != 1000 || h.Wanted != 1200 || h.Capacity != 1000 {
			t.Fatalf("hosts %+v", h)
		}
		if p := b.Progress(); p.Applied == p.Last || p.Cleared != p.Last {
			t.Fatalf("progress %+v: additions are missing, but nothing old is left", p)
		}
		// What is in may still change.
		present := b.list(t)[0].Prefix
		b.upsert(t, present.String(), 1999, SourceRemote)
		_ = b.Reconcile(t.Context())
		b.wantLookup(t, present.Addr().String(), hit(1999))

		for i := range 300 {
			b.delete(t, host(i), SourceRemote)
		}
		for i := range 30 {
			b.delete(t, fmt.Sprintf("172.16.%d.0/24", i), SourceCIDR)
		}
		b.reconcileAll(t)
		if got := len(b.list(t)); got != 990 {
			t.Fatalf("%d entries are in the maps, want all 990", got)
		}
		if s := b.Status(); s.Pending != 0 || s.Degraded {
			t.Fatalf("status %+v", s)
		}
		b.noDrift(t)
	})
}

// B-07, second run: no memory for a while.
func TestScenario_B07_OutOfMemory(t *testing.T) {
	both(t, small, func(t *testing.T, b *bench) {
		b.Synced()
		starved := true
		b.injectFaults(hosts, func(bpf.AddrKey) error {
			if starved {
				return unix.ENOMEM
			}
			return nil
		})
		for i := range 50 {
			b.upsert(t, host(i), 1001, SourceRemote)
		}
		if pending := asPending(t, b.Reconcile(t.Context())); pending.Failing != 50 || !errors.Is(pending, unix.ENOMEM) {
			t.Fatalf("%d failing: %v", pending.Failing, pending)
		}
		starved = false
		if err := b.tick(b.cfg.RetryMin); err != nil {
			t.Fatal(err)
		}
		if got := len(b.list(t)); got != 50 {
			t.Fatalf("%d entries, want 50", got)
		}
	})
}

// B-16: a single address is the longest prefix of all; deleting in any order
// lets the next shorter one count.
func TestScenario_B16_LongestPrefix(t *testing.T) {
	both(t, small, func(t *testing.T, b *bench) {
		b.Synced()
		entries := []string{"10.0.0.1/32", "10.0.0.0/31", "10.0.0.0/24", "0.0.0.0/0", "::1/128", "::/0"}
		for n := range 24 { // each order of the four IPv4 entries
			order := permutation(n)
			for i, p := range entries {
				b.upsert(t, p, identity.Number(1000+i), SourceCIDR)
			}
			b.reconcileAll(t)
			b.wantLookup(t, "::1", hit(1004))
			b.wantLookup(t, "::2", hit(1005))
			there := map[int]bool{0: true, 1: true, 2: true, 3: true}
			for _, gone := range order {
				for addr, holders := range map[string][]int{
					"10.0.0.1": {0, 1, 2, 3}, "10.0.0.0": {1, 2, 3}, "10.0.0.200": {2, 3}, "10.9.0.0": {3},
				} {
					want := missed
					for _, h := range holders {
						if there[h] {
							want = hit(identity.Number(1000 + h))
							break
						}
					}
					b.wantLookup(t, addr, want)
				}
				b.delete(t, entries[gone], SourceCIDR)
				b.reconcileAll(t)
				there[gone] = false
			}
			b.wantLookup(t, "10.0.0.1", missed)
		}
	})
}

// permutation is the n-th order of 0..3.
func permutation(n int) []int {
	left := []int{0, 1, 2, 3}
	var out []int
	for k := 4; k > 0; k-- {
		i := n % k
		n /= k
		out = append(out, left[i])
		left = append(left[:i:i], left[i+1:]...)
	}
	return out
}

// W-08: three keys fail ten times; the others do not wait for them, and they
// come without a new event.
func TestScenario_W08_FailingKeys(t *testing.T) {
	both(t, Config{Addresses: 2000, Prefixes: 10, Rows: 2000}, func(t *testing.T, b *bench) {
		b.Synced()
		failing := map[bpf.AddrKey]int{}
		for _, i := range []int{3, 300, 999} {
			failing[placeOf(pfx(host(i))).key] = 10
		}
		b.injectFaults(hosts, func(k bpf.AddrKey) error {
			if failing[k] > 0 {
				return unix.EBUSY
			}
			return nil
		})
		for i := range 1000 {
			b.upsert(t, host(i), identity.Number(1000+i), SourceRemote)
		}
		for try := range 10 {
			pending := asPending(t, b.tick(b.cfg.RetryMax))
			if pending.Failing != 3 || b.Status().Pending != 3 || len(b.list(t)) != 997 {
				t.Fatalf("try %d: %d failing, %d in the map", try, pending.Failing, len(b.list(t)))
			}
			for k := range failing {
				failing[k]--
			}
		}
		if err := b.tick(b.cfg.RetryMax); err != nil {
			t.Fatal(err)
		}
		if got := len(b.list(t)); got != 1000 || b.Status().Pending != 0 {
			t.Fatalf("%d in the map, status %+v", got, b.Status())
		}
	})
}

// S-04: for one address the strongest source that speaks counts, after each
// step and after each comparison.
func TestScenario_S04_TwoSources(t *testing.T) {
	sources := []Source{SourceEndpoint, SourceRemote, SourceCIDR, SourceNode}
	both(t, small, func(t *testing.T, b *bench) {
		b.Synced()
		for n := range 24 {
			there := map[Source]bool{}
			step := func(s Source, add bool) {
				there[s] = add
				if add {
					b.upsert(t, "10.0.0.1/32", identity.Number(1000+uint32(s)), s)
				} else {
					b.delete(t, "10.0.0.1/32", s)
				}
				b.reconcileAll(t)
				want := missed
				for s := SourceCIDR; s <= SourceEndpoint; s++ {
					if there[s] {
						want = hit(identity.Number(1000 + uint32(s)))
					}
				}
				b.wantLookup(t, "10.0.0.1", want)
				if drift, err := b.Repair(t.Context()); err != nil || !drift.Empty() {
					t.Fatalf("the refresh changed something: %v %v", drift, err)
				}
				b.wantLookup(t, "10.0.0.1", want)
			}
			for _, i := range permutation(n) {
				step(sources[i], true)
			}
			for _, i := range permutation(23 - n) {
				step(sources[i], false)
			}
		}
	})
}
