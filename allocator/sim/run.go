// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
)

// The times of every run: short, so that a run sees many of each.
const (
	electionTTL   = 2 * time.Second
	presenceTTL   = 2 * time.Second
	nodeGrace     = 6 * time.Second
	identityGrace = 6 * time.Second
	forgetAfter   = 15 * time.Second
	quarantine    = 6 * time.Second
	lineageEvery  = time.Second
)

// Violation is a broken invariant.
type Violation struct {
	Invariant allocator.Invariant
	Text      string
	At        time.Duration // virtual time
	Revision  int64
}

// String is the violation on one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s at %v, revision %d: %s", v.Invariant, v.At, v.Revision, v.Text)
}

// Stats counts what happened in a run, or in several.
type Stats struct {
	Time   time.Duration // virtual
	Settle time.Duration // virtual, from the end of the faults until all had converged; the longest
	Faults map[string]int

	Revisions, Terms, Deposed, Transactions, Barriers, Unknown int
	Requests, Allocated, Released, Refused                     int
	Created, Collected, Purged, Reused, Exhausted              int
	Acks, Forgotten, Cold                                      int // forgotten: without anybody's asking; terms of leaders that had not followed the store
}

// Failovers is how often a term began after another's end.
func (s Stats) Failovers(runs int) int { return s.Terms - runs }

// Add sums two runs.
func (s *Stats) Add(o Stats) {
	s.Time += o.Time
	s.Settle = max(s.Settle, o.Settle)
	if s.Faults == nil {
		s.Faults = map[string]int{}
	}
	for k, n := range o.Faults {
		s.Faults[k] += n
	}
	for _, p := range [][2]*int{
		{&s.Revisions, &o.Revisions}, {&s.Terms, &o.Terms}, {&s.Deposed, &o.Deposed}, {&s.Transactions, &o.Transactions},
		{&s.Barriers, &o.Barriers}, {&s.Unknown, &o.Unknown}, {&s.Requests, &o.Requests}, {&s.Allocated, &o.Allocated},
		{&s.Released, &o.Released}, {&s.Refused, &o.Refused}, {&s.Created, &o.Created}, {&s.Collected, &o.Collected},
		{&s.Purged, &o.Purged}, {&s.Reused, &o.Reused}, {&s.Exhausted, &o.Exhausted}, {&s.Acks, &o.Acks}, {&s.Forgotten, &o.Forgotten}, {&s.Cold, &o.Cold},
	} {
		*p[0] += *p[1]
	}
}

// Result is what a run showed. A run ends with its first violation.
type Result struct {
	Violations []Violation
	Stats      Stats
	Trace      []string // the last lines, if Options.Trace
}

// Run runs one cluster from a seed. The same seed and options give the same run.
func Run(seed uint64, opt Options) Result {
	w := newWorld(seed, opt.filled(seed))
	w.begin()
	w.run(w.opt.Broken)
	if w.failure == nil {
		w.calm()
		w.settle()
	}
	w.stats.Time, w.stats.Revisions = w.now, int(w.told)
	out := Result{Stats: w.stats}
	if w.failure != nil {
		out.Violations = append(out.Violations, *w.failure)
	}
	if w.trace != nil {
		out.Trace = w.trace.all()
	}
	return out
}

func newWorld(seed uint64, opt Options) *world {
	layout, err := kvstore.NewLayout("cilium", identity.DefaultClusterName)
	if err != nil {
		panic(err)
	}
	w := &world{opt: opt, random: rand.New(rand.NewPCG(seed, 7)), layout: layout,
		model: fake.NewModel(fake.Limits{}, seed), told: 1, stats: Stats{Faults: map[string]int{}}}
	if opt.Trace {
		w.trace = &trace{}
	}
	w.faults = w.chooseFaults()
	w.checker = newChecker(w)
	return w
}

// begin puts everybody into the world.
func (w *world) begin() {
	sets := w.labelSets(w.opt.Sets)
	for i := range w.opt.Candidates {
		w.addCandidate(fmt.Sprintf("op%d", i))
	}
	for i := range w.opt.Agents {
		w.addAgent(fmt.Sprintf("n%d", i), true, sets)
	}
	w.addAgent("pin-ann", false, sets)
	w.in(0, w.churn)
	w.in(time.Second, w.breakSomething)
}

// churn lets somebody want something else, every now and then.
func (w *world) churn() {
	if w.quiet {
		return
	}
	all := append(slices.Clone(w.agents), w.pins...)
	all[w.random.IntN(len(all))].toggle()
	w.in(w.between(20*time.Millisecond, 500*time.Millisecond), w.churn)
}

// labelSets are n label sets, of which the first two have the same start in the
// number space, and so the next two.
func (w *world) labelSets(n int) []labels.Set {
	space := w.coreConfig().Space
	var out []labels.Set
	first := map[identity.Number]string{}
	for i := 0; len(out) < n; i++ {
		name := fmt.Sprintf("k8s:app=a%d", i)
		s, err := labels.ParseSet(name)
		if err != nil {
			panic(err)
		}
		start := identity.Start(space, s.Text())
		if twin, ok := first[start]; ok && len(out) < 4 {
			t, _ := labels.ParseSet(twin)
			out = append(out, t, s)
		} else if len(out) >= 4 {
			out = append(out, s)
		}
		first[start] = name
	}
	return out[:n]
}

func (w *world) coreConfig() allocator.Config {
	space, err := identity.NewSpace(identity.DefaultClusterName, 0, 0, false)
	if err != nil {
		panic(err)
	}
	return allocator.Config{Space: space, Max: w.opt.limit(space), Quarantine: quarantine, NewCluster: true, NodeGrace: nodeGrace, IdentityGrace: identityGrace,
		ForgetAfter: forgetAfter, SweepInterval: time.Second, PresenceTTL: presenceTTL, ElectionTTL: electionTTL,
		LineageEvery: lineageEvery, MaxWaiting: 1000}
}

func commitConfig() commit.Config {
	cfg := commit.DefaultConfig()
	cfg.MaxOps = 48
	return cfg
}

func mustKey(l kvstore.Layout, k allocator.Key) string {
	s, err := l.Key(k)
	if err != nil {
		panic(err)
	}
	return s
}
