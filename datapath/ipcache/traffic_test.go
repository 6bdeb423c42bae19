// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/bpf"
)

// While addresses come, change and go, rows are cleared and reused, and hash
// elements are recycled, a program never sees another address's number, never a
// gap in a prefix that stays, and never a denial that nobody asked for.
func TestChurnUnderTraffic(t *testing.T) {
	needKernel(t)
	const addresses, catchAll = 16, 5
	d, err := Open(Config{
		PinPath: testPinPath(), Addresses: 64, Prefixes: 8, Rows: 512,
		Grace: 10 * time.Millisecond, Quarantine: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{engine: d.(*engine), cfg: d.(*engine).cfg}
	defer destroy(t, b)
	b.Synced()
	b.upsert(t, "10.0.0.0/8", catchAll, SourceCIDR)
	b.reconcileAll(t)

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var wg sync.WaitGroup
	lookups := make([]int, 2)
	for reader := range lookups {
		program := programOf(t, b)
		wg.Go(func() {
			for ; ctx.Err() == nil; lookups[reader]++ {
				i := lookups[reader] % addresses
				addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
				got, err := program.run(frame(addr, addr), false)
				if err != nil {
					t.Error(err)
					return
				}
				if got.Verdict != Hit || (got.Number != catchAll && int(got.Number)%addresses != i) {
					t.Errorf("%s: %+v", addr, got)
					return
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(3, 4))
	changes := 0
	for ; ctx.Err() == nil; changes++ {
		i := r.IntN(addresses)
		if r.IntN(2) == 0 {
			b.delete(t, host(i), SourceRemote)
		} else {
			// Few numbers per address, so that they come back within the grace too.
			b.upsert(t, host(i), identity.Number(1600+i+addresses*r.IntN(4)), SourceRemote)
		}
		_ = b.Reconcile(context.Background()) // rows may run short for a moment
	}
	wg.Wait()
	t.Logf("%d changes under %v lookups; rows %+v", changes, lookups, b.Status().Rows)
}

// BenchmarkLookup is the cost of one packet in signet_lookup, the test run
// itself included; the addresses are as many as the maps hold.
func BenchmarkLookup(b *testing.B) {
	for _, entries := range []int{1000, 65000} {
		b.Run(fmt.Sprint(entries), func(b *testing.B) {
			_, program := filled(b, entries)
			addr := netip.MustParseAddr("10.0.0.1")
			if err := program.load(); err != nil {
				b.Skip(err)
			}
			b.ResetTimer()
			_, err := program.coll.Programs[bpf.IpcacheProgSignetLookup].Run(&ebpf.RunOptions{
				Data: frame(addr, addr), Repeat: uint32(b.N),
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkReconcile is the cost of one new address with a number of its own.
func BenchmarkReconcile(b *testing.B) {
	filled(b, b.N)
}

func filled(b *testing.B, entries int) (*engine, *lookupProgram) {
	b.Helper()
	d, err := Open(Config{PinPath: testPinPath()})
	if err != nil {
		b.Skip(err)
	}
	e := d.(*engine)
	e.Synced()
	for i := range entries {
		entry := Entry{Prefix: pfx(host(i)), Number: identity.Number(256 + i%100000), Source: SourceRemote}
		if err := e.Upsert(entry); err != nil {
			b.Fatal(err)
		}
	}
	if err := e.Reconcile(context.Background()); err != nil {
		b.Fatal(err)
	}
	spec, err := bpf.LoadIpcache()
	if err != nil {
		b.Fatal(err)
	}
	maps := map[string]*ebpf.Map{}
	for _, name := range []string{hostsName, prefixesName, rowsName, metaName} {
		if maps[name], err = ebpf.LoadPinnedMap(e.cfg.PinPath+"/"+name, nil); err != nil {
			b.Fatal(err)
		}
		spec.Maps[name].MaxEntries = maps[name].MaxEntries()
	}
	program := &lookupProgram{spec: spec, maps: maps}
	b.Cleanup(func() {
		program.close()
		for _, m := range maps {
			m.Close()
		}
		if err := e.Destroy(); err != nil {
			b.Error(err)
		}
	})
	return e, program
}
