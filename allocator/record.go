// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"strconv"

	"github.com/signet-identity/signet/allocator/identity"
)

// Value is what a key of the store holds, typed. The concrete types below are
// the whole list; package kvstore encodes and decodes them. The JSON ones use
// snake_case; times are Time. All are treated as immutable once made.
type Value interface{ isValue() }

// LabelSet is the value of a master: label set text.
type LabelSet string

// NumberValue is the value of a reference: the number in decimal.
type NumberValue identity.Number

// Text is the plain text of a key that holds nothing else (KindClusterID: the cluster's name).
type Text string

// Time is a moment as the store can tell it: a revision, and the served time
// in seconds (time that leaders counted while leading) last stored before it.
type Time struct {
	Revision int64 `json:"revision"`
	ServedS  int64 `json:"served_s"`
}

// Mark is the value of a gone or an idle mark.
type Mark struct {
	Since Time `json:"since"`
}

// Quarantine states of a tombstone.
const (
	// QuarantinePending: the number may go back to its own label set only.
	QuarantinePending = "pending"
	// QuarantineDone: every reader has let go; the number may go to other labels.
	QuarantineDone = "done"
)

// Tombstone is what is remembered of a freed number.
type Tombstone struct {
	Labels     string `json:"labels"`
	Born       Time   `json:"born"` // Revision is the master's create revision; ServedS is 0 when unknown
	Freed      Time   `json:"freed"`
	Quarantine string `json:"quarantine"` // QuarantinePending or QuarantineDone
}

// Presence is what a node says of itself under its lease.
type Presence struct {
	Node      string   `json:"node"`
	Addresses []string `json:"addresses"` // the node's own addresses
	Prefixes  []string `json:"prefixes"`  // the prefixes whose addresses it may publish
	Version   string   `json:"version"`
	TTLS      int64    `json:"ttl_s"`    // seconds
	Instance  string   `json:"instance"` // UUID kept in the agent's state folder
}

// Cluster is fixed at a cluster's birth; a mismatch is a hard error.
type Cluster struct {
	Name                 string `json:"name"`
	ID                   uint32 `json:"id"`
	MaxConnectedClusters uint32 `json:"max_connected_clusters"` // 255 or 511
	LocalBits            uint32 `json:"local_bits"`             // 16, 15 or (wide) 24
	Format               int    `json:"format"`                 // ClusterFormat
}

// ClusterFormat is the version of the stored formats that this code writes.
const ClusterFormat = 1

// Lineage is the record by which a restored store is recognised.
type Lineage struct {
	Counter uint64 `json:"counter"`  // +1 for each rewrite
	ServedS int64  `json:"served_s"` // seconds counted by leaders while leading
	Terms   []Term `json:"terms"`    // the last MaxTerms, oldest first
}

// Continues says whether a store with this lineage continues a view's: the
// view's nonce is listed with a last counter at or above the view's.
func (l Lineage) Continues(view Position) bool {
	for _, t := range l.Terms {
		if t.Nonce == view.Nonce {
			return t.Last >= view.Counter
		}
	}
	return false
}

// MaxTerms bounds Lineage.Terms.
const MaxTerms = 64

// Term is one leader's run of counters.
type Term struct {
	Nonce string `json:"nonce"`
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// Position is where a view stands in a store's history: the nonce and counter
// of the newest lineage it applied, and the revision.
type Position struct {
	Nonce    string `json:"nonce"`
	Counter  uint64 `json:"counter"`
	Revision int64  `json:"revision"`
}

// Candidate is the value of an election key.
type Candidate struct {
	Who     string `json:"who"`
	Address string `json:"address"` // gRPC address, host:port
	Version string `json:"version"`
	TTLS    int64  `json:"ttl_s"`   // seconds
	Barrier uint64 `json:"barrier"` // barriers written in this candidacy
}

// Address is Cilium's IP identity pair, byte for byte (CILIUM.md section 5).
// Mask is nil for hosts. Metadata carries the owner: signet:<cluster>:<node>:<endpoint id>.
type Address struct {
	IP                string      `json:"IP"`
	Mask              []byte      `json:"Mask"`
	HostIP            string      `json:"HostIP"`
	ID                uint32      `json:"ID"`
	Key               uint8       `json:"Key"`
	Metadata          string      `json:"Metadata"`
	K8sNamespace      string      `json:"K8sNamespace,omitempty"`
	K8sPodName        string      `json:"K8sPodName,omitempty"`
	K8sServiceAccount string      `json:"K8sServiceAccount,omitempty"`
	NamedPorts        []NamedPort `json:"NamedPorts,omitempty"`
}

// NamedPort is a named port of an Address.
type NamedPort struct {
	Name     string `json:"Name"`
	Port     uint16 `json:"Port"`
	Protocol string `json:"Protocol"`
}

// Recovery is an open recovery window. Counter is the lineage counter that the
// store had when it was opened: an announced pair with a later one is of a
// history that the store has lost.
type Recovery struct {
	Since   Time   `json:"since"`
	Reason  string `json:"reason"`
	Counter uint64 `json:"counter"`
}

// Raw is the value of a key whose format belongs to a later room (settings,
// policies, foreign locks): kept as it is.
type Raw []byte

func (LabelSet) isValue()    {}
func (NumberValue) isValue() {}
func (Text) isValue()        {}
func (Mark) isValue()        {}
func (Tombstone) isValue()   {}
func (Presence) isValue()    {}
func (Cluster) isValue()     {}
func (Lineage) isValue()     {}
func (Candidate) isValue()   {}
func (Address) isValue()     {}
func (Recovery) isValue()    {}
func (Raw) isValue()         {}

// String is the decimal text that a reference holds.
func (n NumberValue) String() string { return strconv.FormatUint(uint64(n), 10) }

// Record is one key of the store as it stood at some revision.
type Record struct {
	Key            Key
	Value          Value
	CreateRevision int64
	ModRevision    int64
	Lease          int64 // 0: none
}

// Observed is what a read at a known revision showed of one key: present with
// its record, or absent (Record is nil).
type Observed struct {
	Key    Key
	Record *Record
}

// Batch is a step of a mirror: everything that happened in the watched
// prefixes up to Revision since the batch before. When Reset is set Records is
// the complete state at Revision (a list), and what it does not name is gone.
type Batch struct {
	Revision int64
	Reset    bool
	Records  []Record // puts, in order of revision
	Deleted  []Deleted
}

// Deleted is a deletion seen by a mirror.
type Deleted struct {
	Key      Key
	Revision int64
}
