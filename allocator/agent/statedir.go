// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/uuid"
)

const (
	lockFile     = "lock"
	instanceFile = "instance"
)

// ErrSecondAgent: another agent uses the state folder.
var ErrSecondAgent = errors.New("another agent uses this state folder")

// StateDirError says why a state folder cannot be used.
type StateDirError struct {
	Dir    string
	Reason string
	cause  error
}

// Error names the folder, the reason and the way out.
func (e *StateDirError) Error() string { return fmt.Sprintf("state folder %s: %s", e.Dir, e.Reason) }

// Unwrap is the cause, ErrSecondAgent among them.
func (e *StateDirError) Unwrap() error { return e.cause }

// stateDir is the folder that an agent remembers things in, locked.
type stateDir struct {
	path     string
	lock     *os.File
	instance string // UUID that tells this agent from another one of the node's name
}

// openStateDir makes the folder if need be (0700), locks it and reads its
// instance. The error is a *StateDirError.
func openStateDir(path string) (*stateDir, error) {
	fail := func(reason string, err error) (*stateDir, error) {
		return nil, &StateDirError{Dir: path, Reason: fmt.Sprintf("%s: %v", reason, err), cause: err}
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fail("it cannot be made", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fail("its lock cannot be opened", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &StateDirError{Dir: path, cause: ErrSecondAgent,
				Reason: "another agent uses it; stop that one, or give this one a folder and a node name of its own"}
		}
		return fail("it cannot be locked", err)
	}
	d := &stateDir{path: path, lock: lock}
	if d.instance, err = readInstance(filepath.Join(path, instanceFile)); err != nil {
		lock.Close()
		return fail("the instance cannot be read or written", err)
	}
	return d, nil
}

// readInstance reads the instance, or makes one the first time.
func readInstance(file string) (string, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		id := uuid.NewString()
		return id, writeFile(file, []byte(id+"\n"))
	}
	if err != nil {
		return "", err
	}
	id, err := uuid.Parse(strings.TrimSpace(string(data)))
	if err != nil {
		return "", fmt.Errorf("%s holds no UUID; remove it to be taken for a new instance, which waits until the old one's presence has lapsed", file)
	}
	return id.String(), nil
}

// close gives the lock back.
func (d *stateDir) close() error { return d.lock.Close() }
