// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

// calm ends all faults: who is down starts again, except some agents that are
// gone for good; who stands still moves; links are whole; the hand rests.
func (w *world) calm() {
	w.quiet = true
	w.log("world", "grows quiet")
	w.endForeignLease()
	for _, c := range w.candidates {
		if !c.up {
			c.start()
		} else if c.paused {
			c.resume()
		}
	}
	for _, a := range w.agents {
		switch {
		case !a.up && w.chance(0.5):
			a.gone = true
		case !a.up:
			a.start()
		case a.paused:
			a.resume()
		}
	}
	for _, l := range w.links {
		l.cutIn, l.cutOut = 0, 0
	}
	if w.chance(0.3) { // one more failover, from here on undisturbed
		for _, c := range w.candidates {
			if c.core.Serving() {
				c.crash(300 * time.Millisecond)
				break
			}
		}
	}
	w.in(0, w.ask)
}

// ask lets everybody make sure of what they hold, now and then: what an edit or
// a very late request did is found so.
func (w *world) ask() {
	for _, as := range [][]*agent{w.agents, w.pins} {
		for _, a := range as {
			for _, x := range a.wants {
				x.confirm = x.confirm || w.opt.hand() || !a.node // a late release of any hold takes a pin's
				x.unsure = x.unsure || !a.node
			}
		}
	}
	w.in(4*time.Second, w.ask)
}

// settle is I11: everything converges.
func (w *world) settle() {
	began := w.now
	why := ""
	undisturbed := reign{}
	for w.failure == nil && w.now < began+w.opt.Settle {
		w.run(w.now + 250*time.Millisecond)
		w.checkOverdue(&undisturbed)
		if why = w.unsettled(); why == "" {
			w.stats.Settle = w.now - began
			return
		}
	}
	w.violate(Violation{Invariant: allocator.I11, Text: fmt.Sprintf("not converged %v after the faults ended: %s", w.opt.Settle, why)})
	for _, c := range w.candidates {
		w.log(c.name, "up %v, election %+v, mirror %+v, head %d", c.up, c.election.Status(c.clock()), c.mirror.Status(c.clock()), w.model.Revision())
	}
	for _, a := range w.agents {
		w.log(a.name, "up %v, presence %+v, gone mark %v, present %v", a.up, a.presence.Status(a.clock()), w.checker.gone[a.holder], w.checker.present[a.holder])
	}
}

// reign is a term, and the served time at which it was first seen without faults.
type reign struct {
	who   *candidate
	term  int
	since int64
}

// checkOverdue judges what a leader leaves standing that reigns undisturbed.
func (w *world) checkOverdue(r *reign) {
	for _, c := range w.candidates {
		switch {
		case !c.core.Serving():
		case r.who != c || r.term != c.term:
			*r = reign{c, c.term, w.checker.served()}
		case !w.opt.hand():
			w.checker.overdue(r.since)
		}
	}
}

// unsettled says what is not yet as it ought to be; "" when all is.
func (w *world) unsettled() string {
	var leader *candidate
	for _, c := range w.candidates {
		switch {
		case c.core.Serving() && leader != nil:
			return leader.name + " and " + c.name + " both lead"
		case c.core.Serving():
			leader = c
		}
	}
	if leader == nil {
		return "nobody leads"
	}
	if n := leader.commit.Queued() + leader.core.Waiting(); n > 0 {
		return fmt.Sprintf("%s has %d ops and requests under way", leader.name, n)
	}
	if why := w.unsettledStore(); why != "" {
		return why
	}
	for _, c := range w.candidates {
		if why := w.differs(c); why != "" {
			return c.name + " " + why
		}
	}
	return ""
}

// unsettledStore compares the store with what everybody wants.
func (w *world) unsettledStore() string {
	wanted := map[refKey]int64{}
	used := map[string]bool{}
	for _, as := range [][]*agent{w.agents, w.pins} {
		for _, a := range as {
			for _, x := range a.wants {
				k := refKey{x.set.Text(), a.holder}
				switch {
				case a.gone:
				case x.wanted && x.hold == 0:
					return a.name + " waits for " + k.text
				case x.wanted:
					wanted[k] = x.hold
					used[k.text] = true
				case x.given != 0:
					return a.name + " has not got rid of " + k.text
				}
			}
		}
	}
	return w.compare(wanted, used)
}

func (w *world) compare(wanted map[refKey]int64, used map[string]bool) string {
	found := 0
	for _, kv := range w.under(w.layout.References()) {
		k, err := w.layout.Parse(kv.Key)
		if err != nil {
			return err.Error()
		}
		if hold := wanted[refKey{k.Labels, k.Name}]; hold != kv.ModRevision {
			return fmt.Sprintf("%v stands under hold %d, wanted is %d", k, kv.ModRevision, hold)
		}
		found++
	}
	if found != len(wanted) {
		return fmt.Sprintf("%d references are wanted, %d stand", len(wanted), found)
	}
	masters := w.under(w.layout.Masters())
	for _, kv := range masters {
		if !used[string(kv.Value)] {
			return fmt.Sprintf("%s has no reference and is not collected", kv.Key)
		}
	}
	if len(masters) != len(used) {
		return fmt.Sprintf("%d label sets are in use, %d numbers are live", len(used), len(masters))
	}
	if n := len(w.under(w.layout.Own() + "idle/")); n > 0 {
		return fmt.Sprintf("%d idle marks stand", n)
	}
	return w.compareNodes()
}

func (w *world) compareNodes() string {
	gone := map[string]bool{}
	for _, kv := range w.under(w.layout.Own() + "gone/") {
		k, _ := w.layout.Parse(kv.Key)
		gone[k.Name] = true
	}
	for _, a := range w.agents {
		if !a.gone && (gone[a.holder] || !w.checker.present[a.holder]) {
			return a.name + " is back, and has a gone mark or no presence"
		}
		if a.gone && gone[a.holder] && w.opt.Profile == Reuse {
			return a.name + " is gone, and not forgotten yet"
		}
	}
	return ""
}

func (w *world) under(prefix string) []kvstore.KV {
	r, err := w.model.Range(kvstore.RangeRequest{Key: prefix, RangeEnd: kvstore.PrefixEnd(prefix)})
	if err != nil {
		panic(err)
	}
	return r.KVs
}

// differs compares a candidate's picture with the store.
func (w *world) differs(c *candidate) string {
	live := map[identity.Number]allocator.Identity{}
	for id := range w.each(c) {
		if id.State == allocator.Live || id.State == allocator.IdleState {
			live[id.Number] = id
		}
	}
	masters := w.under(w.layout.Masters())
	for _, kv := range masters {
		k, err := w.layout.Parse(kv.Key)
		id, ok := live[k.Number]
		if err != nil || !ok || id.Labels != string(kv.Value) || id.Revision != kv.ModRevision {
			return fmt.Sprintf("sees %+v where %s = %s stands", id, kv.Key, kv.Value)
		}
		for _, h := range id.Holders {
			if v := w.checker.refs[refKey{id.Labels, h.Name}]; v == nil || v.removed != 0 || v.hold != h.Hold {
				return fmt.Sprintf("sees holder %+v of number %d, which does not stand", h, id.Number)
			}
		}
		if len(id.Holders) != w.checker.holders[id.Labels] {
			return fmt.Sprintf("sees %d holders of %s, there are %d", len(id.Holders), id.Labels, w.checker.holders[id.Labels])
		}
	}
	if len(live) != len(masters) {
		return fmt.Sprintf("sees %d live numbers, there are %d", len(live), len(masters))
	}
	return ""
}

func (w *world) each(c *candidate) func(yield func(allocator.Identity) bool) {
	return func(yield func(allocator.Identity) bool) { c.core.Each(0, yield) }
}
