// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Folder is a locked folder of pins in bpffs. Whoever may write in it may
// change the maps without any further right: so its mode is 0700.
type Folder struct {
	path string

	mu  sync.Mutex
	dir *os.File // carries the lock
}

// OpenFolder opens or makes the folder and locks it against other writers. The
// system's bpffs is mounted when it is not and we may. Errors: *LockedError,
// *NotBPFFSError, ErrReadOnly.
func OpenFolder(path string) (*Folder, error) {
	path = filepath.Clean(path)
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("the pin path %q is not absolute", path)
	}
	dir, err := lockFolder(path)
	if err != nil {
		return nil, err
	}
	return &Folder{path: path, dir: dir}, nil
}

func lockFolder(path string) (*os.File, error) {
	if err := ensureBPFFS(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making the pin folder: %w", readOnly(err))
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the pin folder: %w", err)
	}
	err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = &LockedError{Path: path}
	case err != nil:
		err = fmt.Errorf("locking %s: %w", path, err)
	default:
		err = narrow(dir)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// narrow takes away what others may do in the folder.
func narrow(dir *os.File) error {
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm() == 0o700 {
		return nil
	}
	if err := dir.Chmod(0o700); err != nil {
		return fmt.Errorf("closing the pin folder to others: %w", readOnly(err))
	}
	return nil
}

// Path is the folder's path.
func (f *Folder) Path() string { return f.path }

// Open opens the pinned map of the spec's name, or makes and pins it; created
// says which. A pinned map of other properties is left alone: *IncompatibleError.
func (f *Folder) Open(spec *ebpf.MapSpec) (m *ebpf.Map, created bool, err error) {
	path := filepath.Join(f.path, spec.Name)
	m, err = ebpf.LoadPinnedMap(path, nil)
	if err == nil {
		if err := compatible(spec, m, path); err != nil {
			m.Close()
			return nil, false, err
		}
		return m, false, nil
	}
	if !missing(err) {
		return nil, false, fmt.Errorf("opening the pinned map %s: %w", path, readOnly(err))
	}
	m, err = ebpf.NewMap(spec)
	if err != nil {
		return nil, false, fmt.Errorf("making the map %s: %w", spec.Name, err)
	}
	return m, true, nil
}

// Has says whether the folder has a pin of any of these names.
func (f *Folder) Has(names ...string) (bool, error) {
	for _, name := range names {
		_, err := os.Lstat(filepath.Join(f.path, name))
		if err == nil {
			return true, nil
		}
		if !missing(err) {
			return false, err
		}
	}
	return false, nil
}

// Pin pins a map that Open made. A map that must not be found empty is filled
// between the two.
func (f *Folder) Pin(name string, m *ebpf.Map) error {
	if err := m.Pin(filepath.Join(f.path, name)); err != nil {
		return fmt.Errorf("pinning the map %s: %w", name, readOnly(err))
	}
	return nil
}

func compatible(spec *ebpf.MapSpec, m *ebpf.Map, path string) error {
	have := Properties{m.Type(), m.KeySize(), m.ValueSize(), m.MaxEntries(), m.Flags()}
	want := Properties{spec.Type, spec.KeySize, spec.ValueSize, spec.MaxEntries, spec.Flags}
	if have == want {
		return nil
	}
	return &IncompatibleError{Name: spec.Name, Path: path, Have: have, Want: want}
}

// Pinned says whether the pin of the name leads to this map.
func (f *Folder) Pinned(name string, m *ebpf.Map) bool {
	pinned, err := ebpf.LoadPinnedMap(filepath.Join(f.path, name), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return false
	}
	defer pinned.Close()
	return sameMap(pinned, m)
}

func sameMap(a, b *ebpf.Map) bool {
	infoA, errA := a.Info()
	infoB, errB := b.Info()
	if errA != nil || errB != nil {
		return false
	}
	idA, okA := infoA.ID()
	idB, okB := infoB.ID()
	return okA && okB && idA == idB
}

// Restore puts a lost pin back, and the folder and its lock too when they are
// gone. A pin that leads to another map is not ours to remove: it is an error.
func (f *Folder) Restore(name string, m *ebpf.Map) error {
	if err := f.relock(); err != nil {
		return err
	}
	path := filepath.Join(f.path, name)
	if _, err := os.Lstat(path); err == nil {
		if f.Pinned(name, m) {
			return nil
		}
		return fmt.Errorf("%s leads to another map than the one in use: remove it", path)
	}
	again, err := m.Clone() // the handle in use remembers its first pin
	if err != nil {
		return err
	}
	defer again.Close()
	return f.Pin(name, again)
}

// relock takes the lock anew when the locked folder is no longer at the path.
func (f *Folder) relock() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dir == nil {
		return os.ErrClosed
	}
	held, err := f.dir.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Stat(f.path); err == nil && os.SameFile(held, now) {
		return nil
	}
	dir, err := lockFolder(f.path)
	if err != nil {
		return err
	}
	f.dir.Close()
	f.dir = dir
	return nil
}

// Close gives up the lock and keeps the pins.
func (f *Folder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dir == nil {
		return nil
	}
	err := f.dir.Close()
	f.dir = nil
	return err
}

// Remove removes the pins of these names, the folder when nothing else is in
// it, and gives up the lock. Maps in use live on until they are closed.
func (f *Folder) Remove(names ...string) error {
	var errs []error
	for _, name := range names {
		if err := os.Remove(filepath.Join(f.path, name)); err != nil && !missing(err) {
			errs = append(errs, readOnly(err))
		}
	}
	if err := os.Remove(f.path); err != nil && !missing(err) && !errors.Is(err, unix.ENOTEMPTY) {
		errs = append(errs, readOnly(err))
	}
	return errors.Join(append(errs, f.Close())...)
}
