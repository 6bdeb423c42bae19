// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"slices"
	"time"
)

// presenceTTL is the TTL that a node's presence had, in leader's time.
func (c *Core) presenceTTL(n *node) time.Duration {
	if n.ttlS > 0 {
		return time.Duration(n.ttlS) * time.Second
	}
	return c.cfg.PresenceTTL
}

// decideNode decides what is next for a node: the way from a lapsed presence
// over the gone mark to nothing left, or the node's own wish to leave.
func (c *Core) decideNode(n *node) {
	switch {
	case n.busy:
	case n.leaving != nil:
		c.leave(n)
	case n.forgetting != nil:
		c.forget(n, n.forgetting)
	case n.present():
		n.absentSince = seen{}
		switch {
		case n.gone.mod != 0:
			c.markBack(n)
		case n.known == 0:
			c.know(n)
		}
	default:
		c.decideAbsent(n)
	}
	if n.empty() {
		delete(c.t.nodes, n.name)
		delete(c.acks, n.name)
	}
}

func (c *Core) decideAbsent(n *node) {
	if !n.absentSince.set {
		n.absentSince = seen{c.now, true}
	}
	if n.gone.mod == 0 {
		if n.awaited() {
			c.markGone(n)
		}
		return
	}
	if !c.mayPurge(n) {
		return
	}
	if !c.purge(n) && c.due(n.gone.since, c.cfg.ForgetAfter) {
		c.forget(n, nil)
	}
}

// know remembers a node that is present. A leader that comes after an outage of
// all operators waits for its acknowledgement even if the presence lapsed
// meanwhile and the node holds nothing.
func (c *Core) know(n *node) {
	p := &plan{op: Op{Verb: VerbKnow}}
	p.present(PresenceKey(n.name))
	p.absent(KnownKey(n.name))
	p.write(KnownKey(n.name), Mark{Since: c.time()})
	c.submitNode(n, p, nil)
}

// planUnknown ends the memory of a node that leaves or is forgotten.
func (p *plan) planUnknown(n *node) {
	p.atOrAbsent(GoneKey(n.name), n.gone.mod)
	if n.gone.mod != 0 {
		p.write(GoneKey(n.name), nil)
	}
	p.atOrAbsent(KnownKey(n.name), n.known)
	if n.known != 0 {
		p.write(KnownKey(n.name), nil)
	}
}

func (c *Core) markGone(n *node) {
	p := &plan{op: Op{Verb: VerbGone}}
	c.planAbsent(p, n)
	p.absent(GoneKey(n.name))
	p.write(GoneKey(n.name), Mark{Since: c.time()})
	c.submitNode(n, p, func(int64) { c.stats.MarkedGone++ })
}

// planAbsent guards that the node has no presence that counts: none, or the
// one without a lease that the table knows.
func (c *Core) planAbsent(p *plan, n *node) {
	p.atOrAbsent(PresenceKey(n.name), n.mod)
}

func (c *Core) markBack(n *node) {
	p := &plan{op: Op{Verb: VerbBack}}
	p.present(PresenceKey(n.name))
	p.at(GoneKey(n.name), n.gone.mod)
	p.write(GoneKey(n.name), nil)
	c.submitNode(n, p, nil)
}

// forget deletes the gone mark: nobody waits for that node any more.
func (c *Core) forget(n *node, r *request) {
	switch {
	case r != nil && (n.present() || n.gone.mod == 0):
		n.forgetting = nil
		c.fail(r.id, &Error{Code: FailedPrecondition, Field: n.name,
			Message: fmt.Sprintf("node %q is not gone; only a node with a gone mark can be forgotten", n.name)})
		return
	case r != nil && c.purge(n):
		return // its references go first
	}
	p := &plan{op: Op{Verb: VerbForget}}
	c.planAbsent(p, n)
	p.planUnknown(n)
	c.submitNode(n, p, func(int64) {
		if r != nil {
			n.forgetting = nil
			c.reply(r.id, nil)
		}
	})
}

// purge queues the removal of what the node holds. It returns whether anything is left.
func (c *Core) purge(n *node) bool {
	for _, text := range sortedKeys(n.refs) {
		s := c.t.set(text)
		if !slices.ContainsFunc(s.waiting, func(r *request) bool { return r.kind == wantPurge && r.holder == n.name }) {
			s.waiting = append(s.waiting, &request{kind: wantPurge, text: text, holder: n.name})
			c.markSet(s)
		}
	}
	for _, key := range sortedKeys(n.addrs) {
		a := c.t.address(key)
		if !slices.ContainsFunc(a.waiting, func(r *request) bool { return r.kind == wantPurge }) {
			a.waiting = append(a.waiting, &request{kind: wantPurge, text: key, holder: n.name})
			c.markAddress(a)
		}
	}
	return len(n.refs)+len(n.addrs) > 0
}

// planPurge guards what allows to purge a node: it is gone and due, or it
// leaves, or it is to be forgotten. It reports false when none is true any more.
func (c *Core) planPurge(p *plan, holder string) bool {
	n := c.t.nodes[holder]
	switch {
	case n == nil:
		return false
	case n.leaving != nil:
		p.atOrAbsent(PresenceKey(n.name), n.mod)
	case n.forgetting != nil || c.mayPurge(n):
		c.planAbsent(p, n)
		p.at(GoneKey(n.name), n.gone.mod)
	default:
		return false
	}
	return true
}

func (c *Core) requestLeave(id uint64, r LeaveRequest) {
	if err := CheckNode(r.Node); err != nil {
		c.fail(id, err.(*Error))
		return
	}
	n := c.t.nodes[r.Node]
	switch {
	case n == nil || !n.awaited():
		c.fail(id, &Error{Code: NotFound, Field: r.Node, Message: fmt.Sprintf("node %q is not known", r.Node)})
	case n.presence != nil && r.Instance != "" && n.presence.Instance != r.Instance:
		c.fail(id, &Error{Code: FailedPrecondition, Field: r.Node, Message: fmt.Sprintf(
			"node %q is present as instance %s, not %s; the other agent has to leave", r.Node, n.presence.Instance, r.Instance)})
	case n.leaving != nil:
		c.fail(id, &Error{Code: Unavailable, Field: r.Node, Retry: time.Second, Message: fmt.Sprintf("node %q is leaving already", r.Node)})
	default:
		n.leaving = &request{id: id, kind: wantLeave, holder: r.Node, group: nil, hold: int64(len(n.refs)), givenUp: int64(len(n.addrs))}
		c.wait(n.leaving)
		c.markNode(n)
	}
}

// leave purges everything and then takes the presence away.
func (c *Core) leave(n *node) {
	if c.purge(n) {
		return
	}
	p := &plan{op: Op{Verb: VerbPurge}}
	p.atOrAbsent(PresenceKey(n.name), n.mod)
	if n.mod != 0 {
		p.write(PresenceKey(n.name), nil)
	}
	p.planUnknown(n)
	r := n.leaving
	c.submitNode(n, p, func(int64) {
		n.lapsed, n.leaving = false, nil
		c.reply(r.id, Left{References: int(r.hold), Addresses: int(r.givenUp)})
	})
}

func (c *Core) requestForget(id uint64, r ForgetRequest) {
	n := c.t.nodes[r.Node]
	if n == nil {
		c.fail(id, &Error{Code: NotFound, Field: r.Node, Message: fmt.Sprintf("node %q is not known", r.Node)})
		return
	}
	if n.forgetting != nil {
		c.fail(id, &Error{Code: Unavailable, Field: r.Node, Retry: time.Second, Message: fmt.Sprintf("node %q is being forgotten already", r.Node)})
		return
	}
	n.forgetting = &request{id: id, kind: wantForget, holder: r.Node}
	c.wait(n.forgetting)
	c.markNode(n)
}

func (c *Core) requestHello(id uint64, r HelloRequest) {
	n := c.t.nodes[r.Node]
	if n == nil || !n.present() {
		c.fail(id, unknownNode(r.Node))
		return
	}
	if n.presence.Instance != r.Instance {
		c.fail(id, &Error{Code: FailedPrecondition, Field: r.Node, Message: fmt.Sprintf(
			"node %q is present as instance %s, not %s", r.Node, n.presence.Instance, r.Instance)})
		return
	}
	ask := &request{id: id}
	c.wait(ask)
	p := &plan{op: Op{Verb: VerbConfirm}}
	p.at(PresenceKey(n.name), n.mod)
	confirmed := false
	lose := func() { c.fail(ask.id, leadershipLost()) }
	c.submitThen(p.op, func(int64) { confirmed = true }, lose, func() {
		switch {
		case ask.id == 0: // cancelled
		case confirmed:
			c.heardHello(ask.id, r)
		default:
			c.requestHello(ask.id, r) // the presence changed meanwhile
		}
	})
}

// welcome lists every reference of the node.
func (c *Core) welcome(node string) Welcome {
	_, open := c.recovering()
	w := Welcome{Position: c.Position(), Recovery: open}
	n := c.t.nodes[node]
	if n == nil {
		return w
	}
	for _, text := range sortedKeys(n.refs) {
		have := c.t.sets[text].refs[node]
		pair := HeldPair{Labels: text, Number: have.number, Hold: have.mod, Counter: w.Position.Counter}
		if m := c.t.masters[have.number]; m != nil && m.text == text {
			pair.CreateRevision = m.create
		}
		w.Holds = append(w.Holds, pair)
	}
	return w
}

// submitNode sends an operation on a node.
func (c *Core) submitNode(n *node, p *plan, land func(int64)) {
	n.busy = true
	c.submit(p.op, func() { n.busy = false; c.markNode(n) }, land, nil)
}
