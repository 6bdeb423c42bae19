// SPDX-License-Identifier: Apache-2.0

// Package kvstore is all that speaks to etcd, and the only place that spells
// or parses a key (DESIGN.md section 4).
//
// Layout turns the typed keys and operations of package allocator into keys,
// values and compares. Etcd is the real Store; package embedded starts one in
// this process; package fake models one for the simulator. Election, Mirror
// and Presence are state machines without I/O or clock, each with a thin
// driver beside it that runs it against a Store.
package kvstore
