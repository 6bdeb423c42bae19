// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

// GetQuery names one identity: by Number when it is set, else by Labels.
type GetQuery struct {
	Number *identity.Number
	Labels labels.Set
	// MinRevision makes the answer wait until the view applied it; 0: no wait.
	MinRevision int64
	// Linearizable confirms with the store that nothing newer exists.
	Linearizable bool
}

// ListQuery asks for one page of identities.
type ListQuery struct {
	Selector     labels.Selector
	IncludeFreed bool
	After        identity.Number // numbers above this one
	Limit        int
	MinRevision  int64
}

// WatchKind says what a WatchEvent means.
type WatchKind uint8

// The kinds of watch events.
const (
	// WatchReset: a snapshot follows; what it does not name is gone.
	WatchReset WatchKind = iota + 1
	// WatchUpsert: Identity is new or changed.
	WatchUpsert
	// WatchDelete: Identity was freed.
	WatchDelete
	// WatchCurrent: everything up to Position was sent.
	WatchCurrent
)

// WatchEvent is one step of a watch. Identity is zero for Reset and Current.
type WatchEvent struct {
	Kind     WatchKind
	Identity Identity
	Position Position
}

// LookupRequest asks a leader for one identity, confirmed by a fenced read that
// began after the request came in. Exactly one field is set.
type LookupRequest struct {
	Number identity.Number
	Labels string // label set text
}

// Found answers a LookupRequest; OK is false when the store says nothing of it.
// The fenced read confirms the master; what else the identity shows is as the
// leader knows it. A commit whose answer is still on its way may lie before
// Confirmed, so who wants the whole of it waits for a view of that revision.
type Found struct {
	Identity  Identity
	OK        bool
	Position  Position
	Confirmed int64 // revision of the fenced read
}
