// SPDX-License-Identifier: Apache-2.0

// Package allocator is the pure core of Signet: the state machine that decides
// which number a label set has, who holds it, and when it is collected.
//
// Core has no I/O, no clock and no goroutine. What happened goes in: batches
// from a mirror of the store (Apply), requests (Request, Cancel), outcomes of
// operations (Done), time (Tick) and terms of leadership (BeginTerm, EndTerm).
// What is to be done comes out of Ready: operations with their guards, replies,
// and the numbers whose picture changed. A Core that is not in a term only
// follows the store; that is what a warm standby is.
//
// The rule that keeps it simple: per label set there is a queue of requests and
// at most one operation in flight. Whatever the outcome of that operation, the
// core learns how the keys stand and decides again from the table; it never
// remembers what it had meant to do. So a lost answer, a foreign write and a
// race all take the same path.
package allocator
