// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"slices"
	"time"

	"github.com/signet-identity/signet/kvstore"
)

// lease is a lease and the keys that hang on it.
type lease struct {
	id      int64
	ttl     time.Duration
	expires time.Duration
	keys    map[string]bool
	granted int64 // head when it was granted
	ended   int64 // head when it had ended; 0: it lives
}

// Grant makes a lease. A TTL is rounded up to whole seconds and to the store's
// shortest one.
func (m *Model) Grant(ttl, now time.Duration) (int64, error) {
	ttl = max(ttl, m.limits.MinTTL)
	ttl = (ttl + time.Second - 1).Truncate(time.Second)
	m.granted++
	id := int64(scramble(m.seed+m.granted) >> 1)
	m.leases[id] = &lease{id: id, ttl: ttl, expires: now + ttl, keys: map[string]bool{}, granted: m.revision}
	return id, nil
}

// scramble spreads its argument over 64 bits, one to one (the finaliser of
// splitmix64), so that ids look as unrelated as etcd's.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// KeepAlive renews a lease and returns its TTL. A lease whose time has passed
// is gone, whether or not Expire has been called since.
func (m *Model) KeepAlive(id int64, now time.Duration) (time.Duration, error) {
	l := m.leases[id]
	if l == nil || l.expires <= now {
		return 0, kvstore.ErrLeaseNotFound
	}
	l.expires = now + l.ttl
	return l.ttl, nil
}

// Revoke ends a lease and deletes its keys at one new revision.
func (m *Model) Revoke(id int64) error {
	l := m.leases[id]
	if l == nil {
		return kvstore.ErrLeaseNotFound
	}
	delete(m.leases, id)
	m.ended = append(m.ended, l)
	keys := make([]string, 0, len(l.keys))
	for key := range l.keys {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	w := writer{m: m, revision: m.revision + 1}
	for _, key := range keys {
		w.run(kvstore.Action{Delete: true, Key: key})
	}
	if w.wrote {
		m.revision = w.revision
	}
	l.ended = m.revision
	return nil
}

// Expire revokes every lease whose time has passed, the earliest first, and
// returns their ids.
func (m *Model) Expire(now time.Duration) []int64 {
	var due []*lease
	for _, l := range m.leases {
		if l.expires <= now {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *lease) int {
		if a.expires != b.expires {
			return int(a.expires - b.expires)
		}
		return int(min(1, max(-1, a.id-b.id)))
	})
	ids := make([]int64, 0, len(due))
	for _, l := range due {
		ids = append(ids, l.id)
		_ = m.Revoke(l.id) // it is there: it was just listed
	}
	return ids
}

// NextExpiry is when the next lease ends unless it is renewed.
func (m *Model) NextExpiry() (at time.Duration, any bool) {
	for _, l := range m.leases {
		if !any || l.expires < at {
			at, any = l.expires, true
		}
	}
	return at, any
}

// Leases lists the living leases in ascending order.
func (m *Model) Leases() []int64 {
	ids := make([]int64, 0, len(m.leases))
	for id := range m.leases {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (m *Model) detach(kv kvstore.KV) {
	if l := m.leases[kv.Lease]; l != nil {
		delete(l.keys, kv.Key)
	}
}
