// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// maxSocketPath is the longest path of a unix socket on Linux, in bytes.
const maxSocketPath = 107

// ErrSocketInUse: somebody listens on the socket.
var ErrSocketInUse = errors.New("somebody listens on the socket")

// SocketError says why a socket cannot be listened on.
type SocketError struct {
	Path   string
	Reason string
	cause  error
}

// Error names the socket, the reason and the way out.
func (e *SocketError) Error() string { return fmt.Sprintf("socket %s: %s", e.Path, e.Reason) }

// Unwrap is the cause, ErrSocketInUse or fs.ErrPermission among them.
func (e *SocketError) Unwrap() error { return e.cause }

// listen opens the socket with mode 0660, in a folder that it makes (0750) if
// need be. A socket file that nobody listens on any more is removed first. The
// error is a *SocketError.
func listen(path string) (net.Listener, error) {
	fail := func(err error, reason string, args ...any) (net.Listener, error) {
		return nil, &SocketError{Path: path, Reason: fmt.Sprintf(reason, args...), cause: err}
	}
	if len(path) > maxSocketPath {
		return fail(nil, "the path is %d bytes long and a socket's has at most %d; choose a shorter one", len(path), maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fail(err, "its folder cannot be made: %v", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if errors.Is(err, fs.ErrPermission) {
		return fail(err, "this user may not write to the folder; run as another user or choose another --socket")
	}
	if err != nil {
		return fail(err, "it cannot be listened on: %v", err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		l.Close()
		return fail(err, "its mode cannot be set: %v", err)
	}
	return l, nil
}

// removeStale removes a socket file whose listener is gone.
func removeStale(path string) error {
	fail := func(err error, reason string, args ...any) error {
		return &SocketError{Path: path, Reason: fmt.Sprintf(reason, args...), cause: err}
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fail(err, "it cannot be looked at: %v", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fail(fs.ErrExist, "a file that is no socket is there; move it away or choose another --socket")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		conn.Close()
		return fail(ErrSocketInUse, "another process listens on it; stop that one or choose another --socket")
	case errors.Is(err, fs.ErrPermission):
		return fail(err, "this user may not open it; run as its owner or choose another --socket")
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fail(err, "whether somebody listens on it cannot be told: %v", err)
	}
	if err := os.Remove(path); err != nil {
		return fail(err, "nobody listens on it and it cannot be removed: %v", err)
	}
	return nil
}
