// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
)

// Answer turns the store's answer to Encode's transaction back into a Result.
// Of Observed each op has one entry for each guard and then for each write, in
// order, so entry i of an op belongs to its i-th guard or write. A key whose
// value is malformed is present nevertheless; its value is allocator.Raw.
func (l Layout) Answer(t commit.Transaction, r TxnResult) (commit.Result, error) {
	out := commit.Result{ID: t.ID, Succeeded: r.Succeeded, Revision: r.Revision}
	switch {
	case t.Kind == commit.Settle:
		out.Succeeded = true
		return l.observe(out, t.Ops, r.Reads)
	case t.Kind == commit.Barrier && r.Succeeded:
		out.Own = commit.OwnKey{
			Present: true, CreateRevision: t.Fence.Epoch,
			ModRevision: r.Revision, Count: t.Fence.Count + 1,
		}
		return out, nil
	case r.Succeeded:
		return out, nil
	}
	if len(r.Reads) == 0 {
		return commit.Result{}, fmt.Errorf("answer to transaction %d: it has no read of the election prefix", t.ID)
	}
	out.Own, out.Oldest = l.readCandidates(t.Fence, r.Reads[0])
	if t.Kind == commit.Barrier {
		return out, nil
	}
	return l.observe(out, t.Ops, r.Reads[FenceReads:])
}

// readCandidates finds the own key and the oldest candidate in the election
// prefix. An own key whose value is malformed has count 0: nobody wrote that.
func (l Layout) readCandidates(f commit.Fence, kvs []KV) (own commit.OwnKey, oldest int64) {
	for _, kv := range kvs {
		if oldest == 0 || kv.CreateRevision < oldest {
			oldest = kv.CreateRevision
		}
		if kv.Key != l.ElectionKey(f.Lease) {
			continue
		}
		own = commit.OwnKey{Present: true, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision}
		if r, err := l.Decode(kv); err == nil {
			own.Count = r.Value.(allocator.Candidate).Barrier
		}
	}
	return own, oldest
}

// observe fills in how the keys of ops stood.
func (l Layout) observe(out commit.Result, ops []allocator.Op, reads [][]KV) (commit.Result, error) {
	keys, err := l.reads(ops)
	if err != nil {
		return commit.Result{}, err
	}
	if len(reads) != len(keys.actions) {
		return commit.Result{}, fmt.Errorf("answer to transaction %d: it has %d reads of keys, %d were asked for", out.ID, len(reads), len(keys.actions))
	}
	out.Observed = make([][]allocator.Observed, len(ops))
	for i, op := range ops {
		for _, s := range subjects(op) {
			o := allocator.Observed{Key: s.key}
			if kvs := reads[keys.at[s]]; len(kvs) > 0 {
				o.Record = l.present(s, kvs[0])
			}
			out.Observed[i] = append(out.Observed[i], o)
		}
	}
	return out, nil
}

// present is the record of a key that is there, whatever it holds. Under a
// prefix the key found may be malformed itself; then it goes by the prefix's.
func (l Layout) present(s subject, kv KV) *allocator.Record {
	r, err := l.Decode(kv)
	if err == nil {
		return &r
	}
	k, keyErr := l.parse(kv.Key)
	if keyErr != nil {
		k = s.key
	}
	r = record(k, allocator.Raw(kv.Value), kv)
	return &r
}

// Run encodes t, asks the store, and turns what comes back into a Result. It
// returns an error only when the committer cannot be told: ctx ended before
// the transaction was sent, or the store answered with a definite error that
// concerns no single op (a lost lease, no rights). Nothing landed then, except
// for a Barrier or Settle, which the driver repeats in any case.
func (l Layout) Run(ctx context.Context, s Store, t commit.Transaction, who allocator.Candidate) (commit.Result, error) {
	txn, err := l.Encode(t, who)
	if err != nil {
		return commit.Result{}, err
	}
	r, err := s.Txn(ctx, txn)
	switch {
	case errors.Is(err, ErrUnknownOutcome):
		return commit.Result{ID: t.ID, Unknown: true}, nil
	case errors.Is(err, ErrTooLarge):
		return commit.Result{ID: t.ID, TooLarge: true}, nil
	case err != nil:
		return commit.Result{}, err
	}
	return l.Answer(t, r)
}
