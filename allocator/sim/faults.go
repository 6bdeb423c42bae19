// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

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
	actions     []func()
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
	all := []func(){w.crashCandidate, w.pauseCandidate, w.crashAgent, w.pauseAgent, w.revoke, w.cut, w.compact, w.breakWatches}
	for _, a := range all {
		if w.chance(0.6) {
			f.actions = append(f.actions, a)
		}
	}
	if w.opt.hand() {
		f.actions = append(f.actions, w.edit, w.edit, w.edit)
	}
	return f
}

// breakSomething does one of the actions, and again a while later.
func (w *world) breakSomething() {
	if w.quiet || len(w.faults.actions) == 0 {
		return
	}
	w.faults.actions[w.random.IntN(len(w.faults.actions))]()
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
	c := w.someCandidate()
	if !c.up {
		return
	}
	w.stats.Faults["operator crash"]++
	c.crash()
	life := c.life
	w.in(w.between(50*time.Millisecond, 2*electionTTL), func() {
		if c.life == life && !c.up {
			c.start()
		}
	})
}

func (c *candidate) crash() {
	c.stop()
	c.link.close()
}

func (w *world) pauseCandidate() {
	if c := w.someCandidate(); c.up && !c.paused {
		w.stats.Faults["operator pause"]++
		c.pause(w.pauseLength())
	}
}

func (w *world) crashAgent() {
	a := w.someAgent()
	if !a.up {
		return
	}
	w.stats.Faults["agent crash"]++
	a.stop()
	a.link.close()
	life, down := a.life, w.between(50*time.Millisecond, 2*presenceTTL)
	if w.chance(0.5) {
		down = w.between(presenceTTL, 2*(nodeGrace+2*presenceTTL))
	}
	w.in(down, func() {
		if a.life == life && !a.up && !a.gone {
			a.start()
		}
	})
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
