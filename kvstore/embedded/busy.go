// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
)

// FolderBusyError: another process uses the data folder.
type FolderBusyError struct{ Dir string }

// Error implements error.
func (e *FolderBusyError) Error() string {
	return fmt.Sprintf("the data folder %s is in use by another process; stop it, or choose another folder", e.Dir)
}

// PortBusyError: another process listens on the address.
type PortBusyError struct{ Address string }

// Error implements error.
func (e *PortBusyError) Error() string {
	return fmt.Sprintf("the address %s is in use by another process; stop it, or choose another port", e.Address)
}

// lockName is the file whose lock says that a process uses the folder. etcd
// has a lock of its own, but waits for it without a word.
const lockName = "lock"

func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &FolderBusyError{Dir: dir}
		}
		return nil, fmt.Errorf("data folder %s: its lock: %w", dir, err)
	}
	return f, nil
}

// checkPort finds a busy port before etcd does, so that its error names it.
func checkPort(u url.URL) error {
	l, err := net.Listen("tcp", u.Host)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return &PortBusyError{Address: u.Host}
		}
		return fmt.Errorf("the address %s: %w", u.Host, err)
	}
	return l.Close()
}

// startError gives an address that was taken in the meantime its type.
func startError(err error) error {
	var op *net.OpError
	if errors.Is(err, syscall.EADDRINUSE) && errors.As(err, &op) && op.Addr != nil {
		return &PortBusyError{Address: op.Addr.String()}
	}
	return fmt.Errorf("embedded etcd: %w", err)
}
