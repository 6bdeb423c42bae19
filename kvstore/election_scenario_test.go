// SPDX-License-Identifier: Apache-2.0

package kvstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signet-identity/signet/kvstore"
	"pgregory.net/rapid"
)

// leaderOf returns the candidate that leads, and the others.
func leaderOf(t *testing.T, cs []*candidate) (leader *candidate, standbys []*candidate) {
	t.Helper()
	for _, c := range cs {
		if c.leads() {
			leader = c
		} else {
			standbys = append(standbys, c)
		}
	}
	if leader == nil {
		t.Fatal("nobody leads")
	}
	return leader, standbys
}

// L-09: standbys whose leases were revoked are back in the queue, and no one
// leads without a key of its own.
func TestScenario_L09_zombieAndPhantom(t *testing.T) {
	w := newWorld(9)
	cs := threeCandidates(w, kvstore.ElectionConfig{})
	w.run(3 * time.Second)
	leader, standbys := leaderOf(t, cs)
	for _, c := range standbys {
		if err := w.model.Revoke(c.status().Lease); err != nil {
			t.Fatal(err)
		}
	}
	if !w.runUntil(w.now+5*time.Second, func() bool { return len(w.keys(electionPrefix)) == 3 }) {
		t.Fatalf("five seconds later the queue is %v", w.keys(electionPrefix))
	}
	w.run(w.now + 10*time.Second)
	leader.dead = true
	killed := w.now
	if !w.runUntil(killed+20*time.Second, func() bool { return standbys[0].leads() || standbys[1].leads() }) {
		t.Fatal("no new leader within TTL + 5 s")
	}
	next, _ := leaderOf(t, standbys)
	s := next.status()
	if s.LeaderKey != electionPrefix+kvstore.LeaseName(s.Lease) || !w.fenced(next.fence) {
		t.Errorf("the new leader's own key is not the oldest: %+v", s)
	}
}

// L-09, the phantom: the leader's key goes while a standby's own key is gone
// too and its watch is dead. The standby must not win with nothing.
func TestScenario_L09_phantomWithDeadWatch(t *testing.T) {
	w := newWorld(10)
	a := w.candidate("a", kvstore.ElectionConfig{})
	w.runUntil(time.Second, a.leads)
	b := w.candidate("b", kvstore.ElectionConfig{})
	w.run(w.now + time.Second)
	b.deaf = true
	lost := b.status().Lease
	_ = w.model.Revoke(lost)
	a.dead = true
	_ = w.model.Revoke(a.status().Lease)
	w.after = func() {
		if b.leads() && b.fence.Lease == lost {
			t.Fatal("leads without its own key")
		}
	}
	if !w.runUntil(w.now+8*time.Second, b.leads) {
		t.Fatalf("never leads: %+v", b.status())
	}
}

// L-06: keepalives that are not answered for 9 s of 15 change nothing; for
// longer, the leader stops acting before its lease can be taken.
func TestScenario_L06_silentKeepalive(t *testing.T) {
	for _, silent := range []time.Duration{5 * time.Second, 40 * time.Second} {
		w := newWorld(6)
		c := w.candidate("a", kvstore.ElectionConfig{})
		w.runUntil(time.Second, c.leads)
		w.run(10 * time.Second)
		lost := func(kvstore.Call) bool { return true }
		c.loseReq = lost
		lease := c.status().Lease
		w.in(silent, func() { c.loseReq = func(kvstore.Call) bool { return false } })
		overlap := false
		w.after = func() { overlap = overlap || c.leads() && len(w.keys(electionPrefix)) == 0 }
		w.run(w.now + 60*time.Second)
		if overlap {
			t.Error("led although the own key had lapsed")
		}
		if kept := c.status().Lease == lease && len(c.changes) == 1; kept != (silent < 9*time.Second) {
			t.Errorf("silent for %v: lease kept %v, changes %v", silent, kept, c.changes)
		}
		if !c.leads() {
			t.Errorf("silent for %v: does not lead in the end: %+v", silent, c.status())
		}
	}
}

// L-08: a leader that stood still for three TTLs is no leader any more when it
// wakes, before it does anything else.
func TestScenario_L08_deposedAfterPause(t *testing.T) {
	w := newWorld(8)
	a := w.candidate("a", kvstore.ElectionConfig{TTL: 5 * time.Second})
	w.runUntil(time.Second, a.leads)
	b := w.candidate("b", kvstore.ElectionConfig{TTL: 5 * time.Second})
	w.run(2 * time.Second)
	fence := a.fence
	a.paused = w.now + 15*time.Second
	if !w.runUntil(a.paused-time.Second, b.leads) {
		t.Fatal("the standby does not take over while the leader stands still")
	}
	if w.fenced(fence) {
		t.Error("the old leader's fence still holds")
	}
	w.run(a.paused + time.Second)
	if a.leads() || !b.leads() || a.changes[1].Role != kvstore.RoleFollower {
		t.Errorf("after the pause: a %+v, b %+v", a.status(), b.status())
	}
}

// L-08: the committer finds the term deposed or foreign and abandons it: the
// own lease is revoked, another leads at once, and a new candidacy follows.
func TestScenario_L08_abandon(t *testing.T) {
	w := newWorld(81)
	cs := threeCandidates(w, kvstore.ElectionConfig{})
	w.run(3 * time.Second)
	leader, _ := leaderOf(t, cs)
	lease := leader.status().Lease
	leader.do(func(now time.Duration) { leader.Abandon(now, "the own key is foreign") })
	if leader.leads() {
		t.Fatal("still leads")
	}
	began := w.now
	if !w.runUntil(began+time.Second, func() bool { return len(leaders(cs)) == 1 }) {
		t.Fatal("no hand-over within a second")
	}
	w.run(began + 10*time.Second)
	if s := leader.status(); s.State != "waiting" || s.Lease == lease || s.Reason != "the own key is foreign" {
		t.Errorf("the one that gave up: %+v", s)
	}
}

// L-12: a clean stop hands over within two seconds, twenty times.
func TestScenario_L12_cleanStopHandsOver(t *testing.T) {
	w := newWorld(12)
	cs := threeCandidates(w, kvstore.ElectionConfig{})
	w.run(3 * time.Second)
	for n := range 20 {
		leader, standbys := leaderOf(t, cs)
		leader.do(leader.Resign)
		began := w.now
		if !w.runUntil(began+2*time.Second, func() bool { return len(leaders(standbys)) == 1 && leader.stopped }) {
			t.Fatalf("stop %d: no hand-over: %+v", n, leader.status())
		}
		cs = append(standbys, w.candidate(fmt.Sprint("next", n), kvstore.ElectionConfig{}))
		w.run(w.now + 2*time.Second)
	}
}

// L-12: a stop while the store is away gives up in time; the lease lapses.
func TestScenario_L12_stopWithoutStore(t *testing.T) {
	w := newWorld(13)
	c := w.candidate("a", kvstore.ElectionConfig{})
	w.runUntil(time.Second, c.leads)
	c.loseReq = func(kvstore.Call) bool { return true }
	c.do(c.Resign)
	if c.leads() {
		t.Error("leads on after Resign")
	}
	if !w.runUntil(w.now+6*time.Second, func() bool { return c.stopped }) {
		t.Fatalf("not stopped: %+v", c.status())
	}
	w.run(w.now + 30*time.Second)
	if kvs := w.keys(electionPrefix); len(kvs) != 0 {
		t.Errorf("left behind: %v", kvs)
	}
}

// L-13: candidates with other TTLs and clocks an hour apart never overlap, and the mismatch shows.
func TestScenario_L13_otherTTLsAndClocks(t *testing.T) {
	w := newWorld(130)
	cs := []*candidate{
		w.candidate("a", kvstore.ElectionConfig{TTL: 30 * time.Second}),
		w.candidate("b", kvstore.ElectionConfig{TTL: 5 * time.Second}),
	}
	cs[1].offset = time.Hour
	w.after = func() {
		if len(leaders(cs)) > 1 {
			t.Fatalf("both lead at %v", w.now)
		}
	}
	w.run(3 * time.Second)
	if cs[0].status().OtherTTL != 1 || cs[1].status().OtherTTL != 1 {
		t.Errorf("the mismatch does not show: %+v", cs[0].status())
	}
	for range 20 {
		cs[0].paused = w.now + 10*time.Second
		w.run(w.now + 30*time.Second)
	}
	if len(leaders(cs)) != 1 {
		t.Error("nobody leads in the end")
	}
}

// L-20: ten short outages of the store, each with errors on everything, are no loss.
func TestScenario_L20_shortOutagesAreNoLoss(t *testing.T) {
	w := newWorld(20)
	cs := threeCandidates(w, kvstore.ElectionConfig{})
	w.run(3 * time.Second)
	leader, _ := leaderOf(t, cs)
	for range 10 {
		for _, c := range cs {
			c.mangle = func(_ kvstore.Call, a *kvstore.Answer) { *a = kvstore.Answer{Err: errors.New("no leader")} }
			c.breakWatches()
		}
		w.run(w.now + 3*time.Second)
		for _, c := range cs {
			c.mangle = func(kvstore.Call, *kvstore.Answer) {}
		}
		w.run(w.now + 2*time.Second)
	}
	for _, c := range cs {
		if c.status().Lost != 0 {
			t.Errorf("%s lost: %+v", c.name, c.status())
		}
	}
	if !leader.leads() || len(leader.changes) != 1 {
		t.Errorf("fail-over: %v", leader.changes)
	}
}

// A store that was restored to before the term ends it.
func TestElection_restoredStore(t *testing.T) {
	w := newWorld(21)
	other := w.candidate("old", kvstore.ElectionConfig{})
	w.runUntil(time.Second, other.leads)
	old := w.model.Clone()
	other.dead = true
	_ = w.model.Revoke(other.status().Lease)
	c := w.candidate("a", kvstore.ElectionConfig{})
	w.run(w.now + 3*time.Second)
	if !c.leads() {
		t.Fatalf("does not lead: %+v", c.status())
	}
	restored, err := old.Restore(old.Revision(), 0, w.now)
	if err != nil {
		t.Fatal(err)
	}
	w.model = restored
	c.breakWatches()
	if !w.runUntil(w.now+6*time.Second, func() bool { return !c.leads() }) {
		t.Fatalf("leads on in a restored store: %+v", c.status())
	}
	if !w.runUntil(w.now+30*time.Second, c.leads) {
		t.Fatalf("never leads again: %+v", c.status())
	}
}

// The same when the own key is as old as the backup, so that it is there again.
func TestElection_restoredStoreWithTheOwnKey(t *testing.T) {
	w := newWorld(23)
	c := w.candidate("a", kvstore.ElectionConfig{})
	w.runUntil(time.Second, c.leads)
	backup := w.model.Revision()
	for range 10 {
		w.put("elsewhere", "x", 0)
	}
	w.run(w.now + 6*time.Second) // a list shows the head
	restored, err := w.model.Restore(backup, 0, w.now)
	if err != nil {
		t.Fatal(err)
	}
	w.model = restored
	if !w.runUntil(w.now+6*time.Second, func() bool { return !c.leads() }) || !strings.Contains(c.changes[1].Reason, "went back") {
		t.Fatalf("leads on in a restored store: %+v", c.status())
	}
	if !w.runUntil(w.now+30*time.Second, c.leads) {
		t.Fatalf("never leads again: %+v", c.status())
	}
}

// That the watch shows the own key as the oldest is not enough: a list must.
func TestElection_winsByListOnly(t *testing.T) {
	w := newWorld(24)
	a := w.candidate("a", kvstore.ElectionConfig{})
	w.runUntil(time.Second, a.leads)
	b := w.candidate("b", kvstore.ElectionConfig{})
	w.run(w.now + time.Second)
	noLists := true
	b.loseReq = func(c kvstore.Call) bool { return noLists && c.Kind == kvstore.CallRange }
	a.do(a.Resign)
	w.run(w.now + 20*time.Second)
	if s := b.status(); b.leads() || s.Candidates != 1 || s.State != "waiting" {
		t.Fatalf("without a list: %+v", s)
	}
	noLists = false
	if !w.runUntil(w.now+6*time.Second, b.leads) {
		t.Errorf("with lists again: %+v", b.status())
	}
}

// Grants that are answered after their time are given back at once.
func TestElection_lateGrants(t *testing.T) {
	w := newWorld(25)
	c := w.candidate("a", kvstore.ElectionConfig{TTL: time.Minute})
	c.delay = func() time.Duration { return 11 * time.Second }
	w.run(65 * time.Second)
	if w.model.Revision() != 1 || c.status().State == "waiting" {
		t.Fatal("the test shows nothing: a grant came in time")
	}
	c.delay = func() time.Duration { return time.Millisecond }
	if !w.runUntil(w.now+45*time.Second, c.leads) {
		t.Fatalf("never leads: %+v", c.status())
	}
	w.run(w.now + 10*time.Second)
	if n := len(w.model.Leases()); n != 1 {
		t.Errorf("%d leases are there", n)
	}
}

// A grant or a put whose answer is lost leaves no second key and no lease behind for long.
func TestElection_lostAnswersWhileJoining(t *testing.T) {
	for _, kind := range []kvstore.CallKind{kvstore.CallGrant, kvstore.CallTxn} {
		w := newWorld(uint64(22 + kind))
		c := w.candidate("a", kvstore.ElectionConfig{})
		c.loseAns = func(call kvstore.Call) bool { return call.Kind == kind && w.now < 9*time.Second }
		if !w.runUntil(25*time.Second, c.leads) {
			t.Fatalf("never leads: %+v", c.status())
		}
		if kvs := w.keys(electionPrefix); len(kvs) != 1 {
			t.Errorf("keys: %v", kvs)
		}
		w.run(w.now + 30*time.Second)
		if n := len(w.model.Leases()); n != 1 {
			t.Errorf("%d leases are left", n)
		}
	}
}

// Under delays, losses, pauses and clocks of 0.8 to 2 times the store's rate,
// without anybody touching keys by hand, no two lead at once; at any rate the
// fences of no two hold at once. Once faults stop, one leads.
func TestElection_neverTwoLeaders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"))
		slow := rapid.Bool().Draw(t, "clocks slower than covered")
		lossy := rapid.Float64Range(0, 0.4).Draw(t, "loss")
		slowest := rapid.Int64Range(1, 3000).Draw(t, "delay ms")
		faulty := true
		var cs []*candidate
		for i := range rapid.IntRange(2, 4).Draw(t, "candidates") {
			c := w.candidate(string(rune('a'+i)), kvstore.ElectionConfig{TTL: time.Duration(5+5*i) * time.Second})
			c.rate = rapid.Float64Range(0.801, 2).Draw(t, "rate")
			if slow {
				c.rate = rapid.Float64Range(0.5, 2).Draw(t, "slow rate")
			}
			c.delay = func() time.Duration {
				if !faulty {
					return time.Millisecond
				}
				return time.Duration(w.random.Int64N(slowest*int64(time.Millisecond)) + 1)
			}
			lose := func(kvstore.Call) bool { return faulty && w.random.Float64() < lossy }
			c.loseReq, c.loseAns = lose, lose
			cs = append(cs, c)
		}
		w.after = func() { neverTwo(t, w, cs, slow) }
		for range 30 {
			c := cs[w.random.IntN(len(cs))]
			switch w.random.IntN(5) {
			case 0:
				c.paused = max(c.paused, w.now) + time.Duration(w.random.Int64N(int64(20*time.Second)))
			case 1:
				c.breakWatches()
			case 2:
				c.deaf = !c.deaf
			case 3:
				c.do(func(now time.Duration) { c.Abandon(now, "asked to") })
			case 4:
				if slow { // by hand: then only the fence is left
					_ = w.model.Revoke(c.status().Lease)
				}
			}
			w.run(w.now + time.Duration(w.random.Int64N(int64(5*time.Second))))
		}
		w.wakeAll()
		faulty = false
		for _, c := range cs {
			c.deaf = false
		}
		w.run(w.now + 2*time.Minute)
		if who := leaders(cs); len(who) != 1 {
			t.Fatalf("after the faults lead %v", who)
		}
	})
}

func neverTwo(t *rapid.T, w *world, cs []*candidate, slow bool) {
	fences := 0
	for _, c := range cs {
		if c.leads() && w.fenced(c.fence) {
			fences++
		}
	}
	if fences > 1 {
		t.Fatalf("at %v two fences hold", w.now)
	}
	if who := leaders(cs); len(who) > 1 && !slow {
		t.Fatalf("at %v lead %s", w.now, strings.Join(who, ", "))
	}
}
