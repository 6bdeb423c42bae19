// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/bpf"
)

// rowModel is the row table said simply: who points where, and when each index
// was last pointed to or cleared.
type rowModel struct {
	refs    map[uint32]identity.Number // one per index that is pointed to
	count   map[uint32]int
	left    map[uint32]time.Time // when the last reference went
	cleared map[uint32]time.Time
}

// The allocator under random use: an index that is pointed to is never given
// to another number, and one that was left is given to another number only after
// grace, clearing and quarantine.
func TestRowTableModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const grace, quarantine = 3 * time.Second, 5 * time.Second
		table := newRowTable(bpf.RowFirst+uint32(rapid.IntRange(1, 6).Draw(t, "rows")), grace, quarantine)
		m := rowModel{map[uint32]identity.Number{}, map[uint32]int{}, map[uint32]time.Time{}, map[uint32]time.Time{}}
		now := time.Unix(0, 0)
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				n := identity.Number(rapid.IntRange(1, 8).Draw(t, "number"))
				index, fresh, err := table.acquire(n)
				if err != nil {
					if !errors.Is(err, ErrRowsFull) {
						t.Fatal(err)
					}
					return
				}
				m.acquired(t, index, n, fresh, now, quarantine)
			},
			"release": func(t *rapid.T) {
				if len(m.count) == 0 {
					t.Skip("nothing to release")
				}
				index := rapid.SampledFrom(sortedKeys(m.count)).Draw(t, "index")
				table.release(index, now, 1)
				if m.count[index]--; m.count[index] == 0 {
					delete(m.count, index)
					m.left[index] = now
				}
			},
			"stray": func(t *rapid.T) {
				index := uint32(rapid.IntRange(0, 8).Draw(t, "index"))
				if table.retain(index) {
					m.count[index]++
				} else if index >= bpf.RowFirst && index < table.limit {
					t.Fatalf("index %d was not retained", index)
				}
			},
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 6).Draw(t, "seconds")) * time.Second)
				changed, _ := table.expire(now)
				for _, index := range changed {
					if _, flags := bpf.UnpackHeader(table.header(index)); flags != FlagCleared {
						continue
					}
					if m.count[index] > 0 || now.Sub(m.left[index]) < grace {
						t.Fatalf("row %d is cleared with %d references, %s after the last", index, m.count[index], now.Sub(m.left[index]))
					}
					delete(m.refs, index)
					m.cleared[index] = now
				}
			},
			"": func(t *rapid.T) { checkRowTable(t, table, m) },
		})
	})
}

func (m rowModel) acquired(t *rapid.T, index uint32, n identity.Number, fresh bool, now time.Time, quarantine time.Duration) {
	if fresh {
		if m.count[index] > 0 {
			t.Fatalf("row %d is given to %d while it is pointed to", index, n)
		}
		if at, ever := m.cleared[index]; ever && now.Sub(at) < quarantine {
			t.Fatalf("row %d is reused %s after it was cleared", index, now.Sub(at))
		}
		if _, uncleared := m.refs[index]; uncleared {
			t.Fatalf("row %d is reused without being cleared", index)
		}
		m.refs[index] = n
	}
	if m.refs[index] != n {
		t.Fatalf("row %d belongs to %d, given to %d", index, m.refs[index], n)
	}
	m.count[index]++
}

// checkRowTable looks for an index in two states at once.
func checkRowTable(t *rapid.T, table *rowTable, m rowModel) {
	seen := map[uint32]string{}
	claim := func(index uint32, state string) {
		if other, twice := seen[index]; twice {
			t.Fatalf("row %d is %s and %s", index, other, state)
		}
		seen[index] = state
	}
	for index, r := range table.rows {
		claim(index, "in rows")
		if r.refs != m.count[index] {
			t.Fatalf("row %d counts %d references, want %d", index, r.refs, m.count[index])
		}
	}
	for _, index := range table.free {
		claim(index, "free")
	}
	for index := range table.resting {
		claim(index, "in quarantine")
	}
	for index := uint32(bpf.RowFirst); index < table.next; index++ {
		if seen[index] == "" {
			t.Fatalf("row %d is lost", index)
		}
	}
	s := table.status()
	if used := len(m.count); s.Used != used || s.Used+s.Clearing != len(table.rows) {
		t.Fatalf("status %+v with %d rows, %d in use", s, len(table.rows), used)
	}
}

func sortedKeys[K uint32, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func TestNumberReturnsWithinGrace(t *testing.T) {
	table := newRowTable(10, time.Second, time.Second)
	now := time.Unix(0, 0)
	first, _, _ := table.acquire(7)
	table.release(first, now, 1)
	again, fresh, _ := table.acquire(7)
	if again != first || fresh {
		t.Fatalf("row %d fresh %v, want row %d as it was", again, fresh, first)
	}
	if changed, _ := table.expire(now.Add(time.Hour)); len(changed) != 0 {
		t.Fatalf("rows %v are cleared although the number is back", changed)
	}
	if _, any := table.oldest(); any {
		t.Fatal("a clearing is said to be outstanding")
	}
}

// What a former process left: a number's second row is kept as long as an
// address points to it, and is not given out.
func TestAdoption(t *testing.T) {
	table := newRowTable(20, time.Second, time.Second)
	now := time.Unix(0, 0)
	seven := bpf.PackHeader(7, FlagValid)
	table.adopt(2, seven, now)
	table.adopt(5, seven, now)
	table.adopt(6, bpf.PackHeader(0, FlagCleared), now)
	table.adopt(9, bpf.PackHeader(8, FlagValid), now)
	table.retain(5)
	table.retain(9)
	table.adopted(now, 0)

	if index, fresh, _ := table.acquire(8); index != 9 || fresh {
		t.Fatalf("number 8 got row %d, fresh %v", index, fresh)
	}
	for _, want := range []uint32{3, 4, 7, 8, 10} {
		if index, fresh, _ := table.acquire(identity.Number(100 + want)); index != want || !fresh {
			t.Fatalf("a new number got row %d (fresh %v), want %d: 6 is in quarantine", index, fresh, want)
		}
	}
	changed, freed := table.expire(now.Add(time.Second))
	if !slices.Equal(changed, []uint32{6, 2}) || freed != 1 {
		t.Fatalf("changed %v, %d freed; want 6 freed and 2 cleared, to which nobody points", changed, freed)
	}
	if index, _, _ := table.acquire(5); index != 6 {
		t.Fatalf("got row %d, want the one out of quarantine", index)
	}
	if h := table.header(5); h != seven {
		t.Fatalf("the second row of 7 lost its header: %#x", h)
	}
	if h := table.header(2); h != bpf.PackHeader(0, FlagCleared) {
		t.Fatalf("a row in quarantine has header %#x", h)
	}
}

func TestHeaders(t *testing.T) {
	table := newRowTable(10, 0, 0)
	index, _, _ := table.acquire(4711)
	for i, want := range map[uint32]uint64{
		bpf.RowNone: 0,
		bpf.RowDeny: bpf.PackHeader(0, FlagValid|FlagDeny),
		index:       bpf.PackHeader(4711, FlagValid),
		9:           0,
	} {
		if got := table.header(i); got != want {
			t.Errorf("header of row %d is %#x, want %#x", i, got, want)
		}
	}
}

// TestRestart_ofAnOrphanKeepsItsQuarantine: somebody points an address to a row
// in quarantine, it is repaired, and the process restarts before the row's new
// grace is over. The row had no number then, and was taken for free.
func TestRestart_ofAnOrphanKeepsItsQuarantine(t *testing.T) {
	b := newMemoryBench(t, Config{Addresses: 8, Prefixes: 8, Rows: 64, Grace: 3 * time.Second, Quarantine: 4 * time.Second})
	defer destroy(t, b)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p := pfx("10.0.0.1/32")
	b.Synced()
	must(b.Upsert(Entry{Prefix: p, Number: 1, Source: SourceEndpoint}))
	must(b.Reconcile(t.Context()))
	got, err := b.Lookup(p.Addr())
	must(err)
	must(b.Delete(p, SourceEndpoint))
	must(b.Reconcile(t.Context()))
	must(b.tick(3 * time.Second)) // the row is in quarantine
	place := placeOf(p)
	must(b.store.tables[place.table].Put(place.key, bpf.Value(place.key, got.Row)))
	_, err = b.Repair(t.Context())
	must(err)
	must(b.Reconcile(t.Context()))
	b.restart(t)
	must(b.Upsert(Entry{Prefix: p, Number: 2, Source: SourceEndpoint}))
	must(b.Reconcile(t.Context()))
	again, err := b.Lookup(p.Addr())
	must(err)
	if again.Row == got.Row {
		t.Errorf("row %d went from number 1 to number 2 within its quarantine", got.Row)
	}
}
