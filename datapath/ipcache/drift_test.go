// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"errors"
	"fmt"
	"testing"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/bpf"
	"github.com/signet-identity/signet/datapath/maps"
)

// B-11: a dump is complete whatever the size of a batch; on the kernel's maps
// this is tested in datapath/maps. Here: an incomplete one is never a result.
func TestScenario_B11_IncompleteDumpIsAnError(t *testing.T) {
	b := newMemoryBench(t, small)
	b.Synced()
	b.upsert(t, host(1), 1001, SourceRemote)
	b.reconcileAll(t)
	b.store.tables[hosts] = torn{b.store.tables[hosts]}
	if _, err := b.List(); !errors.Is(err, maps.ErrIncomplete) {
		t.Fatalf("List: %v", err)
	}
	if _, err := b.Repair(t.Context()); !errors.Is(err, maps.ErrIncomplete) {
		t.Fatalf("Repair: %v", err)
	}
	if s := b.Status(); !s.Degraded || s.Tables[hosts].Entries != 1 {
		t.Fatalf("status %+v", s)
	}
}

type torn struct{ addressMap }

func (torn) Dump() (map[bpf.AddrKey]bpf.AddrValue, error) { return nil, maps.ErrIncomplete }

// B-14: realised and wanted are two figures, both always there.
func TestScenario_B14_Gauges(t *testing.T) {
	both(t, Config{Addresses: 256, Prefixes: 16, Rows: 16}, func(t *testing.T, b *bench) {
		b.Synced()
		for _, wanted := range []int{0, 26, 128, 256, 307} {
			for i := range wanted {
				b.upsert(t, host(i), 1001, SourceRemote)
			}
			_ = b.Reconcile(t.Context())
			h := b.Status().Tables[hosts]
			if h.Wanted != wanted || h.Entries != min(wanted, 256) || h.Capacity != 256 {
				t.Fatalf("wanted %d: %+v", wanted, h)
			}
			if got := len(b.list(t)); got != h.Entries {
				t.Fatalf("the map holds %d, the gauge says %d", got, h.Entries)
			}
		}
		b.restart(t)
		if h := b.Status().Tables[hosts]; h.Entries != 256 || h.Wanted != 0 {
			t.Fatalf("after a restart: %+v", h)
		}
	})
}

// B-15: what someone else changed is found, counted per kind, and put right.
func TestScenario_B15_DriftIsRepaired(t *testing.T) {
	both(t, small, func(t *testing.T, b *bench) {
		b.Synced()
		for i := range 100 {
			b.upsert(t, host(i), identity.Number(1000+i%5), SourceRemote)
		}
		b.upsert(t, "10.0.0.0/8", 1003, SourceCIDR)
		b.reconcileAll(t)
		want := fmt.Sprint(b.list(t))
		table := b.store.tables[hosts]
		for i := range 10 {
			one, two, three := placeOf(pfx(host(i))).key, placeOf(pfx(host(50+i))).key, placeOf(pfx(host(500+i))).key
			if err := errors.Join(table.Delete(one), table.Put(two, bpf.Value(two, 3)), table.Put(three, bpf.Value(three, 200))); err != nil {
				t.Fatal(err)
			}
		}
		odd := bpf.AddrKey{Prefixlen: 40, ClusterId: 9, Family: 7}
		if err := b.store.tables[prefixes].Put(odd, bpf.AddrValue{Row: 2}); err != nil {
			t.Fatal(err)
		}
		b.store.rows.Store(2, 0, bpf.PackHeader(666, FlagValid))
		b.store.rows.Store(250, 0, bpf.PackHeader(667, FlagValid))

		found, err := b.Verify()
		if err != nil {
			t.Fatal(err)
		}
		c := found.Count()
		// One or two of the changed values were right by chance: number 3's row.
		if c[DriftMissing] != 10 || c[DriftExtra] != 11 || c[DriftWrong] < 8 || c[DriftRow] != 2 {
			t.Fatalf("found %v", c)
		}
		writes := b.Status().Writes
		if _, err := b.Repair(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(b.list(t)); got != want {
			t.Fatalf("after the repair the maps hold\n%s\nwant\n%s", got, want)
		}
		b.noDrift(t)
		s := b.Status()
		for kind, n := range c {
			if s.Drift[kind] != n {
				t.Fatalf("counted %v, found %v", s.Drift, c)
			}
		}
		if n := s.Writes - writes; n > 31 {
			t.Fatalf("%d writes for 31 differences", n)
		}
	})
}

// B-15, period: Tick compares by itself, and not on each event.
func TestScenario_B15_PeriodicRepair(t *testing.T) {
	b := newMemoryBench(t, small)
	b.Synced()
	b.upsert(t, host(1), 1001, SourceRemote)
	b.reconcileAll(t)
	if err := b.store.tables[hosts].Delete(placeOf(pfx(host(1))).key); err != nil {
		t.Fatal(err)
	}
	if err := b.tick(b.cfg.VerifyEvery / 2); err != nil || len(b.list(t)) != 0 {
		t.Fatalf("compared before the period: %v", err)
	}
	if err := b.tick(b.cfg.VerifyEvery / 2); err != nil {
		t.Fatal(err)
	}
	b.wantLookup(t, "10.0.0.1", hit(1001))
}
