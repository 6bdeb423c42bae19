// SPDX-License-Identifier: Apache-2.0

package nemesis

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/e2e/harness"
	"github.com/signet-identity/signet/kvstore"
)

// Settling turns calls into steps. A call without an answer is settled by the
// store's history: what a pin's reference went through, each change with the
// moment by which it had happened. A change that no call explains, and an
// acknowledgement that no change supports, are faults of their own.

// reference names one reference.
type reference struct{ text, holder string }

// written is one value that a reference had: a hold with its number, and when
// it had been written and deleted at the latest (deleted 0: not yet).
type written struct {
	hold        int64
	number      uint32
	by, deleted time.Duration
	replaced    bool // by the next one, without a deletion
}

// track is what the store's history says.
type track struct {
	refs map[reference][]written
	// purged are label sets of which a node lost a reference while it was marked
	// gone: after a grace that is the leader's right, so they are not judged.
	purged map[string]bool
	terms  int // of leaders
}

func trackEvents(layout kvstore.Layout, events []harness.Seen, began time.Time) track {
	t := track{refs: map[reference][]written{}, purged: map[string]bool{}}
	gone, nonce := map[string]bool{}, ""
	for _, ev := range events {
		k, err := layout.Parse(ev.KV.Key)
		if err != nil {
			continue
		}
		switch k.Kind {
		case allocator.KindGone:
			gone[k.Name] = !ev.Delete
		case allocator.KindReference:
			if ev.Delete && gone[k.Name] {
				t.purged[k.Labels] = true
			}
			t.reference(layout, reference{k.Labels, k.Name}, ev, ev.At.Sub(began))
		case allocator.KindLineage:
			r, err := layout.Decode(ev.KV)
			if v, ok := r.Value.(allocator.Lineage); err == nil && ok && len(v.Terms) > 0 {
				if last := v.Terms[len(v.Terms)-1].Nonce; last != nonce {
					nonce = last
					t.terms++
				}
			}
		}
	}
	return t
}

func (t *track) reference(layout kvstore.Layout, of reference, ev harness.Seen, at time.Duration) {
	past := t.refs[of]
	if n := len(past); n > 0 && past[n-1].deleted == 0 && !past[n-1].replaced {
		if ev.Delete {
			past[n-1].deleted = at
		} else {
			past[n-1].replaced = true
		}
	}
	if !ev.Delete {
		w := written{hold: ev.KV.ModRevision, by: at}
		if r, err := layout.Decode(ev.KV); err == nil {
			if v, ok := r.Value.(allocator.NumberValue); ok {
				w.number = uint32(v)
			}
		}
		past = append(past, w)
	}
	t.refs[of] = past
}

// number is the one that a hold has.
func (t *track) number(of reference, hold int64) uint32 {
	for _, w := range t.refs[of] {
		if w.hold == hold {
			return w.number
		}
	}
	return 0
}

// settled is a history as steps on objects, and what could not be explained.
type settled struct {
	objects map[string][]porcupine.Operation
	faults  []string
}

func (s *settled) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// put adds a step to the views of its label set and its number; either may be unknown.
func (s *settled) put(o op, text string, number uint32, p step) {
	add := func(object, bond string) {
		p.bond = bond
		s.objects[object] = append(s.objects[object], porcupine.Operation{ClientId: o.client, Input: p, Call: int64(o.call), Return: int64(o.ret)})
	}
	name := ""
	if number != 0 {
		name = fmt.Sprint(number)
	}
	if text != "" {
		add("set "+text, name)
	}
	if number != 0 && p.act != absent && p.act != other {
		add("number "+name, text)
	}
}

// settle makes steps of the calls.
func settle(ops []op, t track) settled {
	s := settled{objects: map[string][]porcupine.Operation{}}
	byRef := map[reference][]op{}
	for _, o := range ops {
		if t.purged[o.text] {
			continue
		}
		switch o.kind {
		case allocate, release:
			of := reference{o.text, o.holder}
			byRef[of] = append(byRef[of], o)
		case getLabels, getNumber:
			s.read(o)
		case putEndpoint:
			if !o.unknown {
				s.put(o, o.text, o.number, step{act: hold, holder: o.holder})
			}
		case deleteEndpoint:
			s.put(o, o.text, o.number, step{act: loosen, holder: o.holder})
		}
	}
	for of, calls := range byRef {
		slices.SortFunc(calls, func(a, b op) int { return int(a.call - b.call) })
		s.calls(of, calls, &t)
		s.changes(of, calls, t.refs[of])
	}
	for of, past := range t.refs {
		if strings.HasPrefix(of.holder, "pin-") && byRef[of] == nil && len(past) > 0 {
			s.fault("%s: a reference of %s that nobody asked for", of.text, of.holder)
		}
	}
	return s
}

func (s *settled) read(o op) {
	if o.unknown {
		return
	}
	p := step{act: read, holders: o.holders.String(), exact: pinned(o.text)}
	if o.number != 0 && o.text == "" { // no such number
		p.exact = false
	}
	if o.kind == getLabels && o.number == 0 {
		p.exact = false // whoever holds it contradicts "none" by the bond
	}
	s.put(o, o.text, o.number, p)
}

// calls adds what was answered about one reference.
func (s *settled) calls(of reference, calls []op, t *track) {
	for _, o := range calls {
		switch {
		case o.unknown:
		case o.kind == allocate:
			p := step{act: hold, holder: of.holder, hold: o.hold, created: o.created}
			if o.arg != 0 {
				p.replaces = []int64{o.arg}
			}
			if n := t.number(of, o.hold); n != o.number {
				s.fault("%s: %s was given %d with hold %d, the store has %d", of.text, of.holder, o.number, o.hold, n)
			}
			s.put(o, of.text, o.number, p)
		case o.refused:
			s.put(o, of.text, 0, step{act: other, holder: of.holder, hold: o.arg})
		case o.done:
			s.put(o, of.text, t.number(of, o.arg), step{act: drop, holder: of.holder, hold: o.arg})
		default:
			s.put(o, of.text, 0, step{act: absent, holder: of.holder})
		}
	}
}

// changes explains each change of one reference, with the calls that may have made it.
func (s *settled) changes(of reference, calls []op, past []written) {
	for _, w := range past {
		s.write(of, calls, w)
		if w.deleted != 0 {
			s.deletion(of, calls, w)
		}
	}
	for _, o := range calls {
		if o.kind == release && o.done && !slices.ContainsFunc(past, func(w written) bool { return w.hold == o.arg && w.deleted != 0 }) {
			s.fault("%s: %s was told that hold %d is released, and the store says that it was not", of.text, of.holder, o.arg)
		}
	}
}

// write adds the call without an answer that may have written a hold: the
// first one that can, for it leaves the most room.
func (s *settled) write(of reference, calls []op, w written) {
	acked, created := false, false
	first, newest := time.Duration(math.MaxInt64), int64(0)
	var replaces []int64
	var author op
	for _, o := range calls {
		if o.kind != allocate || o.call > w.by {
			continue
		}
		if !o.unknown {
			newest = max(newest, o.hold)
			if o.hold == w.hold {
				acked, created = true, created || o.created
			}
			continue
		}
		if newest >= w.hold { // an answer before this call had shown it, or a newer one
			continue
		}
		if o.arg != 0 {
			replaces = append(replaces, o.arg)
		}
		if o.call < first {
			first, author = o.call, o
		}
	}
	switch {
	case author.unknown && !created:
		author.ret = max(w.by, author.call)
		s.put(author, of.text, w.number, step{act: hold, holder: of.holder, hold: w.hold, replaces: replaces})
	case !acked:
		s.fault("%s: hold %d of %s was written and nobody had asked for it", of.text, w.hold, of.holder)
	}
}

// deletion adds the release without an answer that may have taken a hold, if
// none with an answer did.
func (s *settled) deletion(of reference, calls []op, w written) {
	for _, want := range []bool{false, true} { // answered ones first
		for _, o := range calls {
			if o.kind != release || o.arg != w.hold || o.unknown != want || !want && !o.done {
				continue
			}
			if want {
				o.ret = max(w.deleted, o.call)
				s.put(o, of.text, w.number, step{act: drop, holder: of.holder, hold: w.hold})
			}
			return
		}
	}
	s.fault("%s: hold %d of %s was deleted and nobody had given it back", of.text, w.hold, of.holder)
}

// pinned says whether only pins hold a label set, so that reads show all holders.
func pinned(text string) bool { return !strings.Contains(text, agentMark) }

func TestSettle(t *testing.T) {
	of := reference{"k8s:a=b;", "pin-x"}
	call := func(k kind, from, to time.Duration, o op) op {
		o.kind, o.text, o.holder, o.call, o.ret = k, of.text, of.holder, from, to
		return o
	}
	lost := call(allocate, 1, 5, op{unknown: true})
	kept := call(allocate, 6, 7, op{number: 300, hold: 10})
	for name, c := range map[string]struct {
		ops    []op
		past   []written
		faults int
		ok     bool
	}{
		"an answer and its write":         {[]op{kept}, []written{{hold: 10, number: 300, by: 8}}, 0, true},
		"an answer without a write":       {[]op{kept}, nil, 1, true},
		"an answer with another number":   {[]op{kept}, []written{{hold: 10, number: 301, by: 8}}, 1, true},
		"a write that nobody asked for":   {nil, []written{{hold: 10, number: 300, by: 8}}, 1, true},
		"a lost call that landed late":    {[]op{lost}, []written{{hold: 10, number: 300, by: 90}}, 0, true},
		"a lost call that never landed":   {[]op{lost}, nil, 0, true},
		"a lost call, then the same hold": {[]op{lost, kept}, []written{{hold: 10, number: 300, by: 4}}, 0, true},
		"a deletion that nobody wanted":   {[]op{kept}, []written{{hold: 10, number: 300, by: 8, deleted: 9}}, 1, true},
		"a lost release that landed": {[]op{kept, call(release, 8, 9, op{arg: 10, unknown: true}), call(getLabels, 20, 21, op{})},
			[]written{{hold: 10, number: 300, by: 8, deleted: 15}}, 0, true},
		"a lost release, read too late": {[]op{kept, call(release, 8, 9, op{arg: 10, unknown: true}), call(getLabels, 20, 21, op{number: 300, holders: held{"pin-x": 10}})},
			[]written{{hold: 10, number: 300, by: 8, deleted: 15}}, 0, false},
		"an answered release without a deletion": {[]op{kept, call(release, 8, 9, op{arg: 10, done: true})},
			[]written{{hold: 10, number: 300, by: 8}}, 1, true},
	} {
		s := settle(c.ops, track{refs: map[reference][]written{of: c.past}})
		if len(s.faults) != c.faults {
			t.Errorf("%s: faults %q, want %d", name, s.faults, c.faults)
		}
		ok := true
		for _, ops := range s.objects {
			ok = ok && porcupine.CheckOperations(model(), ops)
		}
		if ok != c.ok {
			t.Errorf("%s: linearizable is %v", name, ok)
		}
	}
}
