// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

// table is the endpoint state machine. It holds three kinds of records, each
// with a step function that looks at wanted and realised state and emits at
// most one effect at a time:
//
//	labelSet  acquire while used, release when not       (table_set.go)
//	address   map, then publish; withdraw, then unmap    (table_address.go)
//	endpoint  wants one label set and some addresses; its state is derived
//
// Inputs are method calls; everything that follows is collected and handed out
// by ready. The table has no clock: waiting is an effect too (effectTimer).
type table struct {
	pool      *addressPool
	endpoints map[string]*endpoint
	addresses map[netip.Addr]*address
	sets      map[string]*labelSet          // by label set text
	byNumber  map[identity.Number]*labelSet // sets that have a number of the store
	gen       uint64

	// suspended is why nothing may go to the operators now; empty: it may.
	suspended string
	// taken says who publishes an address that the table does not have, unless
	// that is this node for the endpoint of this id. May be nil.
	taken func(at netip.Addr, id string) (owner string, taken bool)

	out     ready
	touched map[string]bool // endpoints whose view may have changed
}

// Spec is what a caller wants an endpoint to be.
type Spec struct {
	ID     string
	Labels labels.Set
	// Addresses are single hosts; empty keeps those that the endpoint has, or
	// takes one of the node's prefixes.
	Addresses []netip.Addr
	Meta      Meta
}

// Meta is what is published along with an endpoint's addresses.
type Meta struct {
	K8sNamespace      string
	K8sPodName        string
	K8sServiceAccount string
	NamedPorts        []allocator.NamedPort
}

func (m Meta) equal(o Meta) bool {
	return m.K8sNamespace == o.K8sNamespace && m.K8sPodName == o.K8sPodName &&
		m.K8sServiceAccount == o.K8sServiceAccount && slices.Equal(m.NamedPorts, o.NamedPorts)
}

// EndpointState is where an endpoint stands.
type EndpointState string

// The states of an endpoint.
const (
	// StateWaiting: it has not yet its number, or an address is not yet in the
	// map. The reason says for what it waits.
	StateWaiting EndpointState = "waiting-for-identity"
	// StateUnpublished: its addresses are in the map with its number, and one
	// is not yet published.
	StateUnpublished EndpointState = "waiting-to-publish"
	// StateReady: its addresses are mapped and published with its number.
	StateReady EndpointState = "ready"
	// StateFailed: something was refused that a mere repetition will not cure.
	// It is still tried again, at long intervals.
	StateFailed EndpointState = "failed"
)

// View is an endpoint as others see it.
type View struct {
	Spec
	Number  identity.Number // in force: what the map says; 0: none yet
	State   EndpointState
	Reason  string           // why it is not ready
	Failure *allocator.Error // set when StateFailed
	Created bool             // its last allocation took the number from the pool
	gen     uint64           // of the put that it reflects
}

func (v *View) equal(o *View) bool {
	return v.Number == o.Number && v.State == o.State && v.Reason == o.Reason && v.gen == o.gen &&
		v.Created == o.Created && v.Labels == o.Labels && slices.Equal(v.Addresses, o.Addresses) && v.Meta.equal(o.Meta)
}

type endpoint struct {
	id    string
	want  *labelSet
	addrs []netip.Addr
	meta  Meta
	gen   uint64 // of the last put that changed anything
	view  *View
}

// ready is what an input led to.
type ready struct {
	effects []effect
	changes []change
	// dirty: what the checkpoint stores has changed.
	dirty bool
	// renumbered lists addresses that changed their number under equal labels.
	renumbered []renumbering
	// stated lists addresses that have come into the map.
	stated []netip.Addr
	// gone lists addresses that the table has let go of.
	gone []departure
}

// departure is an address that was let go of, and the revision at which it was
// withdrawn from the store; 0: it was not published.
type departure struct {
	addr        netip.Addr
	withdrawnAt int64
}

// change is a new view of an endpoint; view is nil when it is gone.
type change struct {
	id   string
	view *View
}

type renumbering struct {
	addr     netip.Addr
	from, to identity.Number
}

// effectKind says what the engine is to do.
type effectKind uint8

const (
	effectAcquire  effectKind = iota + 1 // allocate text; answer acquired or acquireFailed
	effectRelease                        // release text by hold; answer released or releaseFailed
	effectMap                            // addr → claim in the map; answer mapped or mapFailed
	effectUnmap                          // addr out of the map; the same answers
	effectPublish                        // addr → claim in the store; answer published or publishFailed
	effectWithdraw                       // addr out of the store; the same answers
	effectTimer                          // call due(key) after a backoff for attempts
)

type effect struct {
	kind     effectKind
	set      labels.Set
	hold     int64 // release: the hold
	confirm  bool  // acquire: the set has a number, but its reference may be gone
	addr     netip.Addr
	claim    claim
	endpoint string
	meta     Meta

	key      timerKey
	attempts int
	slow     bool          // refused for good: try again rarely
	after    time.Duration // at least so long
}

// timerKey names what waits: a set by its text, or an address.
type timerKey struct {
	text string
	addr netip.Addr
}

func newTable(prefixes []netip.Prefix) *table {
	return &table{
		pool:      newAddressPool(prefixes),
		endpoints: make(map[string]*endpoint),
		addresses: make(map[netip.Addr]*address),
		sets:      make(map[string]*labelSet),
		byNumber:  make(map[identity.Number]*labelSet),
		touched:   make(map[string]bool),
	}
}

// put makes or changes an endpoint and returns the generation that a view must
// have reached to show it. A refused put changes nothing.
func (t *table) put(spec Spec) (uint64, error) {
	e := t.endpoints[spec.ID]
	addrs, err := t.pickAddresses(e, spec)
	if err != nil {
		return 0, err
	}
	if e == nil {
		e = &endpoint{id: spec.ID}
		t.endpoints[spec.ID] = e
	} else if e.want.labels == spec.Labels && slices.Equal(e.addrs, addrs) && e.meta.equal(spec.Meta) {
		t.retry(e)
		return e.gen, nil
	}
	t.gen++
	e.gen, e.meta = t.gen, spec.Meta
	t.out.dirty = true
	old := e.want
	e.want = t.use(spec.Labels)
	e.want.endpoints[e.id] = e
	if old != nil {
		if old != e.want {
			delete(old.endpoints, e.id)
		}
		t.unuse(old)
	}
	t.moveAddresses(e, addrs)
	t.touch(e.id)
	t.stepSet(e.want)
	return e.gen, nil
}

// pickAddresses decides which addresses the endpoint will have, without
// changing anything but the pool's cursor.
func (t *table) pickAddresses(e *endpoint, spec Spec) ([]netip.Addr, error) {
	addrs := spec.Addresses
	if len(addrs) == 0 && e != nil {
		return e.addrs, nil
	}
	if len(addrs) == 0 {
		a, ok := t.pool.take(func(a netip.Addr) bool { _, taken := t.takenBy(a, spec.ID); return taken })
		if !ok {
			return nil, refuse(allocator.Exhausted, "addresses",
				"every address of this node's prefixes is in use; delete endpoints or give the node a larger prefix")
		}
		return []netip.Addr{a}, nil
	}
	for _, a := range addrs {
		if err := t.pool.check(a); err != nil {
			return nil, err
		}
		if have := t.addresses[a]; have != nil && have.owner != nil && have.owner != e {
			return nil, refuse(allocator.FailedPrecondition, "addresses",
				"address %s belongs to endpoint %s; delete that one first", a, have.owner.id)
		}
		if owner, taken := t.takenBy(a, spec.ID); taken {
			return nil, refuse(allocator.FailedPrecondition, "addresses",
				"address %s is published by %s; delete it there first, or choose another address", a, owner)
		}
	}
	return addrs, nil
}

// takenBy says who publishes an address that the table does not know.
func (t *table) takenBy(at netip.Addr, id string) (owner string, taken bool) {
	if t.taken == nil || t.addresses[at] != nil {
		return "", false
	}
	return t.taken(at, id)
}

// moveAddresses gives e these addresses and lets go of those it had besides.
func (t *table) moveAddresses(e *endpoint, addrs []netip.Addr) {
	old := e.addrs
	e.addrs = slices.Clone(addrs)
	for _, at := range addrs {
		a := t.addresses[at]
		if a == nil {
			a = &address{addr: at}
			t.addresses[at] = a
			t.pool.claim(at)
		}
		a.owner = e
		t.nudge(a)
	}
	for _, at := range old {
		if !slices.Contains(addrs, at) {
			t.abandon(t.addresses[at])
		}
	}
}

// remove deletes an endpoint; false when there is none. Its addresses and its
// reference go their way by themselves.
func (t *table) remove(id string) bool {
	e := t.endpoints[id]
	if e == nil {
		return false
	}
	delete(t.endpoints, id)
	delete(e.want.endpoints, id)
	t.out.dirty = true
	for _, at := range e.addrs {
		t.abandon(t.addresses[at])
	}
	t.unuse(e.want)
	t.touch(id)
	return true
}

// retry makes everything that an endpoint waits for due now.
func (t *table) retry(e *endpoint) {
	t.wakeSet(e.want)
	for _, at := range e.addrs {
		t.nudge(t.addresses[at])
	}
}

// kick makes everything that waits due now: what it waited for is back.
func (t *table) kick() {
	for _, text := range slices.Sorted(maps.Keys(t.sets)) {
		if s := t.sets[text]; s != nil {
			t.wakeSet(s)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(t.addresses), netip.Addr.Compare) {
		if a := t.addresses[at]; a != nil {
			t.nudge(a)
		}
	}
}

// suspend keeps back, from now on, everything that goes to the operators: the
// node may not be spoken for, for this reason.
func (t *table) suspend(reason string) {
	t.suspended = reason
	for id := range t.endpoints {
		t.touch(id)
	}
}

// resume lets go what was kept back.
func (t *table) resume() {
	t.suspended = ""
	for id := range t.endpoints {
		t.touch(id)
	}
	t.kick()
}

// notSent takes back an effect that was not even tried.
func (t *table) notSent(e effect) {
	switch e.kind {
	case effectAcquire, effectRelease:
		if s := t.sets[e.set.Text()]; s != nil && s.busy {
			s.busy = false
			t.stepSet(s)
		}
	case effectPublish, effectWithdraw:
		if a := t.addresses[e.addr]; a != nil && a.busy {
			a.busy = false
			if !a.storeDoubt {
				t.hold(&a.flight, claim{})
			}
			t.catchUp(a)
			t.stepAddress(a)
		}
	}
}

// due ends a backoff. One that is over already, or of something gone, is ignored.
func (t *table) due(key timerKey) {
	if s := t.sets[key.text]; s != nil && s.waiting {
		s.waiting = false
		t.stepSet(s)
	}
	if a := t.addresses[key.addr]; a != nil && a.waiting {
		a.waiting = false
		t.stepAddress(a)
	}
}

func (t *table) emit(e effect) { t.out.effects = append(t.out.effects, e) }

func (t *table) touch(id string) { t.touched[id] = true }

// ready hands out what the inputs since the last call led to.
func (t *table) ready() ready {
	for _, id := range slices.Sorted(maps.Keys(t.touched)) {
		e := t.endpoints[id]
		if e == nil {
			t.out.changes = append(t.out.changes, change{id: id})
			continue
		}
		if v := t.derive(e); e.view == nil || !v.equal(e.view) {
			e.view = v
			t.out.changes = append(t.out.changes, change{id: id, view: v})
		}
	}
	clear(t.touched)
	out := t.out
	t.out = ready{}
	return out
}

// derive works out an endpoint's view from its set and addresses.
func (t *table) derive(e *endpoint) *View {
	v := &View{
		Spec:  Spec{ID: e.id, Labels: e.want.labels, Addresses: e.addrs, Meta: e.meta},
		State: StateReady, Created: e.want.created, gen: e.gen,
	}
	for _, at := range e.addrs {
		if a := t.addresses[at]; v.Number == 0 {
			v.Number = a.mapped.number
		}
	}
	if s := e.want; !s.usable() {
		v.wait(StateWaiting, s.failure, t.setWaits(s))
		return v
	}
	for _, at := range e.addrs {
		a := t.addresses[at]
		state, reason := t.addressWaits(a)
		if state == StateWaiting || state != "" && v.State == StateReady {
			v.wait(state, a.failure, reason)
		}
		if state == StateWaiting { // outweighs what is not published
			return v
		}
	}
	return v
}

func (v *View) wait(state EndpointState, failure *allocator.Error, reason string) {
	v.State, v.Reason, v.Failure = state, reason, nil
	if failure != nil && !transient(failure) {
		v.State, v.Failure = StateFailed, failure
	}
}

// transient reports whether a mere repetition may cure the failure soon.
func transient(err *allocator.Error) bool {
	switch err.Code {
	case allocator.Unavailable, allocator.DeadlineExceeded, allocator.FailedPrecondition:
		return true
	default:
		return false
	}
}
