// SPDX-License-Identifier: Apache-2.0

package kvstore_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/kvstore"
	"pgregory.net/rapid"
)

const presenceKey = "signet/v1/default/nodes/n1"

// node is a Presence in a world.
type node struct {
	*peer
	*kvstore.Presence
	stopped bool
	puts    int // transactions sent
	grants  []time.Duration
}

func (n *node) status() kvstore.PresenceStatus { return n.Status(n.clock()) }

func (n *node) Step(now time.Duration, a kvstore.Answer) { n.Presence.Step(now, a) }

func (w *world) node(instance string) *node {
	n := &node{Presence: kvstore.NewPresence(kvstore.PresenceConfig{
		Key: presenceKey, TTL: 15 * time.Second,
		Value: allocator.Presence{Node: "n1", Addresses: []string{"10.0.0.1"}, Prefixes: []string{"10.244.0.0/24"}, Version: "test", Instance: instance},
	})}
	n.peer = w.add(n.Presence, func() ([]kvstore.Call, time.Duration) {
		r := n.Ready()
		for _, c := range r.Calls {
			switch c.Kind {
			case kvstore.CallGrant:
				n.grants = append(n.grants, w.now)
			case kvstore.CallTxn:
				n.puts++
			}
		}
		n.stopped = r.Stopped
		return r.Calls, r.Wake
	})
	return n
}

// there says whether the store has the key under n's present lease.
func (w *world) there(n *node) bool {
	kvs := w.keys(presenceKey)
	return len(kvs) == 1 && kvs[0].Lease != 0 && kvs[0].Lease == n.status().Lease
}

func (w *world) present(n *node) func() bool {
	return func() bool { return n.status().Present && w.there(n) }
}

func TestPresence_puts(t *testing.T) {
	w := newWorld(1)
	n := w.node("i1")
	if !w.runUntil(time.Second, w.present(n)) {
		t.Fatalf("not present: %+v", n.status())
	}
	want := `{"node":"n1","addresses":["10.0.0.1"],"prefixes":["10.244.0.0/24"],"version":"test","ttl_s":15,"instance":"i1"}`
	if got := string(w.keys(presenceKey)[0].Value); got != want {
		t.Errorf("value\n%s, want\n%s", got, want)
	}
	w.run(10 * time.Minute)
	if s := n.status(); !s.Present || s.Grants != 1 || s.Lost != 0 || n.puts != 1 || s.Age > 6*time.Second {
		t.Errorf("after ten quiet minutes: %+v, %d puts", s, n.puts)
	}
}

// L-01: the lease revoked ten times at random moments, among them right after
// it was obtained: each time back within 5 s, at most one grant a second.
func TestScenario_L01_revokedTenTimes(t *testing.T) {
	w := newWorld(101)
	n := w.node("i1")
	w.put("signet/v1/default/nodes/n2", "{}", 0)
	w.runUntil(time.Second, w.present(n))
	for i := range 10 {
		last := n.status().Lease
		if err := w.model.Revoke(last); err != nil {
			t.Fatal(err)
		}
		if !w.runUntil(w.now+5*time.Second, func() bool { return w.present(n)() && n.status().Lease != last }) {
			t.Fatalf("revocation %d: not back after 5 s: %+v", i, n.status())
		}
		if i%2 == 0 { // else: within 50 ms after the new lease
			w.run(w.now + time.Duration(w.random.Int64N(int64(40*time.Second))))
		} else {
			w.run(w.now + time.Duration(w.random.Int64N(int64(50*time.Millisecond))))
		}
	}
	grantsApart(t, n)
	w.run(w.now + time.Minute)
	if s := n.status(); s.Grants != 11 || s.Lost != 10 || !s.Present {
		t.Errorf("in the end: %+v", s)
	}
	if kvs := w.keys("signet/v1/default/nodes/n2"); len(kvs) != 1 || kvs[0].Version != 1 {
		t.Errorf("another key was touched: %v", kvs)
	}
}

func grantsApart(t *testing.T, n *node) {
	t.Helper()
	for i := 1; i < len(n.grants); i++ {
		if d := n.grants[i] - n.grants[i-1]; d < time.Second {
			t.Errorf("grants %v apart", d)
		}
	}
}

// L-01: a process that stood still for three TTLs.
func TestScenario_L01_pausedForThreeTTLs(t *testing.T) {
	w := newWorld(102)
	n := w.node("i1")
	w.runUntil(time.Second, w.present(n))
	n.paused = w.now + 45*time.Second
	w.run(n.paused - time.Second)
	if len(w.keys(presenceKey)) != 0 {
		t.Fatal("the test shows nothing: the lease did not lapse")
	}
	w.run(n.paused)
	if !w.runUntil(w.now+5*time.Second, w.present(n)) {
		t.Fatalf("not back: %+v", n.status())
	}
}

func TestPresence_keyDeletedByHand(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		w := newWorld(3)
		n := w.node("i1")
		w.runUntil(time.Second, w.present(n))
		n.deaf = deaf
		w.remove(presenceKey)
		within := 5 * time.Second
		if deaf { // then the audit finds it
			within = 16 * time.Second
		}
		if !w.runUntil(w.now+within, w.present(n)) {
			t.Errorf("deaf %v: not back: %+v", deaf, n.status())
		}
		w.run(w.now + time.Second)
		if n := len(w.model.Leases()); n != 1 {
			t.Errorf("%d leases are left", n)
		}
	}
}

// L-06: unanswered keepalives for less than the TTL change nothing; for longer,
// the node itself declares the lease lost in time and is back within 5 s.
func TestScenario_L06_presence(t *testing.T) {
	for _, silent := range []time.Duration{9 * time.Second, 25 * time.Second} {
		w := newWorld(6)
		n := w.node("i1")
		w.runUntil(time.Second, w.present(n))
		w.run(10 * time.Second)
		lease := n.status().Lease
		n.loseAns = func(kvstore.Call) bool { return true }
		n.loseReq = func(c kvstore.Call) bool { return silent > 15*time.Second }
		n.deaf = true
		missing := time.Duration(0)
		w.after = func() {
			if n.status().Present && !w.there(n) {
				missing++
			}
		}
		end := w.now + silent
		w.run(end)
		if s := n.status(); silent > 15*time.Second && (s.Lost != 1 || s.State == "present" || s.Err == nil) {
			t.Errorf("silent for %v: has not declared the lease lost: %+v", silent, s)
		}
		n.loseAns, n.deaf = func(kvstore.Call) bool { return false }, false
		n.loseReq = n.loseAns
		if !w.runUntil(end+5*time.Second, w.present(n)) {
			t.Errorf("silent for %v: not back: %+v", silent, n.status())
		}
		if kept := n.status().Lease == lease; kept != (silent < 15*time.Second) {
			t.Errorf("silent for %v: lease kept: %v", silent, kept)
		}
		if missing > 0 {
			t.Errorf("silent for %v: says present while the key is missing", silent)
		}
	}
}

// L-06: fifty resets of everything in 30 s are no loss.
func TestScenario_L06_fiftyResets(t *testing.T) {
	w := newWorld(61)
	n := w.node("i1")
	w.runUntil(time.Second, w.present(n))
	for i := range 50 {
		n.breakWatches()
		fail := i%2 == 0
		n.mangle = func(_ kvstore.Call, a *kvstore.Answer) {
			if fail {
				*a = kvstore.Answer{Err: errors.New("connection reset")}
			}
		}
		w.run(w.now + 600*time.Millisecond)
	}
	n.mangle = func(kvstore.Call, *kvstore.Answer) {}
	w.run(w.now + 5*time.Second)
	if s := n.status(); !s.Present || s.Grants != 1 || s.Lost != 0 || s.Err != nil {
		t.Errorf("status %+v", s)
	}
}

// L-03: live leases revoked all at once by a stuck member: back with another lease.
func TestScenario_L03_allRevoked(t *testing.T) {
	w := newWorld(30)
	n := w.node("i1")
	w.runUntil(time.Second, w.present(n))
	w.run(7 * time.Second)
	for _, l := range w.model.Leases() {
		_ = w.model.Revoke(l)
	}
	if !w.runUntil(w.now+2*time.Second, w.present(n)) {
		t.Fatalf("not back: %+v", n.status())
	}
}

func TestPresence_sameInstanceTakesOver(t *testing.T) {
	w := newWorld(4)
	first := w.node("i1")
	w.runUntil(time.Second, w.present(first))
	first.dead = true // a restart: its lease lives on
	second := w.node("i1")
	if !w.runUntil(w.now+200*time.Millisecond, w.present(second)) {
		t.Fatalf("no takeover at once: %+v", second.status())
	}
	create := w.keys(presenceKey)[0].CreateRevision
	w.run(w.now + time.Minute)
	if kv := w.keys(presenceKey)[0]; kv.CreateRevision != create || !w.there(second) || second.status().Lost != 0 {
		t.Errorf("the key was gone in between: %+v", second.status())
	}
}

func TestPresence_otherInstanceIsRefused(t *testing.T) {
	w := newWorld(5)
	first := w.node("i1")
	w.runUntil(time.Second, w.present(first))
	second := w.node("i2")
	w.run(w.now + time.Minute)
	s := second.status()
	var taken *kvstore.NodeTaken
	if !errors.As(s.Err, &taken) || !errors.Is(s.Err, kvstore.ErrNodeTaken) || taken.Node != "n1" || taken.Instance != "i1" {
		t.Errorf("error %v", s.Err)
	}
	if s.State != "refused" || s.Present || !w.present(first)() || len(w.model.Leases()) != 1 {
		t.Errorf("refused: %+v; first: %+v", s, first.status())
	}
	first.dead = true
	if !w.runUntil(w.now+20*time.Second, w.present(second)) {
		t.Fatalf("not present once the other is gone: %+v", second.status())
	}
}

func TestPresence_whatElseStandsThere(t *testing.T) {
	for name, tc := range map[string]struct {
		value string
		lease bool
		state string
	}{
		"lease-less of another":   {`{"instance":"i2"}`, false, "present"},
		"lease-less, malformed":   {`what`, false, "present"},
		"with a lease, malformed": {`what`, true, "refused"},
		"with a lease, of ours":   {`{"instance":"i1"}`, true, "present"},
	} {
		w := newWorld(51)
		var lease int64
		if tc.lease {
			lease, _ = w.model.Grant(time.Hour, 0)
		}
		w.put(presenceKey, tc.value, lease)
		n := w.node("i1")
		w.run(5 * time.Second)
		if got := n.status().State; got != tc.state {
			t.Errorf("%s: state %s, want %s", name, got, tc.state)
		}
	}
}

func TestPresence_overwrittenByOthers(t *testing.T) {
	w := newWorld(52)
	n := w.node("i1")
	w.runUntil(time.Second, w.present(n))
	w.put(presenceKey, `{"instance":"i1","node":"n1"}`, 0) // by hand, without a lease
	if !w.runUntil(w.now+time.Second, w.present(n)) {
		t.Fatalf("not put back: %+v", n.status())
	}
	lease, _ := w.model.Grant(time.Hour, w.now)
	w.put(presenceKey, `{"instance":"i2","node":"n1"}`, lease)
	if !w.runUntil(w.now+time.Second, func() bool { return errors.Is(n.status().Err, kvstore.ErrNodeTaken) }) {
		t.Fatalf("goes on beside another instance: %+v", n.status())
	}
}

func TestPresence_update(t *testing.T) {
	w := newWorld(7)
	n := w.node("i1")
	w.runUntil(time.Second, w.present(n))
	lease := n.status().Lease
	n.do(func(now time.Duration) {
		n.Update(now, allocator.Presence{Node: "n1", Addresses: []string{"10.0.0.2"}, Version: "next"})
	})
	w.run(w.now + time.Second)
	var got allocator.Presence
	if err := json.Unmarshal(w.keys(presenceKey)[0].Value, &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != "next" || got.Instance != "i1" || got.TTLS != 15 || n.status().Lease != lease || n.status().Lost != 0 {
		t.Errorf("value %+v, status %+v", got, n.status())
	}
}

func TestPresence_leave(t *testing.T) {
	w := newWorld(8)
	n := w.node("i1")
	w.runUntil(time.Second, w.present(n))
	n.do(n.Leave)
	if !w.runUntil(w.now+100*time.Millisecond, func() bool { return n.stopped }) {
		t.Fatalf("not left: %+v", n.status())
	}
	if len(w.keys(presenceKey)) != 0 || len(w.model.Leases()) != 0 {
		t.Error("key or lease is still there")
	}

	away := w.node("i1")
	w.runUntil(w.now+time.Second, w.present(away))
	away.loseReq = func(kvstore.Call) bool { return true }
	away.do(away.Leave)
	if !w.runUntil(w.now+6*time.Second, func() bool { return away.stopped }) {
		t.Errorf("without a store: not stopped: %+v", away.status())
	}
}

// Whatever is lost, the node is present again soon after the faults stop, with
// one lease and never more than a grant a second; and while it says present the
// key is missing only as long as news of it travel.
func TestPresence_comesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"))
		lossy := rapid.Float64Range(0, 0.6).Draw(t, "loss")
		slowest := rapid.Int64Range(1, 4000).Draw(t, "delay ms")
		faulty := true
		n := w.node("i1")
		n.rate = rapid.Float64Range(0.5, 2).Draw(t, "rate")
		n.delay = func() time.Duration {
			if !faulty {
				return time.Millisecond
			}
			return time.Duration(w.random.Int64N(slowest*int64(time.Millisecond)) + 1)
		}
		n.loseReq = func(kvstore.Call) bool { return faulty && w.random.Float64() < lossy }
		n.loseAns = n.loseReq
		for range 40 {
			switch w.random.IntN(7) {
			case 0:
				_ = w.model.Revoke(n.status().Lease)
			case 1:
				w.remove(presenceKey)
			case 2:
				n.deaf = !n.deaf
			case 3:
				n.breakWatches()
			case 4:
				n.paused = max(n.paused, w.now) + time.Duration(w.random.Int64N(int64(20*time.Second)))
			case 5:
				n.do(func(now time.Duration) { n.Update(now, allocator.Presence{Node: "n1", Version: "next"}) })
			case 6:
				w.put(presenceKey, strings.Repeat("x", w.random.IntN(3)), 0)
			}
			w.run(w.now + time.Duration(w.random.Int64N(int64(5*time.Second))))
		}
		w.wakeAll()
		faulty, n.deaf = false, false
		n.breakWatches()
		w.run(w.now + 40*time.Second)
		if !w.present(n)() || n.status().Err != nil {
			t.Fatalf("not back: %+v", n.status())
		}
		if leases := len(w.model.Leases()); leases > 1 {
			t.Fatalf("%d leases", leases)
		}
		for i := 1; i < len(n.grants); i++ { // by its own clock
			if d := n.grants[i] - n.grants[i-1]; float64(d)*n.rate < float64(time.Second)-2 {
				t.Fatalf("grants %v apart at rate %v", d, n.rate)
			}
		}
	})
}
