// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

// labelSet is one label set that the node uses or is about to let go.
type labelSet struct {
	labels    labels.Set
	endpoints map[string]*endpoint // those that want it
	// uses counts endpoints that want it, and claims of addresses: targeted,
	// in flight, in the map, published.
	uses int

	fixed  bool // a reserved number: known without asking, stored nowhere
	have   bool // number and hold are set
	number identity.Number
	hold   int64
	born   int64 // the master's create revision; 0: unknown
	// counter is the lineage counter, asOf the revision of the answer that gave
	// the number: older news of the number says nothing about it.
	counter uint64
	asOf    int64
	created bool
	dead    bool // the store says that the number is no longer this set's
	confirm bool // the reference may be gone: allocate again
	letGo   bool // a release is under way, or got no answer

	busy     bool // an acquire or a release is under way
	waiting  bool // a timer runs
	attempts int
	failure  *allocator.Error
	// maybe: an acquire without an answer may have left a reference.
	maybe bool
}

// usable reports whether addresses may move to the set's number.
func (s *labelSet) usable() bool { return s.have && !s.dead && !s.letGo }

func (s *labelSet) key() timerKey { return timerKey{text: s.labels.Text()} }

// setWaits says for what a set that is not usable waits.
func (t *table) setWaits(s *labelSet) string {
	if t.suspended == "" || s.failure != nil && !transient(s.failure) {
		return s.waitReason()
	}
	if s.dead {
		return fmt.Sprintf("number %d is dead and no operator can be asked for a new one: %s", s.number, t.suspended)
	}
	return t.suspended
}

func (s *labelSet) waitReason() string {
	switch {
	case s.failure != nil && s.dead:
		return fmt.Sprintf("number %d is dead and a new one is not to be had: %s", s.number, s.failure.Message)
	case s.failure != nil:
		return s.failure.Message
	case s.dead:
		return fmt.Sprintf("number %d is dead; the operator was asked for a new one", s.number)
	default:
		return "the operator was asked for the number of " + labels.Quote(s.labels.Text())
	}
}

// use counts one more use of a label set, and makes its record if need be.
func (t *table) use(ls labels.Set) *labelSet {
	s := t.sets[ls.Text()]
	if s == nil {
		s = &labelSet{labels: ls, endpoints: make(map[string]*endpoint)}
		if n, ok := identity.ReservedForLabels(ls); ok {
			s.fixed, s.have, s.number = true, true, n
		}
		t.sets[ls.Text()] = s
	}
	s.uses++
	return s
}

func (t *table) unuse(s *labelSet) {
	s.uses--
	t.stepSet(s)
}

// stepSet starts what is next for a set, unless something is under way.
func (t *table) stepSet(s *labelSet) {
	if s.busy {
		return
	}
	if s.uses == 0 && (s.fixed || !s.have && !s.maybe) {
		t.forget(s)
		return
	}
	if s.waiting || s.fixed || t.suspended != "" {
		return
	}
	switch {
	case s.uses > 0 && (!s.have || s.confirm || s.letGo), s.uses == 0 && !s.have:
		s.busy = true
		t.emit(effect{kind: effectAcquire, set: s.labels, confirm: s.have, claim: claim{number: s.number}})
	case s.uses == 0:
		s.busy, s.letGo = true, true
		t.emit(effect{kind: effectRelease, set: s.labels, hold: s.hold})
	}
}

func (t *table) forget(s *labelSet) {
	delete(t.sets, s.labels.Text())
	t.setNumber(s, 0)
	t.out.dirty = true
}

// setNumber keeps the index by number.
func (t *table) setNumber(s *labelSet, n identity.Number) {
	if t.byNumber[s.number] == s {
		delete(t.byNumber, s.number)
	}
	s.number = n
	if n != 0 && !s.fixed {
		t.byNumber[n] = s
	}
}

func (t *table) wakeSet(s *labelSet) {
	s.waiting = false
	s.attempts = 0
	if !s.busy {
		s.failure = nil
	}
	for id := range s.endpoints {
		t.touch(id)
	}
	t.stepSet(s)
}

// grant is the operator's answer to an acquire.
type grant struct {
	number  identity.Number
	hold    int64
	born    int64
	counter uint64
	asOf    int64 // revision
	created bool
}

// acquired is the good end of an acquire.
func (t *table) acquired(text string, g grant) {
	s := t.sets[text]
	if s == nil || !s.busy {
		return
	}
	s.busy, s.maybe, s.confirm, s.dead, s.letGo, s.have = false, false, false, false, false, true
	s.attempts, s.failure = 0, nil
	s.hold, s.born, s.counter, s.asOf = g.hold, g.born, g.counter, max(s.asOf, g.asOf)
	s.created = g.created
	t.setNumber(s, g.number)
	t.out.dirty = true
	t.stepUsers(s)
	t.stepSet(s)
}

// acquireFailed is the bad end of an acquire. unknown: it may have landed.
func (t *table) acquireFailed(text string, err *allocator.Error, unknown bool) {
	s := t.sets[text]
	if s == nil || !s.busy {
		return
	}
	s.busy = false
	s.maybe = s.maybe || unknown
	t.setFails(s, err)
}

func (t *table) setFails(s *labelSet, err *allocator.Error) {
	s.failure = err
	s.attempts++
	s.waiting = true
	t.emit(effect{kind: effectTimer, key: s.key(), attempts: s.attempts, slow: !transient(err), after: err.Retry})
	for id := range s.endpoints {
		t.touch(id)
	}
	t.stepSet(s)
}

// released is the good end of a release; that there was nothing to release is good too.
func (t *table) released(text string) {
	s := t.sets[text]
	if s == nil || !s.busy {
		return
	}
	s.busy, s.have, s.confirm, s.maybe, s.letGo = false, false, false, false, false
	s.attempts, s.failure, s.hold, s.dead = 0, nil, 0, false
	t.setNumber(s, 0)
	t.out.dirty = true
	t.stepSet(s)
}

// releaseFailed is a release that may have landed and is to be tried again. If
// the set is wanted meanwhile, it is acquired again instead.
func (t *table) releaseFailed(text string, err *allocator.Error) {
	s := t.sets[text]
	if s == nil || !s.busy {
		return
	}
	s.busy = false
	t.setFails(s, err)
	if s.uses > 0 {
		t.wakeSet(s)
	}
}

// numberMeans says that the store gives number to this label set, as of
// revision; an empty text: to none, it is freed. A set whose number went away
// asks for another one, and its addresses are denied until it has it.
func (t *table) numberMeans(n identity.Number, text string, revision int64) {
	s := t.byNumber[n]
	if s == nil {
		return
	}
	switch mine := s.labels.Text() == text; {
	case mine && s.dead:
		s.dead = false
		t.stepUsers(s)
	case !mine && !s.dead && revision > s.asOf:
		s.dead, s.confirm = true, true
		t.stepUsers(s)
		t.wakeSet(s)
	}
}

// forgetRevisions is for a restored store, whose revisions say nothing about
// those before.
func (t *table) forgetRevisions() {
	for _, s := range t.sets {
		s.asOf = 0
	}
	for _, a := range t.addresses {
		a.publishedAt = 0
	}
}

// stepUsers moves the addresses that the set's number concerns.
func (t *table) stepUsers(s *labelSet) {
	for _, a := range t.addressesOf(s) {
		t.stepAddress(a)
	}
	for id := range s.endpoints {
		t.touch(id)
	}
}

// heldPair is one reference as the operator or the checkpoint knows it.
type heldPair struct {
	labels  labels.Set
	number  identity.Number
	hold    int64
	born    int64
	counter uint64
}

// welcome compares the operator's list of the node's references, true at
// revision, with the sets. What is used but not in it is acquired again; what
// is in it with another number or hold is taken over (refreshed); what is in it
// but not here is surplus.
func (t *table) welcome(pairs []heldPair, revision int64) (refreshed, surplus []heldPair) {
	listed := make(map[string]heldPair, len(pairs))
	for _, p := range pairs {
		listed[p.labels.Text()] = p
		if t.sets[p.labels.Text()] == nil {
			surplus = append(surplus, p)
		}
	}
	for _, s := range t.setsInOrder() {
		if s.busy || !s.have || s.fixed || s.asOf > revision {
			continue
		}
		p, ok := listed[s.labels.Text()]
		if !ok {
			s.confirm = true
			t.wakeSet(s)
			continue
		}
		s.asOf = revision
		if s.hold != p.hold || s.born != p.born || s.number != p.number {
			refreshed = append(refreshed, p)
			t.take(s, p)
		}
	}
	return refreshed, surplus
}

// take replaces a set's number and hold by what the operator says.
func (t *table) take(s *labelSet, p heldPair) {
	renumbered := s.number != p.number
	s.hold, s.born = p.hold, p.born
	t.out.dirty = true
	if !renumbered {
		return
	}
	t.setNumber(s, p.number)
	s.dead = false
	t.stepUsers(s)
}

// adopt takes a surplus reference in, so that it is released unless it is used.
func (t *table) adopt(p heldPair) {
	if t.sets[p.labels.Text()] != nil {
		return
	}
	s := t.use(p.labels)
	s.have, s.hold, s.born, s.counter = true, p.hold, p.born, p.counter
	t.setNumber(s, p.number)
	t.unuse(s)
}
