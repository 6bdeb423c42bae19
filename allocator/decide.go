// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/signet-identity/signet/allocator/identity"
)

// maxGroup bounds the requests that one operation on a label set serves, so
// that it stays far below the store's limit of ops in a transaction.
const maxGroup = 16

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

func (c *Core) requestReference(id uint64, r AllocateRequest) {
	kind, name, err := ParseHolder(r.Holder)
	if err != nil {
		c.fail(id, err.(*Error))
		return
	}
	if kind == HolderNode && (c.t.nodes[name] == nil || !c.t.nodes[name].present()) {
		c.fail(id, unknownNode(name))
		return
	}
	c.enqueue(&request{id: id, kind: wantReference, text: r.Labels.Text(), holder: r.Holder, givenUp: r.GivenUpHold})
}

func (c *Core) requestRelease(id uint64, r ReleaseRequest) {
	kind, _, err := ParseHolder(r.Holder)
	if err != nil {
		c.fail(id, err.(*Error))
		return
	}
	if r.Hold == 0 && kind != HolderPin {
		c.fail(id, &Error{Code: InvalidArgument, Field: "hold",
			Message: "a release must name the hold that Allocate returned; only a pin may be released without"})
		return
	}
	c.enqueue(&request{id: id, kind: wantRelease, text: r.Labels.Text(), holder: r.Holder, hold: r.Hold})
}

func (c *Core) enqueue(r *request) {
	s := c.t.set(r.text)
	s.waiting = append(s.waiting, r)
	c.wait(r)
	c.markSet(s)
}

func unknownNode(node string) *Error {
	return &Error{Code: FailedPrecondition, Field: node, Message: fmt.Sprintf(
		"node %q has no presence in the store; start its agent, or use a pin-<name> holder", node)}
}

// decideSet decides what is next for a label set: the requests that wait, else
// what keeps the set in order.
func (c *Core) decideSet(s *set) {
	if s.busy {
		return
	}
	if len(s.waiting) > 0 {
		c.decideWaiting(s)
	}
	if !s.busy && len(s.waiting) == 0 {
		c.keepSet(s)
	}
}

// plan is an operation on one label set in the making.
type plan struct {
	op     Op
	served []*request
	number identity.Number
	create bool
	waits  bool // another label set has to move first
}

func (p *plan) guard(g Guard)        { p.op.Guards = append(p.op.Guards, g) }
func (p *plan) write(k Key, v Value) { p.op.Writes = append(p.op.Writes, Write{Key: k, Value: v}) }
func (p *plan) absent(k Key)         { p.guard(Guard{Kind: GuardAbsent, Key: k}) }
func (p *plan) present(k Key)        { p.guard(Guard{Kind: GuardPresent, Key: k}) }
func (p *plan) at(k Key, rev int64)  { p.guard(Guard{Kind: GuardRevision, Key: k, Revision: rev}) }

// unreferenced guards that the set has no reference, or (for a second number of
// the set) none but those that the table knows.
func (p *plan) unreferenced(s *set) {
	g := Guard{Kind: GuardEmpty, Key: Key{Kind: KindReference, Labels: s.text}}
	for _, r := range s.refs {
		g.Kind, g.Revision = GuardNotNewer, max(g.Revision, r.mod)
	}
	p.guard(g)
}

// atOrAbsent guards that a key stands as the table has it; mod 0: absent.
func (p *plan) atOrAbsent(k Key, mod int64) {
	if mod == 0 {
		p.absent(k)
	} else {
		p.at(k, mod)
	}
}

// decideWaiting serves as many waiting requests as one operation can: at most
// one for each holder, in order.
func (c *Core) decideWaiting(s *set) {
	batch := pick(s.waiting)
	p := &plan{}
	if err := c.planMaster(s, p, batch); err != nil {
		if err.Code == Exhausted && slices.ContainsFunc(batch, func(r *request) bool { return r.kind == wantReference && !r.fenced }) {
			c.fenceRefusal(s, batch)
			return
		}
		for _, r := range batch {
			if r.kind == wantReference || r.kind == wantAnnounced {
				s.drop(r)
				c.refuse(r, err)
			}
		}
		c.markSet(s)
		return
	}
	if p.waits {
		return
	}
	for _, r := range batch {
		if r.tries++; r.tries > maxTries {
			s.drop(r)
			c.refuse(r, &Error{Code: Unavailable, Field: "contention", Retry: time.Second,
				Message: fmt.Sprintf("the store changed %d times under this request; try again", maxTries)})
			continue
		}
		c.planRequest(s, p, r)
	}
	if len(p.served) == 0 {
		c.freePromise(p)
		c.markSet(s)
		return
	}
	c.submitSet(s, p)
}

// fenceRefusal makes sure by a fenced read that this replica still leads before
// it says that no number is left: a deposed one does not know what was
// allocated since, and a known label set is never refused.
func (c *Core) fenceRefusal(s *set, batch []*request) {
	p := &plan{op: Op{Verb: VerbConfirm}}
	p.present(ClusterKey())
	s.busy = true
	free := func() {
		s.busy = false
		c.markSet(s)
	}
	land := func(int64) {
		for _, r := range batch {
			r.fenced = true
		}
	}
	c.submit(p.op, free, land, func() { c.loseAll(s, batch) })
}

// pick takes requests from the queue's head on, none that would overtake an
// earlier one of the same holder.
func pick(waiting []*request) []*request {
	var out []*request
	last := map[string]*request{} // of each holder
	for _, r := range waiting {
		if len(out) == maxGroup {
			break
		}
		before := last[r.holder]
		last[r.holder] = r
		switch {
		case before == nil:
			out = append(out, r)
		case before.kind == wantReference && r.kind == wantReference && before.givenUp == 0 && r.givenUp == 0:
			out = append(out, r) // the same question: one answer serves both
		default:
			last[r.holder] = &request{} // whatever follows waits as well
		}
	}
	return out
}

// planMaster guards or creates the master that the batch's references need.
func (c *Core) planMaster(s *set, p *plan, batch []*request) *Error {
	wanted := slices.ContainsFunc(batch, func(r *request) bool { return r.kind == wantReference || r.kind == wantAnnounced })
	if !wanted {
		return nil
	}
	if p.waits = c.decideConflict(s); p.waits {
		return nil
	}
	if m := s.winner(c.cfg.Space); m != nil {
		p.op.Verb, p.number = VerbConfirm, m.number
		p.at(MasterKey(m.number), m.mod)
		if i, ok := c.t.idle[m.number]; ok {
			p.at(IdleKey(m.number), i.mod)
			p.write(IdleKey(m.number), nil)
		}
		return nil
	}
	n, err := c.choose(s)
	if err != nil {
		return err
	}
	p.op.Verb, p.number, p.create = VerbCreate, n, true
	c.planCreate(s, p)
	return nil
}

// planCreate adds the creation of a master with p.number.
func (c *Core) planCreate(s *set, p *plan) {
	n := p.number
	p.absent(MasterKey(n))
	p.write(MasterKey(n), LabelSet(s.text))
	if tb := c.t.tombs[n]; tb != nil {
		c.t.promised[n] = true
		p.at(TombstoneKey(n), tb.mod)
		p.write(TombstoneKey(n), nil)
	} else {
		p.absent(TombstoneKey(n))
	}
	if i, ok := c.t.idle[n]; ok { // left over from a master that somebody deleted
		p.at(IdleKey(n), i.mod)
		p.write(IdleKey(n), nil)
	}
	c.t.pool.take(n, true)
}

// freePromise gives a chosen number back when nothing came of it.
func (c *Core) freePromise(p *plan) {
	if n := p.number; p.create && c.t.promised[n] {
		delete(c.t.promised, n)
		if tb := c.t.tombs[n]; tb != nil {
			c.t.freed.push(n, tb.mod)
		}
	}
	_, lost := c.t.lost[p.number]
	if n := p.number; p.create && !lost && !c.t.malformed[n] && c.t.masters[n] == nil && c.t.tombs[n] == nil {
		c.t.pool.take(n, false)
	}
}

// choose finds the number for a label set without a master (DESIGN.md section 5).
func (c *Core) choose(s *set) (identity.Number, *Error) {
	if n, ok := c.numberOfReferences(s); ok {
		return n, nil
	}
	if err := c.noNewNumbers(); err != nil {
		return c.announcedNumber(s, err)
	}
	if n, tb := c.t.newestTombstone(s.text); tb != nil && c.t.masters[n] == nil && !c.t.malformed[n] && c.cfg.Space.Contains(n) {
		return n, nil
	}
	if n, ok := c.t.pool.next(c.t.pool.start(identity.Start(c.cfg.Space, s.text))); ok {
		return n, nil
	}
	if n, ok := c.oldestFree(); ok {
		return n, nil
	}
	return 0, c.exhausted()
}

// numberOfReferences is the number that the set's references name, if it can
// be given back: the lowest such number that nobody else has.
func (c *Core) numberOfReferences(s *set) (identity.Number, bool) {
	var best identity.Number
	for _, r := range s.refs {
		if c.t.masters[r.number] != nil || c.t.malformed[r.number] || !c.cfg.Space.Contains(r.number) {
			continue
		}
		if tb := c.t.tombs[r.number]; tb != nil && tb.Labels != s.text {
			continue
		}
		if best == 0 || r.number < best {
			best = r.number
		}
	}
	return best, best != 0
}

// planRequest adds one request's guards and writes.
func (c *Core) planRequest(s *set, p *plan, r *request) {
	key := ReferenceKey(s.text, r.holder)
	have, ok := s.refs[r.holder]
	if ok && !c.cfg.Space.Contains(have.number) {
		s.drop(r)
		c.refuse(r, &Error{Code: FailedPrecondition, Field: r.holder, Message: fmt.Sprintf(
			"%s holds %s with number %d, which belongs to another cluster on this store; use another holder, or add the cluster's label to the set", r.holder, s.text, have.number)})
		return
	}
	if slices.ContainsFunc(p.served, func(o *request) bool { return o.holder == r.holder }) {
		p.served = append(p.served, r)
		return
	}
	switch r.kind {
	case wantReference, wantAnnounced:
		if kind, name, _ := ParseHolder(r.holder); kind == HolderNode {
			if n := c.t.nodes[name]; n == nil || !n.present() {
				s.drop(r)
				c.refuse(r, unknownNode(name))
				return
			}
			p.present(PresenceKey(name))
		}
		p.atOrAbsent(key, have.mod)
		if !ok || have.number != p.number || have.lease != 0 || r.givenUp != 0 && r.givenUp == have.mod {
			p.write(key, NumberValue(p.number))
			if p.op.Verb == VerbConfirm {
				p.op.Verb = VerbReference
			}
		}
	case wantRelease:
		p.atOrAbsent(key, have.mod)
		if ok && (r.hold == have.mod || r.hold == 0) {
			p.write(key, nil)
			if p.op.Verb == VerbConfirm {
				p.op.Verb = VerbRelease
			}
		}
		p.op.Verb = cmp.Or(p.op.Verb, VerbRelease)
	case wantPurge:
		if !ok || !c.planPurge(p, r.holder) {
			s.drop(r)
			return
		}
		p.at(key, have.mod)
		p.write(key, nil)
		p.op.Verb = cmp.Or(p.op.Verb, VerbPurge)
	}
	p.served = append(p.served, r)
}

// drop takes a request out of the set's queue.
func (s *set) drop(r *request) {
	s.waiting = slices.DeleteFunc(s.waiting, func(x *request) bool { return x == r })
}

// submitSet sends the plan; the served requests leave the queue when it
// commits, and stay for a new decision when it does not.
func (c *Core) submitSet(s *set, p *plan) {
	before := make(map[string]ref, len(p.served))
	for _, r := range p.served {
		before[r.holder] = s.refs[r.holder]
	}
	s.busy = true
	free := func() {
		s.busy = false
		c.freePromise(p)
		c.markSet(s)
	}
	land := func(rev int64) {
		for _, r := range p.served {
			s.drop(r)
			c.answer(s, p, r, before[r.holder], rev)
		}
	}
	c.submit(p.op, free, land, func() { c.loseAll(s, p.served) })
	c.inFlight[c.nextOp].unsure = func() {
		for _, r := range p.served {
			r.lost = max(r.lost, before[r.holder].mod)
		}
	}
}

// answer replies to a request that a committed operation served.
func (c *Core) answer(s *set, p *plan, r *request, had ref, rev int64) {
	switch r.kind {
	case wantReference:
		hold := had.mod
		if wrote(p.op, ReferenceKey(s.text, r.holder)) {
			hold = rev
		}
		id, ok := c.Identity(p.number)
		if !ok || id.Labels != s.text { // the mirror is further on than this answer
			id = Identity{Number: p.number, Labels: s.text, State: Live, Revision: rev}
		}
		c.reply(r.id, Allocation{Identity: id, Hold: hold, Created: p.create, Position: c.Position()})
	case wantRelease:
		if had.mod != 0 && r.hold != 0 && r.hold != had.mod {
			c.fail(r.id, &Error{Code: FailedPrecondition, Field: "hold", Message: fmt.Sprintf(
				"%s holds %s under hold %d, not %d; it allocated again since", r.holder, s.text, had.mod, r.hold)})
			return
		}
		// What is absent now was taken by the request's own operation, if one was lost.
		took := r.lost != 0 && (r.hold == 0 || r.hold == r.lost)
		c.reply(r.id, Released{Done: had.mod != 0 || took, Position: c.Position()})
	case wantPurge:
		c.stats.PurgedReferences++
	case wantAnnounced:
		c.helloDone(r.hello)
	}
}

func wrote(op Op, k Key) bool {
	return slices.ContainsFunc(op.Writes, func(w Write) bool { return w.Key == k })
}

// leadershipLost is the answer to requests whose outcome will never be known here.
func leadershipLost() *Error {
	return &Error{Code: Unavailable, Field: "leadership-lost", Retry: 100 * time.Millisecond,
		Message: "leadership was lost before the outcome was known; try again"}
}

func (c *Core) loseAll(s *set, served []*request) {
	for _, r := range served {
		s.drop(r)
		c.refuse(r, leadershipLost())
	}
}
