// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"
	"slices"
	"strings"

	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// Status is everything at a glance: an operator's view and the node's.
type Status struct {
	// State is ok, degraded, or unavailable when no operator answers.
	State    string    `json:"state"`
	Operator *Operator `json:"operator"` // null: none answers
	Agent    *Agent    `json:"agent"`    // null: none on this node
	Findings []Finding `json:"findings"` // worst last
}

// Operator is what one operator says.
type Operator struct {
	Version  string            `json:"version"`
	Replica  string            `json:"replica"`
	Ready    bool              `json:"ready"`
	Cluster  Cluster           `json:"cluster"`
	Store    Store             `json:"store"`
	Election Election          `json:"election"`
	Numbers  Numbers           `json:"numbers"`
	Sweep    Sweep             `json:"sweep"`
	Nodes    Nodes             `json:"nodes"`
	Loops    []Loop            `json:"loops"`
	Refusals map[string]uint64 `json:"refusals"`
	Lineage  Position          `json:"lineage"`
}

// Cluster is whose numbers they are.
type Cluster struct {
	Name                 string `json:"name"`
	ID                   uint32 `json:"id"`
	MaxConnectedClusters uint32 `json:"max_connected_clusters"`
	LocalBits            uint32 `json:"local_bits"`
	Min                  uint32 `json:"min"`
	Max                  uint32 `json:"max"`
}

// Store is etcd as the operator sees it.
type Store struct {
	Endpoints []string `json:"endpoints"`
	Applied   int64    `json:"applied"`
	Head      int64    `json:"head"`
	Malformed uint64   `json:"malformed"`
	Relists   uint64   `json:"relists"`
}

// Election is who leads.
type Election struct {
	Role                string `json:"role"` // follower, candidate or leader
	Leader              string `json:"leader"`
	LeaderAddress       string `json:"leader_address"`
	Epoch               int64  `json:"epoch"`
	Barriers            uint64 `json:"barriers"`
	StaleWritesRejected uint64 `json:"stale_writes_rejected"`
}

// Numbers counts the cluster's range.
type Numbers struct {
	Live        uint64 `json:"live"`
	Idle        uint64 `json:"idle"`
	Quarantined uint64 `json:"quarantined"`
	Free        uint64 `json:"free"`
	Capacity    uint64 `json:"capacity"`
	References  uint64 `json:"references"`
}

// Nodes counts nodes and their addresses.
type Nodes struct {
	Present   uint32 `json:"present"`
	Gone      uint32 `json:"gone"`
	Addresses uint32 `json:"addresses"`
}

// Sweep is how the collection stands. Counts are since the replica started.
type Sweep struct {
	MarkedIdle       uint64 `json:"marked_idle"`
	Collected        uint64 `json:"collected"`
	PurgedReferences uint64 `json:"purged_references"`
	PurgedAddresses  uint64 `json:"purged_addresses"`
	NodesMarkedGone  uint64 `json:"nodes_marked_gone"`
	IdleWaiting      uint64 `json:"idle_waiting"`
	GoneWaiting      uint64 `json:"gone_waiting"`
	LastSuccessMS    int64  `json:"last_success_ms"` // age; -1: none yet
	ServedS          int64  `json:"served_s"`
	NodeGraceS       int64  `json:"node_grace_s"`
	IdentityGraceS   int64  `json:"identity_grace_s"`
	QuarantineS      int64  `json:"quarantine_s"`
}

// Loop is one loop with the age of its last success.
type Loop struct {
	Name          string `json:"name"`
	LastSuccessMS int64  `json:"last_success_ms"` // -1: none yet
	Error         string `json:"error,omitempty"`
}

func loops(in []*signetv1.LoopStatus) []Loop {
	out := NewList(in, func(l *signetv1.LoopStatus) Loop {
		return Loop{Name: l.GetName(), LastSuccessMS: l.GetLastSuccessMs(), Error: l.GetError()}
	}).Items
	slices.SortFunc(out, func(a, b Loop) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// NewSweep makes the view of the collection.
func NewSweep(s *signetv1.SweepStatus) Sweep {
	return Sweep{MarkedIdle: s.GetMarkedIdle(), Collected: s.GetCollected(), PurgedReferences: s.GetPurgedReferences(),
		PurgedAddresses: s.GetPurgedAddresses(), NodesMarkedGone: s.GetNodesMarkedGone(), IdleWaiting: s.GetIdleWaiting(),
		GoneWaiting: s.GetGoneWaiting(), LastSuccessMS: s.GetLastSuccessMs(), ServedS: s.GetServedS(), NodeGraceS: s.GetNodeGraceS(),
		IdentityGraceS: s.GetIdentityGraceS(), QuarantineS: s.GetQuarantineS()}
}

// NewOperator makes the view of an operator's status.
func NewOperator(s *signetv1.StatusResponse) *Operator {
	c, st, e, n := s.GetCluster(), s.GetStore(), s.GetElection(), s.GetNumbers()
	return &Operator{
		Version: s.GetVersion(), Replica: s.GetReplica(), Ready: s.GetReady(),
		Cluster: Cluster{Name: c.GetName(), ID: c.GetId(), MaxConnectedClusters: c.GetMaxConnectedClusters(),
			LocalBits: c.GetLocalBits(), Min: c.GetMin(), Max: c.GetMax()},
		Store: Store{Endpoints: list(st.GetEndpoints()), Applied: st.GetApplied(), Head: st.GetHead(), Malformed: st.GetMalformed(), Relists: st.GetRelists()},
		Election: Election{Role: e.GetRole(), Leader: e.GetLeader(), LeaderAddress: e.GetLeaderAddress(), Epoch: e.GetEpoch(),
			Barriers: e.GetBarriers(), StaleWritesRejected: e.GetStaleWritesRejected()},
		Numbers: Numbers{Live: n.GetLive(), Idle: n.GetIdle(), Quarantined: n.GetQuarantined(), Free: n.GetFree(),
			Capacity: n.GetCapacity(), References: n.GetReferences()},
		Sweep:    NewSweep(s.GetSweep()),
		Nodes:    Nodes{Present: s.GetNodesPresent(), Gone: s.GetNodesGone(), Addresses: s.GetAddresses()},
		Loops:    loops(s.GetLoops()),
		Refusals: counts(s.GetRefusals()), Lineage: position(s.GetLineage()),
	}
}

func counts(in map[string]uint64) map[string]uint64 {
	if in == nil {
		return map[string]uint64{}
	}
	return maps.Clone(in)
}

// Agent is what the node's agent says.
type Agent struct {
	Version        string            `json:"version"`
	Node           string            `json:"node"`
	Instance       string            `json:"instance"`
	Ready          bool              `json:"ready"`
	Datapath       string            `json:"datapath"`
	DatapathDetail string            `json:"datapath_detail"`
	Endpoints      uint32            `json:"endpoints"`
	IPCache        IPCache           `json:"ipcache"`
	PresenceLease  string            `json:"presence_lease"`
	Loops          []Loop            `json:"loops"`
	Refusals       map[string]uint64 `json:"refusals"`
	Lineage        Position          `json:"lineage"`
}

// IPCache is the filling of the address maps, in entries.
type IPCache struct {
	Entries  uint32 `json:"entries"`
	Wanted   uint32 `json:"wanted"`
	Capacity uint32 `json:"capacity"`
	Pending  uint32 `json:"pending"`
}

// NewAgent makes the view of an agent's status.
func NewAgent(s *signetv1.AgentStatusResponse) *Agent {
	return &Agent{Version: s.GetVersion(), Node: s.GetNode(), Instance: s.GetInstance(), Ready: s.GetReady(),
		Datapath: s.GetDatapath(), DatapathDetail: s.GetDatapathDetail(), Endpoints: s.GetEndpoints(),
		IPCache:       IPCache{Entries: s.GetIpcacheEntries(), Wanted: s.GetIpcacheWanted(), Capacity: s.GetIpcacheCapacity(), Pending: s.GetIpcachePending()},
		PresenceLease: s.GetPresenceLease(), Loops: loops(s.GetLoops()), Refusals: counts(s.GetRefusals()), Lineage: position(s.GetLineage())}
}

// GC is how the collection stands, and whose counts they are.
type GC struct {
	Sweep
	Replica string `json:"replica"`
	Role    string `json:"role"` // counts of one that does not lead are old
}

// NewGC makes the view of the collection.
func NewGC(s *signetv1.StatusResponse) GC {
	return GC{Sweep: NewSweep(s.GetSweep()), Replica: s.GetReplica(), Role: s.GetElection().GetRole()}
}
