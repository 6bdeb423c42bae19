// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"

	"github.com/signet-identity/signet/allocator/identity"
)

// Kind says which table of the store a Key belongs to (DESIGN.md section 4).
type Kind uint8

// The kinds of keys. Only package kvstore knows how each one is spelled.
const (
	// KindMaster is the key from number to label set. Uses Number.
	KindMaster Kind = iota + 1
	// KindReference says that holder Name uses the label set Labels. Uses Labels and Name.
	KindReference
	// KindAddress is the pair of an address and a number. Name is the address as
	// Cilium spells it in the key: "10.0.0.1" or "10.0.0.0/24".
	KindAddress
	// KindPresence is the key a node keeps under its own lease. Uses Name.
	KindPresence
	// KindGone marks a node whose presence vanished. Uses Name.
	KindGone
	// KindIdle marks an identity without a reference. Uses Number.
	KindIdle
	// KindTombstone remembers a freed number. Uses Number.
	KindTombstone
	// KindLineage is the one record by which a restored store is recognised.
	KindLineage
	// KindCluster is the one record that names the cluster; fixed at birth.
	KindCluster
	// KindClusterID binds a cluster id (Number) to a cluster's name in a shared store.
	KindClusterID
	// KindRecovery is the one record of an open recovery window.
	KindRecovery
	// KindSetting is a pause or a staged change. Uses Name.
	KindSetting
	// KindPolicy is a stored policy. Uses Name.
	KindPolicy
	// KindElection is a candidate's key. Name is its lease in lower-case hex.
	KindElection
	// KindLock is a foreign allocator's lock of a label set. Uses Labels; Name is the lease in hex.
	KindLock
	// KindNumberLock is a foreign sweeper's lock of a number. Uses Number; Name is the lease in hex.
	KindNumberLock
	// KindKnown remembers that a node was present, until it has left or is
	// forgotten. Uses Name.
	KindKnown
)

var kindNames = [...]string{
	"", "master", "reference", "address", "presence", "gone", "idle", "tombstone", "lineage",
	"cluster", "cluster-id", "recovery", "setting", "policy", "election", "lock", "number-lock", "known",
}

// String returns the kind's word, for messages and logs.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}

// Key names one key of the store without spelling it. It is comparable, so it
// serves as a map key. Fields that its Kind does not use are zero.
type Key struct {
	Kind   Kind
	Number identity.Number
	Labels string // label set text
	Name   string
}

// String renders the key for messages: kind and identifying fields, not the store's spelling.
func (k Key) String() string {
	s := k.Kind.String()
	if k.Number != 0 {
		s += fmt.Sprintf(" %d", k.Number)
	}
	if k.Labels != "" {
		s += " " + k.Labels
	}
	if k.Name != "" {
		s += " " + k.Name
	}
	return s
}

// MasterKey is the key from number n to its label set.
func MasterKey(n identity.Number) Key { return Key{Kind: KindMaster, Number: n} }

// ReferenceKey says that holder uses the label set with this text.
func ReferenceKey(labels, holder string) Key {
	return Key{Kind: KindReference, Labels: labels, Name: holder}
}

// AddressKey is the pair of address, spelled as Cilium spells it in the key.
func AddressKey(address string) Key { return Key{Kind: KindAddress, Name: address} }

// PresenceKey is the key that node keeps under its own lease.
func PresenceKey(node string) Key { return Key{Kind: KindPresence, Name: node} }

// GoneKey marks node as gone.
func GoneKey(node string) Key { return Key{Kind: KindGone, Name: node} }

// KnownKey remembers that node was present.
func KnownKey(node string) Key { return Key{Kind: KindKnown, Name: node} }

// IdleKey marks number n as without a reference.
func IdleKey(n identity.Number) Key { return Key{Kind: KindIdle, Number: n} }

// TombstoneKey remembers the freed number n.
func TombstoneKey(n identity.Number) Key { return Key{Kind: KindTombstone, Number: n} }

// LineageKey is the key of the one Lineage record.
func LineageKey() Key { return Key{Kind: KindLineage} }

// ClusterKey is the key of the one Cluster record.
func ClusterKey() Key { return Key{Kind: KindCluster} }

// RecoveryKey is the key of the one Recovery record.
func RecoveryKey() Key { return Key{Kind: KindRecovery} }

// ClusterIDKey binds cluster id to a name in a shared store.
func ClusterIDKey(id uint32) Key {
	return Key{Kind: KindClusterID, Number: identity.Number(id)}
}
