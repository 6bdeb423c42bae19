// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/kvstore"
)

// faults are how likely what is in one run: each seed has some kinds and not
// others, so that each kind is also seen without the rest.
type faults struct {
	slow        float64 // a message takes up to 400 ms
	late        float64 // a transaction lands after its sender gave up on it
	loseRequest float64
	loseAnswer  float64
	pauseAtTxn  float64
	every       time.Duration // between two of actions
	actions     []action
	clocks      bool // clocks run at half, whole or double speed
}

// action is something that breaks, under the name by which it can be left out.
type action struct {
	name string
	do   func()
}

func (w *world) chooseFaults() faults {
	some := func(p float64) float64 {
		if w.chance(0.4) {
			return 0
		}
		return p * w.random.Float64()
	}
	f := faults{slow: some(0.1), late: some(0.15), loseRequest: some(0.06), loseAnswer: some(0.08),
		pauseAtTxn: some(0.03), every: w.between(300*time.Millisecond, 3*time.Second)}
	edit := action{"edit", w.edit}
	for _, a := range []action{
		{"operator crash", w.crashCandidate}, {"operator pause", w.pauseCandidate}, {"agent crash", w.crashAgent},
		{"agent pause", w.pauseAgent}, {"lease revoked", w.revoke}, {"leases extended", w.extend}, {"cut", w.cut},
		{"compaction", w.compact}, {"watches broken", w.breakWatches}, {"node leaves", w.leave}, {"node away", w.away},
		{"forget", w.forget}, {"all operators down", w.outage},
	} {
		if w.chance(0.6) && !w.left(a.name) {
			f.actions = append(f.actions, a)
		}
	}
	if w.opt.hand() && !w.left(edit.name) {
		f.actions = append(f.actions, edit, edit, edit)
	}
	w.fastest = 1
	if f.clocks = w.chance(0.3) && !w.left("clocks"); f.clocks {
		w.fastest = 2
	}
	return f
}

// someRate is how fast a process's clock runs.
func (w *world) someRate() float64 {
	if !w.faults.clocks {
		return 1
	}
	switch w.random.IntN(4) {
	case 0:
		w.stats.Faults["clock x0.5"]++
		return 0.5
	case 1:
		w.stats.Faults["clock x2"]++
		return 2
	}
	return 1
}

// breakSomething does one of the actions, and again a while later.
func (w *world) breakSomething() {
	if w.quiet || len(w.faults.actions) == 0 {
		return
	}
	w.faults.actions[w.random.IntN(len(w.faults.actions))].do()
	w.in(w.between(w.faults.every/2, w.faults.every*3/2), w.breakSomething)
}

// pauseLength is short for a hiccup, or longer than a lease.
func (w *world) pauseLength() time.Duration {
	if w.chance(0.4) {
		return w.between(20*time.Millisecond, 800*time.Millisecond)
	}
	return w.between(800*time.Millisecond, 3*electionTTL)
}

// someCandidate is the leader rather than another.
func (w *world) someCandidate() *candidate {
	if w.chance(0.7) {
		for _, c := range w.candidates {
			if c.up && c.core.Serving() {
				return c
			}
		}
	}
	return w.candidates[w.random.IntN(len(w.candidates))]
}

func (w *world) someAgent() *agent { return w.agents[w.random.IntN(len(w.agents))] }

func (w *world) crashCandidate() {
	if c := w.someCandidate(); c.up {
		w.stats.Faults["operator crash"]++
		c.crash(w.between(50*time.Millisecond, 2*electionTTL))
	}
}

// outage takes all operators down for about as long: no one is left who has
// followed the store meanwhile.
func (w *world) outage() {
	w.stats.Faults["all operators down"]++
	down := w.between(500*time.Millisecond, 4*presenceTTL)
	for _, c := range w.candidates {
		if c.up {
			c.crash(down + w.between(0, time.Second))
		}
	}
}

// crash ends the process, and starts it again after a while.
func (c *candidate) crash(down time.Duration) {
	c.stop()
	c.link.close()
	life := c.life
	c.w.in(down, func() {
		if c.life == life && !c.up {
			c.start()
		}
	})
}

func (w *world) pauseCandidate() {
	if c := w.someCandidate(); c.up && !c.paused {
		w.stats.Faults["operator pause"]++
		c.pause(w.pauseLength())
	}
}

func (w *world) crashAgent() {
	down := w.between(50*time.Millisecond, 2*presenceTTL)
	if w.chance(0.5) {
		down = w.between(presenceTTL, 2*(nodeGrace+2*presenceTTL))
	}
	w.takeDown("agent crash", down)
}

// away takes a node down until about the time at which it is forgotten, or past it.
func (w *world) away() { w.takeDown("node away", w.between(forgetAfter, 2*forgetAfter)) }

func (w *world) takeDown(kind string, down time.Duration) {
	a := w.someAgent()
	if !a.up {
		return
	}
	w.stats.Faults[kind]++
	a.stop()
	a.link.close()
	life := a.life
	w.in(down, func() {
		if a.life == life && !a.up && !a.gone {
			a.start()
		}
	})
}

// leave lets a node leave.
func (w *world) leave() {
	if a := w.someAgent(); a.up && !a.paused && a.was && !a.leaves {
		w.stats.Faults["node leaves"]++
		a.beginLeave()
	}
}

// forget lets a person forget a node that is down, for a while or for good.
func (w *world) forget() {
	a, person := w.someAgent(), w.pins[0]
	if a.up {
		return
	}
	w.stats.Faults["forget"]++
	person.call(allocator.ForgetRequest{Node: a.holder}, func(allocator.Reply, int64, error) {})
}

// extend renews every lease, as a store does that changes its own leader.
func (w *world) extend() {
	w.stats.Faults["leases extended"]++
	for _, id := range w.model.Leases() {
		_, _ = w.model.KeepAlive(id, w.now)
	}
}

func (w *world) pauseAgent() {
	if a := w.someAgent(); a.up && !a.paused {
		w.stats.Faults["agent pause"]++
		a.pause(w.pauseLength())
	}
}

// revoke ends a lease early, as a store does that lost time, or a person.
func (w *world) revoke() {
	leases := w.model.Leases()
	if len(leases) == 0 {
		return
	}
	w.stats.Faults["lease revoked"]++
	id := leases[w.random.IntN(len(leases))]
	w.log("store", "revokes lease %s", kvstore.LeaseName(id))
	w.change(origin{kind: byStore}, func() { _ = w.model.Revoke(id) })
}

// cut cuts a process's link in one direction, or in both.
func (w *world) cut() {
	if len(w.links) == 0 {
		return
	}
	l := w.links[w.random.IntN(len(w.links))]
	until := w.now + w.between(100*time.Millisecond, 2*electionTTL)
	way := w.random.IntN(3)
	if way != 0 {
		l.cutOut = until
	}
	if way != 1 {
		l.cutIn = until
	}
	w.stats.Faults[[...]string{"cut in", "cut out", "cut"}[way]]++
	w.log(l.p.name, "is cut off (%d) until %v", way, until)
}

func (w *world) compact() {
	if w.model.Compact(w.model.Revision()) == nil {
		w.stats.Faults["compaction"]++
		w.log("store", "compacts")
		if w.chance(0.7) {
			w.breakWatches()
		}
	}
}

func (w *world) breakWatches() {
	if len(w.links) == 0 {
		return
	}
	w.stats.Faults["watches broken"]++
	l := w.links[w.random.IntN(len(w.links))]
	w.log(l.p.name, "loses its watches")
	l.breakWatches()
}
