// SPDX-License-Identifier: Apache-2.0

package nemesis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// faultKind is one way to hurt.
type faultKind string

const (
	killOperator faultKind = "kill-operator"
	killLeader   faultKind = "kill-leader"
	killAgent    faultKind = "kill-agent"
	killMember   faultKind = "kill-etcd"
	stopLeader   faultKind = "stop-leader"
	stopOperator faultKind = "stop-operator"
	stopAgent    faultKind = "stop-agent"
	stopMember   faultKind = "stop-etcd"
	cutBoth      faultKind = "cut"
	cutOneWay    faultKind = "cut-one-way"
	slowLink     faultKind = "slow-link"
	stepDown     faultKind = "step-down"
	moveLeader   faultKind = "move-etcd-leader"
	revokeLease  faultKind = "revoke-lease"
)

// weighted says how often a kind comes, and how long it may last at most.
type weighted struct {
	kind   faultKind
	weight int
	most   time.Duration
}

var weights = []weighted{
	{killOperator, 2, 2 * time.Second}, {killLeader, 3, 2 * time.Second}, {killAgent, 3, 2 * time.Second}, {killMember, 2, 3 * time.Second},
	{stopLeader, 4, 5 * time.Second}, {stopOperator, 1, 3 * time.Second}, {stopAgent, 2, 4 * time.Second}, {stopMember, 2, 3 * time.Second},
	{cutBoth, 4, 4 * time.Second}, {cutOneWay, 4, 4 * time.Second}, {slowLink, 3, 4 * time.Second},
	{stepDown, 2, 0}, {moveLeader, 2, 0}, {revokeLease, 3, 0},
}

// The cluster that plans are made for.
const (
	memberCount   = 3
	operatorCount = 3
	agentCount    = 5
	processCount  = operatorCount + agentCount
	allMembers    = memberCount // in fault.member
	recovery      = 2 * time.Second
	leastPause    = 200 * time.Millisecond
	mostPause     = 1200 * time.Millisecond
	leastFault    = 300 * time.Millisecond
)

// fault is one planned fault. target counts the operators, agents, members or
// (links) processes, operators first; a leader is looked up when it is time.
type fault struct {
	kind      faultKind
	at, lasts time.Duration
	target    int
	member    int // links: toward this one, or allMembers
	up        bool
	delay     time.Duration
}

func (f fault) String() string {
	return fmt.Sprintf("%v %s target %d member %d up %v delay %v for %v", f.at.Round(time.Millisecond), f.kind, f.target, f.member, f.up, f.delay, f.lasts.Round(time.Millisecond))
}

// object is what two faults at once must not share. Members share one, so that
// the quorum never goes; so do operators, of which a leader is found late.
func (f fault) object() string {
	switch f.kind {
	case killMember, stopMember, moveLeader:
		return "members"
	case killOperator, killLeader, stopOperator, stopLeader:
		return "operators"
	case killAgent, stopAgent:
		return fmt.Sprint("agent", f.target)
	case cutBoth, cutOneWay, slowLink:
		return fmt.Sprint("links", f.target)
	}
	return ""
}

// makePlan plans the faults of a run that lasts so long. All are over at its end.
func makePlan(seed uint64, lasts time.Duration) []fault {
	rng := rand.New(rand.NewPCG(seed, 1))
	busy := map[string]time.Duration{}
	var plan []fault
	for at := leastPause; at < lasts; at += leastPause + time.Duration(rng.Int64N(int64(mostPause-leastPause))) {
		f := draw(rng)
		f.at = at
		o := f.object()
		if busy[o] > at || at+f.lasts > lasts {
			continue
		}
		if o != "" {
			busy[o] = at + f.lasts + recovery
		}
		plan = append(plan, f)
	}
	return plan
}

func draw(rng *rand.Rand) fault {
	total := 0
	for _, w := range weights {
		total += w.weight
	}
	dice := rng.IntN(total)
	at := slices.IndexFunc(weights, func(w weighted) bool {
		dice -= w.weight
		return dice < 0
	})
	w := weights[at]
	f := fault{kind: w.kind, member: rng.IntN(memberCount + 1), up: rng.IntN(2) == 0}
	if w.most > 0 {
		f.lasts = leastFault + time.Duration(rng.Int64N(int64(w.most-leastFault)))
	}
	switch w.kind {
	case killOperator, stopOperator:
		f.target = rng.IntN(operatorCount)
	case killAgent, stopAgent:
		f.target = rng.IntN(agentCount)
	case killMember, stopMember:
		f.target = rng.IntN(memberCount)
	case cutBoth, cutOneWay:
		f.target = rng.IntN(processCount)
	case slowLink:
		f.target, f.delay = rng.IntN(processCount), time.Duration(20+rng.IntN(280))*time.Millisecond
	case revokeLease:
		f.target = rng.IntN(1 << 16)
	}
	return f
}

func TestPlan_isRepeatableAndKeepsTheQuorum(t *testing.T) {
	kinds := map[faultKind]int{}
	for seed := range uint64(200) {
		plan := makePlan(seed, 20*time.Second)
		if again := makePlan(seed, 20*time.Second); !slices.Equal(plan, again) {
			t.Fatalf("seed %d: two plans", seed)
		}
		end := time.Duration(0)
		for _, f := range plan {
			kinds[f.kind]++
			if f.at+f.lasts > 20*time.Second {
				t.Errorf("seed %d: %s ends late", seed, f)
			}
			if f.object() == "members" {
				if f.at < end {
					t.Errorf("seed %d: %s while another member is hurt", seed, f)
				}
				end = f.at + f.lasts
			}
		}
	}
	if len(kinds) != len(weights) {
		t.Errorf("of %d kinds the plans have %d: %v", len(weights), len(kinds), kinds)
	}
}
