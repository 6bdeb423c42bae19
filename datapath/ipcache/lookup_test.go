// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/signet-identity/signet/bpf"
)

// programOf gives the loaded program of a kernel bench.
func programOf(t *testing.T, b *bench) *lookupProgram {
	t.Helper()
	spec, err := bpf.LoadIpcache()
	if err != nil {
		t.Fatal(err)
	}
	spec.Maps[hostsName].MaxEntries = uint32(b.cfg.Addresses)
	spec.Maps[prefixesName].MaxEntries = uint32(b.cfg.Prefixes)
	spec.Maps[rowsName].MaxEntries = uint32(b.cfg.Rows)
	l := &lookupProgram{spec: spec, maps: pinned(t, b)}
	t.Cleanup(func() {
		l.close()
		for _, m := range l.maps {
			m.Close()
		}
	})
	return l
}

// pinned opens the maps by their pins, as a tool would.
func pinned(t *testing.T, b *bench) map[string]*ebpf.Map {
	t.Helper()
	all := map[string]*ebpf.Map{}
	for _, name := range []string{hostsName, prefixesName, rowsName, metaName} {
		m, err := ebpf.LoadPinnedMap(filepath.Join(b.cfg.PinPath, name), nil)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = m
	}
	return all
}

func randomAddr(r *rand.Rand) netip.Addr {
	if r.IntN(2) == 0 {
		var a [4]byte
		for i := range a {
			a[i] = byte(r.Uint32())
		}
		return netip.AddrFrom4(a)
	}
	var a [16]byte
	for i := range a {
		a[i] = byte(r.Uint32())
	}
	a[0] |= 0x20 // no IPv4-in-IPv6
	return netip.AddrFrom16(a)
}

// The check word of C and of Go are one function.
func TestCheckWordEqualInCAndGo(t *testing.T) {
	needKernel(t)
	b := newKernelBench(t, small)
	defer destroy(t, b)
	program := programOf(t, b)
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		addr := randomAddr(r)
		got, err := program.run(frame(addr, addr), false)
		if err != nil {
			t.Fatal(err)
		}
		want := bpf.Check(bpf.Key(netip.PrefixFrom(addr, addr.BitLen())))
		if got.check != want {
			t.Fatalf("%s: C says %#x, Go says %#x", addr, got.check, want)
		}
	}
}

// The program looks at the side of the frame it was asked for, and leaves what
// is not IP alone.
func TestProgramReadsFrames(t *testing.T) {
	needKernel(t)
	b := newKernelBench(t, small)
	defer destroy(t, b)
	b.upsert(t, "10.0.0.1/32", 1001, SourceRemote)
	b.upsert(t, "10.0.0.2/32", 1002, SourceRemote)
	b.upsert(t, "fd00::1/128", 1003, SourceRemote)
	b.upsert(t, "fd00::2/128", 1004, SourceRemote)
	if err := b.Upsert(Entry{Prefix: pfx("10.0.0.3/32"), Dead: true, Source: SourceRemote}); err != nil {
		t.Fatal(err)
	}
	b.reconcileAll(t)
	program := programOf(t, b)

	a := netip.MustParseAddr
	arp := make([]byte, 42)
	arp[12], arp[13] = 0x08, 0x06
	const ok, shot, unspec = 0, 2, 0xffffffff
	for name, c := range map[string]struct {
		data        []byte
		destination bool
		want        Result
		action      uint32
	}{
		"v4 source":      {frame(a("10.0.0.1"), a("10.0.0.2")), false, hit(1001), ok},
		"v4 destination": {frame(a("10.0.0.1"), a("10.0.0.2")), true, hit(1002), ok},
		"v6 source":      {frame(a("fd00::1"), a("fd00::2")), false, hit(1003), ok},
		"v6 destination": {frame(a("fd00::1"), a("fd00::2")), true, hit(1004), ok},
		"miss":           {frame(a("10.9.9.9"), a("10.0.0.2")), false, missed, ok},
		"dead":           {frame(a("10.0.0.3"), a("10.0.0.2")), false, denied, shot},
		"not IP":         {arp, false, missed, unspec},
	} {
		got, err := program.run(c.data, c.destination)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got.Row = 0
		if got.Result != c.want || got.action != c.action {
			t.Errorf("%s: %+v action %d, want %+v action %d", name, got.Result, int32(got.action), c.want, int32(c.action))
		}
	}
}

// A value that was written for another key is not believed: the address is
// denied, and does not fall through to a shorter prefix.
func TestPoisonedValueIsDenied(t *testing.T) {
	both(t, small, func(t *testing.T, b *bench) {
		b.Synced()
		b.upsert(t, "10.0.0.1/32", 1001, SourceRemote)
		b.upsert(t, "10.0.0.2/32", 1002, SourceRemote)
		b.upsert(t, "10.0.0.0/24", 1003, SourceCIDR)
		b.upsert(t, "10.0.0.0/8", 1004, SourceCIDR)
		b.reconcileAll(t)
		b.wantLookup(t, "10.0.0.1", hit(1001))
		b.wantLookup(t, "10.0.0.9", hit(1003))

		one, two := placeOf(pfx("10.0.0.1/32")), placeOf(pfx("10.0.0.2/32"))
		foreign, err := b.store.tables[hosts].Get(two.key)
		if err != nil {
			t.Fatal(err)
		}
		good, _ := b.store.tables[hosts].Get(one.key)
		for name, value := range map[string]bpf.AddrValue{
			"another address's value": foreign,
			"one bit of the check":    {Row: good.Row, Check: good.Check ^ 1<<20},
			"the length":              {Row: good.Row, Check: good.Check ^ 1},
			"zero":                    {},
			"a row out of range":      {Row: 1 << 30, Check: good.Check},
			"the row that is no row":  {Row: bpf.RowNone, Check: good.Check},
			"a row not in use":        {Row: 250, Check: good.Check},
		} {
			if err := b.store.tables[hosts].Put(one.key, value); err != nil {
				t.Fatal(err)
			}
			t.Log(name)
			b.wantLookup(t, "10.0.0.1", broken)
		}

		net := placeOf(pfx("10.0.0.0/24"))
		good, _ = b.store.tables[prefixes].Get(net.key)
		for name, value := range map[string]bpf.AddrValue{
			"one bit of the check": {Row: good.Row, Check: good.Check ^ 1<<30},
			"a shorter length":     {Row: good.Row, Check: good.Check ^ 8},
			"a length too long":    {Row: good.Row, Check: good.Check | 0xff},
			"zero":                 {},
		} {
			if err := b.store.tables[prefixes].Put(net.key, value); err != nil {
				t.Fatal(err)
			}
			t.Log(name)
			b.wantLookup(t, "10.0.0.9", broken)
		}
		b.wantLookup(t, "10.1.0.9", hit(1004))

		drift, err := b.Repair(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := drift.Count()[DriftWrong]; got != 2 {
			t.Fatalf("%d wrong values found, want 2: %+v", got, drift.Items)
		}
		b.wantLookup(t, "10.0.0.1", hit(1001))
		b.wantLookup(t, "10.0.0.9", hit(1003))
	})
}

func TestDeadAddressNeverFallsThrough(t *testing.T) {
	both(t, small, func(t *testing.T, b *bench) {
		b.Synced()
		b.upsert(t, "0.0.0.0/0", 2, SourceCIDR)
		b.upsert(t, "10.0.0.1/32", 1001, SourceRemote)
		b.reconcileAll(t)
		b.wantLookup(t, "10.0.0.1", hit(1001))
		if err := b.Upsert(Entry{Prefix: pfx("10.0.0.1/32"), Number: 1001, Dead: true, Source: SourceRemote}); err != nil {
			t.Fatal(err)
		}
		b.reconcileAll(t)
		b.wantLookup(t, "10.0.0.1", denied)
		got, _ := b.Lookup(netip.MustParseAddr("10.0.0.1"))
		if got.Row != bpf.RowDeny {
			t.Fatalf("row %d, want the deny row", got.Row)
		}
		b.delete(t, "10.0.0.1/32", SourceRemote)
		b.reconcileAll(t)
		b.wantLookup(t, "10.0.0.1", hit(2))
	})
}

func TestLookupRefusesBadAddresses(t *testing.T) {
	b := newMemoryBench(t, small)
	for _, addr := range []netip.Addr{{}, netip.MustParseAddr("::ffff:10.0.0.1")} {
		if _, err := b.Lookup(addr); err == nil {
			t.Errorf("%v was looked up", addr)
		}
	}
}
