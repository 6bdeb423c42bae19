// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
	"pgregory.net/rapid"
)

// Text that cannot be read is no master, yet its number is taken: a new label
// set goes past it.
func TestAllocate_goesPastAMalformedMaster(t *testing.T) {
	b := newBench(t)
	start := identity.Start(testConfig(t).Space, "k8s:app=web;")
	b.put(b.key(allocator.MasterKey(start)), "no label set", 0)
	b.run()
	if a := b.allocate("pin-ann", "k8s:app=web"); a.Identity.Number != start+1 {
		t.Errorf("number %d, the one after %d is free", a.Identity.Number, start)
	}
	if kv := b.get(allocator.MasterKey(start)); kv == nil || string(kv.Value) != "no label set" {
		t.Errorf("the malformed master: %+v", kv)
	}
}

// A key under a label set's references whose holder is missing blocks the idle
// mark, and nothing worse.
func TestMarkIdle_survivesAReferenceWithoutAHolder(t *testing.T) {
	b := newBench(t)
	a := b.allocate("pin-ann", "k8s:app=web")
	bad := b.layout.References() + "k8s:app=web;/"
	b.put(bad, "300", 0)
	b.send1(allocator.ReleaseRequest{Labels: set(t, "k8s:app=web"), Holder: "pin-ann", Hold: a.Hold})
	b.run()
	if b.get(allocator.ReferenceKey("k8s:app=web;", "pin-ann")) != nil {
		t.Error("not released")
	}
	b.del(bad)
	b.pass(3 * time.Second)
	if b.get(allocator.IdleKey(a.Identity.Number)) == nil {
		t.Error("no idle mark although the key is gone")
	}
}

// A master that is deleted by hand while it is idle leaves no idle mark behind.
func TestBury_takesTheIdleMarkAlong(t *testing.T) {
	b := newBench(t)
	a := b.allocate("pin-ann", "k8s:app=web")
	b.release("pin-ann", a.Hold, "k8s:app=web")
	b.del(b.key(allocator.MasterKey(a.Identity.Number)))
	b.run()
	if b.get(allocator.TombstoneKey(a.Identity.Number)) == nil {
		t.Error("no tombstone")
	}
	if kv := b.get(allocator.IdleKey(a.Identity.Number)); kv != nil {
		t.Errorf("the idle mark stays: %+v", kv)
	}
}

// Two label sets whose references name one number that has no master: one of
// them gets it, the other another, and no transaction writes one key twice.
func TestHeal_twoSetsThatNameOneNumber(t *testing.T) {
	b := newBench(t)
	for _, k := range []allocator.Key{allocator.ReferenceKey("k8s:app=a;", "pin-a"), allocator.ReferenceKey("k8s:app=b;", "pin-b")} {
		b.put(b.key(k), "4711", 0)
	}
	b.run()
	a, okA := b.core.ByLabels("k8s:app=a;")
	c, okC := b.core.ByLabels("k8s:app=b;")
	if !okA || !okC || a.Number == c.Number || a.Number != 4711 && c.Number != 4711 {
		t.Errorf("%+v and %+v", a, c)
	}
}

// Whatever order requests, transactions, answers, losses and the mirror come
// in, each request has one reply, and in the end the picture is the store.
func TestCore_anyInterleaving(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLab(t)
		texts := []string{"k8s:app=a", "k8s:app=b", "k8s:app=c"}
		nodes := []string{"n1", "n2"}
		holder := rapid.SampledFrom([]string{"n1", "n2", "pin-ann", "k8s.n1"})
		text := rapid.SampledFrom(texts)
		do := func(rt *rapid.T) {
			f := l.one(rt)
			l.land(f)
			l.answer(rt, f, f.result)
		}
		for _, n := range nodes {
			l.presence(rt, n)
		}
		l.settle(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"allocate": func(rt *rapid.T) {
				l.ask(rt, allocator.AllocateRequest{Labels: set(t, text.Draw(rt, "labels")), Holder: holder.Draw(rt, "holder"),
					GivenUpHold: l.someHold(rt)})
			},
			"release": func(rt *rapid.T) {
				l.ask(rt, allocator.ReleaseRequest{Labels: set(t, text.Draw(rt, "labels")), Holder: holder.Draw(rt, "holder"),
					Hold: l.someHold(rt)})
			},
			"give back":      func(rt *rapid.T) { l.giveBack(t, rt) },
			"give back also": func(rt *rapid.T) { l.giveBack(t, rt) },
			"do":             do, "do too": do, "do as well": do, // more often than what loses or reorders
			"publish": func(rt *rapid.T) { l.ask(rt, l.somePublish(rt, texts)) },
			"leave":   func(rt *rapid.T) { l.ask(rt, allocator.LeaveRequest{Node: rapid.SampledFrom(nodes).Draw(rt, "node")}) },
			"forget":  func(rt *rapid.T) { l.ask(rt, allocator.ForgetRequest{Node: rapid.SampledFrom(nodes).Draw(rt, "node")}) },
			"node":    func(rt *rapid.T) { l.presence(rt, rapid.SampledFrom(nodes).Draw(rt, "node")) },
			"land":    func(rt *rapid.T) { l.land(l.one(rt)) },
			"answer": func(rt *rapid.T) {
				if f := l.one(rt); f.landed {
					l.answer(rt, f, f.result)
				}
			},
			"lose": func(rt *rapid.T) {
				if f := l.one(rt); f.tx.Kind == commit.Work {
					l.answer(rt, f, commit.Result{ID: f.tx.ID, Unknown: true})
				}
			},
			"follow": func(rt *rapid.T) {
				l.follow(rt, min(l.model.Revision(), l.seen+rapid.Int64Range(1, 4).Draw(rt, "revisions")))
			},
			"relist":   func(rt *rapid.T) { l.relist(rt) },
			"tick":     func(rt *rapid.T) { l.tick(rt, time.Duration(rapid.IntRange(1, 8).Draw(rt, "seconds"))*time.Second) },
			"new term": func(rt *rapid.T) { l.newTerm(rt) },
			"edit":     func(rt *rapid.T) { l.edit(rt) },
			"settle":   func(rt *rapid.T) { l.settle(rt) },
			"":         func(rt *rapid.T) { l.forward(rt) },
		})
		for range 3 { // a sweep looks again at what could not be kept in order
			l.settle(rt)
			l.tick(rt, time.Second)
		}
		l.settle(rt)
		l.equal(rt)
		if len(l.answers) != len(l.asked) {
			rt.Fatalf("%d requests, %d replies", len(l.asked), len(l.answers))
		}
	})
}

// someHold is a hold that stands, one that does not, or none.
func (l *lab) someHold(t *rapid.T) int64 {
	holds := []int64{0, 3}
	l.core.Each(0, func(id allocator.Identity) bool {
		for _, h := range id.Holders {
			holds = append(holds, h.Hold)
		}
		return true
	})
	return rapid.SampledFrom(holds).Draw(t, "hold")
}

// giveBack releases a reference that stands.
func (l *lab) giveBack(t *testing.T, rt *rapid.T) {
	holds := l.core.Holds()
	keys := slices.SortedFunc(maps.Keys(holds), func(a, b allocator.Key) int { return strings.Compare(a.String(), b.String()) })
	if len(keys) == 0 {
		rt.Skip("nothing to release")
	}
	k := rapid.SampledFrom(keys).Draw(rt, "reference")
	l.ask(rt, allocator.ReleaseRequest{Labels: set(t, strings.TrimSuffix(k.Labels, ";")), Holder: k.Name, Hold: holds[k]})
}

func (l *lab) somePublish(t *rapid.T, texts []string) allocator.PublishRequest {
	r := allocator.PublishRequest{Node: rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node")}
	ip := rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2"})
	if rapid.Bool().Draw(t, "withdraw") {
		r.Withdraw = []string{ip.Draw(t, "address")}
		return r
	}
	labels := rapid.SampledFrom(texts).Draw(t, "labels") + ";"
	id, _ := l.core.ByLabels(labels)
	r.Put = []allocator.AddressClaim{{Address: allocator.Address{IP: ip.Draw(t, "address"), ID: uint32(id.Number)}, Labels: labels, EndpointID: "e"}}
	return r
}

// edit deletes a master or a reference past the core, or rewrites a reference.
func (l *lab) edit(t *rapid.T) {
	prefix := rapid.SampledFrom([]string{l.layout.Masters(), l.layout.References()}).Draw(t, "prefix")
	r, err := l.model.Range(kvstore.RangeRequest{Key: prefix, RangeEnd: kvstore.PrefixEnd(prefix)})
	if err != nil || len(r.KVs) == 0 {
		t.Skip("nothing to edit")
	}
	kv := r.KVs[rapid.IntRange(0, len(r.KVs)-1).Draw(t, "key")]
	if prefix == l.layout.References() && rapid.Bool().Draw(t, "rewrite") {
		l.put(kv.Key, string(kv.Value), 0)
		return
	}
	l.del(kv.Key)
}

// Requests of one holder are served in order: an Allocate behind a Release is
// not answered with the hold that the Release takes.
func TestAllocate_doesNotOvertakeARelease(t *testing.T) {
	b := newBench(t)
	a := b.allocate("pin-ann", "k8s:app=web")
	ask := allocator.AllocateRequest{Labels: set(t, "k8s:app=web"), Holder: "pin-ann"}
	b.send1(ask)
	b.send1(allocator.ReleaseRequest{Labels: ask.Labels, Holder: "pin-ann", Hold: a.Hold})
	last := b.send1(ask)
	b.run()
	got, _ := b.replies[last].Value.(allocator.Allocation)
	if kv := b.get(allocator.ReferenceKey("k8s:app=web;", "pin-ann")); kv == nil || kv.ModRevision != got.Hold || got.Hold == a.Hold {
		t.Errorf("the last answer is hold %d, the reference %+v", got.Hold, kv)
	}
}

// The answer to a commit may come in after the mirror has shown what followed;
// it still names the number and the labels.
func TestAllocate_answeredBehindTheMirror(t *testing.T) {
	b := newBench(t)
	id := b.send1(allocator.AllocateRequest{Labels: set(t, "k8s:app=web"), Holder: "pin-ann"})
	for _, op := range b.core.Ready().Ops {
		b.commit.Submit(op)
	}
	tx := b.commit.Ready().Send[0]
	answer := b.apply(tx)
	b.del(b.key(tx.Ops[0].Writes[0].Key))
	b.mirror()
	b.commit.Result(answer)
	b.run()
	a, _ := b.replies[id].Value.(allocator.Allocation)
	if a.Identity.Number != tx.Ops[0].Writes[0].Key.Number || a.Identity.Labels != "k8s:app=web;" || a.Hold != answer.Revision {
		t.Errorf("answered %+v", a)
	}
}

// Rewrites of the lineage that land without an answer count their time once.
func TestLineage_countsNoTimeTwice(t *testing.T) {
	b := newBench(t)
	b.lose = func(tx commit.Transaction) bool {
		if tx.Kind != commit.Work {
			return false
		}
		b.apply(tx)
		return true
	}
	b.pass(20 * time.Second)
	r, err := b.layout.Decode(*b.get(allocator.LineageKey()))
	if err != nil {
		t.Fatal(err)
	}
	if served := r.Value.(allocator.Lineage).ServedS; served > 20 || served < 15 {
		t.Errorf("%d s were counted in 20 s", served)
	}
}
