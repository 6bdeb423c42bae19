// SPDX-License-Identifier: Apache-2.0

// Package commit packs the core's operations into few fenced transactions,
// keeps several in flight, and turns unknown outcomes into known ones by a
// barrier (DESIGN.md sections 3 and 6). Committer is a state machine without
// I/O, clock or goroutine: Submit and Result go in, Ready comes out.
package commit

import "github.com/signet-identity/signet/allocator"

// Fence is what every transaction of a term compares: the own election key's
// mod revision equals Mod, and every key under the election prefix is at least
// as young as Epoch.
type Fence struct {
	Lease int64  // names the own election key
	Epoch int64  // create revision of the own election key
	Mod   int64  // mod revision of the own election key: the last barrier's
	Count uint64 // barriers written so far
}

// Kind says what a Transaction is.
type Kind uint8

// The kinds of transaction.
const (
	// Work commits ops.
	Work Kind = iota + 1
	// Barrier rewrites the own election key with Fence.Count+1 under a compare
	// of its mod revision with Fence.Mod; if that fails it reads the key. The
	// driver repeats it byte-identical until it is answered.
	Barrier
	// Settle reads the keys of ops whose outcome is unknown, at a revision at
	// or after the last barrier. It is a plain linearizable read.
	Settle
)

// Transaction is one request to the store.
type Transaction struct {
	ID    uint64
	Kind  Kind
	Fence Fence
	Ops   []allocator.Op // Work and Settle
}

// OwnKey is how the own election key stood in an answer.
type OwnKey struct {
	Present        bool
	CreateRevision int64
	ModRevision    int64
	Count          uint64
}

// Result is the answer to one Transaction.
//   - Unknown: no answer; a Work transaction may still land. Barriers and reads
//     are repeated by the driver instead.
//   - Succeeded: the Then branch ran at Revision. For Settle: the read was served.
//   - otherwise the Else branch ran: Own and Oldest show the election prefix,
//     Observed, for each op (Work and Settle), one entry for each guard and then
//     one for each write, in order.
//   - TooLarge: the store refuses the request as it is (too large, too many ops):
//     nothing landed.
type Result struct {
	ID        uint64
	Unknown   bool
	Succeeded bool
	Revision  int64
	Own       OwnKey
	Oldest    int64 // create revision of the oldest candidate; 0: none
	Observed  [][]allocator.Observed
	TooLarge  bool
}
