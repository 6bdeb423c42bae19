// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const wordSize = 8

// MappedArray is an Array whose memory is the kernel's: a store is seen by
// programs at once, without a system call.
type MappedArray struct {
	m     *ebpf.Map
	raw   []byte
	words int
	data  []uint64
}

// MapArray maps an array that was made with BPF_F_MMAPABLE, and owns the map
// from then on. An element of the mapping takes its value size rounded up to a
// multiple of 8; so that no element has a hidden tail, other sizes are refused.
func MapArray(m *ebpf.Map) (*MappedArray, error) {
	if m.Type() != ebpf.Array || m.ValueSize()%wordSize != 0 {
		return nil, fmt.Errorf("cannot map %v: an array of whole 64-bit words is needed", m)
	}
	length := int(m.MaxEntries()) * int(m.ValueSize())
	page := os.Getpagesize()
	raw, err := unix.Mmap(m.FD(), 0, (length+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the memory of %v: %w", m, err)
	}
	return &MappedArray{
		m:     m,
		raw:   raw,
		words: int(m.ValueSize()) / wordSize,
		data:  unsafe.Slice((*uint64)(unsafe.Pointer(&raw[0])), length/wordSize),
	}, nil
}

// Len implements Array.
func (a *MappedArray) Len() int { return int(a.m.MaxEntries()) }

// Words implements Array.
func (a *MappedArray) Words() int { return a.words }

// Load implements Array.
func (a *MappedArray) Load(index, word int) uint64 {
	return atomic.LoadUint64(cell(a.data, a.words, index, word))
}

// Store implements Array.
func (a *MappedArray) Store(index, word int, value uint64) {
	atomic.StoreUint64(cell(a.data, a.words, index, word), value)
}

// Close unmaps the memory and lets go of the map.
func (a *MappedArray) Close() error {
	if a.data == nil {
		return nil
	}
	a.data = nil
	if err := unix.Munmap(a.raw); err != nil {
		return fmt.Errorf("unmapping the memory of %v: %w", a.m, err)
	}
	return a.m.Close()
}
