// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"pgregory.net/rapid"
)

// constantsOfHeader reads "NAME = value" and "#define NAME value" lines.
func constantsOfHeader(t *testing.T) map[string]uint64 {
	t.Helper()
	text, err := os.ReadFile("signet.h")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\s*(?:#define )?(SIGNET_[A-Z0-9_]+)\s*=?\s+(\S+(?: << \d+)?)`)
	found := map[string]uint64{}
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		value := regexp.MustCompile(`[,;]$`).ReplaceAllString(m[2], "")
		var shift int
		if s := regexp.MustCompile(`^(\d+) << (\d+)$`).FindStringSubmatch(value); s != nil {
			value = s[1]
			shift, _ = strconv.Atoi(s[2])
		}
		if n, err := strconv.ParseUint(value, 0, 32); err == nil {
			found[m[1]] = n << shift
		}
	}
	return found
}

func TestConstantsEqualHeader(t *testing.T) {
	header := constantsOfHeader(t)
	for name, want := range map[string]uint64{
		"SIGNET_MAGIC":          Magic,
		"SIGNET_LAYOUT_VERSION": LayoutVersion,
		"SIGNET_SELECTOR_WORDS": SelectorWords,
		"SIGNET_ROW_NONE":       RowNone,
		"SIGNET_ROW_DENY":       RowDeny,
		"SIGNET_ROW_FIRST":      RowFirst,
		"SIGNET_KEY_FIXED_BITS": KeyFixedBits,
		"SIGNET_CHECK_SEED":     CheckSeed,
		"SIGNET_IPV4":           FamilyIPv4,
		"SIGNET_IPV6":           FamilyIPv6,
		"SIGNET_ROW_VALID":      RowValid,
		"SIGNET_ROW_DENIED":     RowDenied,
		"SIGNET_ROW_CLEARED":    RowCleared,
	} {
		if got, ok := header[name]; !ok || got != want {
			t.Errorf("%s: header says %d (found %v), Go says %d", name, got, ok, want)
		}
	}
}

func TestSizes(t *testing.T) {
	var row Row
	for name, c := range map[string]struct{ got, want uintptr }{
		"key":              {unsafe.Sizeof(AddrKey{}), 24},
		"value":            {unsafe.Sizeof(AddrValue{}), 8},
		"row":              {unsafe.Sizeof(row), 8 * RowWords},
		"row's bitmap":     {unsafe.Offsetof(row.Selectors), 8},
		"words of bitmap":  {uintptr(len(row.Selectors)), SelectorWords},
		"meta":             {unsafe.Sizeof(Meta{}), 16},
		"meta's row size":  {uintptr(OwnMeta().RowSize), unsafe.Sizeof(row)},
		"row stride mod 8": {unsafe.Sizeof(row) % 8, 0},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d, want %d", name, c.got, c.want)
		}
	}
}

// The bytes are those of cilium_ipcache_v2, written out by hand from its layout.
func TestKeyBytes(t *testing.T) {
	for prefix, want := range map[string]string{
		"10.0.0.1/32":    "40000000 0000 00 01 0a000001 000000000000000000000000",
		"10.0.0.0/31":    "3f000000 0000 00 01 0a000000 000000000000000000000000",
		"10.0.0.0/24":    "38000000 0000 00 01 0a000000 000000000000000000000000",
		"0.0.0.0/0":      "20000000 0000 00 01 00000000 000000000000000000000000",
		"::1/128":        "a0000000 0000 00 02 00000000000000000000000000000001",
		"2001:db8::/32":  "40000000 0000 00 02 20010db8000000000000000000000000",
		"10.1.2.3/8":     "28000000 0000 00 01 0a000000 000000000000000000000000",
		"fd00:1::7/64":   "60000000 0000 00 02 fd000001000000000000000000000000",
		"192.0.2.255/32": "40000000 0000 00 01 c00002ff 000000000000000000000000",
	} {
		raw, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(want), []byte(" "), nil)))
		if err != nil {
			t.Fatal(err)
		}
		var buf bytes.Buffer
		k := Key(netip.MustParsePrefix(prefix))
		if err := binary.Write(&buf, binary.LittleEndian, k); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(buf.Bytes(), raw) {
			t.Errorf("%s: key %x, want %x", prefix, buf.Bytes(), raw)
		}
	}
}

func TestPrefixRefusesForeignKeys(t *testing.T) {
	good := Key(netip.MustParsePrefix("10.0.0.0/24"))
	for name, change := range map[string]func(*AddrKey){
		"family":     func(k *AddrKey) { k.Family = 3 },
		"cluster":    func(k *AddrKey) { k.ClusterId = 7 },
		"pad":        func(k *AddrKey) { k.Pad = 1 },
		"too short":  func(k *AddrKey) { k.Prefixlen = 31 },
		"too long":   func(k *AddrKey) { k.Prefixlen = 65 },
		"host bits":  func(k *AddrKey) { k.Addr[3] = 1 },
		"tail bytes": func(k *AddrKey) { k.Addr[9] = 1 },
		"4 in 6": func(k *AddrKey) {
			*k = AddrKey{Prefixlen: 160, Family: FamilyIPv6, Addr: netip.MustParseAddr("::ffff:1.2.3.4").As16()}
		},
	} {
		k := good
		change(&k)
		if p, ok := Prefix(k); ok {
			t.Errorf("%s: taken as %s", name, p)
		}
	}
}

func drawKey(t *rapid.T) AddrKey {
	var addr netip.Addr
	if rapid.Bool().Draw(t, "v4") {
		addr = netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "addr")))
	} else {
		raw := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "addr")
		raw[0] |= 0x20 // no IPv4-in-IPv6
		addr = netip.AddrFrom16([16]byte(raw))
	}
	return Key(netip.PrefixFrom(addr, rapid.IntRange(0, addr.BitLen()).Draw(t, "bits")))
}

func TestKeyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t)
		p, ok := Prefix(k)
		if !ok || Key(p) != k {
			t.Fatalf("%v came back as %v %v", k, p, ok)
		}
		if IsHost(k) != p.IsSingleIP() {
			t.Fatalf("IsHost(%s) = %v", p, IsHost(k))
		}
	})
}

// One changed bit anywhere in the key changes the check word.
func TestCheckNoticesEachBit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t)
		if got, want := Check(k)&0xff, k.Prefixlen-KeyFixedBits; got != want {
			t.Fatalf("low byte %d, want the %d address bits", got, want)
		}
		other := k
		bit := rapid.IntRange(0, 127).Draw(t, "bit")
		other.Addr[bit/8] ^= 1 << (bit % 8)
		if Check(other) == Check(k) {
			t.Fatalf("bit %d of the address does not matter", bit)
		}
	})
}

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, f := rapid.Uint32().Draw(t, "number"), rapid.Uint32().Draw(t, "flags")
		word := PackHeader(n, f)
		if gn, gf := UnpackHeader(word); gn != n || gf != f {
			t.Fatalf("%d %d came back as %d %d", n, f, gn, gf)
		}
		row := Row{Number: n, Flags: f}
		if *(*uint64)(unsafe.Pointer(&row)) != word {
			t.Fatalf("the packed word is not what stands in memory")
		}
	})
}

func FuzzPrefix(f *testing.F) {
	f.Add(uint32(64), uint16(0), byte(0), byte(1), []byte{10, 0, 0, 1})
	f.Add(uint32(160), uint16(0), byte(0), byte(2), []byte{0xfd})
	f.Fuzz(func(t *testing.T, length uint32, cluster uint16, pad, family byte, addr []byte) {
		k := AddrKey{Prefixlen: length, ClusterId: cluster, Pad: pad, Family: family}
		copy(k.Addr[:], addr)
		if p, ok := Prefix(k); ok && Key(p) != k {
			t.Fatalf("%v was read as %s, which is another key", k, p)
		}
	})
}

func TestObjectLoads(t *testing.T) {
	spec, err := LoadIpcache()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		typ        ebpf.MapType
		key, value uint32
		flags      uint32
	}{
		IpcacheMapSignetIpcache:    {ebpf.Hash, 24, 8, 1 | 1<<7},
		IpcacheMapSignetIpcacheLpm: {ebpf.LPMTrie, 24, 8, 1 | 1<<7},
		IpcacheMapSignetRows:       {ebpf.Array, 4, 8 * RowWords, 1 << 10},
		IpcacheMapSignetMeta:       {ebpf.Array, 4, 16, 1 << 7},
	} {
		m := spec.Maps[name]
		if m == nil {
			t.Fatalf("no map %s in the object", name)
		}
		if m.Type != want.typ || m.KeySize != want.key || m.ValueSize != want.value || m.Flags != want.flags {
			t.Errorf("%s is %v", name, m)
		}
	}
	if spec.Programs[IpcacheProgSignetLookup] == nil {
		t.Error("no program signet_lookup in the object")
	}
}
