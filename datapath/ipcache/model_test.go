// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/bpf"
)

// model is the whole datapath said simply.
type model struct {
	stated map[netip.Prefix]map[Source]want
	actual map[netip.Prefix]want // what the maps must hold after a full pass
	synced bool
	seen   []sighting
}

// sighting is a program that has read a row index and is not finished.
type sighting struct {
	row    uint32
	number identity.Number
	at     time.Time
}

func (m *model) winner(p netip.Prefix) (best want, any bool) {
	for _, w := range m.stated[p] {
		if w.source > best.source {
			best = w
		}
	}
	return best, best.source != 0
}

// settle is what a pass without failures must achieve.
func (m *model) settle() {
	for p := range m.stated {
		w, any := m.winner(p)
		_, present := m.actual[p]
		if any && (m.synced || !present || w.source == SourceEndpoint) {
			m.actual[p] = w
		}
	}
	if m.synced {
		maps.DeleteFunc(m.actual, func(p netip.Prefix, _ want) bool {
			_, any := m.winner(p)
			return !any
		})
	}
}

// lookup is longest prefix match, said as a search.
func (m *model) lookup(addr netip.Addr) Result {
	best, bits := want{}, -1
	for p, w := range m.actual {
		if p.Contains(addr) && p.Bits() > bits {
			best, bits = w, p.Bits()
		}
	}
	switch {
	case bits < 0:
		return missed
	case best.dead:
		return denied
	}
	return hit(best.number)
}

var modelPrefixes = []netip.Prefix{
	pfx("0.0.0.0/0"), pfx("10.0.0.0/8"), pfx("10.0.0.0/24"), pfx("10.0.0.0/31"), pfx("10.0.0.0/32"),
	pfx("10.0.0.1/32"), pfx("10.0.0.2/32"), pfx("::/0"), pfx("fd00::/64"), pfx("fd00::/127"), pfx("fd00::1/128"),
}

var modelAddrs = []netip.Addr{
	netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"),
	netip.MustParseAddr("10.0.0.77"), netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("192.0.2.1"),
	netip.MustParseAddr("fd00::"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2"), netip.MustParseAddr("2001:db8::1"),
}

func TestModelMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { runModel(t, newMemoryBench) })
}

func TestModelKernel(t *testing.T) {
	needKernel(t)
	rapid.Check(t, func(t *rapid.T) { runModel(t, newKernelBench) })
}

func runModel(t *rapid.T, open func(failer, Config) *bench) {
	cfg := Config{Addresses: 8, Prefixes: 8, Rows: 64, Grace: 3 * time.Second, Quarantine: 4 * time.Second}
	b := open(t, cfg)
	defer func() { destroy(t, b) }()
	m := &model{stated: map[netip.Prefix]map[Source]want{}, actual: map[netip.Prefix]want{}}
	t.Repeat(map[string]func(*rapid.T){
		"upsert": func(t *rapid.T) { modelUpsert(t, b, m) },
		"delete": func(t *rapid.T) {
			p := rapid.SampledFrom(modelPrefixes).Draw(t, "prefix")
			source := Source(rapid.IntRange(1, 4).Draw(t, "source"))
			if err := b.Delete(p, source); err != nil {
				t.Fatal(err)
			}
			delete(m.stated[p], source)
		},
		"synced": func(*rapid.T) {
			b.Synced()
			m.synced = true
		},
		"reconcile": func(t *rapid.T) { modelSettle(t, b, m) },
		"time": func(t *rapid.T) {
			d := time.Duration(rapid.IntRange(100, 9000).Draw(t, "ms")) * time.Millisecond
			if err := b.tick(d); err != nil {
				t.Fatal(err)
			}
			m.settle()
		},
		"restart": func(t *rapid.T) {
			modelSettle(t, b, m)
			b.restart(t)
			m.stated, m.synced = map[netip.Prefix]map[Source]want{}, false
		},
		"failing writes": func(t *rapid.T) {
			modelFailingPass(t, b)
			modelSettle(t, b, m)
		},
		"drift": func(t *rapid.T) {
			modelSettle(t, b, m)
			modelDrift(t, b, m)
		},
		"read": func(t *rapid.T) { modelRead(t, b, m) },
		"":     func(t *rapid.T) { modelSightings(t, b, m) },
	})
}

func modelUpsert(t *rapid.T, b *bench, m *model) {
	p := rapid.SampledFrom(modelPrefixes).Draw(t, "prefix")
	w := want{
		number: identity.Number(rapid.IntRange(1, 6).Draw(t, "number")),
		source: Source(rapid.IntRange(1, 4).Draw(t, "source")),
		dead:   rapid.IntRange(0, 4).Draw(t, "dead") == 0,
	}
	if err := b.Upsert(Entry{Prefix: p, Number: w.number, Source: w.source, Dead: w.dead}); err != nil {
		t.Fatal(err)
	}
	if m.stated[p] == nil {
		m.stated[p] = map[Source]want{}
	}
	m.stated[p][w.source] = w
}

// modelSettle does a full pass and compares everything.
func modelSettle(t *rapid.T, b *bench, m *model) {
	b.reconcileAll(t)
	m.settle()
	got := b.numbers(t)
	if len(got) != len(m.actual) {
		t.Fatalf("the maps hold %v, want %v", got, m.actual)
	}
	for p, w := range m.actual {
		n, any := got[p.String()]
		if !any || (w.dead && n != 0) || (!w.dead && n != w.number) {
			t.Fatalf("%s has number %d (present %v), want %+v", p, n, any, w)
		}
	}
	b.noDrift(t)
	for _, addr := range modelAddrs {
		b.wantLookup(t, addr.String(), m.lookup(addr))
	}
	if s := b.Status(); s.Pending != 0 || s.Degraded {
		t.Fatalf("after a full pass: %+v", s)
	}
	if p := b.Progress(); m.synced && b.Status().Rows.Clearing == 0 && (p.Applied != p.Last || p.Cleared != p.Last) {
		t.Fatalf("everything is done, but progress is %+v", p)
	}
}

// modelFailingPass lets some keys fail for one pass.
func modelFailingPass(t *rapid.T, b *bench) {
	broken := rapid.SampledFrom(modelPrefixes).Draw(t, "failing")
	before := b.store.tables
	for table := range tableCount {
		b.injectFaults(table, func(k bpf.AddrKey) error {
			if k == placeOf(broken).key {
				return unix.ENOMEM
			}
			return nil
		})
	}
	err := b.Reconcile(t.Context())
	b.store.tables = before
	if pending := b.Pending(); (err != nil) != (len(pending) > 0) || len(pending) > 1 {
		t.Fatalf("error %v with %d pending", err, len(pending))
	}
}

// modelDrift changes a map behind the engine's back.
func modelDrift(t *rapid.T, b *bench, m *model) {
	if !m.synced {
		return
	}
	p := rapid.SampledFrom(modelPrefixes).Draw(t, "prefix")
	place := placeOf(p)
	if rapid.Bool().Draw(t, "delete") {
		_ = b.store.tables[place.table].Delete(place.key)
	} else {
		row := rapid.Uint32Range(0, 70).Draw(t, "row")
		if err := b.store.tables[place.table].Put(place.key, bpf.Value(place.key, row)); err != nil {
			return // full
		}
	}
	if _, err := b.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	modelSettle(t, b, m)
}

// modelRead is the first half of a program's run: it has the row index.
func modelRead(t *rapid.T, b *bench, m *model) {
	res, err := b.Lookup(rapid.SampledFrom(modelAddrs).Draw(t, "address"))
	if err != nil {
		t.Fatal(err)
	}
	if res.Verdict == Hit {
		m.seen = append(m.seen, sighting{res.Row, res.Number, b.clock.Now()})
	}
}

// modelSightings is the second half: within the grace the row still is the
// number's, and until the end of the quarantine it is no other's.
func modelSightings(t *rapid.T, b *bench, m *model) {
	now := b.clock.Now()
	for _, s := range m.seen {
		number, flags := bpf.UnpackHeader(b.store.rows.Load(int(s.row), 0))
		age := now.Sub(s.at)
		same := flags == FlagValid && identity.Number(number) == s.number
		switch {
		case age < b.cfg.Grace && !same:
			t.Fatalf("row %d, read %s ago as %d, is now %d with flags %d", s.row, age, s.number, number, flags)
		case age < b.cfg.Grace+b.cfg.Quarantine && !same && number != 0:
			t.Fatalf("row %d, read %s ago as %d, belongs to %d already", s.row, age, s.number, number)
		}
	}
}
