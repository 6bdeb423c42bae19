// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

var testPrefixes = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/28")}

func set(t testing.TB, ss ...string) labels.Set {
	t.Helper()
	ls, err := labels.ParseSet(ss...)
	if err != nil {
		t.Fatal(err)
	}
	return ls
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// world runs a table against modelled outsides: an operator, a map, the store.
type world struct {
	t         *table
	pending   []effect
	refs      map[string]identity.Number // references at the operator
	mapped    map[netip.Addr]claim
	published map[netip.Addr]claim
	numbers   map[string]identity.Number
	next      identity.Number
	views     map[string]*View
	revision  int64
	leaked    []effect // what went out while the table was suspended
	// order of what was done, for tests of sequences
	log []string
}

func newWorld() *world {
	return &world{t: newTable(testPrefixes), refs: map[string]identity.Number{}, mapped: map[netip.Addr]claim{},
		published: map[netip.Addr]claim{}, numbers: map[string]identity.Number{}, next: 1000, views: map[string]*View{}}
}

func (w *world) collect() ready {
	r := w.t.ready()
	for _, e := range r.effects {
		if w.t.suspended != "" && e.kind != effectMap && e.kind != effectUnmap && e.kind != effectTimer {
			w.leaked = append(w.leaked, e)
		}
	}
	w.pending = append(w.pending, r.effects...)
	for _, c := range r.changes {
		if c.view == nil {
			delete(w.views, c.id)
			continue
		}
		w.views[c.id] = c.view
	}
	return r
}

// do carries out pending effect i.
func (w *world) do(i int) {
	e := w.pending[i]
	w.pending = slices.Delete(w.pending, i, i+1)
	w.revision++
	text := e.set.Text()
	switch e.kind {
	case effectAcquire:
		w.log = append(w.log, "acquire "+text)
		n, ok := w.numbers[text]
		if !ok {
			w.next++
			n = w.next
			w.numbers[text] = n
		}
		w.refs[text] = n
		w.t.acquired(text, grant{number: n, hold: w.revision, asOf: w.revision, created: !ok})
	case effectRelease:
		w.log = append(w.log, "release "+text)
		delete(w.refs, text)
		w.t.released(text)
	case effectMap:
		w.log = append(w.log, fmt.Sprintf("map %s %d", e.addr, e.claim.number))
		w.mapped[e.addr] = e.claim
		w.t.mapDone(e.addr)
	case effectUnmap:
		w.log = append(w.log, fmt.Sprintf("unmap %s", e.addr))
		delete(w.mapped, e.addr)
		w.t.mapDone(e.addr)
	case effectPublish:
		w.log = append(w.log, fmt.Sprintf("publish %s %d", e.addr, e.claim.number))
		w.published[e.addr] = e.claim
		w.t.publishDone(e.addr, w.revision)
	case effectWithdraw:
		w.log = append(w.log, fmt.Sprintf("withdraw %s", e.addr))
		delete(w.published, e.addr)
		w.t.publishDone(e.addr, w.revision)
	case effectTimer:
		w.t.due(e.key)
	}
	w.collect()
}

// fail lets pending effect i end badly.
func (w *world) fail(i int, landed bool) {
	e := w.pending[i]
	err := refuse(allocator.Unavailable, "", "the operator is away")
	w.pending = slices.Delete(w.pending, i, i+1)
	text := e.set.Text()
	switch e.kind {
	case effectAcquire:
		if landed {
			if w.numbers[text] == 0 {
				w.next++
				w.numbers[text] = w.next
			}
			w.refs[text] = w.numbers[text]
		}
		w.t.acquireFailed(text, err, true)
	case effectRelease:
		if landed {
			delete(w.refs, text)
		}
		w.t.releaseFailed(text, err)
	case effectTimer:
		w.t.due(e.key)
	case effectPublish, effectWithdraw:
		if landed && e.kind == effectPublish {
			w.published[e.addr] = e.claim
		} else if landed {
			delete(w.published, e.addr)
		}
		w.t.addressFails(e.addr, err)
	default:
		w.t.addressFails(e.addr, err)
	}
	w.collect()
}

func (w *world) settle() {
	w.collect()
	for n := 0; len(w.pending) > 0; n++ {
		if n > 100_000 {
			panic("the table does not come to rest")
		}
		w.do(0)
	}
}

func (w *world) put(t testing.TB, id string, ls labels.Set, addrs ...netip.Addr) {
	t.Helper()
	if _, err := w.t.put(Spec{ID: id, Labels: ls, Addresses: addrs}); err != nil {
		t.Fatal(err)
	}
}

func TestPutGoesStepByStep(t *testing.T) {
	w := newWorld()
	web := set(t, "k8s:app=web")
	w.put(t, "a", web)
	w.collect()
	if v := w.views["a"]; v.State != StateWaiting || v.Number != 0 || v.Reason == "" {
		t.Fatalf("before the number: %+v", v)
	}
	w.settle()
	want := []string{"acquire k8s:app=web;", "map 10.244.0.1 1001", "publish 10.244.0.1 1001"}
	if !slices.Equal(w.log, want) {
		t.Errorf("order %q, want %q", w.log, want)
	}
	if v := w.views["a"]; v.State != StateReady || v.Number != 1001 || !v.Created {
		t.Errorf("view %+v", v)
	}
	w.log = nil
	w.t.remove("a")
	w.settle()
	want = []string{"withdraw 10.244.0.1", "unmap 10.244.0.1", "release k8s:app=web;"}
	if !slices.Equal(w.log, want) {
		t.Errorf("order %q, want %q", w.log, want)
	}
	if len(w.t.sets)+len(w.t.addresses)+len(w.t.pool.used) != 0 {
		t.Error("something is left over")
	}
}

func TestLabelsChangeMakesBeforeItBreaks(t *testing.T) {
	w := newWorld()
	w.put(t, "a", set(t, "k8s:app=web"))
	w.settle()
	w.log = nil
	w.put(t, "a", set(t, "k8s:app=api"))
	w.collect()
	if v := w.views["a"]; v.State != StateWaiting || v.Number != 1001 {
		t.Errorf("while it waits the old number is in force: %+v", v)
	}
	w.settle()
	want := []string{"acquire k8s:app=api;", "map 10.244.0.1 1002", "publish 10.244.0.1 1002", "release k8s:app=web;"}
	if !slices.Equal(w.log, want) {
		t.Errorf("order %q, want %q", w.log, want)
	}
	if v := w.views["a"]; v.State != StateReady || v.Number != 1002 {
		t.Errorf("view %+v", v)
	}
}

// A reference is released only with the last endpoint, and a set that is wanted
// again while its release is under way is acquired anew, never just used.
func TestReferencesAreShared(t *testing.T) {
	w := newWorld()
	web := set(t, "k8s:app=web")
	w.put(t, "a", web)
	w.put(t, "b", web)
	w.settle()
	w.t.remove("a")
	w.settle()
	if w.refs[web.Text()] == 0 || slices.Contains(w.log, "release k8s:app=web;") {
		t.Error("b still needs the reference")
	}
	w.t.remove("b")
	w.collect()
	for w.pending[0].kind != effectRelease {
		w.do(0)
	}
	w.put(t, "c", web)
	w.collect()
	if v := w.views["c"]; v.State != StateWaiting || v.Number != 0 {
		t.Errorf("a number that is being released was used: %+v", v)
	}
	w.settle()
	if w.views["c"].State != StateReady || w.refs[web.Text()] == 0 {
		t.Errorf("c %+v, references %v", w.views["c"], w.refs)
	}
}

// after a partition the set has another number. It is taken over in the
// map and in the store, and reported.
func TestScenario_A09_NumberChangesUnderEqualLabels(t *testing.T) {
	w := newWorld()
	web := set(t, "k8s:app=web")
	w.put(t, "a", web)
	w.settle()
	w.log = nil
	// The number was freed while the node was cut off: the address is denied at once.
	w.t.numberMeans(1001, "", w.revision+10)
	w.numbers[web.Text()] = 2001
	r := w.collect()
	if w.pending[0].kind != effectMap || !w.pending[0].claim.dead {
		t.Fatalf("the dead number is not denied first: %+v", r.effects)
	}
	var renumbered []renumbering
	for len(w.pending) > 0 {
		e := w.pending[0]
		w.pending = w.pending[1:]
		w.revision += 20
		switch e.kind {
		case effectAcquire:
			if !e.confirm {
				t.Error("the acquire does not say that it confirms")
			}
			w.t.acquired(web.Text(), grant{number: 2001, hold: w.revision, asOf: w.revision})
		case effectMap:
			w.log = append(w.log, fmt.Sprintf("map %d dead=%v", e.claim.number, e.claim.dead))
			w.t.mapDone(e.addr)
		case effectPublish:
			w.log = append(w.log, fmt.Sprintf("publish %d", e.claim.number))
			w.t.publishDone(e.addr, w.revision)
		}
		renumbered = append(renumbered, w.collect().renumbered...)
	}
	want := []string{"map 1001 dead=true", "map 2001 dead=false", "publish 2001"}
	if !slices.Equal(w.log, want) {
		t.Errorf("order %q, want %q", w.log, want)
	}
	if len(renumbered) != 1 || renumbered[0].from != 1001 || renumbered[0].to != 2001 {
		t.Errorf("renumbered %+v", renumbered)
	}
	if v := w.views["a"]; v.State != StateReady || v.Number != 2001 {
		t.Errorf("view %+v", v)
	}
	// Older news of the new number's former life changes nothing.
	w.t.numberMeans(2001, "", 1)
	if len(w.collect().effects) != 0 {
		t.Error("old news of the number was believed")
	}
}

// the init identity goes when the real labels arrive.
func TestScenario_A14_InitIdentityIsReplaced(t *testing.T) {
	w := newWorld()
	w.put(t, "a", set(t, "reserved:init"))
	w.settle()
	if v := w.views["a"]; v.State != StateReady || v.Number != identity.Init {
		t.Fatalf("view %+v", v)
	}
	if len(w.refs) != 0 || len(w.published) != 0 {
		t.Errorf("a reserved number was stored: %v %v", w.refs, w.published)
	}
	cp := w.t.checkpoint()
	w2 := newWorld()
	w2.t.restore(&cp)
	for _, w := range []*world{w, w2} {
		w.settle()
		w.put(t, "a", set(t, "k8s:app=web"))
		w.settle()
		if v := w.views["a"]; v.State != StateReady || v.Number == identity.Init || len(w.t.sets) != 1 {
			t.Errorf("view %+v, sets %d", v, len(w.t.sets))
		}
		if w.mapped[addr("10.244.0.1")].number == identity.Init {
			t.Error("the map still says init")
		}
	}
}

func TestPutRefuses(t *testing.T) {
	w := newWorld()
	web := set(t, "k8s:app=web")
	w.put(t, "a", web, addr("10.244.0.5"))
	w.settle()
	for _, c := range []struct {
		addr, want string
		code       allocator.Code
	}{
		{"10.244.0.5", "belongs to endpoint a", allocator.FailedPrecondition},
		{"10.245.0.5", "outside of this node's prefixes (10.244.0.0/28)", allocator.InvalidArgument},
		{"10.244.0.0", "network or broadcast", allocator.InvalidArgument},
		{"10.244.0.15", "network or broadcast", allocator.InvalidArgument},
	} {
		_, err := w.t.put(Spec{ID: "b", Labels: web, Addresses: []netip.Addr{addr(c.addr)}})
		refused, ok := err.(*allocator.Error)
		if !ok || refused.Code != c.code || !strings.Contains(refused.Message, c.want) {
			t.Errorf("%s: %v", c.addr, err)
		}
	}
	if len(w.t.endpoints) != 1 || len(w.collect().effects) != 0 {
		t.Error("a refused put left something behind")
	}
}

func TestAddressMovesToAnotherEndpoint(t *testing.T) {
	w := newWorld()
	w.put(t, "a", set(t, "k8s:app=web"), addr("10.244.0.5"))
	w.settle()
	w.t.remove("a")
	w.put(t, "b", set(t, "k8s:app=api"), addr("10.244.0.5"))
	w.settle()
	if c := w.mapped[addr("10.244.0.5")]; c.owner != "b" || c.number != w.numbers["k8s:app=api;"] {
		t.Errorf("the map says %+v", c)
	}
	if c := w.published[addr("10.244.0.5")]; c.owner != "b" {
		t.Errorf("the store says %+v", c)
	}
	if len(w.refs) != 1 {
		t.Errorf("references %v", w.refs)
	}
}

// A new owner that still waits for its number does not inherit the old one's.
func TestNewOwnerDoesNotInheritTheNumber(t *testing.T) {
	w := newWorld()
	w.put(t, "a", set(t, "k8s:app=web"), addr("10.244.0.5"))
	w.settle()
	w.t.remove("a")
	w.put(t, "b", set(t, "k8s:app=api"), addr("10.244.0.5"))
	w.collect()
	for {
		i := slices.IndexFunc(w.pending, func(e effect) bool { return e.kind != effectAcquire })
		if i < 0 {
			break
		}
		w.do(i)
	}
	if len(w.mapped) != 0 || len(w.published) != 0 {
		t.Errorf("the old number still stands: %v %v", w.mapped, w.published)
	}
}

func TestObserve(t *testing.T) {
	at := addr("10.244.0.1")
	for name, c := range map[string]struct {
		seen    seen
		publish bool
		rival   string
	}{
		"vanished":  {seen{revision: 100}, true, ""},
		"changed":   {seen{present: true, ours: true, endpoint: "a", number: 7, revision: 100}, true, ""},
		"as it was": {seen{present: true, ours: true, endpoint: "a", number: 1001, revision: 100}, false, ""},
		"rival":     {seen{present: true, owner: "node n2", number: 9, revision: 100}, false, "node n2"},
		"old news":  {seen{revision: 1}, false, ""},
	} {
		w := newWorld()
		w.put(t, "a", set(t, "k8s:app=web"))
		w.settle()
		w.t.observe(at, c.seen)
		r := w.collect()
		if got := len(r.effects) == 1 && r.effects[0].kind == effectPublish; got != c.publish || w.t.addresses[at].rival != c.rival {
			t.Errorf("%s: effects %+v, rival %q", name, r.effects, w.t.addresses[at].rival)
		}
		if w.mapped[at].number != 1001 {
			t.Errorf("%s: the map says %+v", name, w.mapped[at])
		}
	}
}

// A kick makes everything due at once, whatever backoff it is in.
func TestKick(t *testing.T) {
	w := newWorld()
	w.put(t, "a", set(t, "k8s:app=web"))
	w.put(t, "b", set(t, "k8s:app=api"))
	w.collect()
	w.do(0)
	for range 2 { // a's map and b's acquire
		w.fail(0, false)
	}
	if v := w.views["b"]; v.State != StateWaiting || !strings.Contains(v.Reason, "operator is away") {
		t.Errorf("view %+v", v)
	}
	w.pending = nil // the timers run on
	w.t.kick()
	kinds := map[effectKind]int{}
	for _, e := range w.collect().effects {
		kinds[e.kind]++
	}
	if len(kinds) != 2 || kinds[effectAcquire] != 1 || kinds[effectMap] != 1 {
		t.Errorf("effects by kind: %v", kinds)
	}
	w.t.due(timerKey{text: "k8s:app=api;"})
	if len(w.collect().effects) != 0 {
		t.Error("a timer that is overtaken did something")
	}
}

func TestWelcome(t *testing.T) {
	web, api, db := set(t, "k8s:app=web"), set(t, "k8s:app=api"), set(t, "k8s:app=db")
	w := newWorld()
	w.put(t, "a", web)
	w.put(t, "b", api)
	w.settle()
	w.log = nil
	refreshed, surplus := w.t.welcome([]heldPair{
		{labels: web, number: 1001, hold: 77},
		{labels: db, number: 5, hold: 78},
	}, w.revision+1)
	if len(surplus) != 1 || surplus[0].labels != db || len(refreshed) != 1 || refreshed[0].hold != 77 {
		t.Errorf("refreshed %+v, surplus %+v", refreshed, surplus)
	}
	if got := w.t.sets[web.Text()].hold; got != 77 {
		t.Errorf("hold %d", got)
	}
	delete(w.refs, api.Text())
	w.settle()
	if w.refs[api.Text()] != 1002 || !slices.Equal(w.log, []string{"acquire k8s:app=api;"}) {
		t.Errorf("the missing reference was not taken again: %v %q", w.refs, w.log)
	}
	w.t.adopt(surplus[0])
	w.settle()
	if !slices.Contains(w.log, "release k8s:app=db;") {
		t.Errorf("the surplus was not released: %q", w.log)
	}
	w.log = nil
	if _, surplus = w.t.welcome(nil, 1); len(surplus) != 0 {
		t.Error("surplus out of nothing")
	}
	w.settle()
	if len(w.log) != 0 {
		t.Errorf("a welcome older than the answers was believed: %q", w.log)
	}
}

// check compares the table's counts with a recount.
func (w *world) check(t *rapid.T) {
	uses := map[*labelSet]int{}
	for _, e := range w.t.endpoints {
		uses[e.want]++
		if len(e.addrs) == 0 {
			t.Fatalf("endpoint %s has no address", e.id)
		}
		for _, at := range e.addrs {
			if a := w.t.addresses[at]; a == nil || a.owner != e {
				t.Fatalf("address %s is not %s's", at, e.id)
			}
		}
	}
	for _, a := range w.t.addresses {
		for _, s := range []*labelSet{a.target, a.flight.set, a.mapped.set, a.published.set} {
			if s != nil {
				uses[s]++
			}
		}
	}
	for text, s := range w.t.sets {
		if uses[s] != s.uses || s.uses < 0 {
			t.Fatalf("set %s: %d uses counted, %d are there", text, s.uses, uses[s])
		}
		delete(uses, s)
	}
	for s, n := range uses {
		t.Fatalf("set %s has %d uses and no record", s.labels, n)
	}
	// Whatever the map or the store shows alive is backed by a reference.
	for at, c := range w.mapped {
		if !c.dead && !c.set.fixed && w.refs[c.set.labels.Text()] != c.number {
			t.Fatalf("the map shows %s with %d, and the reference is %d", at, c.number, w.refs[c.set.labels.Text()])
		}
	}
}

func TestTableConverges(t *testing.T) {
	pools := [][]string{{"k8s:app=a"}, {"k8s:app=b"}, {"k8s:app=c"}, {"reserved:init"}}
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld()
		want := map[string]labels.Set{}
		ids := rapid.SampledFrom([]string{"e1", "e2", "e3", "e4"})
		r.Repeat(map[string]func(*rapid.T){
			"": func(r *rapid.T) { w.collect(); w.check(r) },
			"put": func(r *rapid.T) {
				id, ls := ids.Draw(r, "id"), set(t, rapid.SampledFrom(pools).Draw(r, "labels")...)
				var addrs []netip.Addr
				if n := rapid.IntRange(0, 3).Draw(r, "address"); n > 0 {
					addrs = []netip.Addr{addr(fmt.Sprintf("10.244.0.%d", n))}
				}
				if _, err := w.t.put(Spec{ID: id, Labels: ls, Addresses: addrs}); err == nil {
					want[id] = ls
				}
			},
			"remove": func(r *rapid.T) {
				id := ids.Draw(r, "id")
				if w.t.remove(id) != (want[id] != labels.Set{}) {
					r.Fatal("remove does not know what there is")
				}
				delete(want, id)
			},
			"suspend": func(r *rapid.T) { w.collect(); w.t.suspend("no presence") },
			"resume":  func(r *rapid.T) { w.t.resume() },
			"not sent": func(r *rapid.T) {
				w.some(r, func(i int) { e := w.pending[i]; w.pending = slices.Delete(w.pending, i, i+1); w.giveBack(e) })
			},
			"do":   func(r *rapid.T) { w.some(r, func(i int) { w.do(i) }) },
			"fail": func(r *rapid.T) { w.some(r, func(i int) { w.fail(i, rapid.Bool().Draw(r, "landed")) }) },
			"kick": func(r *rapid.T) { w.t.kick() },
			"restart": func(r *rapid.T) {
				w.collect()
				cp := w.t.checkpoint()
				data, err := json.Marshal(cp)
				if err != nil {
					r.Fatal(err)
				}
				back, err := parseCheckpoint(data)
				if err != nil {
					r.Fatalf("%v: %s", err, data)
				}
				w.t, w.pending, w.views = newTable(testPrefixes), nil, map[string]*View{}
				// The desired table of a map begins empty; what the map holds stays until it is pruned.
				w.mapped = map[netip.Addr]claim{}
				w.t.restore(back)
				w.t.kick()
				// The mirror and the session come into sync again.
				w.collect()
				var pairs []heldPair
				for text, n := range w.refs {
					pairs = append(pairs, heldPair{labels: mustSet(text), number: n, hold: 1})
				}
				w.revision++
				_, surplus := w.t.welcome(pairs, w.revision)
				for _, p := range surplus {
					w.t.adopt(p)
				}
				for at, c := range w.published {
					if !w.t.has(at) {
						w.t.leftover(at, c.number)
					}
				}
				for at := range w.t.addresses {
					c, ok := w.published[at]
					w.t.observe(at, seen{present: ok, ours: ok, endpoint: c.owner, number: c.number, revision: w.revision})
				}
			},
		})
		if len(w.leaked) > 0 {
			r.Fatalf("went out while suspended: %+v", w.leaked)
		}
		w.t.resume()
		w.settle()
		w.check(r)
		refs := map[string]bool{}
		for id, ls := range want {
			v := w.views[id]
			if v == nil || v.State != StateReady || v.Labels != ls {
				r.Fatalf("%s: %+v", id, v)
			}
			n, fixed := identity.ReservedForLabels(ls)
			if !fixed {
				n = w.numbers[ls.Text()]
				refs[ls.Text()] = true
			}
			for _, at := range v.Addresses {
				if w.mapped[at].number != n || !fixed && w.published[at].number != n || fixed && w.published[at].number != 0 {
					r.Fatalf("%s: map %+v, store %+v, want %d", at, w.mapped[at], w.published[at], n)
				}
			}
		}
		if len(w.refs) != len(refs) || len(w.t.sets) > len(pools) || len(w.mapped) != len(w.t.addresses) {
			r.Fatalf("references %v, want %v; %d mapped, %d addresses", w.refs, refs, len(w.mapped), len(w.t.addresses))
		}
	})
}

// giveBack is an effect that the gate did not let through; a timer just rings.
func (w *world) giveBack(e effect) {
	switch e.kind {
	case effectMap, effectUnmap:
		w.pending = append(w.pending, e)
	case effectTimer:
		w.t.due(e.key)
	default:
		w.t.notSent(e)
	}
}

func (w *world) some(r *rapid.T, f func(i int)) {
	w.collect()
	if len(w.pending) == 0 {
		r.Skip("nothing is pending")
	}
	f(rapid.IntRange(0, len(w.pending)-1).Draw(r, "which"))
}

func TestCheckpointRoundTrip(t *testing.T) {
	w := newWorld()
	w.put(t, "a", set(t, "k8s:app=web"))
	w.put(t, "b", set(t, "k8s:app=api"), addr("10.244.0.9"))
	w.settle()
	w.put(t, "b", set(t, "k8s:app=db"), addr("10.244.0.9"))
	w.collect() // b waits for db, and api is in force
	cp := w.t.checkpoint()
	data, err := json.Marshal(cp)
	if err != nil {
		t.Fatal(err)
	}
	back, err := parseCheckpoint(data)
	if err != nil {
		t.Fatal(err)
	}
	w2 := newWorld()
	w2.numbers, w2.next = w.numbers, w.next
	w2.t.restore(back)
	w2.collect()
	if v := w2.views["a"]; v.Labels != set(t, "k8s:app=web") || !slices.Equal(v.Addresses, []netip.Addr{addr("10.244.0.1")}) {
		t.Errorf("a %+v", v)
	}
	for i := 0; i < len(w2.pending); {
		if w2.pending[i].kind != effectMap {
			i++
			continue
		}
		w2.do(i)
	}
	if w2.mapped[addr("10.244.0.9")].number != 1002 || w2.mapped[addr("10.244.0.1")].number != 1001 {
		t.Errorf("the numbers in force are not in the map at once: %v", w2.mapped)
	}
	again := w2.t.checkpoint()
	if data2, _ := json.Marshal(again); !bytes.Equal(data, data2) {
		t.Errorf("not the same after restore:\n%s\n%s", data, data2)
	}
	w2.settle()
	if v := w2.views["b"]; v.State != StateReady || v.Number != 1003 {
		t.Errorf("b %+v", v)
	}
}
