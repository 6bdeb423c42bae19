// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// The layout constants of signet.h; a test reads the header and compares.
const (
	Magic         = 0x5349474e // "SIGN"
	LayoutVersion = 1
	SelectorWords = 4                 // 64-bit words of a row's bitmap
	RowWords      = 1 + SelectorWords // header and bitmap
	RowNone       = 0                 // never valid: what a zeroed value points to
	RowDeny       = 1                 // known addresses whose number is dead
	RowFirst      = 2                 // the first row for a number
	KeyFixedBits  = 32                // cluster id, pad and family: always matched
	CheckSeed     = 0x5169e7

	FamilyIPv4 = 1
	FamilyIPv6 = 2

	RowValid   = 1 << 0 // in use
	RowDenied  = 1 << 1 // whoever has this row is denied
	RowCleared = 1 << 2 // no longer in use, not yet to be reused
)

// AddrKey is the key of both address maps: 24 bytes, byte for byte the key of
// cilium_ipcache_v2.
type AddrKey = IpcacheSignetAddrKey

// AddrValue is the value of both address maps: 8 bytes, one aligned word.
type AddrValue = IpcacheSignetAddrValue

// Row is one element of signet_rows: header (number, flags) and bitmap.
type Row = IpcacheSignetRow

// Meta is the one element of signet_meta.
type Meta = IpcacheSignetMeta

// OwnMeta is what this build writes into, and expects of, signet_meta.
func OwnMeta() Meta {
	return Meta{
		Magic:         Magic,
		Layout:        LayoutVersion,
		RowSize:       8 * RowWords,
		SelectorWords: SelectorWords,
	}
}

// Key gives the key of a prefix in cluster 0. The prefix must be valid and
// without an IPv4-in-IPv6 address; host bits are cleared.
func Key(p netip.Prefix) AddrKey {
	p = p.Masked()
	k := AddrKey{Prefixlen: KeyFixedBits + uint32(p.Bits())}
	if p.Addr().Is4() {
		k.Family = FamilyIPv4
		a := p.Addr().As4()
		copy(k.Addr[:], a[:])
		return k
	}
	k.Family = FamilyIPv6
	k.Addr = p.Addr().As16()
	return k
}

// Prefix is the inverse of [Key]; false when no prefix of ours has this key.
func Prefix(k AddrKey) (netip.Prefix, bool) {
	var addr netip.Addr
	switch k.Family {
	case FamilyIPv4:
		addr = netip.AddrFrom4([4]byte(k.Addr[:4]))
	case FamilyIPv6:
		addr = netip.AddrFrom16(k.Addr)
	default:
		return netip.Prefix{}, false
	}
	length := int64(k.Prefixlen) - KeyFixedBits
	if length < 0 || length > int64(addr.BitLen()) {
		return netip.Prefix{}, false
	}
	p := netip.PrefixFrom(addr, int(length))
	return p, !addr.Is4In6() && Key(p) == k
}

// IsHost says whether the key names a single address: its place is the hash.
func IsHost(k AddrKey) bool {
	switch k.Family {
	case FamilyIPv4:
		return k.Prefixlen == KeyFixedBits+32
	case FamilyIPv6:
		return k.Prefixlen == KeyFixedBits+128
	}
	return false
}

// Check is the check word of a key, the twin of signet_check in signet.h: the
// upper 24 bits are a mix of the whole key, the low 8 its address bits.
func Check(k AddrKey) uint32 {
	var raw [24]byte
	binary.NativeEndian.PutUint32(raw[0:], k.Prefixlen)
	binary.NativeEndian.PutUint16(raw[4:], k.ClusterId)
	raw[6], raw[7] = k.Pad, k.Family
	copy(raw[8:], k.Addr[:])

	h := uint32(CheckSeed)
	for i := 0; i < len(raw); i += 4 {
		w := binary.NativeEndian.Uint32(raw[i:]) * 0xcc9e2d51
		w = bits.RotateLeft32(w, 15) * 0x1b873593
		h = bits.RotateLeft32(h^w, 13)*5 + 0xe6546b64
	}
	h ^= uint32(len(raw))
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	h ^= h >> 16
	return h&0xffffff00 | (k.Prefixlen - KeyFixedBits)
}

// Value is what is written under a key for a row.
func Value(k AddrKey, row uint32) AddrValue {
	return AddrValue{Row: row, Check: Check(k)}
}

// PackHeader makes the first word of a row: number and flags as they stand in
// memory, so that one 64-bit store writes both.
func PackHeader(number, flags uint32) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint32(b[0:], number)
	binary.NativeEndian.PutUint32(b[4:], flags)
	return binary.NativeEndian.Uint64(b[:])
}

// UnpackHeader is the inverse of [PackHeader].
func UnpackHeader(word uint64) (number, flags uint32) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], word)
	return binary.NativeEndian.Uint32(b[0:]), binary.NativeEndian.Uint32(b[4:])
}
