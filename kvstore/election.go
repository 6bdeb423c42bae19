// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"math/rand/v2"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
)

// ElectionConfig is what an Election needs to know.
type ElectionConfig struct {
	// Prefix of the candidates' keys, with the last slash: "signet/v1/default/election/".
	Prefix string
	// Candidate is what the own key says; TTLS and Barrier are filled in.
	Candidate allocator.Candidate
	// TTL of the lease that stands for the candidacy.
	TTL time.Duration
	// Margin: a leader stops acting at (send time of the last answered renewal)
	// + TTL − Margin. Default TTL/5, which covers an own clock down to 0.8 of
	// the rate of the store's, and any faster one; TTL/2 covers half the rate.
	// A clock slower than that, or one that stood still (a machine that slept),
	// can let a leader believe in itself for too long; it still cannot write,
	// since the fence (I6) does not depend on a clock.
	Margin time.Duration
	// Pause before campaigning again after a term ended in any other way than by
	// Resign. Default TTL/3. A quarter of it at most is added at random.
	Pause time.Duration
	// ProgressLimit: a leader without Progress for so long gives up its term. 0: no limit.
	ProgressLimit time.Duration
	// ResignLimit bounds how long a Resign tries to give the lease back. Default 5 s.
	ResignLimit time.Duration
}

func (c ElectionConfig) withDefaults() ElectionConfig {
	if c.Margin <= 0 {
		c.Margin = c.TTL / 5
	}
	if c.Pause <= 0 {
		c.Pause = c.TTL / 3
	}
	if c.ResignLimit <= 0 {
		c.ResignLimit = 5 * time.Second
	}
	c.Candidate.TTLS = int64((c.TTL + time.Second - 1) / time.Second)
	c.Candidate.Barrier = 0
	return c
}

// grantEvery is the least time between two grants of leases by one machine.
const grantEvery = time.Second

// Role says whether the owner of an Election may act as leader.
type Role uint8

// The roles.
const (
	RoleFollower Role = iota
	RoleLeader
)

// String returns the role's word.
func (r Role) String() string {
	if r == RoleLeader {
		return "leader"
	}
	return "follower"
}

// RoleChange is a step of the owner into or out of a term. Every RoleLeader is
// followed by exactly one RoleFollower before the next RoleLeader.
type RoleChange struct {
	Role   Role
	Fence  commit.Fence // of the term that begins or ends
	Reason string       // why the term ended; empty for RoleLeader
}

// ElectionReady is what Step left to do: first tell the owner of Changes (so
// that it stops acting before its lease is given back), then carry out Calls.
type ElectionReady struct {
	Changes []RoleChange
	Calls   []Call
	Wake    time.Duration // when Tick is due; Never: no time is waited for
	Stopped bool          // after Resign: nothing is left to do
}

// ElectionStatus is what an Election knows, for status and forwarding.
type ElectionStatus struct {
	Role  Role
	State string       // paused, granting, joining, waiting, leading, resigning, stopped
	Fence commit.Fence // while leading
	Lease int64        // the own lease; 0: none
	// Leader is the value of the oldest candidate's key, LeaderKey its key; empty when there is none.
	Leader    allocator.Candidate
	LeaderKey string
	// Stray is the oldest key under the prefix when it has no lease, else empty:
	// no candidate put it, it never goes away by itself, and while it stands
	// nobody can lead.
	Stray string
	// Candidates counts the keys under the prefix.
	Candidates int
	// OtherTTL counts the candidates whose TTL differs from the own one.
	OtherTTL int
	// Age is the time since the store last answered anything.
	Age time.Duration
	// Terms won, own keys or leases lost, and the last reason for a loss.
	Won, Lost uint64
	Reason    string
}

type electionState uint8

const (
	electionPaused    electionState = iota // no lease; grants one at e.at
	electionGranting                       // a grant is in flight
	electionJoining                        // the lease is there, the own key not yet
	electionWaiting                        // the own key is there, an older one too (or not yet confirmed otherwise)
	electionLeading                        // the own key was the oldest in a linearizable list
	electionResigning                      // gives the lease back, for good
	electionStopped
)

func (s electionState) String() string {
	return [...]string{"paused", "granting", "joining", "waiting", "leading", "resigning", "stopped"}[s]
}

// Election is a candidate among others for the leadership, as a state machine
// without I/O or clock: Step, Tick and the inputs go in, Ready comes out. Time
// is any monotonic clock.
//
// A candidate puts a key of its own under a lease of its own. It leads while
//
//	its own key is there ∧ no other key under the prefix has a lower create revision
//
// was shown by a linearizable list in this term, and nothing has been heard
// since that speaks against it. It never leads without its own key, and it
// notices the loss of its key or lease in every state.
type Election struct {
	calls
	cfg  ElectionConfig
	rand *rand.Rand

	state     electionState
	at        time.Duration // paused: when to grant; resigning: when to stop trying
	lastGrant time.Duration
	granted   bool // lastGrant is set
	request   pending
	lease     keeper
	revokes   revoker

	key    string // the own key
	value  []byte
	create int64 // its create revision; 0: not put yet
	mod    int64 // its newest mod revision seen

	view     electionView
	fence    commit.Fence
	progress time.Duration
	heard    time.Duration
	changes  []RoleChange

	won, lost uint64
	reason    string
}

// NewElection returns a candidate that has not begun: the first Tick begins.
// random spreads the pauses.
func NewElection(cfg ElectionConfig, random *rand.Rand) *Election {
	cfg = cfg.withDefaults()
	return &Election{cfg: cfg, rand: random, view: electionView{prefix: cfg.Prefix, every: cfg.TTL / 3}}
}

// Candidate is what the own key says, with all fields but Barrier filled in.
func (e *Election) Candidate() allocator.Candidate { return e.cfg.Candidate }

// Status reports at time now.
func (e *Election) Status(now time.Duration) ElectionStatus {
	s := ElectionStatus{
		State: e.state.String(), Lease: e.lease.id, Candidates: len(e.view.keys),
		Age: now - e.heard, Won: e.won, Lost: e.lost, Reason: e.reason,
	}
	if e.state == electionLeading {
		s.Role, s.Fence = RoleLeader, e.fence
	}
	if oldest, ok := e.view.oldest(); ok {
		if s.LeaderKey = oldest.Key; oldest.Lease == 0 {
			s.Stray = oldest.Key
		} else {
			s.Leader = candidateOf(oldest)
		}
	}
	for _, kv := range e.view.keys {
		if kv.Lease != 0 && candidateOf(kv).TTLS != e.cfg.Candidate.TTLS {
			s.OtherTTL++
		}
	}
	return s
}
