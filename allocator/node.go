// SPDX-License-Identifier: Apache-2.0

package allocator

import "strings"

// node is what the table knows of one node.
type node struct {
	name     string
	presence *Presence
	mod      int64 // presence's mod revision
	leased   bool  // the presence has a lease; one without counts as absent
	ttlS     int64 // TTL of the last presence seen, in seconds
	lapsed   bool  // a presence was there and vanished, and no mark says so yet
	gone     mark  // mod 0: no mark
	known    int64 // mod revision of the record that it was present; 0: none
	refs     map[string]bool
	addrs    map[string]bool

	absentSince seen // this leader's own observation of the absence
	busy        bool
	dirty       bool
	leaving     *request
	forgetting  *request
}

func newNode(name string) *node {
	return &node{name: name, refs: map[string]bool{}, addrs: map[string]bool{}}
}

func (n *node) appear(p Presence, r Record) {
	n.presence, n.mod, n.leased, n.ttlS = &p, r.ModRevision, r.Lease != 0, p.TTLS
	n.lapsed = false
	n.absentSince = seen{}
}

func (n *node) vanish() {
	if n.presence != nil {
		n.lapsed = true
	}
	n.presence, n.mod, n.leased = nil, 0, false
}

func (n *node) present() bool { return n.presence != nil && n.leased }

// empty says that nothing is known of the node any more.
func (n *node) empty() bool {
	return n.presence == nil && n.gone.mod == 0 && n.known == 0 && !n.lapsed && len(n.refs) == 0 && len(n.addrs) == 0 &&
		!n.busy && n.leaving == nil && n.forgetting == nil
}

// ownerMark is how the pair of an address names its owner.
const ownerMark = "signet:"

// ownerOf returns the node that owns the pair: cluster is fixed per table, the
// owner stands in Metadata as signet:<cluster>:<node>:<endpoint id>.
func (t *table) ownerOf(pair Address) string {
	rest, ok := strings.CutPrefix(pair.Metadata, ownerMark)
	if !ok {
		return ""
	}
	parts := strings.SplitN(rest, ":", 3)
	if len(parts) != 3 || parts[0] != t.cluster {
		return ""
	}
	return parts[1]
}
