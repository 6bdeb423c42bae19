// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"errors"
	"fmt"

	"github.com/signet-identity/signet/allocator"
)

// KeyError is a key that cannot be spelled or that is none of Signet's.
type KeyError struct {
	Key    string // as stored, or as allocator.Key renders it
	Reason string
	// Unknown: the key lies in no table that Signet knows. Readers pass over
	// such a key; a key that is malformed inside a known table is counted.
	Unknown bool
}

// Error implements error.
func (e *KeyError) Error() string { return fmt.Sprintf("key %q: %s", e.Key, e.Reason) }

// MalformedError is a key of a known table whose text or value is not what
// Signet writes or reads there. Readers skip the key and count it.
type MalformedError struct {
	Key    string // as stored
	Reason string
}

// Error implements error.
func (e *MalformedError) Error() string {
	return fmt.Sprintf("key %q is malformed: %s", e.Key, e.Reason)
}

// ValueError is a value that must not be written under a key.
type ValueError struct {
	Key    allocator.Key
	Reason string
}

// Error implements error.
func (e *ValueError) Error() string { return fmt.Sprintf("value of %s: %s", e.Key, e.Reason) }

// Further typed errors of a Store.
var (
	// ErrFutureRevision: the revision asked for lies beyond the store's head.
	ErrFutureRevision = errors.New("the revision lies beyond the store's head")
	// ErrDuplicateKey: a transaction writes one key twice in one branch.
	ErrDuplicateKey = errors.New("the transaction writes one key twice")
)

// ErrEmptyKey: a request names no key.
var ErrEmptyKey = errors.New("the request names no key")
