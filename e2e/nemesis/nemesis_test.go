// SPDX-License-Identifier: Apache-2.0

package nemesis

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// How a run is when nobody says.
const (
	defaultRun  = 20 * time.Second
	pinClients  = 8
	callers     = agentCount
	settleLimit = 90 * time.Second
)

func dial(target string) (*grpc.ClientConn, error) {
	return grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
}

// wanted reads how long to run, and the seed.
func wanted(t *testing.T) (lasts time.Duration, seed uint64) {
	t.Helper()
	lasts, seed = defaultRun, rand.Uint64N(1<<32)
	if text := os.Getenv("SIGNET_NEMESIS"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatalf("SIGNET_NEMESIS: %v", err)
		}
	}
	if text := os.Getenv("SIGNET_NEMESIS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SIGNET_NEMESIS_SEED: %v", err)
		}
	}
	return lasts, seed
}

// TestNemesis runs the whole cluster under faults, heals it, and judges.
func TestNemesis(t *testing.T) {
	needNemesis(t)
	lasts, seed := wanted(t)
	t.Logf("seed %d; replay: SIGNET_NEMESIS=%s SIGNET_NEMESIS_SEED=%d go test ./e2e/nemesis -run TestNemesis -v", seed, lasts, seed)
	s := newScene(t)
	s.join(seed, pinClients, callers)
	ctx, stopCompacting := context.WithCancel(t.Context())
	defer stopCompacting()
	go s.compact(ctx)
	began := time.Now()
	stop := s.work()
	s.hurt(makePlan(seed, lasts))
	healed := time.Now()
	s.converge()
	converged := time.Since(healed)
	stop()
	s.settle(settleLimit)
	s.whole()
	stopCompacting()
	v := s.judge()
	for _, text := range s.said {
		t.Logf("a fault could not be done: %s", text)
	}
	t.Logf("nemesis: seed %d, %.0f s of faults, %.1f s until it had converged, %d calls, %d unknown outcomes, faults: %s; "+
		"%d failovers, %d revisions, %d objects (%d undecided), %d sets excused; violations %d, not linearizable %d, not explained %d",
		seed, healed.Sub(began).Seconds(), converged.Seconds(), v.calls, v.unknown, s.faultCounts(),
		v.terms-1, s.Recorder.History.Revision(), v.objects, v.undecided, v.excused, v.violations, v.illegal, v.faults)
}
