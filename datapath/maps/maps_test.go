// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"
	stdmaps "maps"
	"testing"

	"github.com/cilium/ebpf"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testKey has the shape of an LPM key: length, then 8 bytes.
type testKey struct {
	Length uint32
	Data   [8]byte
}

// key is the i-th key of full length; short keys share no prefix with others.
func key(i int) testKey {
	return testKey{64, [8]byte{1: byte(i >> 16), 2: byte(i >> 8), 3: byte(i)}}
}

func needKernel(t testing.TB) {
	t.Helper()
	if ok, reason := Probe(); !ok {
		t.Skipf("not run on kernel maps: %s", reason)
	}
}

func newKernel(t testing.TB, kind Kind, capacity int) *Kernel[testKey, uint64] {
	t.Helper()
	typ := ebpf.Hash
	if kind == LPM {
		typ = ebpf.LPMTrie
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "test", Type: typ, KeySize: 12, ValueSize: 8,
		MaxEntries: uint32(capacity), Flags: unix.BPF_F_NO_PREALLOC,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return NewKernel[testKey, uint64]("test", m)
}

// suite runs a test over both kinds of map, in memory and in the kernel.
func suite(t *testing.T, capacity int, test func(*testing.T, Map[testKey, uint64], Kind)) {
	for kind, name := range map[Kind]string{Hash: "hash", LPM: "lpm"} {
		t.Run("memory/"+name, func(t *testing.T) {
			test(t, NewMemory[testKey, uint64]("test", kind, capacity), kind)
		})
		t.Run("kernel/"+name, func(t *testing.T) {
			needKernel(t)
			test(t, newKernel(t, kind, capacity), kind)
		})
	}
}

func TestPutGetDelete(t *testing.T) {
	suite(t, 10, func(t *testing.T, m Map[testKey, uint64], _ Kind) {
		if m.Name() != "test" || m.Capacity() != 10 {
			t.Fatalf("name %q, capacity %d", m.Name(), m.Capacity())
		}
		if _, err := m.Get(key(1)); !errors.Is(err, ErrNotFound) {
			t.Fatalf("Get of nothing: %v", err)
		}
		if err := m.Delete(key(1)); !errors.Is(err, ErrNotFound) {
			t.Fatalf("Delete of nothing: %v", err)
		}
		for _, value := range []uint64{7, 8} {
			if err := m.Put(key(1), value); err != nil {
				t.Fatal(err)
			}
			if got, err := m.Get(key(1)); err != nil || got != value {
				t.Fatalf("Get: %d %v", got, err)
			}
		}
		if err := m.Delete(key(1)); err != nil {
			t.Fatal(err)
		}
		if all, err := m.Dump(); err != nil || len(all) != 0 {
			t.Fatalf("Dump: %v %v", all, err)
		}
	})
}

// A full map has an error of its own, keeps the kernel's, and still replaces.
func TestFull(t *testing.T) {
	errno := map[Kind]error{Hash: unix.E2BIG, LPM: unix.ENOSPC}
	suite(t, 100, func(t *testing.T, m Map[testKey, uint64], kind Kind) {
		for i := range 100 {
			if err := m.Put(key(i), 1); err != nil {
				t.Fatal(err)
			}
		}
		err := m.Put(key(100), 1)
		if !errors.Is(err, ErrFull) || !errors.Is(err, errno[kind]) {
			t.Fatalf("Put into a full map: %v", err)
		}
		if err := m.Put(key(50), 2); err != nil {
			t.Fatalf("replacing in a full map: %v", err)
		}
		if err := m.Delete(key(0)); err != nil {
			t.Fatal(err)
		}
		if err := m.Put(key(100), 1); err != nil {
			t.Fatalf("Put after a removal: %v", err)
		}
	})
}

func TestBatchesStopAtTheFirstThatFails(t *testing.T) {
	suite(t, 100, func(t *testing.T, m Map[testKey, uint64], _ Kind) {
		var keys []testKey
		var values []uint64
		for i := range 120 {
			keys, values = append(keys, key(i)), append(values, uint64(i))
		}
		if n, err := m.PutBatch(keys[:60], values[:60]); n != 60 || err != nil {
			t.Fatalf("PutBatch: %d %v", n, err)
		}
		if n, err := m.PutBatch(keys[60:], values[60:]); n != 40 || !errors.Is(err, ErrFull) {
			t.Fatalf("PutBatch beyond the size: %d %v", n, err)
		}
		all, err := m.Dump()
		if err != nil || len(all) != 100 {
			t.Fatalf("Dump: %d %v", len(all), err)
		}
		for i := range 100 {
			if all[key(i)] != uint64(i) {
				t.Fatalf("value %d is %d", i, all[key(i)])
			}
		}
		if n, err := m.DeleteBatch(keys[95:110]); n != 5 || !errors.Is(err, ErrNotFound) {
			t.Fatalf("DeleteBatch with a missing key: %d %v", n, err)
		}
		if n, err := m.DeleteBatch(keys[:95]); n != 95 || err != nil {
			t.Fatalf("DeleteBatch: %d %v", n, err)
		}
		if all, err := m.Dump(); err != nil || len(all) != 0 {
			t.Fatalf("Dump of an empty map: %d %v", len(all), err)
		}
	})
}

// Kernel and memory answer every sequence of calls alike.
func TestMemoryBehavesLikeTheKernel(t *testing.T) {
	needKernel(t)
	for kind, name := range map[Kind]string{Hash: "hash", LPM: "lpm"} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				pair := twins{NewMemory[testKey, uint64]("test", kind, 6), newKernel(t, kind, 6)}
				defer pair.kernel.Close()
				r.Repeat(map[string]func(*rapid.T){
					"put":    pair.put,
					"delete": pair.delete,
					"":       pair.equal,
				})
			})
		})
	}
}

type twins struct {
	memory *Memory[testKey, uint64]
	kernel *Kernel[testKey, uint64]
}

// drawKeys draws keys of all lengths without a set bit behind them.
func drawKeys(t *rapid.T) []testKey {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) testKey {
		k := testKey{Length: 8 * uint32(rapid.IntRange(0, 3).Draw(t, "bytes"))}
		for i := range k.Length / 8 {
			k.Data[i] = byte(rapid.IntRange(0, 2).Draw(t, "byte"))
		}
		return k
	}), 1, 5).Draw(t, "keys")
}

func (w twins) same(t *rapid.T, n, m int, a, b error) {
	t.Helper()
	for _, kind := range []error{ErrFull, ErrNotFound, unix.E2BIG, unix.ENOSPC, nil} {
		if errors.Is(a, kind) != errors.Is(b, kind) {
			t.Fatalf("memory says %v, the kernel says %v", a, b)
		}
	}
	if n != m {
		t.Fatalf("memory did %d, the kernel %d", n, m)
	}
}

func (w twins) put(t *rapid.T) {
	keys := drawKeys(t)
	values := rapid.SliceOfN(rapid.Uint64(), len(keys), len(keys)).Draw(t, "values")
	n, a := w.memory.PutBatch(keys, values)
	m, b := w.kernel.PutBatch(keys, values)
	w.same(t, n, m, a, b)
}

func (w twins) delete(t *rapid.T) {
	keys := drawKeys(t)
	n, a := w.memory.DeleteBatch(keys)
	m, b := w.kernel.DeleteBatch(keys)
	w.same(t, n, m, a, b)
}

func (w twins) equal(t *rapid.T) {
	a, errA := w.memory.Dump()
	b, errB := w.kernel.Dump()
	if errA != nil || errB != nil || !stdmaps.Equal(a, b) {
		t.Fatalf("memory %v %v, kernel %v %v", a, errA, b, errB)
	}
}

func TestPutBatchWantsAValuePerKey(t *testing.T) {
	m := NewMemory[testKey, uint64]("test", Hash, 10)
	if _, err := m.PutBatch([]testKey{key(1), key(2)}, []uint64{1}); err == nil {
		t.Fatal("two keys and one value were taken")
	}
}

// Each array: words are stored where the kernel's own calls read them.
func TestArrays(t *testing.T) {
	check := func(t *testing.T, a Array) {
		if a.Len() != 50 || a.Words() != 5 {
			t.Fatalf("%d elements of %d words", a.Len(), a.Words())
		}
		for i := range 50 {
			for w := range 5 {
				a.Store(i, w, uint64(100*i+w))
			}
		}
		for i := range 50 {
			for w := range 5 {
				if got := a.Load(i, w); got != uint64(100*i+w) {
					t.Fatalf("element %d word %d is %d", i, w, got)
				}
			}
		}
		for name, at := range map[string][2]int{"element": {50, 0}, "word": {0, 5}, "negative": {1, -1}} {
			if !panics(func() { a.Load(at[0], at[1]) }) {
				t.Errorf("%s out of range was read", name)
			}
		}
	}
	t.Run("memory", func(t *testing.T) {
		a := NewMemoryArray(50, 5)
		check(t, a)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("kernel", func(t *testing.T) {
		needKernel(t)
		m := newArray(t, 40, unix.BPF_F_MMAPABLE)
		a, err := MapArray(m)
		if err != nil {
			t.Fatal(err)
		}
		check(t, a)
		var element [5]uint64
		if err := m.Lookup(uint32(7), &element); err != nil || element != [5]uint64{700, 701, 702, 703, 704} {
			t.Fatalf("the kernel reads %v %v", element, err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatalf("closing twice: %v", err)
		}
		if !panics(func() { a.Load(0, 0) }) {
			t.Fatal("a closed array was read")
		}
	})
}

func newArray(t *testing.T, valueSize, flags uint32) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "test", Type: ebpf.Array, KeySize: 4, ValueSize: valueSize, MaxEntries: 50, Flags: flags,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestMapArrayRefuses(t *testing.T) {
	needKernel(t)
	for name, m := range map[string]*ebpf.Map{
		"a stride that is not the size": newArray(t, 12, unix.BPF_F_MMAPABLE),
		"a map that cannot be mapped":   newArray(t, 40, 0),
		"a hash":                        newKernel(t, Hash, 10).m,
	} {
		if a, err := MapArray(m); err == nil {
			t.Errorf("%s was mapped: %v", name, a)
		}
	}
}

func panics(do func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	do()
	return false
}

func TestWrapKeepsTheKernelsError(t *testing.T) {
	err := wrap("m", "put", Hash, fmt.Errorf("put: %w", unix.ENOMEM))
	if !errors.Is(err, unix.ENOMEM) || errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	if errors.Is(wrap("m", "put", Hash, unix.ENOSPC), ErrFull) || errors.Is(wrap("m", "put", LPM, unix.E2BIG), ErrFull) {
		t.Fatal("the other kind's error counts as full")
	}
}
