// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"github.com/signet-identity/signet/allocator/labels"
)

// The reserved numbers that have a meaning of their own. The aggregates occur
// in policy maps only.
const (
	Unknown Number = iota
	Host
	World
	Unmanaged
	Health
	Init
	RemoteNode
	KubeAPIServer
	Ingress
	WorldIPv4
	WorldIPv6
	AggregateCluster
	AggregateClusterMesh
	AggregateWorld
	AggregateRemoteNode
)

// Bounds of the reserved ranges, inclusive.
const (
	// MaxReserved ends the numbers that are never aggregated.
	MaxReserved Number = 99
	// MinWellKnown and MaxWellKnown bound the fixed numbers of well-known components.
	MinWellKnown Number = 100
	MaxWellKnown Number = 115
	// MinUserReserved and MaxUserReserved bound the numbers that a cluster's
	// configuration may name (fixed-identity-mapping).
	MinUserReserved Number = 128
	MaxUserReserved Number = 255
	// MinAllocated is the first number that a cluster with id 0 may allocate.
	MinAllocated Number = 256
)

// reservedNames holds the names of the numbers from 0 up.
var reservedNames = [...]string{
	Unknown:              "unknown",
	Host:                 "host",
	World:                "world",
	Unmanaged:            "unmanaged",
	Health:               "health",
	Init:                 "init",
	RemoteNode:           "remote-node",
	KubeAPIServer:        "kube-apiserver",
	Ingress:              "ingress",
	WorldIPv4:            "world-ipv4",
	WorldIPv6:            "world-ipv6",
	AggregateCluster:     "aggregate-cluster",
	AggregateClusterMesh: "aggregate-cluster-mesh",
	AggregateWorld:       "aggregate-world",
	AggregateRemoteNode:  "aggregate-remote-node",
}

// IsReserved reports whether n is 1 to 255: never allocated, never stored.
func (n Number) IsReserved() bool { return n > Unknown && n < MinAllocated }

// IsWellKnown reports whether n is the fixed number of a well-known component.
func (n Number) IsWellKnown() bool { return n >= MinWellKnown && n <= MaxWellKnown }

// IsUserReserved reports whether n is one that a cluster's configuration may name.
func (n Number) IsUserReserved() bool { return n >= MinUserReserved && n <= MaxUserReserved }

// IsAggregate reports whether n stands for a group of numbers in policy maps.
func (n Number) IsAggregate() bool { return n >= AggregateCluster && n <= AggregateRemoteNode }

// Name is the name of a reserved number, or its decimal form when it has none.
// It is for people; keys and values in the store take String.
func (n Number) Name() string {
	if int(n) < len(reservedNames) {
		return reservedNames[n]
	}
	return n.String()
}

// ReservedByName returns the reserved number of that name. "unknown" and names
// that are none give false, "cluster" too, which has no number any more.
func ReservedByName(name string) (Number, bool) {
	for n, known := range reservedNames {
		if known == name {
			return Number(n), Number(n) != Unknown
		}
	}
	return Unknown, false
}

// LabelsOf returns the label set of a reserved number that a workload or host
// can have; aggregates, unknown and unnamed numbers give false.
func LabelsOf(n Number) (labels.Set, bool) {
	if n == Unknown || n.IsAggregate() || int(n) >= len(reservedNames) {
		return labels.Set{}, false
	}
	ls := []labels.Label{{Source: labels.SourceReserved, Key: n.Name()}}
	if n == KubeAPIServer {
		ls = append(ls, labels.Label{Source: labels.SourceReserved, Key: RemoteNode.Name()})
	}
	s, err := labels.NewSet(ls...)
	return s, err == nil
}

// Lookup finds the fixed number of a label set. The zero Lookup knows the
// reserved numbers.
type Lookup struct {
	// UserReserved maps names to numbers between MinUserReserved and
	// MaxUserReserved; a label KeyFixedIdentity asks for one by name.
	UserReserved map[string]Number
	// NodesByAddress says that policies select nodes by their addresses (cidr
	// labels), so that a remote node has no fixed number.
	NodesByAddress bool
}

// ReservedForLabels is the zero Lookup's answer for a set.
func ReservedForLabels(s labels.Set) (Number, bool) {
	return Lookup{}.ForLabels(s.Labels())
}

// ForLabels returns the fixed number of these labels, if they have one. Only
// labels of the source "reserved" count; a label of any other source is never
// taken for one, whatever its key.
func (lk Lookup) ForLabels(ls []labels.Label) (Number, bool) {
	reserved := make(map[string]bool, 2)
	for _, l := range ls {
		if l.Key == labels.KeyFixedIdentity {
			n, ok := lk.UserReserved[l.Value]
			return n, ok && n.IsUserReserved()
		}
		if l.Source == labels.SourceReserved {
			reserved[l.Key] = true
		}
	}
	switch {
	case reserved[Host.Name()]:
		return Host, true
	case reserved[RemoteNode.Name()]:
		return lk.remoteNode(reserved)
	case len(ls) == 1 && len(reserved) == 1:
		return single(ls[0].Key)
	default:
		return Unknown, false
	}
}

func (lk Lookup) remoteNode(reserved map[string]bool) (Number, bool) {
	switch {
	case lk.NodesByAddress:
		return Unknown, false
	case reserved[KubeAPIServer.Name()]:
		return KubeAPIServer, true
	default:
		return RemoteNode, true
	}
}

func single(name string) (Number, bool) {
	n, ok := ReservedByName(name)
	return n, ok && !n.IsAggregate()
}
