// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"testing"

	"github.com/signet-identity/signet/allocator"
)

// mustNotice runs seeds until one fails: the checker has to notice that a
// protection is off. The same seeds are green with it on (TestSimulation).
func mustNotice(t *testing.T, opt Options, want ...allocator.Invariant) {
	t.Helper()
	t.Parallel()
	_, ran, failed := runSeeds(mutationSeeds, opt, 1)
	if len(failed) == 0 {
		t.Fatalf("%d seeds noticed nothing", ran)
	}
	r := Run(failed[0], opt)
	t.Logf("seed %d of %d: %v", failed[0], ran, r.Violations[0])
	if !slices.Contains(want, r.Violations[0].Invariant) {
		t.Errorf("noticed as %s, expected is one of %v", r.Violations[0].Invariant, want)
	}
}

// The table of docs/correctness.md: each protection that is taken away.

func TestMutation_fenceOff(t *testing.T) {
	mustNotice(t, Options{mutation: mutation{noFence: true}}, allocator.I6)
}

func TestMutation_ownKeyNotCompared(t *testing.T) {
	mustNotice(t, Options{mutation: mutation{noOwnCompare: true}}, allocator.I6)
}

// No candidate that is told the truth leads while an older one stands, so the
// election has to overlook some; with the compare on, that does no harm.
func TestMutation_prefixNotCompared(t *testing.T) {
	mustNotice(t, Options{mutation: mutation{noPrefix: true, phantom: true}}, allocator.I6)
}

func TestPhantomLeadersWriteNothing(t *testing.T) {
	t.Parallel()
	total, ran, failed := runSeeds(*seedsFlag/10, Options{mutation: mutation{phantom: true}}, 1)
	if total.Faults["phantom leader"] == 0 {
		t.Error("there were none")
	}
	for _, seed := range failed {
		t.Errorf("seed %d: %v", seed, Run(seed, Options{mutation: mutation{phantom: true}}).Violations)
	}
	t.Logf("%d phantom leaders in %d seeds", total.Faults["phantom leader"], ran)
}

func TestMutation_noBarrier(t *testing.T) {
	mustNotice(t, Options{mutation: mutation{noBarrier: true}}, allocator.I6)
}

func TestMutation_acksIgnored(t *testing.T) {
	mustNotice(t, Options{Profile: Reuse, mutation: mutation{noAcks: true}}, allocator.I4, allocator.I8)
}

func TestMutation_marksInMemoryOnly(t *testing.T) {
	mustNotice(t, Options{mutation: mutation{marksInMemory: true}}, allocator.I11)
}

func TestMutation_wallClockInTheGraces(t *testing.T) {
	mustNotice(t, Options{mutation: mutation{wallClock: true}}, allocator.I4, allocator.I5, allocator.I7, allocator.I10)
}

// A late Release takes whatever reference stands.
func TestMutation_noHoldComparison(t *testing.T) {
	mustNotice(t, Options{mutation: mutation{request: anyHold, strip: without(allocator.VerbRelease, allocator.GuardRevision, allocator.KindReference)}}, allocator.I10)
}

// The core compares the hold, the transaction does not: an edit by hand between
// the two is overlooked.
func TestMutation_noHoldComparisonInTheStore(t *testing.T) {
	mustNotice(t, Options{Profile: Hand, mutation: mutation{strip: without(allocator.VerbRelease, allocator.GuardRevision, allocator.KindReference)}}, allocator.I10)
}

func TestMutation_collectWithoutLookingForReferences(t *testing.T) {
	mustNotice(t, Options{Profile: Hand, mutation: mutation{strip: without(allocator.VerbCollect, allocator.GuardEmpty, allocator.KindReference)}}, allocator.I5)
}

func TestMutation_purgeWithoutLookingForThePresence(t *testing.T) {
	if testing.Short() {
		t.Skip("takes hundreds of seeds")
	}
	mustNotice(t, Options{mutation: mutation{strip: without(allocator.VerbPurge, allocator.GuardAbsent, allocator.KindPresence)}}, allocator.I10)
}

func TestMutation_answersWithoutFencedRead(t *testing.T) {
	if testing.Short() {
		t.Skip("takes hundreds of seeds")
	}
	mustNotice(t, Options{mutation: mutation{confirmAtOnce: true}}, allocator.I10, allocator.I11, allocator.I12)
}

// without strips the guards of one kind on one kind of key from a verb's ops.
func without(verb allocator.Verb, kind allocator.GuardKind, key allocator.Kind) func(allocator.Op) allocator.Op {
	return func(op allocator.Op) allocator.Op {
		if op.Verb == verb {
			op.Guards = slices.DeleteFunc(slices.Clone(op.Guards), func(g allocator.Guard) bool {
				return g.Kind == kind && g.Key.Kind == key
			})
		}
		return op
	}
}

// anyHold lets a Release mean whatever hold stands.
func anyHold(core *allocator.Core, req any) any {
	r, ok := req.(allocator.ReleaseRequest)
	if !ok {
		return req
	}
	id, _ := core.ByLabels(r.Labels.Text())
	for _, h := range id.Holders {
		if h.Name == r.Holder {
			r.Hold = h.Hold
		}
	}
	return r
}
