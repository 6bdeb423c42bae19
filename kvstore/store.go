// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"context"
	"errors"
	"time"
)

// KV is one key as the store holds it.
type KV struct {
	Key            string
	Value          []byte
	CreateRevision int64
	ModRevision    int64
	Version        int64
	Lease          int64 // 0: none
}

// Target is what a Compare looks at.
type Target uint8

// The targets.
const (
	CompareCreate Target = iota + 1 // create revision (0: absent)
	CompareMod                      // mod revision (0: absent)
	CompareValue
)

// Compare is one condition of a Txn. With RangeEnd set it holds when every key
// in [Key, RangeEnd) satisfies it (so "create revision = 0" over a prefix holds
// exactly when no key is there).
type Compare struct {
	Key, RangeEnd string
	Target        Target
	Op            byte // '=', '>' or '<'
	Revision      int64
	Value         []byte
}

// Action is one operation of a Txn's branch: a put (Put), a deletion (Delete) or a read (neither).
type Action struct {
	Put, Delete   bool
	Key, RangeEnd string
	Value         []byte
	Lease         int64
	Limit         int64 // reads: at most so many keys; 0: all
	KeysOnly      bool  // reads: neither values nor leases
}

// Txn is a transaction in etcd's form.
type Txn struct {
	If   []Compare
	Then []Action
	Else []Action
}

// TxnResult answers a Txn: which branch ran, at which revision, and for each
// Action of that branch the keys read (empty for puts and deletions).
type TxnResult struct {
	Succeeded bool
	Revision  int64
	Reads     [][]KV
}

// RangeRequest reads [Key, RangeEnd) in ascending order, or one key when RangeEnd is empty.
type RangeRequest struct {
	Key, RangeEnd string
	Revision      int64 // 0: the newest, linearizable
	Limit         int64 // 0: all
	KeysOnly      bool  // neither values nor leases (etcd 3.7 answers from its index)
	Serializable  bool
}

// RangeResult answers a RangeRequest. Revision is the header's: the store's
// head when the read was served.
type RangeResult struct {
	KVs      []KV
	More     bool
	Revision int64
}

// Event is one change of a key. For a deletion KV holds the key and, as
// ModRevision, the revision of the deletion.
type Event struct {
	Delete bool
	KV     KV
}

// WatchBatch is what a watch delivered at once: all events of the revisions it
// covers, or (no events) progress: everything up to Revision has been delivered.
// Err ends the watch; CompactRevision is set when compaction overtook it.
type WatchBatch struct {
	Events          []Event
	Revision        int64 // of the last event; without events the header's
	Created         bool  // first answer; Revision is the store's head at creation
	Err             error
	CompactRevision int64
}

// WatchRequest follows [Key, RangeEnd) from Revision on, with require-leader.
type WatchRequest struct {
	Key, RangeEnd string
	Revision      int64
}

// Store is the part of etcd that Signet uses. Real is Etcd; package fake has
// the one modelled store. Both pass the same suite.
//
// Errors: ErrUnknownOutcome wraps an error of Txn after which the transaction
// may still land. ErrCompacted: the revision asked for is compacted.
// ErrLeaseNotFound: the lease does not exist. ErrTooLarge: the store's limits
// refuse the request as it is. Other errors of Txn are definite: nothing landed.
type Store interface {
	Txn(ctx context.Context, txn Txn) (TxnResult, error)
	Range(ctx context.Context, r RangeRequest) (RangeResult, error)
	// Watch opens a watch; the channel is closed after a batch with Err, or once ctx ends.
	Watch(ctx context.Context, r WatchRequest) <-chan WatchBatch
	// RequestProgress asks that every open watch of this Store report its progress.
	RequestProgress(ctx context.Context) error
	// Grant makes a lease with this TTL.
	Grant(ctx context.Context, ttl time.Duration) (lease int64, err error)
	// KeepAlive renews a lease once and returns the TTL that the store granted.
	KeepAlive(ctx context.Context, lease int64) (ttl time.Duration, err error)
	Revoke(ctx context.Context, lease int64) error
	Close() error
}

// The typed errors of a Store.
var (
	// ErrUnknownOutcome: the transaction may have landed, or may land later.
	ErrUnknownOutcome = errors.New("the outcome of the transaction is unknown")
	// ErrCompacted: the revision asked for has been compacted away.
	ErrCompacted = errors.New("the revision is compacted")
	// ErrLeaseNotFound: the lease does not exist, or has ended.
	ErrLeaseNotFound = errors.New("the lease does not exist")
	// ErrTooLarge: the request exceeds a limit of the store (ops or bytes).
	ErrTooLarge = errors.New("the request exceeds a limit of the store")
)
