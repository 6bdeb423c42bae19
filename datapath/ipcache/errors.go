// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"errors"
	"fmt"
	"net/netip"
)

var (
	// ErrClosed is returned by every call after Close or Destroy.
	ErrClosed = errors.New("the ipcache is closed")

	// ErrRowsFull means that every row is in use, in grace or in quarantine:
	// raise the number of rows, or wait until rows are free again.
	ErrRowsFull = errors.New("no row is free: raise the number of rows, or wait for the quarantine to end")
)

// EntryError says why an entry was refused, and the way out.
type EntryError struct {
	Prefix netip.Prefix
	Reason string
}

// Error names the prefix and the reason.
func (e *EntryError) Error() string {
	return fmt.Sprintf("ipcache entry %s: %s", e.Prefix, e.Reason)
}

// PendingError is the part of a Reconcile that did not succeed.
type PendingError struct {
	Failing int   // entries that are left
	First   error // the error of one of them
}

// Error gives the count and one of the errors.
func (e *PendingError) Error() string {
	return fmt.Sprintf("%d ipcache entries are not realised and will be tried again: %v", e.Failing, e.First)
}

// Unwrap gives the error of one of the entries.
func (e *PendingError) Unwrap() error { return e.First }
