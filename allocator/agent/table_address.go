// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
)

// has reports whether the table has the address.
func (t *table) has(at netip.Addr) bool { return t.addresses[at] != nil }

// states reports whether the table has put the address into the map.
func (t *table) states(at netip.Addr) bool {
	a := t.addresses[at]
	return a != nil && a.mapped.number != 0
}

// claim is an address's number at one place: in flight, in the map, or
// published. Without a number it means absent. A claim counts as a use of its set.
type claim struct {
	set    *labelSet // nil in what is left over from an earlier life
	number identity.Number
	dead   bool   // denied: the number is dead
	owner  string // the endpoint's id; published along
	gen    uint64 // the endpoint's generation; published along
}

// mapsLike reports whether the address map cannot tell the two apart.
func (c claim) mapsLike(o claim) bool {
	return c.number == o.number && c.dead == o.dead
}

// address is one address of this node: owned by an endpoint, or on its way out.
type address struct {
	addr  netip.Addr
	owner *endpoint // nil: on its way out
	// target is the label set that is in force: the owner's as soon as it is
	// usable, until then the one before.
	target *labelSet
	// flight is what an effect under way will lead to, or one that failed has
	// perhaps led to all the same: then there is doubt about the map or the store.
	flight     claim
	mapped     claim
	published  claim
	mapDoubt   bool
	storeDoubt bool

	busy        bool
	kind        effectKind // of the effect under way
	waiting     bool
	attempts    int
	failure     *allocator.Error
	publishedAt int64 // revision of the last publication
	missed      *seen // news that came while an effect was under way
	// rival is the owner of a newer claim by another node; empty: none.
	rival string
}

// hold puts a claim into a slot and keeps the count of uses.
func (t *table) hold(slot *claim, c claim) {
	old := slot.set
	if c.set != nil {
		c.set.uses++
	}
	*slot = c
	if old != nil {
		t.unuse(old)
	}
}

func (t *table) setTarget(a *address, s *labelSet) {
	if a.target == s {
		return
	}
	old := a.target
	if s != nil {
		s.uses++
	}
	a.target = s
	if old != nil {
		t.unuse(old)
	}
}

// wanted is the claim that the address should have in the map.
func (a *address) wanted() claim {
	s := a.target
	if a.owner == nil || s == nil || !s.have {
		return claim{}
	}
	return claim{set: s, number: s.number, dead: s.dead, owner: a.owner.id, gen: a.owner.gen}
}

// stepAddress starts what is next for an address, unless something is under way.
func (t *table) stepAddress(a *address) {
	if a.owner != nil {
		t.touch(a.owner.id)
		if a.owner.want.usable() {
			t.setTarget(a, a.owner.want)
		}
	}
	if a.busy || a.waiting {
		return
	}
	w := a.wanted()
	switch {
	case a.owner == nil:
		t.stepOut(a)
	case w.number == 0 && (a.inStore() || a.inMap()):
		t.stepOut(a) // what stands there is of an owner before
	case w.number == 0:
		// Nothing to show yet: it waits for its first number.
	case a.mapDoubt || !a.mapped.mapsLike(w):
		t.start(a, effectMap, w)
	case w.dead:
		// Denied here; what is published waits for the new number.
	case w.set.fixed && a.inStore():
		t.start(a, effectWithdraw, claim{})
	case w.set.fixed:
		// Reserved numbers are stored nowhere.
		t.settle(a, w)
	case a.needsPublishing(w):
		t.start(a, effectPublish, w)
	default:
		t.settle(a, w)
	}
}

// needsPublishing reports whether the store should say w and does not. While a
// change of labels waits for its number, news of the endpoint waits with it.
func (a *address) needsPublishing(w claim) bool {
	if a.rival != "" || a.published == w && !a.storeDoubt {
		return false
	}
	if a.storeDoubt {
		return true
	}
	return a.target == a.owner.want || a.published.number != w.number || a.published.owner != w.owner
}

// inStore and inMap report whether something of the address may stand there.
func (a *address) inStore() bool { return a.published.number != 0 || a.storeDoubt }

func (a *address) inMap() bool { return a.mapped.number != 0 || a.mapDoubt }

// stepOut takes an address out: store first, then map, then the record.
func (t *table) stepOut(a *address) {
	switch {
	case a.inStore():
		t.start(a, effectWithdraw, claim{})
	case a.inMap():
		t.start(a, effectUnmap, claim{})
	default:
		delete(t.addresses, a.addr)
		t.pool.free(a.addr)
		t.out.gone = append(t.out.gone, departure{addr: a.addr, withdrawnAt: a.publishedAt})
	}
}

// settle replaces the map's claim by an equal one that names the right set.
func (t *table) settle(a *address, w claim) {
	if a.mapped != w {
		t.hold(&a.mapped, w)
	}
}

func (t *table) start(a *address, kind effectKind, c claim) {
	if t.suspended != "" && (kind == effectPublish || kind == effectWithdraw) {
		return
	}
	a.busy, a.kind = true, kind
	t.hold(&a.flight, c)
	e := effect{kind: kind, addr: a.addr, claim: c}
	if a.owner != nil {
		e.endpoint, e.meta = a.owner.id, a.owner.meta
	}
	t.emit(e)
}

// nudge ends a backoff and steps.
func (t *table) nudge(a *address) {
	a.waiting = false
	a.attempts = 0
	if !a.busy {
		a.failure = nil
	}
	t.stepAddress(a)
}

// abandon starts an address's way out.
func (t *table) abandon(a *address) {
	a.owner = nil
	a.rival = ""
	t.setTarget(a, nil)
	t.nudge(a)
}

// mapDone says that the address stands in the map as its last effect wanted.
func (t *table) mapDone(at netip.Addr) {
	a := t.addresses[at]
	if a == nil || !a.busy {
		return
	}
	was, now := a.mapped, a.flight
	a.mapDoubt = false
	t.hold(&a.mapped, now)
	t.done(a)
	if was.set != nil && was.set == now.set && was.number != now.number {
		t.out.renumbered = append(t.out.renumbered, renumbering{addr: at, from: was.number, to: now.number})
	}
	if was.number == 0 && now.number != 0 {
		t.out.stated = append(t.out.stated, at)
	}
	t.out.dirty = true
	t.stepAddress(a)
}

// publishDone says that the store holds the address as its last effect wanted, at revision.
func (t *table) publishDone(at netip.Addr, revision int64) {
	a := t.addresses[at]
	if a == nil || !a.busy {
		return
	}
	a.storeDoubt = false
	t.hold(&a.published, a.flight)
	a.publishedAt = revision
	t.done(a)
	t.out.dirty = true
	t.stepAddress(a)
}

func (t *table) done(a *address) {
	a.busy, a.attempts, a.failure = false, 0, nil
	t.hold(&a.flight, claim{})
	t.catchUp(a)
}

// catchUp looks at the news that came while an effect was under way.
func (t *table) catchUp(a *address) {
	if s := a.missed; s != nil {
		a.missed = nil
		t.note(a, *s)
	}
}

// addressFails is the bad end of a map or store effect.
func (t *table) addressFails(at netip.Addr, err *allocator.Error) {
	a := t.addresses[at]
	if a == nil || !a.busy {
		return
	}
	a.busy = false
	if a.kind == effectMap || a.kind == effectUnmap {
		a.mapDoubt = true
	} else {
		a.storeDoubt = true
	}
	t.catchUp(a)
	a.failure = err
	a.attempts++
	a.waiting = true
	t.emit(effect{kind: effectTimer, key: timerKey{addr: at}, attempts: a.attempts, slow: !transient(err), after: err.Retry})
	if a.owner != nil {
		t.touch(a.owner.id)
	}
}

// seen is what the mirror shows of an address that the table has.
type seen struct {
	present  bool
	ours     bool // published for this node
	endpoint string
	number   identity.Number
	owner    string // who published it, for messages
	revision int64  // of the change, or of the list that shows it absent
}

// observe compares the store's state of an own address with what was published.
// A vanished or changed publication is renewed; a newer claim of another node
// is left alone, and the map keeps the own entry until the endpoint goes.
func (t *table) observe(at netip.Addr, s seen) {
	a := t.addresses[at]
	if a == nil || s.revision <= a.publishedAt {
		return
	}
	if a.busy {
		a.missed = &s
		return
	}
	t.note(a, s)
	t.stepAddress(a)
}

func (t *table) note(a *address, s seen) {
	if s.revision <= a.publishedAt {
		return
	}
	rival := ""
	if s.present && !s.ours {
		rival = s.owner
	}
	if a.owner != nil && a.rival != rival {
		a.rival = rival
		t.touch(a.owner.id)
	}
	if s.present && s.ours && s.number == a.published.number && s.endpoint == a.published.owner {
		return
	}
	a.storeDoubt = s.present && s.ours
	if a.published.number != 0 {
		t.hold(&a.published, claim{})
		t.out.dirty = true
	}
}

// leftover takes in an address that the store shows as published by this node
// and that no endpoint has, so that it is withdrawn.
func (t *table) leftover(at netip.Addr, n identity.Number) {
	if t.addresses[at] != nil {
		return
	}
	a := &address{addr: at, published: claim{number: n}}
	t.addresses[at] = a
	t.pool.claim(at)
	t.stepAddress(a)
}

// addressWaits says for what an address with a usable number still waits; an
// empty state: for nothing.
func (t *table) addressWaits(a *address) (state EndpointState, reason string) {
	w := a.wanted()
	switch {
	case w.number == 0:
		return StateWaiting, fmt.Sprintf("address %s has no number yet", a.addr)
	case a.mapDoubt || !a.mapped.mapsLike(w):
		state, reason = StateWaiting, fmt.Sprintf("address %s is not yet in the map", a.addr)
	case !w.set.fixed && a.needsPublishing(w):
		state, reason = StateUnpublished, fmt.Sprintf("address %s is not yet published", a.addr)
	default:
		return "", ""
	}
	switch {
	case state == StateUnpublished && t.suspended != "":
		reason += ": " + t.suspended
	case a.failure != nil:
		reason += ": " + a.failure.Message
	}
	return state, reason
}

// deadAddresses lists, in order, the endpoints' addresses that the map denies
// because their number is dead.
func (t *table) deadAddresses() []netip.Addr {
	var out []netip.Addr
	for at, a := range t.addresses {
		if a.owner != nil && a.mapped.dead {
			out = append(out, at)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// addressesOf lists, in order, the addresses whose target or owner's want is s.
func (t *table) addressesOf(s *labelSet) []*address {
	var out []*address
	for _, at := range slices.SortedFunc(maps.Keys(t.addresses), netip.Addr.Compare) {
		a := t.addresses[at]
		if a.target == s || a.owner != nil && a.owner.want == s {
			out = append(out, a)
		}
	}
	return out
}

func (t *table) setsInOrder() []*labelSet {
	out := make([]*labelSet, 0, len(t.sets))
	for _, text := range slices.Sorted(maps.Keys(t.sets)) {
		out = append(out, t.sets[text])
	}
	return out
}
