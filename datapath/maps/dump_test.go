// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	stdmaps "maps"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// B-11: the dump is whole for each batch size, down to one entry, in a map that
// is full of sequential keys.
func TestScenario_B11_DumpIsWholeAtEachBatchSize(t *testing.T) {
	needKernel(t)
	for kind, name := range map[Kind]string{Hash: "hash", LPM: "lpm"} {
		t.Run(name, func(t *testing.T) {
			const size = 16384
			m := newKernel(t, kind, size)
			want := map[testKey]uint64{}
			keys, values := make([]testKey, size), make([]uint64, size)
			for i := range size {
				keys[i], values[i] = key(i), uint64(i)
				want[keys[i]] = values[i]
			}
			if n, err := m.PutBatch(keys, values); err != nil {
				t.Fatalf("%d: %v", n, err)
			}
			for _, batch := range []int{1, 8, 64, 1024, size, 4 * size} {
				m.batch = batch
				got, err := m.Dump()
				if err != nil || !stdmaps.Equal(got, want) {
					t.Fatalf("batch %d: %d entries, %v", batch, len(got), err)
				}
			}
			if got, err := dumpSingly[testKey, uint64](m, size); err != nil || !stdmaps.Equal(got, want) {
				t.Fatalf("entry by entry: %d entries, %v", len(got), err)
			}
		})
	}
}

// script is a reader that does what a kernel might do.
type script struct {
	entries map[testKey]uint64
	bucket  int   // batches smaller than this do not fit
	batch   error // of every batch
	endless bool  // the walk begins anew for ever
	vanish  bool  // keys are gone when their values are read
	sizes   []int // of the batches asked for
	walks   int
}

func (s *script) sorted() []testKey {
	return slices.SortedFunc(stdmaps.Keys(s.entries), func(a, b testKey) int { return slices.Compare(a.Data[:], b.Data[:]) })
}

func (s *script) batches() func([]testKey, []uint64) (int, error) {
	left := s.sorted()
	s.walks++
	return func(keys []testKey, values []uint64) (int, error) {
		s.sizes = append(s.sizes, len(keys))
		if s.batch != nil {
			return 0, s.batch
		}
		if len(keys) < s.bucket {
			return 0, unix.ENOSPC
		}
		n := copy(keys, left)
		for i := range n {
			values[i] = s.entries[keys[i]]
		}
		if !s.endless {
			left = left[n:]
		}
		if len(left) == 0 {
			return n, ebpf.ErrKeyNotExist
		}
		return n, nil
	}
}

func (s *script) next(prev *testKey) (testKey, error) {
	all := s.sorted()
	i := 0
	if prev != nil {
		i = slices.Index(all, *prev) + 1
	}
	if s.endless {
		i %= len(all)
	}
	if i >= len(all) {
		return testKey{}, ErrNotFound
	}
	return all[i], nil
}

func (s *script) Get(k testKey) (uint64, error) {
	if s.vanish {
		return 0, ErrNotFound
	}
	return s.entries[k], nil
}

func TestDump(t *testing.T) {
	entries := map[testKey]uint64{}
	for i := range 40 {
		entries[key(i)] = uint64(i)
	}
	for name, c := range map[string]struct {
		script script
		want   int
		err    error
	}{
		"plain":                           {script{}, 40, nil},
		"a bucket larger than the batch":  {script{bucket: 30}, 40, nil},
		"a bucket larger than all":        {script{bucket: 1000}, 40, nil},
		"no batches":                      {script{batch: ebpf.ErrNotSupported}, 40, nil},
		"interrupted for ever":            {script{batch: unix.EINTR}, 0, ErrIncomplete},
		"another error":                   {script{batch: unix.EFAULT}, 0, unix.EFAULT},
		"begins anew for ever":            {script{endless: true}, 0, ErrIncomplete},
		"begins anew, entry by entry":     {script{endless: true, batch: ebpf.ErrNotSupported}, 0, ErrIncomplete},
		"keys vanish while they are read": {script{vanish: true, batch: ebpf.ErrNotSupported}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.script.entries = entries
			got, err := dump[testKey, uint64](&c.script, 40, 4)
			if !errors.Is(err, c.err) || len(got) != c.want {
				t.Fatalf("%d entries, %v", len(got), err)
			}
			if errors.Is(c.err, ErrIncomplete) && got != nil {
				t.Fatal("an incomplete dump returned entries")
			}
			if errors.Is(c.err, unix.EFAULT) && c.script.walks != 1 {
				t.Fatalf("a hard error was tried %d times", c.script.walks)
			}
		})
	}
}
