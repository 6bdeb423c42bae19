// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/signet-identity/signet/kvstore"
)

// Clone is an independent copy.
func (m *Model) Clone() *Model {
	c := *m
	c.keys = slices.Clone(m.keys)
	c.log = slices.Clone(m.log)
	c.chains = make(map[string][]version, len(m.chains))
	for key, chain := range m.chains {
		c.chains[key] = slices.Clone(chain)
	}
	c.leases = make(map[int64]*lease, len(m.leases))
	for id, l := range m.leases {
		c.leases[id] = l.clone()
	}
	c.ended = make([]*lease, len(m.ended))
	for i, l := range m.ended {
		c.ended[i] = l.clone()
	}
	return &c
}

func (l *lease) clone() *lease {
	c := *l
	c.keys = maps.Clone(l.keys)
	return &c
}

// Restore is the store as a backup taken at revision rev brings it back at
// time now. Its leases are those that lived then, each with its whole TTL.
//
// With bump > 0 it is an official restore: the head lies bump above rev and
// everything before it counts as compacted. With bump 0 it is a plain one: the
// head is rev again, and new writes reuse revisions that once meant others.
// Lease ids that it grants differ from those granted before.
func (m *Model) Restore(rev, bump int64, now time.Duration) (*Model, error) {
	if rev > m.revision {
		return nil, kvstore.ErrFutureRevision
	}
	if rev < m.compacted {
		return nil, kvstore.ErrCompacted
	}
	c := m.Clone()
	c.revision = rev
	c.seed = scramble(c.seed + c.granted)
	c.cut(rev)
	c.restoreLeases(rev, now)
	if bump > 0 {
		c.revision += bump
		if err := c.Compact(c.revision); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// cut forgets everything younger than rev.
func (m *Model) cut(rev int64) {
	kept := m.keys[:0]
	for _, key := range m.keys {
		chain := m.chains[key]
		n := sort.Search(len(chain), func(i int) bool { return chain[i].kv.ModRevision > rev })
		if n == 0 {
			delete(m.chains, key)
			continue
		}
		m.chains[key] = chain[:n:n]
		kept = append(kept, key)
	}
	m.keys = kept
	end := sort.Search(len(m.log), func(i int) bool { return m.log[i].kv.ModRevision > rev })
	m.log = m.log[:end:end]
}

// restoreLeases brings back the leases that lived at rev.
func (m *Model) restoreLeases(rev int64, now time.Duration) {
	all := slices.Concat(slices.Collect(maps.Values(m.leases)), m.ended)
	m.leases, m.ended = map[int64]*lease{}, nil
	for _, l := range all {
		if l.granted <= rev && (l.ended == 0 || l.ended > rev) {
			l.ended, l.expires, l.keys = 0, now+l.ttl, map[string]bool{}
			m.leases[l.id] = l
		}
	}
	for _, key := range m.keys {
		if v := latest(m.chains[key], rev); v != nil && !v.deleted {
			if l := m.leases[v.kv.Lease]; l != nil {
				l.keys[key] = true
			}
		}
	}
}
