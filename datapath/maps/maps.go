// SPDX-License-Identifier: Apache-2.0

package maps

// Map is a map from K to V, in the kernel or in memory. One goroutine writes
// at a time; reading beside it is allowed.
type Map[K comparable, V any] interface {
	// Name is the name of the pin, not cut to what the kernel keeps of it.
	Name() string
	// Capacity is how many entries fit.
	Capacity() int
	// Get reads one value. Errors: ErrNotFound.
	Get(K) (V, error)
	// Put sets one value; replacing works in a full map. Errors: ErrFull.
	Put(K, V) error
	// Delete removes one key. Errors: ErrNotFound.
	Delete(K) error
	// PutBatch sets the values in order and stops at the first that fails. It
	// returns how many were set; the error belongs to the one after them.
	PutBatch([]K, []V) (int, error)
	// DeleteBatch removes the keys in order and stops at the first that fails,
	// a missing one included. It returns how many were removed.
	DeleteBatch([]K) (int, error)
	// Dump reads the whole map, or fails with ErrIncomplete. Entries that
	// others add or remove meanwhile may or may not be in it.
	Dump() (map[K]V, error)
	// Close lets go of the map; a pin keeps it in the kernel.
	Close() error
}

// Array is an array of equal elements, each of several 64-bit words, that are
// loaded and stored atomically one by one. An index or word out of range panics,
// as does any use after Close.
type Array interface {
	Len() int   // elements
	Words() int // words of an element
	Load(index, word int) uint64
	Store(index, word int, value uint64)
	Close() error
}

// Kind is the type of a map, as far as its behaviour when full differs.
type Kind uint8

// The kinds of maps.
const (
	Hash Kind = iota // full: E2BIG
	LPM              // full: ENOSPC
)
