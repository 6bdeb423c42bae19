// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"fmt"

	"github.com/signet-identity/signet/allocator/labels"
)

// Scope says where a number means something: the top byte of its 32 bits.
type Scope uint8

// The scopes.
const (
	// ScopeGlobal: stored numbers and reserved ones.
	ScopeGlobal Scope = 0x00
	// ScopeLocal: prefixes and names that one node numbers for itself.
	ScopeLocal Scope = 0x01
	// ScopeRemoteNode: other nodes, numbered by one node for itself.
	ScopeRemoteNode Scope = 0x02
)

// String names the scope.
func (s Scope) String() string {
	switch s {
	case ScopeGlobal:
		return "global"
	case ScopeLocal:
		return "local"
	case ScopeRemoteNode:
		return "remote-node"
	default:
		return fmt.Sprintf("scope-%#02x", uint8(s))
	}
}

// ScopeOf returns the scope of a number.
func ScopeOf(n Number) Scope { return Scope(n >> 24) }

// ScopeForLabels returns the scope of labels that have no fixed number (ask
// Lookup first): remote-node with the reserved label of that name, local with
// the reserved ingress label or when every label is of a source that nodes
// number for themselves (cidr, cidrgroup, fqdn, reserved), global otherwise.
// Only global label sets may be stored.
func ScopeForLabels(ls []labels.Label) Scope {
	ingress, local := false, len(ls) > 0
	for _, l := range ls {
		switch l.Source {
		case labels.SourceReserved:
			if l.Key == RemoteNode.Name() {
				return ScopeRemoteNode
			}
			ingress = ingress || l.Key == Ingress.Name()
		case labels.SourceCIDR, labels.SourceCIDRGroup, labels.SourceFQDN:
		default:
			local = false
		}
	}
	if ingress || local {
		return ScopeLocal
	}
	return ScopeGlobal
}

// StorableError is the refusal of a label set that must not get a number in the store.
type StorableError struct {
	Set   labels.Set
	Scope Scope
	// Number is the fixed number of the set, 0 if it has none.
	Number Number
}

// Error names the set and the reason.
func (e *StorableError) Error() string {
	if e.Number != Unknown {
		return fmt.Sprintf("label set %s: it has the fixed number %d (%s), which is never allocated or stored",
			labels.Quote(e.Set.Text()), e.Number, e.Number.Name())
	}
	return fmt.Sprintf("label set %s: its scope is %s, such sets are numbered by each node for itself and never stored; "+
		"add a label of another source, such as k8s:app=web", labels.Quote(e.Set.Text()), e.Scope)
}

// CheckStorable refuses, with *StorableError, a set that must not be allocated
// in the store: one with a fixed number, or one whose scope is not global, such
// as a set of reserved or cidr labels only.
func CheckStorable(s labels.Set) error {
	if n, ok := ReservedForLabels(s); ok {
		return &StorableError{Set: s, Number: n}
	}
	if scope := ScopeForLabels(s.Labels()); scope != ScopeGlobal {
		return &StorableError{Set: s, Scope: scope}
	}
	return nil
}
