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
	lineageEvery  = time.Second
)

// Profile says what kind of run a seed gives.
type Profile uint8

// The profiles.
const (
	// BySeed: Hand for one seed in five, else Faults.
	BySeed Profile = iota
	// Faults: everything breaks, and nobody but Signet writes.
	Faults
	// Hand: in addition somebody edits keys past Signet. The invariants hold for
	// whatever that did not touch.
	Hand
)

// Options bound a run. The zero value of each field means its default.
type Options struct {
	Profile    Profile
	Candidates int           // operators; 3
	Agents     int           // nodes; 3
	Sets       int           // label sets that agents choose from; 6
	Broken     time.Duration // how long faults act; 20 s
	Settle     time.Duration // how long convergence may take after that; 60 s
	Trace      bool          // keep a trace, whether or not it fails

	mutation mutation
}

func (o Options) filled(seed uint64) Options {
	set := func(n *int, to int) {
		if *n == 0 {
			*n = to
		}
	}
	if o.Profile == BySeed {
		o.Profile = Faults
		if seed%5 == 4 {
			o.Profile = Hand
		}
	}
	set(&o.Candidates, 3)
	set(&o.Agents, 3)
	set(&o.Sets, 6)
	if o.Broken == 0 {
		o.Broken = 20 * time.Second
	}
	if o.Settle == 0 {
		o.Settle = 60 * time.Second
	}
	return o
}

func (o Options) hand() bool { return o.Profile == Hand }

// mutation takes a part of the protection away, to see that the checker notices.
type mutation struct {
	noFence       bool                                        // Work transactions without the fence's compares
	noBarrier     bool                                        // an unknown outcome counts as refused at once
	confirmAtOnce bool                                        // a repeated Allocate is answered without the fenced read
	strip         func(allocator.Op) allocator.Op             // what the store is asked to compare
	request       func(core *allocator.Core, request any) any // what reaches the core
}

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
	Created, Collected, Purged                                 int
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
		{&s.Purged, &o.Purged},
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
	w.checker = newChecker(w)
	w.faults = w.chooseFaults()
	return w
}

// begin puts everybody into the world.
func (w *world) begin() {
	sets := labelSets(w.opt.Sets)
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
func labelSets(n int) []labels.Set {
	space := coreConfig().Space
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

func coreConfig() allocator.Config {
	space, err := identity.NewSpace(identity.DefaultClusterName, 0, 0, false)
	if err != nil {
		panic(err)
	}
	return allocator.Config{Space: space, NewCluster: true, NodeGrace: nodeGrace, IdentityGrace: identityGrace,
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
