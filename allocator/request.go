// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

// AllocateRequest asks for a label set's number and a reference for Holder.
type AllocateRequest struct {
	Labels labels.Set
	Holder string
	// GivenUpHold is the hold of a Release that got no answer; 0: none.
	GivenUpHold int64
}

// Allocation answers an AllocateRequest.
type Allocation struct {
	Identity Identity
	Hold     int64 // mod revision of the caller's reference; 0 for reserved numbers
	Created  bool  // the number was taken from the pool by this call
	Position Position
}

// ReleaseRequest gives a reference back. Hold 0 means any, and is for pins only.
type ReleaseRequest struct {
	Labels labels.Set
	Holder string
	Hold   int64
}

// Released answers a ReleaseRequest. Done is false when there was no reference.
type Released struct {
	Done     bool
	Position Position
}

// AddressClaim is one address that a node publishes with a number it references.
type AddressClaim struct {
	Address    Address // as stored; Address.ID is the number, Metadata is set by the core
	Labels     string  // label set text of the number
	EndpointID string
}

// PublishRequest writes and withdraws a node's addresses. Withdraw lists
// addresses as they stand in the key.
type PublishRequest struct {
	Node     string
	Put      []AddressClaim
	Withdraw []string
}

// PublishResult is the fate of one item; Err is nil when it is done.
type PublishResult struct {
	Address string
	Err     *Error
}

// Published answers a PublishRequest: one result for each Put, then one for each Withdraw.
type Published struct {
	Results  []PublishResult
	Position Position
}

// LeaveRequest releases everything that a node holds.
type LeaveRequest struct {
	Node     string
	Instance string
}

// Left answers a LeaveRequest.
type Left struct {
	References, Addresses int
}

// ForgetRequest deletes a gone mark: nobody waits for that node any more.
type ForgetRequest struct{ Node string }

// HelloRequest opens a node's session: what it holds, and how far it has come.
type HelloRequest struct {
	Node     string
	Instance string
	Position Position
	Pairs    []HeldPair
	Complete bool
	Version  string
}

// HeldPair is a label set with the number that a node uses for it.
type HeldPair struct {
	Labels         string
	Number         identity.Number
	Hold           int64
	CreateRevision int64
	Counter        uint64
}

// Welcome answers a HelloRequest with every reference of the node.
type Welcome struct {
	Position Position
	Holds    []HeldPair
	Recovery bool
}

// AckRequest says that a node's agent has applied everything up to Position,
// kernel effects and deferred clearing included. It gets no reply.
type AckRequest struct {
	Node     string
	Instance string
	Position Position
}

// State is where an identity stands in its life.
type State uint8

// The states.
const (
	// Live: it has a master and no idle mark.
	Live State = iota + 1
	// Idle: it has a master and an idle mark.
	IdleState
	// Quarantined: freed; the number may go back to the same label set only.
	Quarantined
	// Free: the number may be handed out.
	Free
)

// String returns the state's word as users see it.
func (s State) String() string {
	return [...]string{"", "live", "idle", "quarantined", "free"}[s]
}

// Holder is one reference of an identity.
type Holder struct {
	Name  string
	Hold  int64 // mod revision of the reference
	Lease int64 // a foreign allocator's lease; 0: ours
}

// Identity is a label set with its number, as a view shows it.
type Identity struct {
	Number         identity.Number
	Labels         string // label set text
	State          State
	Holders        []Holder // sorted by name
	CreateRevision int64    // the master's; of a freed number, its birth's
	Revision       int64    // the master's mod revision; of a freed number, when it was freed
	IdleSince      Time     // zero: not idle
	Freed          Time     // zero: not freed
}

// NodeInfo is a node that is present or gone.
type NodeInfo struct {
	Name       string
	Presence   *Presence // nil: gone
	GoneSince  Time
	References int
	Addresses  int
	// Acknowledged is how far the node's agent said that it has come.
	Acknowledged Position
}

// AddressInfo is a published address.
type AddressInfo struct {
	Key      string // as it stands in the key
	Pair     Address
	Revision int64
}
