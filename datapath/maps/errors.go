// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

var (
	// ErrFull means that the map holds as many entries as it was made for. It
	// comes with the kernel's own E2BIG (hash) or ENOSPC (LPM trie).
	ErrFull = errors.New("the map is full")

	// ErrNotFound means that the map has no such key.
	ErrNotFound = errors.New("no such key in the map")

	// ErrIncomplete means that a map could not be read as a whole, because it
	// was changed by someone else again and again. What was read is not returned.
	ErrIncomplete = errors.New("the map could not be read completely")

	// ErrReadOnly means that bpffs is mounted read-only: mount it writable.
	ErrReadOnly = errors.New("bpffs is mounted read-only: mount it writable")
)

// LockedError means that another process holds the folder.
type LockedError struct{ Path string }

// Error names the folder and the way out.
func (e *LockedError) Error() string {
	return fmt.Sprintf("%s is held by another process, and only one may write: stop it first, or choose another pin path", e.Path)
}

// NotBPFFSError means that a pin path does not lie in a BPF file system, and
// that none was mounted for it.
type NotBPFFSError struct {
	Path string
	Err  error // why it could not be mounted; nil when that was not tried
}

// Error names the path and the way out.
func (e *NotBPFFSError) Error() string {
	text := fmt.Sprintf("%s is not in a BPF file system: mount one with `mount -t bpf bpf %s`, or choose a pin path below it", e.Path, DefaultMount)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives the reason of the failed mount.
func (e *NotBPFFSError) Unwrap() error { return e.Err }

// Properties are what must agree between a pinned map and this build.
type Properties struct {
	Type       ebpf.MapType
	KeySize    uint32 // bytes
	ValueSize  uint32 // bytes
	MaxEntries uint32
	Flags      uint32 // BPF_F_*
}

// String lists the properties on one line.
func (p Properties) String() string {
	return fmt.Sprintf("type %s, key %d B, value %d B, %d entries, flags %#x",
		p.Type, p.KeySize, p.ValueSize, p.MaxEntries, p.Flags)
}

// IncompatibleError means that a pinned map has other properties than this
// build and its configuration ask for. Nothing was changed.
type IncompatibleError struct {
	Name, Path string
	Have, Want Properties
}

// Error names old and new properties and the way out.
func (e *IncompatibleError) Error() string {
	return fmt.Sprintf("the pinned map %s (%s) has %s, but %s is wanted: set the size back, or let the node leave so that its maps are made anew",
		e.Name, e.Path, e.Have, e.Want)
}
