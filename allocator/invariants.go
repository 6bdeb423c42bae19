// SPDX-License-Identifier: Apache-2.0

package allocator

// Invariant is the documented name of a promise (DESIGN.md section 3).
// Checkers report violations under these names.
type Invariant string

// The invariants.
const (
	// I1: one live number per label set in a cluster.
	I1 Invariant = "I1"
	// I2: one label set per live number.
	I2 Invariant = "I2"
	// I3: a number keeps its labels for life.
	I3 Invariant = "I3"
	// I4: a freed number goes to other labels only after its quarantine.
	I4 Invariant = "I4"
	// I5: an identity with a reference is never collected.
	I5 Invariant = "I5"
	// I6: every write of the leader is fenced by its own election key's mod
	// revision and by being the oldest candidate; an answer that asserts
	// liveness without a write is confirmed by a fenced read.
	I6 Invariant = "I6"
	// I7: a view only moves forward in (lineage, revision).
	I7 Invariant = "I7"
	// I8: a map entry's number was live at the revision the agent has applied.
	I8 Invariant = "I8"
	// I9: stored numbers lie in the own cluster's range; reserved ones are never stored.
	I9 Invariant = "I9"
	// I10: an acknowledged Allocate is durable with the caller's reference.
	I10 Invariant = "I10"
	// I11: once faults stop, everything converges without a restart.
	I11 Invariant = "I11"
	// I12: each refusal or loss is a typed error, a metric and a line in status.
	I12 Invariant = "I12"
)
