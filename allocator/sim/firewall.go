// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

// firewall is what a node's kernel holds: which labels a packet with a number
// is taken for. It outlives the agent's process.
type firewall struct {
	entries map[identity.Number]string
	// cleared is the revision up to which every removal has been carried out.
	cleared int64
}

// follower is what an agent's process knows of the store: its mirror, and the
// entries that it is about to clear.
type follower struct {
	mirror  *kvstore.Mirror
	masters map[identity.Number]string
	tombs   map[identity.Number]int64 // mod revisions
	pending map[identity.Number]int64 // entries to be cleared, and since which revision
	at      allocator.Position
	ackAt   time.Duration
}

const ackEvery = 400 * time.Millisecond

// followerSpans are what an agent mirrors, less the addresses.
func (w *world) followerSpans() []kvstore.Span {
	lineage := mustKey(w.layout, allocator.LineageKey())
	return []kvstore.Span{kvstore.PrefixSpan(w.layout.Masters()), kvstore.PrefixSpan(w.layout.Tombstones()), {Key: lineage, End: lineage + "\x00"}}
}

func (w *world) newFollower() *follower {
	mirror, err := kvstore.NewMirror(kvstore.MirrorConfig{Spans: w.followerSpans(), Heartbeat: 2 * time.Second, PageTimeout: time.Second,
		PageSize: 50, AskEvery: 40 * time.Millisecond, MaxBackoff: time.Second}, rand.New(rand.NewPCG(w.random.Uint64(), 1)))
	if err != nil {
		panic(err)
	}
	return &follower{mirror: mirror, masters: map[identity.Number]string{}, tombs: map[identity.Number]int64{}, pending: map[identity.Number]int64{}}
}

// follow takes what the mirror brings.
func (a *agent) follow() (wake time.Duration) {
	r := a.view.mirror.Ready()
	for _, b := range r.Batches {
		batch, _ := kvstore.DecodeBatch(a.w.layout, b)
		a.applyBatch(batch)
	}
	if r.WentBack != nil {
		a.w.violate(Violation{Invariant: allocator.I7, Text: a.name + " took the store for a restored one"})
	}
	for _, call := range r.Calls {
		a.link.carry(laneMirror, call, func(ans kvstore.Answer) { a.view.mirror.Step(a.clock(), ans); a.pump() })
	}
	return r.Wake
}

func (a *agent) applyBatch(b allocator.Batch) {
	v := a.view
	if a.leaves {
		return
	}
	touched := map[identity.Number]bool{}
	if b.Reset {
		clear(v.masters)
		clear(v.tombs)
		for n := range a.kernel.entries {
			touched[n] = true
		}
	}
	for _, d := range b.Deleted {
		switch d.Key.Kind {
		case allocator.KindMaster:
			delete(v.masters, d.Key.Number)
		case allocator.KindTombstone:
			delete(v.tombs, d.Key.Number)
		}
		touched[d.Key.Number] = true
	}
	for _, r := range b.Records {
		switch val := r.Value.(type) {
		case allocator.LabelSet:
			v.masters[r.Key.Number] = string(val)
		case allocator.Tombstone:
			v.tombs[r.Key.Number] = r.ModRevision
		case allocator.Lineage:
			if last := len(val.Terms) - 1; last >= 0 {
				v.at.Nonce, v.at.Counter = val.Terms[last].Nonce, val.Counter
			}
		}
		touched[r.Key.Number] = true
	}
	v.at.Revision = b.Revision
	for _, n := range sortedNumbers(touched) {
		a.restate(n)
	}
	a.noteCleared()
}

func sortedNumbers(m map[identity.Number]bool) []identity.Number {
	out := make([]identity.Number, 0, len(m))
	for n := range m {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// restate brings the kernel's entry of a number in line with the view: what is
// live is put at once, what is freed goes a while later. A master that merely
// vanished changes nothing.
func (a *agent) restate(n identity.Number) {
	v := a.view
	text, live := v.masters[n]
	rev, freed := v.tombs[n]
	switch {
	case live:
		delete(v.pending, n)
		a.enter(n, text)
	case freed:
		if _, there := a.kernel.entries[n]; !there || v.pending[n] != 0 {
			return
		}
		v.pending[n] = rev
		a.later(a.w.between(time.Millisecond, 400*time.Millisecond), laneKernel, func() {
			if v.pending[n] != rev {
				return
			}
			delete(v.pending, n)
			delete(a.kernel.entries, n)
			a.w.log(a.name, "has cleared %d", n)
			a.noteCleared()
		})
	}
}

// enter puts a number's entry into the kernel.
func (a *agent) enter(n identity.Number, text string) {
	if a.kernel.entries[n] != text {
		a.kernel.entries[n] = text
		a.w.checker.entered(a, n, text)
	}
}

// noteCleared notes how far all removals have been carried out.
func (a *agent) noteCleared() {
	to := a.view.at.Revision
	for _, rev := range a.view.pending {
		to = min(to, rev-1)
	}
	a.kernel.cleared = max(a.kernel.cleared, to)
}

// entitled says whether an answer's number may be used: the view is not past
// its hold, or shows that the number is still live for the labels.
func (a *agent) entitled(got allocator.Allocation) bool {
	return a.view.at.Revision < got.Hold || a.view.masters[got.Identity.Number] == got.Identity.Labels
}

// acknowledge says how far this process has come, now and then. Nobody answers.
func (a *agent) acknowledge() {
	v := a.view
	if a.clock() < v.ackAt || v.at.Revision == 0 || v.at.Nonce == "" {
		return
	}
	v.ackAt = a.clock() + ackEvery
	at := v.at
	for _, rev := range v.pending {
		at.Revision = min(at.Revision, rev-1)
	}
	w := a.w
	req := allocator.AckRequest{Node: a.holder, Instance: a.instanceName(), Position: at}
	to := w.candidates[a.addressee()%len(w.candidates)]
	if w.fault("lost acknowledgement", w.faults.loseRequest) {
		return
	}
	out := w.delay()
	if w.fault("late acknowledgement", w.faults.late) {
		out = w.between(time.Second, 8*time.Second)
	}
	w.stats.Acks++
	w.in(out, func() {
		to.deliver(to.life, laneRequest, func() {
			w.log(to.name, "hears that %s has come to %d", a.name, at.Revision)
			to.core.Acknowledge(req)
		})
	})
}
