// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultMount is where a system has its BPF file system.
const DefaultMount = "/sys/fs/bpf"

// isBPFFS says whether a path that exists lies in a BPF file system.
func isBPFFS(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && uint32(st.Type) == unix.BPF_FS_MAGIC
}

// nearest is the longest part of the path that exists.
func nearest(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// ensureBPFFS makes sure that the path lies in a BPF file system. Only the
// system's own mount point is ever mounted on.
func ensureBPFFS(path string) error {
	if isBPFFS(nearest(path)) {
		return nil
	}
	if path != DefaultMount && !strings.HasPrefix(path, DefaultMount+"/") {
		return &NotBPFFSError{Path: path}
	}
	if err := mountOnce(DefaultMount); err != nil {
		return &NotBPFFSError{Path: path, Err: err}
	}
	return nil
}

// mountOnce mounts a BPF file system on dir unless there is one. Two processes
// that come at once would hide each other's pins under a second mount; so both
// lock the folder beneath first, and look again.
func mountOnce(dir string) error {
	below, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer below.Close()
	if err := unix.Flock(int(below.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", dir, err)
	}
	if isBPFFS(dir) {
		return nil
	}
	if err := unix.Mount("bpf", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mounting a BPF file system: %w", err)
	}
	return nil
}

// readOnly names a refused write to a read-only bpffs.
func readOnly(err error) error {
	if errors.Is(err, unix.EROFS) {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return err
}

// missing says whether the error means "no such file".
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
