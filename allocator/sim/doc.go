// SPDX-License-Identifier: Apache-2.0

// Package sim runs whole clusters in virtual time, from a seed: operator
// candidates (election, mirror, core and committer, wired as the operator wires
// them), nodes (the real presence and mirror around a model of the agent and of
// what its kernel holds), pins, and one modelled store. It breaks what can break
// between and inside them, and checks the invariants of DESIGN.md section 3 at
// every revision of the store.
//
// A run has two parts. While faults act, processes crash and stand still, clocks
// run at half or double speed, requests and answers are lost, transactions land
// long after their sender gave up on them, leases end early or late, links are
// cut in one direction, history is compacted, nodes leave, stay away and are
// forgotten, all operators are down at once, and (in one run of five) somebody
// edits keys by hand. In two of five there are few numbers and many label sets,
// so that numbers are used again all the time. Then it grows quiet: everything
// has to converge within Options.Settle, or I11 is violated.
//
// The evidence for a violation is the store's own history, what clients were
// told and what the nodes' kernels hold, never what a core believes. Everything
// is one thread, and no map is walked where order matters: a seed gives the same
// run every time. A seed that fails is shrunk, and
//
//	go test ./allocator/sim -run TestReplay -v -args -seed=N -opt=...
//
// repeats what is left and prints what led to the violation.
package sim
