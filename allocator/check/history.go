// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"sync"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

// Violation is a step of a store's history that breaks an invariant.
type Violation struct {
	Revision  int64               `json:"revision"`
	Invariant allocator.Invariant `json:"invariant"`
	Object    string              `json:"object"` // a key as it is stored
	Text      string              `json:"text"`
}

// String is the violation on one line.
func (v Violation) String() string {
	return fmt.Sprintf("revision %d: %s: %s: %s", v.Revision, v.Invariant, v.Object, v.Text)
}

// OrderError says that events were not given in the order in which they happened.
type OrderError struct {
	Revision int64 // of the event
	Judged   int64 // the newest revision that was judged before
}

// Error implements error.
func (e *OrderError) Error() string {
	return fmt.Sprintf("events of revision %d come after revision %d was judged", e.Revision, e.Judged)
}

// past is what the history knows of one number.
type past struct {
	labels string // of its newest master that could be read
	live   bool
	done   bool // since it was freed a tombstone said that its quarantine is over
}

// pair is a reference: who uses which label set.
type pair struct{ labels, holder string }

// History judges a store's changes one revision after the other: I1, I2, I3,
// I4, I5, I7 (the lineage) and I9. It sees all writers, so what people or
// foreign allocators do wrong is a violation as well; a test that lets them
// knows which revisions to excuse. It is safe for concurrent use.
type History struct {
	layout   kvstore.Layout
	prefixes []string

	mu         sync.Mutex
	space      identity.Space
	spaceOK    bool
	revision   int64
	events     int
	numbers    map[identity.Number]*past
	live       map[string]map[identity.Number]bool
	refs       map[pair]identity.Number
	refsTo     map[identity.Number]map[pair]bool
	idle       map[identity.Number]bool
	tombstones map[identity.Number]allocator.Tombstone
	lineage    *allocator.Lineage
	cluster    *allocator.Cluster
	violations []Violation
}

// NewHistory makes the history of an empty store. With the zero Space the range
// of numbers is judged from the moment that the store's cluster record is written.
func NewHistory(o Options) *History {
	return &History{
		layout: o.Layout, prefixes: Prefixes(o.Layout), space: o.Space, spaceOK: o.Space != identity.Space{},
		numbers: map[identity.Number]*past{}, live: map[string]map[identity.Number]bool{},
		refs: map[pair]identity.Number{}, refsTo: map[identity.Number]map[pair]bool{},
		idle: map[identity.Number]bool{}, tombstones: map[identity.Number]allocator.Tombstone{},
	}
}

// Add judges events in the order in which they happened: of each revision all
// that lie under Prefixes, in one call (events elsewhere may be there or not).
// It returns an *OrderError, and judges nothing, when a revision was judged before.
func (h *History) Add(events []kvstore.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.revision
	for i, ev := range events {
		rev := ev.KV.ModRevision
		if rev < last || rev == last && (i == 0 || events[i-1].KV.ModRevision != rev) {
			return &OrderError{Revision: rev, Judged: last}
		}
		last = rev
	}
	for len(events) > 0 {
		n := 1
		for n < len(events) && events[n].KV.ModRevision == events[0].KV.ModRevision {
			n++
		}
		h.step(events[:n])
		events = events[n:]
	}
	return nil
}

// Revision is the newest revision that was judged, or that Follow was told of.
func (h *History) Revision() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.revision
}

// Events is how many events under Prefixes were judged.
func (h *History) Events() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events
}

// Violations lists what was found, in the order of revisions.
func (h *History) Violations() []Violation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.violations)
}

func (h *History) violate(i allocator.Invariant, object, format string, args ...any) {
	h.violations = append(h.violations, Violation{Revision: h.revision, Invariant: i, Object: object, Text: fmt.Sprintf(format, args...)})
}

// change is one event, decoded. Value is nil for a deletion, and for a value
// that cannot be read.
type change struct {
	item
	unreadable bool
}

// before is how a number stood before the revision that is judged.
type before struct {
	past
	idle, tombed bool
	tomb         allocator.Tombstone
}

// step judges the events of one revision: all of them are applied, then each
// is looked at with the state before and after.
func (h *History) step(events []kvstore.Event) {
	h.revision = events[0].KV.ModRevision
	var changes []change
	old := map[identity.Number]before{}
	for _, ev := range events {
		if !covered(h.prefixes, ev.KV.Key) {
			continue
		}
		h.events++
		c, ok := h.decode(ev)
		if !ok {
			continue
		}
		changes = append(changes, c)
		if n := c.Key.Number; n != 0 {
			old[n] = h.before(n)
		}
	}
	for _, c := range changes {
		h.apply(c)
	}
	for _, c := range changes {
		h.judge(c, changes, old)
	}
}

// decode reads an event. What cannot be read is a violation; of that only a
// change of a readable key goes on.
func (h *History) decode(ev kvstore.Event) (change, bool) {
	k, err := h.layout.Parse(ev.KV.Key)
	if ev.Delete {
		return change{item: item{Record: allocator.Record{Key: k, ModRevision: ev.KV.ModRevision}, key: ev.KV.Key}}, err == nil
	}
	r, decodeErr := h.layout.Decode(ev.KV)
	if decodeErr == nil {
		return change{item: item{Record: r, key: ev.KV.Key}}, true
	}
	if !unknownKey(decodeErr) {
		h.violate(allocator.I9, ev.KV.Key, "it was written and cannot be read: %v", decodeErr)
	}
	return change{item: item{Record: allocator.Record{Key: k}, key: ev.KV.Key}, unreadable: true}, err == nil
}

func (h *History) before(n identity.Number) before {
	b := before{idle: h.idle[n]}
	b.tomb, b.tombed = h.tombstones[n]
	if p := h.numbers[n]; p != nil {
		b.past = *p
	}
	return b
}
