// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"fmt"
	stdmaps "maps"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Memory is a Map without a kernel. It compares keys whole: keys of an LPM
// trie must have their unused address bits cleared.
type Memory[K comparable, V any] struct {
	name     string
	kind     Kind
	capacity int

	mu      sync.Mutex
	entries map[K]V
}

// NewMemory makes an empty map for so many entries.
func NewMemory[K comparable, V any](name string, kind Kind, capacity int) *Memory[K, V] {
	return &Memory[K, V]{name: name, kind: kind, capacity: capacity, entries: map[K]V{}}
}

// Name implements Map.
func (m *Memory[K, V]) Name() string { return m.name }

// Capacity implements Map.
func (m *Memory[K, V]) Capacity() int { return m.capacity }

// Get implements Map.
func (m *Memory[K, V]) Get(k K) (V, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.entries[k]
	if !ok {
		return v, wrap(m.name, "get", m.kind, unix.ENOENT)
	}
	return v, nil
}

// Put implements Map.
func (m *Memory[K, V]) Put(k K, v V) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.entries[k]; !ok && len(m.entries) >= m.capacity {
		if m.kind == LPM {
			return wrap(m.name, "put", m.kind, unix.ENOSPC)
		}
		return wrap(m.name, "put", m.kind, unix.E2BIG)
	}
	m.entries[k] = v
	return nil
}

// Delete implements Map.
func (m *Memory[K, V]) Delete(k K) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.entries[k]; !ok {
		return wrap(m.name, "delete", m.kind, unix.ENOENT)
	}
	delete(m.entries, k)
	return nil
}

// PutBatch implements Map.
func (m *Memory[K, V]) PutBatch(keys []K, values []V) (int, error) {
	if len(keys) != len(values) {
		return 0, fmt.Errorf("%s: %d keys and %d values", m.name, len(keys), len(values))
	}
	for i := range keys {
		if err := m.Put(keys[i], values[i]); err != nil {
			return i, err
		}
	}
	return len(keys), nil
}

// DeleteBatch implements Map.
func (m *Memory[K, V]) DeleteBatch(keys []K) (int, error) {
	for i := range keys {
		if err := m.Delete(keys[i]); err != nil {
			return i, err
		}
	}
	return len(keys), nil
}

// Dump implements Map.
func (m *Memory[K, V]) Dump() (map[K]V, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return stdmaps.Clone(m.entries), nil
}

// Close implements Map; the entries stay, as in a pinned map.
func (m *Memory[K, V]) Close() error { return nil }

// MemoryArray is an Array without a kernel.
type MemoryArray struct {
	words int
	data  []uint64
}

// NewMemoryArray makes a zeroed array.
func NewMemoryArray(length, words int) *MemoryArray {
	return &MemoryArray{words: words, data: make([]uint64, length*words)}
}

// Len implements Array.
func (a *MemoryArray) Len() int { return len(a.data) / a.words }

// Words implements Array.
func (a *MemoryArray) Words() int { return a.words }

// Load implements Array.
func (a *MemoryArray) Load(index, word int) uint64 {
	return atomic.LoadUint64(cell(a.data, a.words, index, word))
}

// Store implements Array.
func (a *MemoryArray) Store(index, word int, value uint64) {
	atomic.StoreUint64(cell(a.data, a.words, index, word), value)
}

// Close implements Array; the elements stay.
func (a *MemoryArray) Close() error { return nil }

// cell finds one word; the index check of the slice does not notice a word
// that lies in the next element.
func cell(data []uint64, words, index, word int) *uint64 {
	if word < 0 || word >= words {
		panic(fmt.Sprintf("word %d of an element of %d words", word, words))
	}
	return &data[index*words+word]
}
