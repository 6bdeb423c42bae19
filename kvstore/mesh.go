// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"strings"

	"github.com/signet-identity/signet/allocator/identity"
)

// The keys below are what Cilium's cluster mesh reads beside the identities
// (CILIUM.md 4.1), and where mirrors of remote clusters are kept.

// Heartbeat is the key that shows peers that the store is alive.
func (l Layout) Heartbeat() string { return l.base + "/.heartbeat" }

// ClusterConfig is the key under which a cluster publishes its configuration.
func (l Layout) ClusterConfig(cluster string) string {
	return l.base + "/cluster-config/" + cluster
}

// Synced is the prefix of the canaries of a cluster.
func (l Layout) Synced(cluster string) string { return l.base + "/synced/" + cluster + "/" }

// SyncedTable is the canary that says: this table of a cluster is published
// whole. cached tables lie under cache/ instead of state/.
func (l Layout) SyncedTable(cluster string, t MeshTable, cached bool) string {
	tree := "/state/"
	if cached {
		tree = "/cache/"
	}
	return l.Synced(cluster) + l.base + tree + string(t)
}

// MeshTable is a table that a mesh publishes.
type MeshTable string

// The tables of a mesh.
const (
	MeshIdentities     MeshTable = "identities/v1"
	MeshAddresses      MeshTable = "ip/v1"
	MeshNodes          MeshTable = "nodes/v1"
	MeshServices       MeshTable = "services/v1"
	MeshEndpointSlices MeshTable = "endpointslices/v1"
	MeshServiceExports MeshTable = "serviceexports/v1"
)

// State is the prefix under which this cluster's own entries of a table lie.
func (l Layout) State(t MeshTable) string { return l.base + "/state/" + string(t) + "/" }

// Cache is the prefix under which the mirror of a remote cluster's table lies.
func (l Layout) Cache(t MeshTable, cluster string) string {
	return l.base + "/cache/" + string(t) + "/" + cluster + "/"
}

// MirrorElection is the prefix of the candidates who want to mirror a peer.
func (l Layout) MirrorElection(peer string) string {
	return l.own + "mirrors/" + peer + "/" + electionTable
}

// CachePrefix is the cached form of a state prefix: state under the base
// becomes cache, anything else stays as it is.
func (l Layout) CachePrefix(prefix string) string {
	if rest, ok := strings.CutPrefix(prefix, l.base+"/state"); ok {
		return l.base + "/cache" + rest
	}
	return prefix
}

// MetricScope is the short name of a key for metrics: the two elements that
// follow the base and the tree, "identities/v1" for the tables of identities.
// A key with fewer elements has the scope of what is there.
func (l Layout) MetricScope(key string) string {
	parts := strings.Split(key, "/")
	skip := strings.Count(l.base, "/") + 2
	if len(parts) <= skip {
		return ""
	}
	return strings.Join(parts[skip:min(len(parts), skip+2)], "/")
}

// AddressNumberAllowed says whether a mesh's readers take a pair with number n
// from the cluster with this space: one of its own range, or a reserved one
// (CILIUM.md 4.2).
func AddressNumberAllowed(s identity.Space, n identity.Number) bool {
	return n < identity.MinAllocated || s.Contains(n)
}
