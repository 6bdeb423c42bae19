// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/bpf"
	"github.com/signet-identity/signet/datapath/maps"
)

// B-08: other sizes are refused with both sets of properties, and nothing in
// the maps changes.
func TestScenario_B08_OtherSizesAreRefused(t *testing.T) {
	needKernel(t)
	b := newKernelBench(t, small)
	defer func() { destroy(t, b) }()
	b.Synced()
	for i := range 500 {
		b.upsert(t, host(i), 1001, SourceRemote)
	}
	b.reconcileAll(t)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		hostsName:    func(c *Config) { c.Addresses = 2000 },
		prefixesName: func(c *Config) { c.Prefixes = 100 },
		rowsName:     func(c *Config) { c.Rows = 301 },
	} {
		cfg := b.cfg
		change(&cfg)
		_, err := Open(cfg)
		var incompatible *maps.IncompatibleError
		if !errors.As(err, &incompatible) || incompatible.Name != name {
			t.Fatalf("%s: %v", name, err)
		}
		if incompatible.Have == incompatible.Want {
			t.Fatalf("%s: old and new properties are the same", name)
		}
	}
	b.engine = b.reopen()
	if got := len(b.list(t)); got != 500 {
		t.Fatalf("%d entries are left of 500", got)
	}
}

// B-08: another layout version, and pins that are none of ours.
func TestScenario_B08_OtherLayoutIsRefused(t *testing.T) {
	needKernel(t)
	b := newKernelBench(t, small)
	defer func() { destroy(t, b) }()
	m, err := ebpf.LoadPinnedMap(filepath.Join(b.cfg.PinPath, metaName), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	newer, foreign := bpf.OwnMeta(), bpf.OwnMeta()
	newer.Layout++
	foreign.Magic = 0
	for want, meta := range map[string]bpf.Meta{"has layout 1": newer, "layout 2": newer, "none of ours": foreign} {
		if err := m.Put(uint32(0), &meta); err != nil {
			t.Fatal(err)
		}
		_, err := Open(b.cfg)
		var layout *LayoutError
		if !errors.As(err, &layout) || layout.Have != meta {
			t.Fatalf("%v", err)
		}
		if want != "has layout 1" && !strings.Contains(err.Error(), want) {
			t.Fatalf("%q does not say %q", err, want)
		}
	}
	own := bpf.OwnMeta()
	if err := m.Put(uint32(0), &own); err != nil {
		t.Fatal(err)
	}
	b.engine = b.reopen()
}

// Maps without a layout version were not made by us: they are not taken over,
// and no version is put on them.
func TestPinsWithoutLayoutAreRefused(t *testing.T) {
	needKernel(t)
	b := newKernelBench(t, small)
	defer func() { destroy(t, b) }()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	meta := filepath.Join(b.cfg.PinPath, metaName)
	aside := filepath.Join(b.cfg.PinPath, "aside")
	if err := os.Rename(meta, aside); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := Open(b.cfg)
		var layout *LayoutError
		if !errors.As(err, &layout) {
			t.Fatalf("%v", err)
		}
	}
	if err := os.Rename(aside, meta); err != nil {
		t.Fatal(err)
	}
	b.engine = b.reopen()
}

func TestOneWriter(t *testing.T) {
	needKernel(t)
	b := newKernelBench(t, small)
	defer destroy(t, b)
	_, err := Open(b.cfg)
	var locked *maps.LockedError
	if !errors.As(err, &locked) {
		t.Fatalf("second writer: %v", err)
	}
	if info, err := os.Stat(b.cfg.PinPath); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("pin folder: %v %v", info, err)
	}
}

func TestDestroyLeavesNothing(t *testing.T) {
	needKernel(t)
	b := newKernelBench(t, small)
	destroy(t, b)
	if _, err := os.Stat(b.cfg.PinPath); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the pin folder is still there: %v", err)
	}
	destroy(t, b) // twice is no error
}

// B-15: a removed pin comes back with the next comparison.
func TestScenario_B15_RemovedPinsComeBack(t *testing.T) {
	needKernel(t)
	b := newKernelBench(t, small)
	defer func() { destroy(t, b) }()
	b.Synced()
	b.upsert(t, "10.0.0.1/32", 1001, SourceRemote)
	b.reconcileAll(t)
	if err := os.RemoveAll(b.cfg.PinPath); err != nil {
		t.Fatal(err)
	}
	drift, err := b.Repair(t.Context())
	if err != nil || drift.Count()[DriftPin] != 4 {
		t.Fatalf("%v %v", drift, err)
	}
	b.noDrift(t)
	b.restart(t)
	b.wantLookup(t, "10.0.0.1", hit(1001))
	if got := b.Status().PinPath; got != b.cfg.PinPath {
		t.Fatalf("pin path %q", got)
	}
}

// dumped is one entry as bpftool prints it without BTF: bytes in hex.
type dumped struct{ Key, Value []string }

func bpftoolDump(t *testing.T, path string) (out []struct{ key, value []byte }) {
	t.Helper()
	text, err := exec.Command("bpftool", "-j", "map", "dump", "pinned", path).Output()
	if err != nil {
		t.Fatalf("bpftool: %v", err)
	}
	var all []dumped
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&all); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	for _, d := range all {
		out = append(out, struct{ key, value []byte }{bytesOf(t, d.Key), bytesOf(t, d.Value)})
	}
	return out
}

func bytesOf(t *testing.T, texts []string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(strings.ReplaceAll(strings.Join(texts, ""), "0x", ""))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// B-14, and docs/datapath.md: what bpftool shows, joined by row index, is what
// List says.
func TestScenario_B14_BpftoolSeesTheSame(t *testing.T) {
	needKernel(t)
	if _, err := exec.LookPath("bpftool"); err != nil {
		t.Skip("bpftool is not installed")
	}
	b := newKernelBench(t, small)
	defer destroy(t, b)
	b.Synced()
	for i := range 60 {
		b.upsert(t, host(i), identity.Number(1000+i%9), SourceRemote)
	}
	b.upsert(t, "192.168.0.0/16", 70000, SourceCIDR)
	b.upsert(t, "fd00::7/128", 1<<24|5, SourceNode)
	b.reconcileAll(t)

	native := func(raw []byte) uint32 { return binary.NativeEndian.Uint32(raw) }
	numbers := map[uint32]uint32{}
	for _, e := range bpftoolDump(t, filepath.Join(b.cfg.PinPath, rowsName)) {
		numbers[native(e.key)] = native(e.value[:4])
	}
	got := map[string]uint32{}
	for _, name := range []string{hostsName, prefixesName} {
		for _, e := range bpftoolDump(t, filepath.Join(b.cfg.PinPath, name)) {
			got[prefixOf(t, e.key, native)] = numbers[native(e.value[:4])]
		}
	}
	list := b.list(t)
	if len(list) != len(got) {
		t.Fatalf("bpftool shows %d entries, List %d", len(got), len(list))
	}
	for _, r := range list {
		if got[r.Prefix.String()] != uint32(r.Number) {
			t.Errorf("%s: bpftool shows %d, List %d", r.Prefix, got[r.Prefix.String()], r.Number)
		}
	}
}

func prefixOf(t *testing.T, key []byte, native func([]byte) uint32) string {
	t.Helper()
	addr, ok := netip.AddrFromSlice(key[8:12])
	if key[7] == bpf.FamilyIPv6 {
		addr, ok = netip.AddrFromSlice(key[8:24])
	}
	if !ok {
		t.Fatalf("key %x", key)
	}
	return addr.String() + "/" + strconv.Itoa(int(native(key[:4])-32))
}

// Errors of opening name the thing and the way out.
func TestOpenErrors(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		says string
	}{
		"no bpffs":      {Config{PinPath: filepath.Join(t.TempDir(), "x")}, "not in a BPF file system"},
		"negative size": {Config{Addresses: -1}, "out of range"},
		"too few rows":  {Config{Rows: 2}, "at least 3"},
		"relative path": {Config{PinPath: "pins"}, "not absolute"},
	} {
		if _, err := Open(c.cfg); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewMemory(Config{Rows: 1}, ""); err == nil {
		t.Error("memory took too few rows")
	}
	for _, err := range []error{
		&LayoutError{Path: "/x", Have: bpf.OwnMeta(), Want: bpf.Meta{Magic: bpf.Magic, Layout: 9}},
		&LayoutError{Path: "/x", Want: bpf.OwnMeta()},
	} {
		if !strings.Contains(fmt.Sprint(err), "/x") {
			t.Errorf("%v", err)
		}
	}
}
