// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// dumpBatch is how many entries are read at once at first; larger batches
// gain little.
const dumpBatch = 1024

// Kernel is a Map in the kernel.
type Kernel[K comparable, V any] struct {
	name  string
	kind  Kind
	m     *ebpf.Map
	batch int // entries per read of Dump, at first
}

// NewKernel puts the face before a map, which it owns from then on. The sizes
// of K and V must be those of the map's keys and values.
func NewKernel[K comparable, V any](name string, m *ebpf.Map) *Kernel[K, V] {
	kind := Hash
	if m.Type() == ebpf.LPMTrie {
		kind = LPM
	}
	return &Kernel[K, V]{name: name, kind: kind, m: m, batch: dumpBatch}
}

// Name implements Map.
func (k *Kernel[K, V]) Name() string { return k.name }

// Capacity implements Map.
func (k *Kernel[K, V]) Capacity() int { return int(k.m.MaxEntries()) }

// Get implements Map.
func (k *Kernel[K, V]) Get(key K) (V, error) {
	var v V
	err := k.m.Lookup(&key, &v)
	return v, wrap(k.name, "get", k.kind, err)
}

// Put implements Map.
func (k *Kernel[K, V]) Put(key K, v V) error {
	return wrap(k.name, "put", k.kind, k.m.Put(&key, &v))
}

// Delete implements Map.
func (k *Kernel[K, V]) Delete(key K) error {
	return wrap(k.name, "delete", k.kind, k.m.Delete(&key))
}

// PutBatch implements Map. Kernels without batches get one call per entry.
func (k *Kernel[K, V]) PutBatch(keys []K, values []V) (int, error) {
	n, err := k.m.BatchUpdate(keys, values, nil)
	if errors.Is(err, ebpf.ErrNotSupported) {
		return oneByOne(len(keys), func(i int) error { return k.Put(keys[i], values[i]) })
	}
	return n, wrap(k.name, "put", k.kind, err)
}

// DeleteBatch implements Map. Kernels without batches get one call per key.
func (k *Kernel[K, V]) DeleteBatch(keys []K) (int, error) {
	n, err := k.m.BatchDelete(keys, nil)
	if errors.Is(err, ebpf.ErrNotSupported) {
		return oneByOne(len(keys), func(i int) error { return k.Delete(keys[i]) })
	}
	return n, wrap(k.name, "delete", k.kind, err)
}

// Dump implements Map.
func (k *Kernel[K, V]) Dump() (map[K]V, error) {
	return dump[K, V](k, k.Capacity(), k.batch)
}

// Close implements Map.
func (k *Kernel[K, V]) Close() error { return k.m.Close() }

// batches implements reader: each call of the result reads on.
func (k *Kernel[K, V]) batches() func([]K, []V) (int, error) {
	var cursor ebpf.MapBatchCursor
	return func(keys []K, values []V) (int, error) {
		return k.m.BatchLookup(&cursor, keys, values, nil)
	}
}

// next implements reader.
func (k *Kernel[K, V]) next(prev *K) (K, error) {
	var key K
	var err error
	if prev == nil {
		err = k.m.NextKey(nil, &key)
	} else {
		err = k.m.NextKey(prev, &key)
	}
	return key, wrap(k.name, "next key", k.kind, err)
}

func oneByOne(n int, do func(int) error) (int, error) {
	for i := range n {
		if err := do(i); err != nil {
			return i, err
		}
	}
	return n, nil
}

// wrap gives an error of a map operation its kind, and keeps the kernel's.
func wrap(name, op string, kind Kind, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ebpf.ErrKeyNotExist), errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%s: %s: %w", name, op, ErrNotFound)
	case kind == Hash && errors.Is(err, unix.E2BIG), kind == LPM && errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%s: %s: %w: %w", name, op, ErrFull, err)
	}
	return fmt.Errorf("%s: %s: %w", name, op, err)
}
