// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

// plain is the least store that a core can live on: one writer, no faults, each
// op at a revision of its own. It is fast enough for hours of heavy churn.
type plain struct {
	t       *testing.T
	core    *allocator.Core
	now     time.Duration
	rev     int64
	keys    map[allocator.Key]allocator.Record
	refs    map[string]int // references of each label set
	next    uint64
	replies map[uint64]func(allocator.Reply)
	nodes   []string
	news    allocator.Batch
}

func newPlain(t *testing.T, cfg allocator.Config, nodes ...string) *plain {
	p := &plain{t: t, core: allocator.New(cfg), keys: map[allocator.Key]allocator.Record{}, refs: map[string]int{},
		replies: map[uint64]func(allocator.Reply){}, nodes: nodes}
	for _, n := range nodes {
		p.rev++
		p.put(allocator.PresenceKey(n), allocator.Presence{Node: n, TTLS: 10, Instance: n}, 1)
	}
	p.mirror()
	p.core.BeginTerm(0, "only")
	p.run()
	return p
}

func (p *plain) put(k allocator.Key, v allocator.Value, lease int64) {
	old, there := p.keys[k]
	r := allocator.Record{Key: k, Value: v, CreateRevision: p.rev, ModRevision: p.rev, Lease: lease}
	if there {
		r.CreateRevision = old.CreateRevision
	} else if k.Kind == allocator.KindReference {
		p.refs[k.Labels]++
	}
	p.keys[k] = r
	p.news.Records = append(p.news.Records, r)
}

func (p *plain) remove(k allocator.Key) {
	if _, there := p.keys[k]; !there {
		return
	}
	delete(p.keys, k)
	if k.Kind == allocator.KindReference {
		p.refs[k.Labels]--
	}
	p.news.Deleted = append(p.news.Deleted, allocator.Deleted{Key: k, Revision: p.rev})
}

// commit carries out an op. With one writer every guard holds.
func (p *plain) commit(op allocator.Op) {
	for _, g := range op.Guards {
		r, there := p.keys[g.Key]
		ok := true
		switch g.Kind {
		case allocator.GuardAbsent:
			ok = !there
		case allocator.GuardPresent:
			ok = there
		case allocator.GuardRevision:
			ok = there && r.ModRevision == g.Revision
		case allocator.GuardEmpty:
			ok = p.refs[g.Key.Labels] == 0
		}
		if !ok {
			p.t.Fatalf("%s: %v of %v does not hold", op.Verb, g.Kind, g.Key)
		}
	}
	if len(op.Writes) > 0 {
		p.rev++
	}
	for _, w := range op.Writes {
		if w.Value == nil {
			p.remove(w.Key)
		} else {
			p.put(w.Key, w.Value, 0)
		}
	}
	p.core.Done(allocator.Outcome{Op: op.ID, Kind: allocator.Committed, Revision: p.rev})
}

// mirror brings the core what has happened. Only the newest record of a key is kept.
func (p *plain) mirror() {
	b := allocator.Batch{Revision: p.rev}
	for _, r := range p.news.Records {
		if have, there := p.keys[r.Key]; there && have.ModRevision == r.ModRevision {
			b.Records = append(b.Records, r)
		}
	}
	for _, d := range p.news.Deleted {
		if _, back := p.keys[d.Key]; !back {
			b.Deleted = append(b.Deleted, d)
		}
	}
	p.news = allocator.Batch{}
	p.core.Apply(b)
}

func (p *plain) run() {
	for moved := true; moved; {
		ready := p.core.Ready()
		for _, op := range ready.Ops {
			p.commit(op)
		}
		for _, r := range ready.Replies {
			f := p.replies[r.ID]
			delete(p.replies, r.ID)
			if f != nil {
				f(r)
			}
		}
		moved = len(ready.Ops)+len(ready.Replies) > 0
		if !moved && len(p.news.Records)+len(p.news.Deleted) > 0 {
			p.mirror()
			moved = true
		}
	}
}

func (p *plain) ask(req any, f func(allocator.Reply)) {
	p.next++
	p.replies[p.next] = f
	p.core.Request(p.next, req)
}

// second lets a second pass: everybody acknowledges, and the clock goes on.
func (p *plain) second() {
	p.now += time.Second
	p.core.Tick(p.now)
	p.run()
	for _, n := range p.nodes {
		p.core.Acknowledge(allocator.AckRequest{Node: n, Instance: n, Position: p.core.Position()})
	}
}

func churnConfig(t *testing.T, clusters uint32) allocator.Config {
	id := uint32(0)
	name := identity.DefaultClusterName
	if clusters == 511 {
		id, name = 1, "one"
	}
	space, err := identity.NewSpace(name, id, clusters, false)
	if err != nil {
		t.Fatal(err)
	}
	return allocator.Config{Space: space, NewCluster: true, NodeGrace: 15 * time.Minute, IdentityGrace: 15 * time.Minute,
		ForgetAfter: 24 * time.Hour, SweepInterval: 30 * time.Second, PresenceTTL: 10 * time.Second, ElectionTTL: 15 * time.Second,
		LineageEvery: 5 * time.Second, Quarantine: time.Minute}
}

func labelSet(t *testing.T, format string, args ...any) labels.Set {
	s, err := labels.ParseSet(fmt.Sprintf(format, args...))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// allocate asks for a number that has to come.
func (p *plain) allocate(s labels.Set, holder string, f func(allocator.Allocation)) {
	p.ask(allocator.AllocateRequest{Labels: s, Holder: holder}, func(r allocator.Reply) {
		if r.Err != nil {
			p.t.Fatalf("after %v, %s: %v; %+v, %+v", p.now, s, r.Err, p.core.Numbers(), p.core.SweepState())
		}
		f(r.Value.(allocator.Allocation))
	})
}

// Forty new label sets a second, each in use for twenty seconds, for an hour (half
// an hour where there are half as many numbers, and pressure has to shorten the
// grace), beside fifty that stay and are asked for all the time.
func TestScenario_E01_ChurnNeverExhausts(t *testing.T) {
	for _, c := range []struct {
		name     string
		clusters uint32
		long     time.Duration
	}{{"65k numbers", 255, time.Hour}, {"32k numbers", 511, 30 * time.Minute}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlain(t, churnConfig(t, c.clusters), "n0", "n1", "n2")
			worst, served := churn(p, c.long)
			t.Logf("worst: %+v; grace down to %v; %d created, %d collected in %v of served time",
				worst.numbers, worst.grace, worst.created, p.core.Stats().Collected, served)
			if served < c.long-time.Minute {
				t.Errorf("only %v of served time passed", served)
			}
			if worst.created <= int(worst.numbers.Capacity) {
				t.Errorf("%d numbers were handed out, so none was used again", worst.created)
			}
		})
	}
}

type worst struct {
	numbers allocator.Numbers // when the fewest were free
	grace   time.Duration
	created int
}

func churn(p *plain, long time.Duration) (worst, time.Duration) {
	t := p.t
	out := worst{numbers: allocator.Numbers{Free: 1 << 32}, grace: time.Hour}
	type use struct {
		set    labels.Set
		holder string
		hold   int64
	}
	ends := map[time.Duration][]*use{}
	known := map[int]identity.Number{}
	for p.now < long {
		for i := range 40 {
			u := &use{set: labelSet(t, "k8s:job=j%d-%d", p.now/time.Second, i), holder: p.nodes[i%len(p.nodes)]}
			p.allocate(u.set, u.holder, func(a allocator.Allocation) {
				u.hold = a.Hold
				if a.Created {
					out.created++
				}
			})
			ends[p.now+20*time.Second] = append(ends[p.now+20*time.Second], u)
		}
		for i := range 50 {
			p.allocate(labelSet(t, "k8s:app=stays%d", i), p.nodes[int(p.now/time.Second)%len(p.nodes)], func(a allocator.Allocation) {
				if before, ok := known[i]; ok && before != a.Identity.Number {
					t.Fatalf("known set %d went from %d to %d", i, before, a.Identity.Number)
				}
				known[i] = a.Identity.Number
			})
		}
		for _, u := range ends[p.now] {
			p.ask(allocator.ReleaseRequest{Labels: u.set, Holder: u.holder, Hold: u.hold}, func(allocator.Reply) {})
		}
		delete(ends, p.now)
		p.second()
		if p.now%time.Minute == 0 {
			if n := p.core.Numbers(); n.Free < out.numbers.Free {
				out.numbers = n
			}
			out.grace = min(out.grace, p.core.SweepState().IdentityGrace)
		}
	}
	return out, p.core.SweepState().Served
}

// One node goes and is not forgotten, so nothing may be used again. New label
// sets are refused in time, known ones never, and forgetting the node mends it.
func TestScenario_E01_ExhaustionEndsWhenTheNodeIsForgotten(t *testing.T) {
	cfg := churnConfig(t, 255)
	cfg.Max, cfg.IdentityGrace = cfg.Space.Min()+99, time.Minute
	p := newPlain(t, cfg, "n0", "n1")
	p.nodes = []string{"n0"}
	p.rev++
	p.remove(allocator.PresenceKey("n1"))
	p.run()
	var known identity.Number
	stays := labelSet(t, "k8s:app=stays")
	p.allocate(stays, "n0", func(a allocator.Allocation) { known = a.Identity.Number })
	churn := func(i int) (err *allocator.Error) {
		s := labelSet(t, "k8s:job=j%d", i)
		p.ask(allocator.AllocateRequest{Labels: s, Holder: "n0"}, func(r allocator.Reply) {
			if err = r.Err; err == nil {
				p.ask(allocator.ReleaseRequest{Labels: s, Holder: "n0", Hold: r.Value.(allocator.Allocation).Hold}, func(allocator.Reply) {})
			}
		})
		p.second()
		return err
	}
	i := 0
	for ; churn(i) == nil; i++ {
		if i > 1000 {
			t.Fatal("numbers were used again although a gone node has not acknowledged")
		}
	}
	for range 300 {
		p.second()
	}
	err := churn(i)
	if err == nil || err.Code != allocator.Exhausted || err.Retry == 0 || err.Limit != 100 || err.Used != 100 {
		t.Fatalf("after %d label sets: %+v", i, err)
	}
	if b := p.core.Blockers(); len(b) != 1 || b[0].Node != "n1" || !b[0].Gone {
		t.Errorf("blockers: %+v", b)
	}
	p.allocate(stays, "n0", func(a allocator.Allocation) {
		if a.Identity.Number != known {
			t.Errorf("the known set went from %d to %d", known, a.Identity.Number)
		}
	})
	p.ask(allocator.ForgetRequest{Node: "n1"}, func(r allocator.Reply) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	})
	p.second()
	if err := churn(i); err != nil {
		t.Errorf("after the node is forgotten: %v", err)
	}
}
