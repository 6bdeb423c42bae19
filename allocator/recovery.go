// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"slices"
	"time"

	"github.com/signet-identity/signet/allocator/identity"
)

// The recovery window. A store that was wiped, or restored from an older copy,
// has lost what nodes still use. Recognised as such, nothing is collected and no
// new number handed out until the nodes have announced what they hold: label
// sets with their numbers, and the lineage counter at which they last saw them.
// The window is stored, so that it survives a failover. It ends two presence
// TTLs after the last new hello, at most ten after it began to be served.
const (
	windowTTLs    = 2
	windowMaxTTLs = 10
)

// recovering returns the open window, if there is one.
func (c *Core) recovering() (Recovery, bool) {
	r, ok := c.t.singles[RecoveryKey()]
	if !ok {
		return Recovery{}, false
	}
	v, _ := r.Value.(Recovery)
	return v, true
}

// Recovery is the open recovery window; nil: none is open.
func (c *Core) Recovery() *Recovery {
	if r, ok := c.recovering(); ok {
		return &r
	}
	return nil
}

// noticeRestore compares the view before a batch with the lineage after it.
func (c *Core) noticeRestore(before Position) {
	if before.Nonce != "" && !c.extends(before) {
		l, _ := c.lineage()
		c.suspect = fmt.Sprintf("the store does not continue what this operator has seen: lineage counter %d, seen %d", l.Counter, before.Counter)
	}
	if c.Serving() {
		c.openWindow()
	}
}

// extends says whether the store continues a view's lineage. A view that is
// older than the terms that the record remembers is taken to be continued.
func (c *Core) extends(p Position) bool {
	l, _ := c.lineage()
	if len(l.Terms) == MaxTerms && p.Counter < l.Terms[0].First {
		return true
	}
	return c.continues(p)
}

// planRecovery adds the opening of a window to a term's first rewrite: when the
// store has no record of the cluster and nobody said that it is new, or when it
// is known to be restored.
func (c *Core) planRecovery(p *plan) {
	reason := c.suspect
	if !c.hasCluster() && !c.cfg.NewCluster {
		reason = "the store has no record of the cluster, and no operator was told that it is new"
	}
	if _, open := c.recovering(); open || reason == "" {
		return
	}
	c.planWindow(p, reason)
}

func (c *Core) planWindow(p *plan, reason string) {
	l, _ := c.lineage()
	p.absent(RecoveryKey())
	p.write(RecoveryKey(), Recovery{Since: c.time(), Reason: reason, Counter: l.Counter})
}

// openWindow opens the window in the midst of a term.
func (c *Core) openWindow() {
	if _, open := c.recovering(); open || c.suspect == "" {
		return
	}
	p := &plan{op: Op{Verb: VerbRecovery}}
	c.planWindow(p, c.suspect)
	c.submitThen(p.op, nil, nil, c.openWindow) // until it is open
}

// tickRecovery ends the window when its time has come.
func (c *Core) tickRecovery() {
	t := c.term
	for _, text := range c.again {
		c.markSet(c.t.set(text))
	}
	c.again = nil
	_, open := c.recovering()
	if open {
		c.suspect = ""
	}
	if !open || t.closing {
		return
	}
	from := t.served.at
	if t.lastHello.set {
		from = max(from, t.lastHello.at)
	}
	quiet := c.now-from >= windowTTLs*c.cfg.PresenceTTL
	if !quiet && c.now-t.served.at < windowMaxTTLs*c.cfg.PresenceTTL {
		return
	}
	t.closing = true
	p := &plan{op: Op{Verb: VerbRecovery}}
	p.at(RecoveryKey(), c.t.singles[RecoveryKey()].ModRevision)
	p.write(RecoveryKey(), nil)
	c.submit(p.op, func() { t.closing = false }, func(int64) { c.markEverything() }, nil)
}

// markEverything looks at every label set and node again.
func (c *Core) markEverything() {
	for _, text := range sortedKeys(c.t.sets) {
		c.markSet(c.t.sets[text])
	}
	for _, name := range sortedKeys(c.t.nodes) {
		c.markNode(c.t.nodes[name])
	}
}

// noNewNumbers says why a label set without a master gets no number now, other
// than one that a node announced: a window is open, or the term is cold and not
// every node has said hello.
func (c *Core) noNewNumbers() *Error {
	if r, open := c.recovering(); open {
		return &Error{Code: Unavailable, Field: "recovery", Retry: c.cfg.PresenceTTL,
			Message: "a recovery window is open and new label sets wait for its end: " + r.Reason}
	}
	t := c.term
	if !t.cold {
		return nil
	}
	waits := ""
	for _, name := range sortedKeys(c.t.nodes) {
		if n := c.t.nodes[name]; n.present() && !t.heard[name] {
			waits = name
			break
		}
	}
	if waits == "" || c.now-t.served.at >= windowTTLs*c.cfg.PresenceTTL {
		t.cold = false
		return nil
	}
	return &Error{Code: Unavailable, Field: "cold", Retry: time.Second,
		Message: fmt.Sprintf("this leader has just started and waits for the nodes to say what they hold, node %q among them; try again", waits)}
}

// announcedNumber is the number that the set's best announced pair names, if it
// is free by now; else the refusal.
func (c *Core) announcedNumber(s *set, refusal *Error) (identity.Number, *Error) {
	pair, ok := c.term.evidence[s.text]
	if !ok {
		return 0, refusal
	}
	if n := pair.Number; c.cfg.Space.Contains(n) && c.t.masters[n] == nil && !c.t.malformed[n] {
		return n, nil
	}
	// It lost its number to a later claim: it moves to another one.
	if n, ok := c.t.pool.next(c.t.pool.start(identity.Start(c.cfg.Space, s.text))); ok {
		return n, nil
	}
	return 0, refusal
}

// heardHello takes a confirmed hello. Outside a window it is answered at once;
// in a window the node's pairs are rebuilt first.
func (c *Core) heardHello(id uint64, r HelloRequest) {
	t := c.term
	if !t.heard[r.Node] {
		t.heard[r.Node] = true
		t.lastHello = seen{c.now, true}
	}
	if r.Position.Nonce != "" && !c.extends(r.Position) {
		c.suspect = fmt.Sprintf("node %s has seen lineage counter %d, which the store does not know", r.Node, r.Position.Counter)
		if _, open := c.recovering(); !open {
			c.openWindow()
			c.afterWindow(id, r)
			return
		}
	}
	if _, open := c.recovering(); !open {
		c.reply(id, c.welcome(r.Node))
		return
	}
	c.rebuild(id, r)
}

// afterWindow asks again once the opening of the window has had its outcome.
func (c *Core) afterWindow(id uint64, r HelloRequest) {
	ask := &request{id: id}
	c.wait(ask)
	c.submitThen(Op{Verb: VerbConfirm}, nil, func() { c.fail(ask.id, leadershipLost()) }, func() {
		if ask.id != 0 {
			c.heardHello(ask.id, r)
		}
	})
}

// rebuild queues every announced pair that the store does not have.
func (c *Core) rebuild(id uint64, r HelloRequest) {
	w := &helloWait{id: id, node: r.Node, left: 1}
	c.requests[id] = &request{id: id, kind: wantAnnounced, hello: w}
	for _, pair := range r.Pairs {
		if !c.cfg.Space.Contains(pair.Number) || pair.Labels == "" {
			continue
		}
		if have, ok := c.term.evidence[pair.Labels]; !ok || later(pair, have) {
			c.term.evidence[pair.Labels] = pair
		}
	}
	for _, pair := range r.Pairs {
		if !c.cfg.Space.Contains(pair.Number) || pair.Labels == "" {
			continue
		}
		s := c.t.set(pair.Labels)
		if slices.ContainsFunc(s.waiting, func(x *request) bool { return x.kind == wantAnnounced && x.holder == r.Node }) {
			continue
		}
		w.left++
		s.waiting = append(s.waiting, &request{kind: wantAnnounced, text: pair.Labels, holder: r.Node, pair: pair, hello: w})
		c.markSet(s)
	}
	c.helloDone(w)
}

// later says which of two pairs counts: the one with the later counter, then
// the one with the higher master create revision.
func later(a, b HeldPair) bool {
	if a.Counter != b.Counter {
		return a.Counter > b.Counter
	}
	return a.CreateRevision > b.CreateRevision
}

func (c *Core) helloDone(w *helloWait) {
	if w.left--; w.left > 0 {
		return
	}
	if ask := c.requests[w.id]; ask != nil {
		c.reply(w.id, c.welcome(w.node))
	}
}

// refuse refuses a request of a set's queue. A pair that cannot be rebuilt only
// counts: its hello is answered with what could.
func (c *Core) refuse(r *request, err *Error) {
	c.fail(r.id, err)
	if r.hello != nil {
		c.helloDone(r.hello)
	}
}

// Conflict is a number that two label sets claim in a window.
type Conflict struct {
	Number        identity.Number
	Winner, Loser string // label set texts
}

// Conflicts lists the numbers that were claimed twice since this term began.
func (c *Core) Conflicts() []Conflict { return slices.Clone(c.conflicts) }

// maxConflicts bounds what is listed.
const maxConflicts = 1000

// decideConflict looks whether the number that the set's best announced pair
// names belongs to others, or the set itself has another one. When the pair is
// the later claim, the present owner moves first. It returns whether an
// operation is under way for that, or has to be awaited.
func (c *Core) decideConflict(s *set) bool {
	r, open := c.recovering()
	if !open {
		return false
	}
	pair, ok := c.term.evidence[s.text]
	if !ok {
		return false
	}
	if own := s.winner(c.cfg.Space); own != nil {
		return false // the set has a number: a pair with another one loses
	}
	m := c.t.masters[pair.Number]
	if m == nil || m.text == s.text {
		return false
	}
	rival, ok := c.term.evidence[m.text]
	if !ok || rival.Number != m.number {
		rival = HeldPair{Counter: r.Counter, CreateRevision: m.create}
	}
	if !later(pair, rival) {
		c.noteConflict(Conflict{Number: pair.Number, Winner: m.text, Loser: s.text})
		c.term.evidence[s.text] = HeldPair{Labels: s.text, Counter: pair.Counter} // it takes a number that nobody has
		return false
	}
	return c.yield(s, c.t.set(m.text), m)
}

// yield moves a number from its present owner to the set that claimed it later.
// The owner gets another one in the same transaction: make before break.
func (c *Core) yield(s, owner *set, m *master) bool {
	if owner.busy {
		c.again = append(c.again, s.text)
		return true
	}
	to, ok := c.t.pool.next(c.t.pool.start(identity.Start(c.cfg.Space, owner.text)))
	if !ok {
		delete(c.term.evidence, s.text)
		return false
	}
	c.noteConflict(Conflict{Number: m.number, Winner: s.text, Loser: owner.text})
	p := &plan{op: Op{Verb: VerbRenumber}, number: to, create: true}
	p.at(MasterKey(m.number), m.mod)
	p.write(MasterKey(m.number), LabelSet(s.text))
	p.absent(MasterKey(to))
	p.absent(TombstoneKey(to))
	p.write(MasterKey(to), LabelSet(owner.text))
	c.t.pool.take(to, true)
	for i, holder := range sortedKeys(owner.refs) {
		if r := owner.refs[holder]; i < maxGroup && r.lease == 0 {
			p.at(ReferenceKey(owner.text, holder), r.mod)
			p.write(ReferenceKey(owner.text, holder), NumberValue(to))
		}
	}
	s.busy, owner.busy = true, true
	c.submit(p.op, func() {
		s.busy, owner.busy = false, false
		c.freePromise(p)
		c.markSet(s)
		c.markSet(owner)
	}, nil, nil)
	return true
}

func (c *Core) noteConflict(k Conflict) {
	if len(c.conflicts) < maxConflicts && !slices.Contains(c.conflicts, k) {
		c.conflicts = append(c.conflicts, k)
	}
}
