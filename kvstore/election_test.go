// SPDX-License-Identifier: Apache-2.0

package kvstore_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/kvstore"
)

const electionPrefix = "signet/v1/default/election/"

// candidate is an Election in a world, and what it told its owner.
type candidate struct {
	*peer
	*kvstore.Election
	name    string
	role    kvstore.Role
	fence   commit.Fence
	changes []kvstore.RoleChange
	stopped bool
}

func (c *candidate) status() kvstore.ElectionStatus { return c.Status(c.clock()) }

func (c *candidate) leads() bool { return c.role == kvstore.RoleLeader }

func (w *world) candidate(name string, cfg kvstore.ElectionConfig) *candidate {
	cfg.Prefix = electionPrefix
	cfg.Candidate = allocator.Candidate{Who: name, Address: name + ":7472", Version: "test"}
	if cfg.TTL == 0 {
		cfg.TTL = 15 * time.Second
	}
	c := &candidate{name: name}
	c.Election = kvstore.NewElection(cfg, rand.New(rand.NewPCG(uint64(len(w.peers)), 7)))
	c.peer = w.add(c.Election, func() ([]kvstore.Call, time.Duration) {
		r := c.Ready()
		for _, change := range r.Changes {
			if change.Role == c.role {
				panic(fmt.Sprintf("%s is told twice that it is %v", name, change.Role))
			}
			c.role, c.fence = change.Role, change.Fence
		}
		c.changes = append(c.changes, r.Changes...)
		c.stopped = r.Stopped
		return r.Calls, r.Wake
	})
	return c
}

func (c *candidate) Step(now time.Duration, a kvstore.Answer) { c.Election.Step(now, a) }

// fenced says whether the store would let a transaction of this term pass.
func (w *world) fenced(f commit.Fence) bool {
	own := fmt.Sprintf("%s%x", electionPrefix, f.Lease)
	r, err := w.model.Txn(kvstore.Txn{If: []kvstore.Compare{
		{Key: own, Target: kvstore.CompareMod, Op: '=', Revision: f.Mod},
		{Key: electionPrefix, RangeEnd: kvstore.PrefixEnd(electionPrefix), Target: kvstore.CompareCreate, Op: '>', Revision: f.Epoch - 1},
	}})
	return err == nil && r.Succeeded
}

// leaders names those that act as leader: the dead and the paused do nothing.
func leaders(cs []*candidate) (names []string) {
	for _, c := range cs {
		if c.leads() && !c.dead && c.paused < c.w.now {
			names = append(names, c.name)
		}
	}
	return names
}

func threeCandidates(w *world, cfg kvstore.ElectionConfig) []*candidate {
	cs := []*candidate{w.candidate("a", cfg), w.candidate("b", cfg), w.candidate("c", cfg)}
	w.after = func() {
		if who := leaders(cs); len(who) > 1 {
			panic(fmt.Sprintf("at %v lead %v", w.now, who))
		}
	}
	return cs
}

func TestElection_onlyCandidateWins(t *testing.T) {
	w := newWorld(1)
	c := w.candidate("a", kvstore.ElectionConfig{})
	if !w.runUntil(time.Second, c.leads) {
		t.Fatalf("no leader after a second: %+v", c.status())
	}
	kvs := w.keys(electionPrefix)
	if len(kvs) != 1 {
		t.Fatalf("keys under the prefix: %v", kvs)
	}
	own := kvs[0]
	want := commit.Fence{Lease: own.Lease, Epoch: own.CreateRevision, Mod: own.ModRevision}
	if c.fence != want || own.Key != electionPrefix+kvstore.LeaseName(own.Lease) {
		t.Errorf("fence %+v, key %q; want %+v", c.fence, own.Key, want)
	}
	if got, want := string(own.Value), `{"who":"a","address":"a:7472","version":"test","ttl_s":15,"barrier":0}`; got != want {
		t.Errorf("value %s, want %s", got, want)
	}
	w.run(5 * time.Minute)
	if s := c.status(); !c.leads() || len(c.changes) != 1 || s.Candidates != 1 || s.Age > 6*time.Second {
		t.Errorf("after five quiet minutes: %+v, changes %v", s, c.changes)
	}
}

func TestElection_followersKnowTheLeader(t *testing.T) {
	w := newWorld(2)
	cs := threeCandidates(w, kvstore.ElectionConfig{})
	w.run(3 * time.Second)
	who := leaders(cs)
	if len(who) != 1 {
		t.Fatalf("leaders: %v", who)
	}
	for _, c := range cs {
		s := c.status()
		if s.Leader.Who != who[0] || s.Leader.Address != who[0]+":7472" || s.Candidates != 3 || s.OtherTTL != 0 {
			t.Errorf("%s knows %+v", c.name, s)
		}
	}
}

func TestElection_barrierIsNoLoss(t *testing.T) {
	w := newWorld(3)
	c := w.candidate("a", kvstore.ElectionConfig{})
	w.runUntil(time.Second, c.leads)
	own := w.keys(electionPrefix)[0]
	for n := range 5 {
		value := strings.Replace(string(own.Value), `"barrier":0`, fmt.Sprintf(`"barrier":%d`, n+1), 1)
		w.put(own.Key, value, own.Lease)
		w.run(w.now + 10*time.Second)
	}
	if len(c.changes) != 1 || !c.leads() {
		t.Errorf("changes: %+v", c.changes)
	}
}

func TestElection_lossIsNoticed(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		harm         func(w *world, c *candidate)
	}{
		{"key deleted", "gone", func(w *world, c *candidate) { w.remove(c.status().LeaderKey) }},
		{"key deleted, watch deaf", "gone", func(w *world, c *candidate) { c.deaf = true; w.remove(c.status().LeaderKey) }},
		{"lease revoked", "gone", func(w *world, c *candidate) { _ = w.model.Revoke(c.status().Lease) }},
		{"lease revoked, reads lost", "does not know the lease", func(w *world, c *candidate) {
			c.deaf = true
			c.loseReq = func(call kvstore.Call) bool { return call.Kind == kvstore.CallRange }
			_ = w.model.Revoke(c.status().Lease)
			w.in(20*time.Second, func() { c.deaf, c.loseReq = false, func(kvstore.Call) bool { return false } })
		}},
		{"key made anew by others", "not the one that was put", func(w *world, c *candidate) {
			s := c.status()
			c.deaf = true
			w.remove(s.LeaderKey)
			w.put(s.LeaderKey, "{}", s.Lease)
		}},
		{"an older candidate appears", "older candidate", func(w *world, c *candidate) {
			// no store does this; a faulty one is not to be trusted with two leaders
			c.mangle = func(call kvstore.Call, a *kvstore.Answer) {
				if call.Kind == kvstore.CallRange {
					a.Range.KVs = append(a.Range.KVs, kvstore.KV{Key: electionPrefix + "1", CreateRevision: 1, ModRevision: 1})
				}
			}
			w.in(10*time.Second, func() { c.mangle = func(kvstore.Call, *kvstore.Answer) {} })
		}},
		{"no keepalive is answered", "not renewed", func(w *world, c *candidate) {
			c.loseAns = func(call kvstore.Call) bool { return call.Kind == kvstore.CallKeepAlive }
			w.in(20*time.Second, func() { c.loseAns = func(kvstore.Call) bool { return false } })
		}},
		{"no progress", "no progress", func(w *world, c *candidate) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(4)
			c := w.candidate("a", kvstore.ElectionConfig{ProgressLimit: 30 * time.Second})
			w.runUntil(time.Second, c.leads)
			first := c.status().Lease
			tc.harm(w, c)
			if !w.runUntil(40*time.Second, func() bool { return !c.leads() }) {
				t.Fatalf("still leads: %+v", c.status())
			}
			if got := c.changes[1].Reason; !strings.Contains(got, tc.reason) {
				t.Errorf("reason %q, want %q", got, tc.reason)
			}
			if !w.runUntil(w.now+40*time.Second, c.leads) {
				t.Fatalf("never leads again: %+v", c.status())
			}
			if s := c.status(); s.Lease == first || s.Won != 2 || s.Lost != 1 {
				t.Errorf("second term: %+v (first lease %d)", s, first)
			}
		})
	}
}

func TestElection_aKeyWithoutLeaseIsNamed(t *testing.T) {
	w := newWorld(4)
	stray := electionPrefix + "zzz"
	w.put(stray, `{"who":"nobody","address":"nowhere:1"}`, 0)
	c := w.candidate("a", kvstore.ElectionConfig{})
	w.run(time.Minute)
	if s := c.status(); c.leads() || s.Stray != stray || s.Leader.Address != "" || s.OtherTTL != 0 {
		t.Fatalf("behind a stray key: leads %v, %+v", c.leads(), s)
	}
	w.remove(stray)
	w.runUntil(w.now+10*time.Second, c.leads)
	if s := c.status(); s.Stray != "" || s.Leader.Who != "a" {
		t.Errorf("once it was deleted: %+v", s)
	}
}
