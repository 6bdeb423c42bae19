// SPDX-License-Identifier: Apache-2.0

package nemesis

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signet-identity/signet/e2e/harness"
)

// How often TestScenario_L08 stops a leader, and in how many more rounds what
// it had sent comes late.
const (
	stops      = 3
	lateRounds = 2
)

// TestScenario_L08_StoppedLeaderWritesNothing stops leaders under load for
// longer than their election TTL, and lets them go on once another leads. What
// a deposed one would write is refused by the fence or not even sent; calls
// fail over; every number that was acknowledged is right.
func TestScenario_L08_StoppedLeaderWritesNothing(t *testing.T) {
	needNemesis(t)
	_, seed := wanted(t)
	t.Logf("seed %d", seed)
	s := &scene{World: harness.New(t, binary)}
	s.members = []*member{{client: strings.TrimPrefix(s.Endpoints[0], "http://")}}
	for i := range operatorCount {
		s.operators = append(s.operators, s.Operator(fmt.Sprintf("op-%d", i), s.linked(), operatorTimes()...))
	}
	s.AwaitReady(s.operators...)
	s.join(seed, pinClients, 0)
	stop := s.work()
	rng, stale := rand.New(rand.NewPCG(seed, 1)), 0.0
	for range stops {
		stale += s.stopLeader(time.Duration(rng.Int64N(int64(500 * time.Millisecond))))
	}
	stop()
	for range lateRounds {
		stale += s.lateWrites(s.work())
	}
	s.AwaitReady(s.operators...)
	s.settle(settleLimit)
	v := s.judge()
	if v.terms <= stops+lateRounds {
		t.Errorf("%d terms, want more than %d", v.terms, stops+lateRounds)
	}
	t.Logf("stopped leaders: %d stops, %d terms, %d calls, %d unknown outcomes, %.0f stale writes refused; violations %d, not linearizable %d, not explained %d",
		stops+lateRounds, v.terms, v.calls, v.unknown, stale, v.violations, v.illegal, v.faults)
}

// stopLeader is one round: it stops the leader after some load. It returns how
// many stale writes were refused.
func (s *scene) stopLeader(after time.Duration) float64 {
	s.T.Helper()
	was := s.Leader(s.operators...)
	time.Sleep(after)
	return s.deposed(was, func() {
		from := s.log.now()
		s.Until("calls fail over", func(context.Context) bool { return s.answeredSince(from) > 20 })
	})
}

// lateWrites is one round in which what the leader sends is held back on its
// way. It reaches the store when another leads and all is quiet, and must
// change nothing.
func (s *scene) lateWrites(stop func()) float64 {
	s.T.Helper()
	was := s.Leader(s.operators...)
	from := s.log.now()
	s.Until("the load runs", func(context.Context) bool { return s.answeredSince(from) > 20 })
	way := s.links[slices.Index(s.operators, was)][0]
	way.up.set(true, 0)
	time.Sleep(500 * time.Millisecond) // what clients ask for now is on its way
	return s.deposed(was, func() {
		stop()
		var before string
		quiet := func(ctx context.Context) bool {
			before = s.references(ctx)
			time.Sleep(time.Second)
			return s.references(ctx) == before
		}
		s.Until("all is quiet", quiet)
		quiesced := before
		way.heal() // the store has it within moments, and tells nobody what it refused
		if !quiet(context.Background()) || before != quiesced {
			s.T.Errorf("a deposed leader changed the references, from\n%s\nto\n%s", quiesced, s.references(context.Background()))
		}
	})
}

// deposed stops a leader, waits for another, does something meanwhile, and lets
// the first go on until it knows. It returns how many of its writes were refused.
func (s *scene) deposed(was *harness.Operator, meanwhile func()) float64 {
	s.T.Helper()
	lost, stale := s.metric(was, "leadership_lost_total"), s.metric(was, "stale_writes_rejected_total")
	if err := was.Pause(); err != nil {
		s.T.Fatal(err)
	}
	next := s.Leader(slices.DeleteFunc(slices.Clone(s.operators), func(o *harness.Operator) bool { return o == was })...)
	meanwhile()
	if err := was.Continue(); err != nil {
		s.T.Fatal(err)
	}
	s.Until(was.Name+" knows that it was deposed", func(context.Context) bool {
		return s.metric(was, "leadership_lost_total") > lost
	})
	refused := s.metric(was, "stale_writes_rejected_total") - stale
	s.T.Logf("%s was stopped, %s took over; stale writes refused %.0f", was.Name, next.Name, refused)
	return refused
}

// references lists all references with their holds.
func (s *scene) references(ctx context.Context) string {
	s.T.Helper()
	var b strings.Builder
	for _, kv := range s.Keys(ctx, s.Layout.References()) {
		fmt.Fprintf(&b, "%s %s %d\n", kv.Key, kv.Value, kv.ModRevision)
	}
	return b.String()
}

// answeredSince counts allocations and releases with an answer that began after from.
func (s *scene) answeredSince(from time.Duration) int {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	n := 0
	for _, o := range s.log.ops {
		if o.call > from && !o.unknown && (o.kind == allocate || o.kind == release) {
			n++
		}
	}
	return n
}

// metric reads one of an operator's counters; 0: it is not there.
func (s *scene) metric(o *harness.Operator, name string) float64 {
	s.T.Helper()
	r, err := http.Get("http://" + o.Metrics + "/metrics")
	if err != nil {
		return 0
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0
	}
	var v float64
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "signet_operator_"+name+" "); ok {
			fmt.Sscan(rest, &v)
		}
	}
	return v
}
