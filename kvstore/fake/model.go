// SPDX-License-Identifier: Apache-2.0

// Package fake is the one modelled store. Model is etcd's data model as far as
// Signet relies on it: revisions, transactions, leases, history, compaction,
// restore. It has no goroutine and no clock, so a simulator can drive it step
// by step. Store wraps a Model as a kvstore.Store for unit tests.
package fake

import (
	"sort"
	"time"

	"github.com/signet-identity/signet/kvstore"
)

// Limits are the limits of a store; the zero value means etcd's defaults.
type Limits struct {
	Ops    int           // compares, or actions of one branch, in a transaction; 128
	Bytes  int           // size of a writing request; 1.5 MiB
	MinTTL time.Duration // shortest TTL that the store grants; 1 s
}

func (l Limits) filled() Limits {
	if l.Ops == 0 {
		l.Ops = 128
	}
	if l.Bytes == 0 {
		l.Bytes = 3 << 19
	}
	if l.MinTTL == 0 {
		l.MinTTL = time.Second
	}
	return l
}

// version is one state of a key; a tombstone has only key and mod revision.
type version struct {
	kv      kvstore.KV
	deleted bool
}

// Model is a store. It is not safe for concurrent use. Times are durations
// since a start that the caller chooses; they never go back.
type Model struct {
	limits    Limits
	revision  int64
	compacted int64
	keys      []string             // sorted; every key with a version
	chains    map[string][]version // by key, oldest first
	log       []version            // in order; nothing older than compacted
	leases    map[int64]*lease
	ended     []*lease // kept for Restore
	seed      uint64   // of lease ids
	granted   uint64
}

// NewModel makes an empty store, which like a new etcd stands at revision 1.
// seed decides the ids of its leases.
func NewModel(limits Limits, seed uint64) *Model {
	return &Model{
		limits:   limits.filled(),
		revision: 1,
		chains:   map[string][]version{},
		leases:   map[int64]*lease{},
		seed:     seed,
	}
}

// Revision is the store's head.
func (m *Model) Revision() int64 { return m.revision }

// Compacted is the revision of the last compaction; 0: none.
func (m *Model) Compacted() int64 { return m.compacted }

// Range reads keys as they stood at r.Revision, or at the head.
func (m *Model) Range(r kvstore.RangeRequest) (kvstore.RangeResult, error) {
	if r.Key == "" {
		return kvstore.RangeResult{}, kvstore.ErrEmptyKey
	}
	at := m.revision
	if r.Revision > 0 {
		at = r.Revision
	}
	if at > m.revision {
		return kvstore.RangeResult{}, kvstore.ErrFutureRevision
	}
	if at < m.compacted {
		return kvstore.RangeResult{}, kvstore.ErrCompacted
	}
	kvs := m.read(r.Key, r.RangeEnd, at)
	out := kvstore.RangeResult{Revision: m.revision}
	if r.Limit > 0 && int64(len(kvs)) > r.Limit {
		kvs, out.More = kvs[:r.Limit], true
	}
	out.KVs = present(kvs, r.KeysOnly)
	return out, nil
}

// read returns the keys in [key, end) as they stood at a revision.
func (m *Model) read(key, end string, at int64) []kvstore.KV {
	var out []kvstore.KV
	if end == "" {
		if v := latest(m.chains[key], at); v != nil && !v.deleted {
			out = append(out, v.kv)
		}
		return out
	}
	for i := sort.SearchStrings(m.keys, key); i < len(m.keys) && within(m.keys[i], key, end); i++ {
		if v := latest(m.chains[m.keys[i]], at); v != nil && !v.deleted {
			out = append(out, v.kv)
		}
	}
	return out
}

// latest is the newest version that is not younger than a revision.
func latest(chain []version, at int64) *version {
	for i := len(chain) - 1; i >= 0; i-- {
		if chain[i].kv.ModRevision <= at {
			return &chain[i]
		}
	}
	return nil
}

// within says whether k lies in [key, end), in etcd's reading of end: empty
// means the one key, "\x00" everything from key on.
func within(k, key, end string) bool {
	switch end {
	case "":
		return k == key
	case "\x00":
		return k >= key
	}
	return k >= key && k < end
}

// present copies keys for a reader, without values and leases if it wants none.
func present(kvs []kvstore.KV, keysOnly bool) []kvstore.KV {
	out := make([]kvstore.KV, len(kvs))
	for i, kv := range kvs {
		kv.Value = append([]byte(nil), kv.Value...)
		if keysOnly {
			kv.Value, kv.Lease = nil, 0
		}
		out[i] = kv
	}
	return out
}

// Compact forgets what only reads and watches before revision rev need.
func (m *Model) Compact(rev int64) error {
	if rev > m.revision {
		return kvstore.ErrFutureRevision
	}
	if rev <= m.compacted {
		return kvstore.ErrCompacted
	}
	m.compacted = rev
	kept := m.keys[:0]
	for _, key := range m.keys {
		chain := compactChain(m.chains[key], rev)
		if len(chain) == 0 {
			delete(m.chains, key)
			continue
		}
		m.chains[key] = chain
		kept = append(kept, key)
	}
	m.keys = kept
	from := sort.Search(len(m.log), func(i int) bool { return m.log[i].kv.ModRevision >= rev })
	m.log = append([]version(nil), m.log[from:]...)
	return nil
}

// compactChain drops the versions that nobody can read any more at rev or later.
func compactChain(chain []version, rev int64) []version {
	first := 0
	for i, v := range chain {
		if v.kv.ModRevision <= rev {
			first = i
		}
	}
	if chain[first].deleted && chain[first].kv.ModRevision <= rev {
		first++
	}
	return append([]version(nil), chain[first:]...)
}

// Events lists what happened in [key, end) from revision from on, oldest
// first; all events of a revision are there or none. compacted says that from
// lies before what is still known.
func (m *Model) Events(from int64, key, end string) (events []kvstore.Event, compacted bool) {
	if from < m.compacted {
		return nil, true
	}
	start := sort.Search(len(m.log), func(i int) bool { return m.log[i].kv.ModRevision >= from })
	for _, e := range m.log[start:] {
		if within(e.kv.Key, key, end) {
			kv := e.kv
			kv.Value = append([]byte(nil), kv.Value...)
			events = append(events, kvstore.Event{Delete: e.deleted, KV: kv})
		}
	}
	return events, false
}
