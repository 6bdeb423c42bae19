// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"errors"
	"time"
)

// CallKind is what a machine asks of the store.
type CallKind uint8

// The kinds of calls.
const (
	CallTxn       CallKind = iota + 1 // Txn
	CallRange                         // Range
	CallGrant                         // TTL
	CallKeepAlive                     // Lease
	CallRevoke                        // Lease
	CallWatch                         // Watch; answered by many Answers under one id
	CallCancel                        // ends the watch with id Target; not answered
	CallProgress                      // asks all watches for progress
)

// Call is one request of a machine (Election, Mirror, Presence) to the store.
// A driver carries it out and hands the Answer with the same ID to Step. It
// answers within Timeout, with an error if need be; a machine counts a call
// that stays silent longer as failed.
type Call struct {
	ID      uint64
	Kind    CallKind
	Txn     Txn
	Range   RangeRequest
	Watch   WatchRequest
	Lease   int64
	TTL     time.Duration
	Target  uint64
	Timeout time.Duration // 0: none
}

// Answer is what became of a Call. Err is set when it failed; otherwise the
// field of the call's kind is.
type Answer struct {
	ID    uint64
	Err   error
	Txn   TxnResult
	Range RangeResult
	Lease int64         // of a CallGrant
	TTL   time.Duration // of a CallKeepAlive: what the store granted
	Batch WatchBatch    // of a CallWatch; the last one has Batch.Err
}

// Never is the Wake of a machine that waits for no time.
const Never = time.Duration(1<<63 - 1)

// errSilent stands for an answer that did not come within the call's Timeout.
var errSilent = errors.New("the store did not answer in time")

// calls gives out ids and gathers what Ready returns.
type calls struct {
	last uint64
	out  []Call
}

func (c *calls) send(call Call) uint64 {
	c.last++
	call.ID = c.last
	c.out = append(c.out, call)
	return call.ID
}

func (c *calls) cancel(watch uint64) {
	if watch != 0 {
		c.send(Call{Kind: CallCancel, Target: watch})
	}
}

func (c *calls) take() []Call {
	out := c.out
	c.out = nil
	return out
}

// pending is the one call of its sort that is in flight. The zero value: none.
type pending struct {
	id       uint64
	sent     time.Duration
	deadline time.Duration
}

func (c *calls) ask(now time.Duration, call Call) pending {
	return pending{id: c.send(call), sent: now, deadline: now + call.Timeout}
}

// silent says that the call is in flight and past its time.
func (p pending) silent(now time.Duration) bool { return p.id != 0 && now >= p.deadline }

// wake is when the call counts as failed.
func (p pending) wake() time.Duration {
	if p.id == 0 {
		return Never
	}
	return p.deadline
}
