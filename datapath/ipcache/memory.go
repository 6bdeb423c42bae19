// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"net/netip"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/bpf"
	"github.com/signet-identity/signet/datapath/maps"
)

// Names of the pins, and of the maps as far as the kernel keeps them.
const (
	hostsName    = bpf.IpcacheMapSignetIpcache
	prefixesName = bpf.IpcacheMapSignetIpcacheLpm
	rowsName     = bpf.IpcacheMapSignetRows
	metaName     = bpf.IpcacheMapSignetMeta
)

// NewMemory makes a datapath in memory, for places where the kernel's maps
// cannot be used; the reason stands in its status. Nothing outlives it.
func NewMemory(cfg Config, reason string) (Datapath, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return newEngine(cfg, memoryStore(cfg, reason))
}

func memoryStore(cfg Config, reason string) store {
	s := store{
		kind: "memory", reason: reason,
		tables: [tableCount]addressMap{
			hosts:    maps.NewMemory[bpf.AddrKey, bpf.AddrValue](hostsName, maps.Hash, cfg.Addresses),
			prefixes: maps.NewMemory[bpf.AddrKey, bpf.AddrValue](prefixesName, maps.LPM, cfg.Prefixes),
		},
		rows: maps.NewMemoryArray(cfg.Rows, bpf.RowWords),
	}
	s.lookup = func(addr netip.Addr) (Result, error) { return walk(s.tables, s.rows, addr), nil }
	return s
}

// walk looks an address up by the steps of address.h.
func walk(tables [tableCount]addressMap, rows maps.Array, addr netip.Addr) Result {
	key := bpf.Key(netip.PrefixFrom(addr, addr.BitLen()))
	if value, err := tables[hosts].Get(key); err == nil {
		if value.Check != bpf.Check(key) {
			return Result{Verdict: Deny, Row: value.Row}
		}
		return readRow(rows, value.Row)
	}
	for bits := addr.BitLen(); bits >= 0; bits-- {
		value, err := tables[prefixes].Get(bpf.Key(netip.PrefixFrom(addr, bits)))
		if err != nil {
			continue
		}
		if !vouches(value, addr) {
			return Result{Verdict: Deny, Row: value.Row}
		}
		return readRow(rows, value.Row)
	}
	return Result{Verdict: Miss}
}

// vouches says whether a value was written for a prefix of the address.
func vouches(value bpf.AddrValue, addr netip.Addr) bool {
	bits := int(value.Check & 0xff)
	return bits <= addr.BitLen() && value.Check == bpf.Check(bpf.Key(netip.PrefixFrom(addr, bits)))
}

func readRow(rows maps.Array, index uint32) Result {
	if int64(index) >= int64(rows.Len()) {
		return Result{Verdict: Deny, Row: index}
	}
	number, flags := bpf.UnpackHeader(rows.Load(int(index), 0))
	switch {
	case flags&FlagValid == 0:
		return Result{Verdict: Deny, Row: index}
	case flags&FlagDeny != 0:
		return Result{Verdict: Deny, Row: index, Number: identity.Number(number), Flags: flags}
	}
	return Result{Verdict: Hit, Row: index, Number: identity.Number(number), Flags: flags}
}
