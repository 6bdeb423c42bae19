// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"time"
)

// Code classifies an Error; each maps to one gRPC code.
type Code uint8

// The codes.
const (
	// InvalidArgument: the request can never succeed as it is.
	InvalidArgument Code = iota + 1
	// Exhausted: no number is left for a new label set.
	Exhausted
	// Unavailable: not now; try again, perhaps elsewhere.
	Unavailable
	// FailedPrecondition: the caller's picture is out of date (another hold, a node without presence).
	FailedPrecondition
	// NotFound: no such identity, node or endpoint.
	NotFound
	// PermissionDenied: the caller may not do this for that node or address.
	PermissionDenied
	// DeadlineExceeded: the caller's time ran out in the queue; nothing was written after that.
	DeadlineExceeded
)

// String returns the code's name in lower case with dashes, as it stands in metrics.
func (c Code) String() string {
	names := [...]string{"", "invalid-argument", "exhausted", "unavailable", "failed-precondition",
		"not-found", "permission-denied", "deadline-exceeded"}
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("code-%d", uint8(c))
}

// Error is a refusal of the core: what was refused and what to do.
type Error struct {
	Code    Code
	Field   string        // what is at fault: a label, a node, an address
	Message string        // one sentence that names the thing and the way out
	Retry   time.Duration // for Unavailable and Exhausted: when a retry makes sense; 0: no hint
	// Used and Limit are set for Exhausted: numbers in use or remembered, and the range's size.
	Used, Limit uint64
}

// Error implements error.
func (e *Error) Error() string { return e.Message }
