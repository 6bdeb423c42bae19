// SPDX-License-Identifier: Apache-2.0

package check

import (
	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/kvstore"
)

// Facts are the records of a store that stand alone.
type Facts struct {
	// Cluster and Lineage are nil when they are not there or cannot be read.
	Cluster *allocator.Cluster
	Lineage *allocator.Lineage
	// Clusters are the cluster ids that are bound, with the names they are bound to.
	Clusters map[uint32]string
}

// FactsOf reads the records of the layout's cluster.
func FactsOf(kvs []kvstore.KV, l kvstore.Layout) Facts {
	f := Facts{Clusters: map[uint32]string{}}
	for _, kv := range kvs {
		r, err := l.Decode(kv)
		if err != nil {
			continue
		}
		switch v := r.Value.(type) {
		case allocator.Cluster:
			f.Cluster = &v
		case allocator.Lineage:
			f.Lineage = &v
		case allocator.Text:
			f.Clusters[uint32(r.Key.Number)] = string(v)
		}
	}
	return f
}

// Position is where the lineage stands at a revision; zero without one.
func (f Facts) Position(revision int64) allocator.Position {
	p := allocator.Position{Revision: revision}
	if f.Lineage != nil {
		p.Counter = f.Lineage.Counter
		if n := len(f.Lineage.Terms); n > 0 {
			p.Nonce = f.Lineage.Terms[n-1].Nonce
		}
	}
	return p
}

// Continues says whether the store goes on from where p was taken: the same
// store, not restored to a state before it. A p without a nonce stands for a
// store without a lineage, of which nothing can be said.
func (f Facts) Continues(p allocator.Position) bool {
	if f.Lineage == nil {
		return p.Nonce == ""
	}
	return f.Lineage.Continues(p) || p.Nonce == ""
}
