// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"time"

	"github.com/signet-identity/signet/allocator"
)

var errNoAnswer = errors.New("no answer came")

// call sends a request to the candidate that is thought to lead. done is told
// the reply, or an error when none came in time; from is the store's revision
// when the request was sent.
func (a *agent) call(req any, done func(r allocator.Reply, from int64, err error)) {
	w := a.w
	index := a.addressee()
	to := w.candidates[index%len(w.candidates)]
	from := w.told
	asked := w.checker.asks(req)
	finished := false
	var cancel func()
	finish := func(r allocator.Reply, err error) {
		if finished {
			return
		}
		finished = true
		if (err != nil || r.Err != nil && r.Err.Code == allocator.Unavailable) && a.leader == index {
			a.leader++ // perhaps another leads by now
		}
		done(r, from, err)
		a.pump()
	}
	w.stats.Requests++
	w.log(a.name, "asks %s: %s", to.name, requestText(req))
	a.later(a.world(callTimeout), laneRequest, func() {
		if !finished && cancel != nil && w.chance(0.5) {
			to.later(w.delay(), laneRequest, cancel)
		}
		finish(allocator.Reply{}, errNoAnswer)
	})
	if w.fault("lost request", w.faults.loseRequest) {
		return
	}
	out := w.delay()
	if w.fault("late request", w.faults.late/2) {
		out = a.world(callTimeout) + w.between(0, 3*time.Second)
	}
	w.in(out, func() {
		to.deliver(to.life, laneRequest, func() {
			cancel = to.ask(req, func(r allocator.Reply) {
				asked.answered = r.Err == nil || r.Err.Code != allocator.Unavailable
				w.log(to.name, "answers %s: %s", a.name, replyText(r))
				if !w.fault("lost answer", w.faults.loseAnswer) {
					a.later(w.delay(), laneRequest, func() { finish(r, nil) })
				}
			})
		})
	})
}

// addressee is the index of the candidate to ask: mostly the one that is thought to lead.
func (a *agent) addressee() int {
	index := a.leader
	if !a.w.quiet && a.w.chance(0.1) {
		index = a.w.random.IntN(len(a.w.candidates)) // it heard something else
	}
	return index
}

// beginLeave takes the node out for good: the kernel's entries first.
func (a *agent) beginLeave() {
	a.w.log(a.name, "leaves")
	a.leaves = true
	clear(a.kernel.entries)
	for _, x := range a.wants {
		*x = want{set: x.set}
	}
	a.pump()
}

// leave asks the leader to release everything, until it has, and then takes the
// presence away.
func (a *agent) leave() {
	if a.asking || a.left {
		return
	}
	a.asking = true
	a.call(allocator.LeaveRequest{Node: a.holder, Instance: a.instanceName()}, func(r allocator.Reply, _ int64, err error) {
		a.asking = false
		if err != nil || r.Err != nil && r.Err.Code == allocator.Unavailable {
			return
		}
		a.left = true
		a.presence.Leave(a.clock())
	})
}

// hasLeft ends the process of a node that left; half of them come back.
func (a *agent) hasLeft() {
	a.stop()
	a.link.close()
	life := a.life
	if a.w.quiet || a.w.chance(0.5) {
		a.gone = true
		return
	}
	a.w.in(a.w.between(time.Second, 2*forgetAfter), func() {
		if a.life == life && !a.up && !a.gone {
			a.start()
		}
	})
}
