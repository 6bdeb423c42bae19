// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"strings"
	"testing"
	"time"
)

func TestShrink_findsASmallerRunThatStillFails(t *testing.T) {
	t.Parallel()
	opt := Options{mutation: mutation{noFence: true}}
	_, _, failed := runSeeds(mutationSeeds, opt, 1)
	if len(failed) == 0 {
		t.Fatal("nothing failed that could be shrunk")
	}
	seed := failed[0]
	smaller, r := Shrink(seed, opt)
	if len(r.Violations) == 0 {
		t.Fatal("the smaller run does not fail")
	}
	full := opt.filled(seed)
	if smaller.Broken >= full.Broken || smaller.Sets >= full.Sets || len(smaller.Without) == 0 {
		t.Errorf("from %v to %v", full, smaller)
	}
	again := Run(seed, smaller)
	if len(again.Violations) == 0 || again.Violations[0] != r.Violations[0] {
		t.Errorf("run again: %v, before %v", again.Violations, r.Violations)
	}
	t.Logf("%s\n%v", ReplayCommand(seed, smaller), r.Violations[0])
}

// A run that does not fail is not shrunk.
func TestShrink_leavesAGoodRunAlone(t *testing.T) {
	t.Parallel()
	if opt, r := Shrink(1, Options{Broken: 3 * time.Second}); len(r.Violations) != 0 || opt.Broken != 3*time.Second || opt.Candidates != 0 {
		t.Errorf("%v, %v", opt, r.Violations)
	}
}

func TestOptions_areReadAsTheyAreWritten(t *testing.T) {
	for _, o := range []Options{
		{}, {Profile: Reuse}, {Profile: Hand, Candidates: 2, Agents: 1, Sets: 4, Numbers: 9, Broken: 7 * time.Second, Settle: time.Minute},
		{Without: []string{"late", "operator crash", "clocks"}},
	} {
		back, err := ParseOptions(o.String())
		if err != nil || back.String() != o.String() || strings.Contains(o.String(), " ") {
			t.Errorf("%q is read back as %q, %v", o, back, err)
		}
	}
	for _, bad := range []string{"profile=none", "sets=x", "broken=9", "what=1", "profile"} {
		if _, err := ParseOptions(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
