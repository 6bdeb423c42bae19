// SPDX-License-Identifier: Apache-2.0

// Package sim runs whole clusters in virtual time, from a seed: operator
// candidates (election, mirror, core and committer, wired as the operator wires
// them), model agents with a presence, pins, and one modelled store. It breaks
// what can break between and inside them, and checks the invariants of
// DESIGN.md section 3 at every revision of the store.
//
// A run has two parts. While faults act, processes crash and stand still,
// requests and answers are lost, transactions land long after their sender gave
// up on them, leases end early, links are cut in one direction, history is
// compacted, and (in one run of five) somebody edits keys by hand. Then it grows
// quiet: everything has to converge within Options.Settle, or I11 is violated.
//
// The evidence for a violation is the store's own history and what clients were
// told, never what a core believes. Everything is one thread, and no map is
// walked where order matters: a seed gives the same run every time, so
//
//	go test ./allocator/sim -run TestReplay -seed=N -v
//
// repeats a failure and prints what led to it.
package sim
