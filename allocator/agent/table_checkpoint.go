// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/labels"
)

// checkpoint writes down what restore needs.
func (t *table) checkpoint() checkpoint {
	cp := checkpoint{Version: checkpointVersion, Sets: []checkpointSet{}, Endpoints: []checkpointEndpoint{}, Addresses: []checkpointAddress{}}
	for _, s := range t.setsInOrder() {
		if s.have && !s.fixed && !s.letGo { // what was let go of shows in the next Welcome
			cp.Sets = append(cp.Sets, checkpointSet{Text: s.labels.Text(), Number: s.number, Hold: s.hold,
				CreateRevision: s.born, Counter: s.counter})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.endpoints)) {
		e := t.endpoints[id]
		ce := checkpointEndpoint{ID: id, Text: e.want.labels.Text(), K8sNamespace: e.meta.K8sNamespace,
			K8sPodName: e.meta.K8sPodName, K8sServiceAccount: e.meta.K8sServiceAccount}
		for _, p := range e.meta.NamedPorts {
			ce.NamedPorts = append(ce.NamedPorts, namedPort(p))
		}
		cp.Endpoints = append(cp.Endpoints, ce)
	}
	for _, at := range slices.SortedFunc(maps.Keys(t.addresses), netip.Addr.Compare) {
		a := t.addresses[at]
		ca := checkpointAddress{Address: at, Published: a.published.number}
		if ca.Published == 0 {
			ca.Published = a.flight.number // under way, or perhaps there
		}
		if a.owner != nil {
			ca.Endpoint = a.owner.id
			ca.Current = a.published.number != 0 && !a.storeDoubt && a.published == a.wanted()
		}
		if a.target != nil && a.target.have {
			ca.Text = a.target.labels.Text()
		}
		cp.Addresses = append(cp.Addresses, ca)
	}
	return cp
}

// restore fills an empty table from a checkpoint that parseCheckpoint accepted.
// Every number is in force at once; the session confirms it later.
func (t *table) restore(cp *checkpoint) {
	for _, cs := range cp.Sets {
		s := t.use(mustSet(cs.Text))
		s.have, s.hold, s.born, s.counter = true, cs.Hold, cs.CreateRevision, cs.Counter
		t.setNumber(s, cs.Number)
	}
	for _, ce := range cp.Endpoints {
		t.gen++
		e := &endpoint{id: ce.ID, gen: t.gen, want: t.use(mustSet(ce.Text)), meta: Meta{
			K8sNamespace: ce.K8sNamespace, K8sPodName: ce.K8sPodName, K8sServiceAccount: ce.K8sServiceAccount}}
		for _, p := range ce.NamedPorts {
			e.meta.NamedPorts = append(e.meta.NamedPorts, allocator.NamedPort(p))
		}
		e.want.endpoints[e.id] = e
		t.endpoints[e.id] = e
		t.touch(e.id)
	}
	for _, ca := range cp.Addresses {
		t.restoreAddress(ca)
	}
	for _, at := range slices.SortedFunc(maps.Keys(t.addresses), netip.Addr.Compare) {
		t.stepAddress(t.addresses[at])
	}
	for _, cs := range cp.Sets {
		t.unuse(t.sets[cs.Text])
	}
	for _, s := range t.setsInOrder() {
		t.stepSet(s)
	}
}

func (t *table) restoreAddress(ca checkpointAddress) {
	a := &address{addr: ca.Address, owner: t.endpoints[ca.Endpoint]}
	t.addresses[ca.Address] = a
	t.pool.claim(ca.Address)
	if a.owner != nil {
		a.owner.addrs = append(a.owner.addrs, ca.Address)
		slices.SortFunc(a.owner.addrs, netip.Addr.Compare)
		if ca.Text != "" {
			t.setTarget(a, t.sets[t.useOnce(ca.Text)])
		}
	}
	c := claim{set: t.byNumber[ca.Published], number: ca.Published}
	if ca.Current && a.owner != nil {
		c.owner, c.gen = a.owner.id, a.owner.gen
	}
	t.hold(&a.published, c)
}

// useOnce makes sure that the set of a reserved number has a record; others do.
func (t *table) useOnce(text string) string {
	if t.sets[text] == nil {
		t.use(mustSet(text)).uses--
	}
	return text
}

// mustSet reads label set text that was checked before.
func mustSet(text string) labels.Set {
	ls, err := labels.ParseText(text)
	if err != nil {
		panic(err) // parseCheckpoint lets no such text through
	}
	return ls
}
