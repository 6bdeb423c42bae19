// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"bytes"
	"cmp"
	"slices"
	"sort"

	"github.com/signet-identity/signet/kvstore"
)

// Txn runs a transaction whole, or returns an error and changes nothing.
func (m *Model) Txn(t kvstore.Txn) (kvstore.TxnResult, error) {
	if err := m.checkTxn(t); err != nil {
		return kvstore.TxnResult{}, err
	}
	out := kvstore.TxnResult{Succeeded: m.holds(t.If)}
	branch := t.Else
	if out.Succeeded {
		branch = t.Then
	}
	for _, a := range branch {
		if a.Put && a.Lease != 0 && m.leases[a.Lease] == nil {
			return kvstore.TxnResult{}, kvstore.ErrLeaseNotFound
		}
	}
	w := writer{m: m, revision: m.revision + 1}
	out.Reads = make([][]kvstore.KV, len(branch))
	for i, a := range branch {
		out.Reads[i] = w.run(a)
	}
	if w.wrote {
		m.revision = w.revision
	}
	out.Revision = m.revision
	return out, nil
}

// checkTxn refuses what etcd refuses before it looks at any key.
func (m *Model) checkTxn(t kvstore.Txn) error {
	if max(len(t.If), len(t.Then), len(t.Else)) > m.limits.Ops {
		return kvstore.ErrTooLarge
	}
	size, writes := 0, false
	for _, c := range t.If {
		if c.Key == "" {
			return kvstore.ErrEmptyKey
		}
		size += overhead + len(c.Key) + len(c.RangeEnd) + len(c.Value)
	}
	for _, branch := range [][]kvstore.Action{t.Then, t.Else} {
		for _, a := range branch {
			if a.Key == "" {
				return kvstore.ErrEmptyKey
			}
			writes = writes || a.Put || a.Delete
			size += overhead + len(a.Key) + len(a.RangeEnd) + len(a.Value)
		}
		if writesTwice(branch) {
			return kvstore.ErrDuplicateKey
		}
	}
	if writes && size > m.limits.Bytes {
		return kvstore.ErrTooLarge
	}
	return nil
}

// overhead is about what an element of a transaction takes beside its texts.
const overhead = 12

// writesTwice says whether a branch puts a key that it also puts or deletes
// elsewhere. Two deletions of one key are allowed.
func writesTwice(branch []kvstore.Action) bool {
	puts := map[string]bool{}
	for _, a := range branch {
		if a.Put && puts[a.Key] {
			return true
		}
		puts[a.Key] = puts[a.Key] || a.Put
	}
	for _, a := range branch {
		if !a.Delete {
			continue
		}
		for key, put := range puts {
			if put && within(key, a.Key, a.RangeEnd) {
				return true
			}
		}
	}
	return false
}

func (m *Model) holds(compares []kvstore.Compare) bool {
	return !slices.ContainsFunc(compares, func(c kvstore.Compare) bool { return !m.compare(c) })
}

// compare evaluates c over every key in its range. Where no key is, revisions
// compare as 0 and values never match.
func (m *Model) compare(c kvstore.Compare) bool {
	kvs := m.read(c.Key, c.RangeEnd, m.revision)
	if len(kvs) == 0 {
		return c.Target != kvstore.CompareValue && matches(c, kvstore.KV{})
	}
	return !slices.ContainsFunc(kvs, func(kv kvstore.KV) bool { return !matches(c, kv) })
}

func matches(c kvstore.Compare, kv kvstore.KV) bool {
	order := 0
	switch c.Target {
	case kvstore.CompareCreate:
		order = cmp.Compare(kv.CreateRevision, c.Revision)
	case kvstore.CompareMod:
		order = cmp.Compare(kv.ModRevision, c.Revision)
	case kvstore.CompareValue:
		order = bytes.Compare(kv.Value, c.Value)
	}
	switch c.Op {
	case '=':
		return order == 0
	case '>':
		return order > 0
	case '<':
		return order < 0
	}
	return false
}

// writer applies the actions of one revision; its reads see its own writes.
type writer struct {
	m        *Model
	revision int64
	wrote    bool
}

func (w *writer) run(a kvstore.Action) []kvstore.KV {
	switch {
	case a.Put:
		w.put(a)
		return nil
	case a.Delete:
		for _, kv := range w.m.read(a.Key, a.RangeEnd, w.revision) {
			w.remove(kv)
		}
		return nil
	}
	kvs := w.m.read(a.Key, a.RangeEnd, w.revision)
	if a.Limit > 0 && int64(len(kvs)) > a.Limit {
		kvs = kvs[:a.Limit]
	}
	return present(kvs, a.KeysOnly)
}

func (w *writer) put(a kvstore.Action) {
	kv := kvstore.KV{
		Key:            a.Key,
		Value:          append([]byte(nil), a.Value...),
		CreateRevision: w.revision,
		ModRevision:    w.revision,
		Version:        1,
		Lease:          a.Lease,
	}
	if old := latest(w.m.chains[a.Key], w.revision); old != nil && !old.deleted {
		kv.CreateRevision = old.kv.CreateRevision
		kv.Version = old.kv.Version + 1
		w.m.detach(old.kv)
	}
	if a.Lease != 0 {
		w.m.leases[a.Lease].keys[a.Key] = true
	}
	w.add(version{kv: kv})
}

func (w *writer) remove(kv kvstore.KV) {
	w.m.detach(kv)
	w.add(version{kv: kvstore.KV{Key: kv.Key, ModRevision: w.revision}, deleted: true})
}

func (w *writer) add(v version) {
	key := v.kv.Key
	if _, known := w.m.chains[key]; !known {
		at := sort.SearchStrings(w.m.keys, key)
		w.m.keys = slices.Insert(w.m.keys, at, key)
	}
	w.m.chains[key] = append(w.m.chains[key], v)
	w.m.log = append(w.m.log, v)
	w.wrote = true
}
