// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "the seed that TestReplay runs")
	optFlag   = flag.String("opt", "", "what TestReplay is bounded by, as Options.String writes it")
	seedsFlag = flag.Int("seeds", defaultSeeds(), "how many seeds TestSimulation runs; SIGNET_SIM_SEEDS in the environment says so as well")
)

func defaultSeeds() int {
	if n, err := strconv.Atoi(os.Getenv("SIGNET_SIM_SEEDS")); err == nil && n > 0 {
		return n
	}
	return 2000
}

// mutationSeeds is how many seeds a mutation has to be noticed in at most.
const mutationSeeds = 20_000

// TestMain spends memory rather than time on garbage: runs make a lot of it.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// runSeeds runs seeds 1 to n on all processors, and stops after the first failures.
func runSeeds(n int, opt Options, enough int) (total Stats, ran int, failed []uint64) {
	var next, bad atomic.Int64
	var mu sync.Mutex
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for seed := next.Add(1); seed <= int64(n) && bad.Load() < int64(enough); seed = next.Add(1) {
				r := Run(uint64(seed), opt)
				mu.Lock()
				total.Add(r.Stats)
				ran++
				if len(r.Violations) > 0 {
					bad.Add(1)
					failed = append(failed, uint64(seed))
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.Sort(failed)
	return total, ran, failed
}

func summary(ran int, s Stats, failed int) string {
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(s.Faults)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", k, s.Faults[k]))
	}
	return fmt.Sprintf("%d seeds, %.1f virtual hours, %d revisions, %d failovers (%d cold), %d transactions, %d unknown, %d barriers, %d deposed; "+
		"%d requests, %d allocated, %d released, %d purged, %d created, %d collected, %d reused, %d refused for want of numbers, %d acknowledgements, %d nodes forgotten; longest settling %v; %d violations; faults: %s",
		ran, s.Time.Hours(), s.Revisions, s.Failovers(ran), s.Cold, s.Transactions, s.Unknown, s.Barriers, s.Deposed,
		s.Requests, s.Allocated, s.Released, s.Purged, s.Created, s.Collected, s.Reused, s.Exhausted, s.Acks, s.Forgotten, s.Settle, failed, strings.Join(kinds, ", "))
}

func TestSimulation(t *testing.T) {
	n := *seedsFlag
	if testing.Short() {
		n = min(n, 200)
	}
	began := time.Now()
	total, ran, failed := runSeeds(n, Options{}, 10)
	t.Logf("%s; %v", summary(ran, total, len(failed)), time.Since(began).Round(time.Millisecond))
	for i, seed := range failed {
		report(t, seed, Options{}, i == 0)
	}
}

// Every seed with edits by hand: what they did not touch stays as it has to be.
func TestSimulation_edits(t *testing.T) {
	n := *seedsFlag / 20
	total, ran, failed := runSeeds(n, Options{Profile: Hand}, 10)
	t.Log(summary(ran, total, len(failed)))
	for i, seed := range failed {
		report(t, seed, Options{Profile: Hand}, i == 0)
	}
}

// report runs a failed seed again, with a trace. The first one is shrunk before.
func report(t *testing.T, seed uint64, opt Options, first bool) {
	t.Helper()
	if first {
		opt, _ = Shrink(seed, opt)
	}
	opt.Trace = true
	r := Run(seed, opt)
	if len(r.Violations) == 0 {
		t.Errorf("seed %d failed once and not again: a run is not deterministic", seed)
		return
	}
	if first {
		t.Log(strings.Join(r.Trace[max(0, len(r.Trace)-60):], "\n"))
	}
	t.Errorf("seed %d: %v\nreplay: %s", seed, r.Violations[0], ReplayCommand(seed, opt))
}

// TestReplay runs the seed that -seed names, with its whole trace.
func TestReplay(t *testing.T) {
	if *seedFlag == 0 {
		t.Skip("no -seed")
	}
	opt, err := ParseOptions(*optFlag)
	if err != nil {
		t.Fatal(err)
	}
	opt.Trace = true
	r := Run(*seedFlag, opt)
	t.Log("\n" + strings.Join(r.Trace, "\n"))
	t.Log(summary(1, r.Stats, len(r.Violations)))
	for _, v := range r.Violations {
		t.Error(v)
	}
}

func TestRun_isDeterministic(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		a, b := Run(seed, Options{Trace: true}), Run(seed, Options{Trace: true})
		if !slices.Equal(a.Trace, b.Trace) {
			t.Errorf("seed %d ran in two ways", seed)
		}
	}
}
