// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	"github.com/signet-identity/signet/kvstore"
)

const callTimeout = 1200 * time.Millisecond

// agent is a model of a node's agent, or (without a presence) of somebody with
// a pin. It keeps at most one call per label set in flight.
type agent struct {
	process
	holder   string
	node     bool
	gone     bool // it never comes back
	leaves   bool // it is leaving, whatever crashes meanwhile
	left     bool // it has left; who comes back is another instance
	instance int
	kernel   firewall
	link     *link
	presence *kvstore.Presence
	view     *follower
	asking   bool // a Leave is under way
	alarm    time.Duration
	wants    []*want
	leader   int // index of the candidate to ask
	hello    bool
	helloAt  time.Duration
	was      bool // the presence stood when last looked at
}

// want is one label set on an agent.
type want struct {
	set     labels.Set
	wanted  bool
	hold    int64 // the hold that it believes in; 0: none
	confirm bool  // ask again, although there is a hold
	given   int64 // a hold whose Release got no answer
	unsure  bool  // an Allocate got no answer: there may be a reference
	busy    bool
	retry   time.Duration
}

func (w *world) addAgent(holder string, node bool, sets []labels.Set) *agent {
	a := &agent{process: process{w: w, name: holder, rate: 1}, holder: holder, node: node,
		kernel: firewall{entries: map[identity.Number]string{}}}
	if node {
		a.rate = w.someRate()
	}
	for _, s := range sets {
		a.wants = append(a.wants, &want{set: s})
	}
	if node {
		w.agents = append(w.agents, a)
	} else {
		w.pins = append(w.pins, a)
	}
	a.start()
	return a
}

// start begins a life. What it held it knows from its checkpoint, or not at all.
func (a *agent) start() {
	w := a.w
	a.life++
	a.up, a.alarm, a.hello, a.was = true, 0, false, false
	checkpoint := w.chance(0.5) && !a.left
	for _, x := range a.wants {
		if !checkpoint {
			x.hold, x.unsure = 0, true // what it has given up was noted before it was sent
		}
		x.busy, x.confirm = false, true
	}
	if a.node {
		if a.left || w.chance(0.2) {
			a.instance++
			if w.chance(0.5) { // the node was booted anew
				clear(a.kernel.entries)
			}
		}
		if a.left {
			a.leaves, a.left = false, false
		}
		a.asking = false
		a.view = w.newFollower()
		a.link = newLink(&a.process)
		a.presence = kvstore.NewPresence(kvstore.PresenceConfig{
			Key: mustKey(w.layout, allocator.PresenceKey(a.holder)), TTL: presenceTTL, Retry: 300 * time.Millisecond,
			Value: allocator.Presence{Node: a.holder, Version: "sim", Instance: a.instanceName()},
		})
	}
	w.log(a.name, "starts, life %d, checkpoint %v", a.life, checkpoint)
	a.wake()
}

// wake looks at the clock and does what is due.
func (a *agent) wake() {
	if a.node {
		a.presence.Tick(a.clock())
		a.view.mirror.Tick(a.clock())
	}
	a.pump()
}

func (a *agent) pump() {
	wake := a.clock() + 100*time.Millisecond
	if a.node {
		r := a.presence.Ready()
		for _, call := range r.Calls {
			a.link.carry(laneElection, call, func(ans kvstore.Answer) { a.presence.Step(a.clock(), ans); a.pump() })
		}
		wake = min(wake, r.Wake, a.follow())
		if r.Stopped {
			a.hasLeft()
			return
		}
		stands := a.presence.Status(a.clock()).Present
		if stands && !a.was {
			a.reconfirm() // it may have been purged meanwhile
		}
		a.was = stands
	}
	a.act()
	if a.alarm != 0 && a.alarm <= wake {
		return
	}
	a.alarm = max(wake, a.clock()+1)
	set := a.alarm
	a.later(a.world(set-a.clock()), laneTimer, func() {
		if a.alarm == set {
			a.alarm = 0
			a.wake()
		}
	})
}

func (a *agent) reconfirm() {
	a.helloAt = a.clock()
	for _, x := range a.wants {
		x.confirm = true
	}
}

// act sends what can be sent.
func (a *agent) act() {
	if a.leaves {
		a.leave()
		return
	}
	if a.node && !a.was {
		return
	}
	if a.node {
		a.acknowledge()
	}
	if a.node && !a.hello && a.clock() >= a.helloAt {
		a.sayHello()
	}
	for _, x := range a.wants {
		if x.busy || a.clock() < x.retry {
			continue
		}
		switch {
		case x.wanted && (x.hold == 0 || x.confirm):
			a.allocate(x)
		case !x.wanted && x.hold != 0:
			x.given, x.hold = x.hold, 0 // it believes in it no more
			a.release(x)
		case !x.wanted && (x.given != 0 || x.unsure && !a.node):
			a.release(x)
		}
	}
}

func (a *agent) allocate(x *want) {
	x.busy = true
	a.call(allocator.AllocateRequest{Labels: x.set, Holder: a.holder, GivenUpHold: x.given}, func(r allocator.Reply, from int64, err error) {
		x.busy = false
		switch {
		case a.leaves:
		case err != nil:
			x.unsure = true
			a.again(x)
		case r.Err != nil:
			if r.Err.Code == allocator.Exhausted {
				a.w.checker.exhausted(x.set.Text(), from)
			}
			a.refused(x, r.Err)
		default:
			got := r.Value.(allocator.Allocation)
			a.w.checker.allocated(refKey{x.set.Text(), a.holder}, got, from)
			if a.node && !a.entitled(got) {
				a.again(x)
				return
			}
			if a.node {
				a.enter(got.Identity.Number, got.Identity.Labels)
			}
			x.hold, x.given, x.confirm, x.unsure = got.Hold, 0, false, false
			a.w.stats.Allocated++
		}
	})
}

// release gives back the hold that is given up; without one, a pin gives back any.
func (a *agent) release(x *want) {
	x.busy = true
	hold := x.given
	a.call(allocator.ReleaseRequest{Labels: x.set, Holder: a.holder, Hold: hold}, func(r allocator.Reply, from int64, err error) {
		x.busy = false
		switch {
		case a.leaves:
		case err != nil:
			a.again(x)
		case r.Err != nil && r.Err.Code == allocator.FailedPrecondition:
			x.given = 0 // another hold stands: that of an Allocate that came late
			a.helloAt = a.clock()
			x.unsure = true
		case r.Err != nil:
			a.refused(x, r.Err)
		default:
			got := r.Value.(allocator.Released)
			a.w.checker.released(refKey{x.set.Text(), a.holder}, hold, got, from)
			x.given, x.unsure = 0, false
			if got.Done {
				a.w.stats.Released++
			}
		}
	})
}

func (a *agent) again(x *want) {
	x.retry = a.clock() + a.w.between(10*time.Millisecond, 200*time.Millisecond)
}

func (a *agent) refused(x *want, err *allocator.Error) {
	a.w.stats.Refused++
	x.retry = a.clock() + min(max(err.Retry/2, 50*time.Millisecond), time.Second)
}

// sayHello asks what the node holds, and gives back what it does not want.
func (a *agent) sayHello() {
	a.hello = true
	a.call(allocator.HelloRequest{Node: a.holder, Instance: a.instanceName()}, func(r allocator.Reply, _ int64, err error) {
		a.hello = false
		a.helloAt = a.clock() + 3*time.Second
		if a.leaves {
			return
		}
		if err != nil || r.Err != nil {
			a.helloAt = a.clock() + 200*time.Millisecond
			return
		}
		held := map[string]int64{}
		for _, p := range r.Value.(allocator.Welcome).Holds {
			held[p.Labels] = p.Hold
		}
		for _, x := range a.wants {
			hold := held[x.set.Text()]
			switch {
			case x.busy:
			case x.wanted && x.hold != hold:
				x.confirm = true
			case !x.wanted && x.hold == 0 && x.given == 0 && hold != 0:
				x.given = hold
			}
		}
	})
}

// toggle changes what the agent wants.
func (a *agent) toggle() {
	x := a.wants[a.w.random.IntN(len(a.wants))]
	if a.leaves {
		return
	}
	x.wanted = !x.wanted
	if x.wanted && a.w.opt.Profile == Reuse {
		a.wantLess(x)
	}
	a.w.log(a.name, "wants %s: %v", x.set, x.wanted)
	if a.up && !a.paused {
		a.pump()
	}
}

// wantLess gives up another label set if the agent has as many as it may want.
func (a *agent) wantLess(but *want) {
	var others []*want
	for _, x := range a.wants {
		if x.wanted && x != but {
			others = append(others, x)
		}
	}
	if len(others) >= perHolder {
		others[a.w.random.IntN(len(others))].wanted = false
	}
}

func (a *agent) instanceName() string { return fmt.Sprintf("%s-%d", a.holder, a.instance) }

// believes says whether the holder counts on this hold.
func (w *world) believes(k refKey, hold int64) bool {
	for _, as := range [][]*agent{w.agents, w.pins} {
		for _, a := range as {
			if a.holder != k.holder {
				continue
			}
			for _, x := range a.wants {
				if x.set.Text() == k.text && x.hold == hold {
					return true
				}
			}
		}
	}
	return false
}
