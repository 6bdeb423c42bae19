// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

func (v *view) takePair(r *allocator.Record, value allocator.Address) {
	prefix, ok := keyPrefix(r.Key.Name)
	if !ok {
		return
	}
	p := v.pairs[prefix]
	if p == nil {
		p = &pair{prefix: prefix}
		v.pairs[prefix] = p
	}
	n := identity.Number(value.ID)
	if n == identity.Host {
		n = identity.RemoteNode // the publisher's host is a remote node here
	}
	if p.number != n || p.number == 0 {
		v.unlink(p)
		p.number = n
		v.info(n).pairs[prefix] = p
	}
	p.revision, p.heldOver = r.ModRevision, false
	p.owner = value.Metadata
	p.node, p.endpoint = v.ownerOf(value.Metadata)
	v.touched[n] = true
	v.tellOwner(p, true, r.ModRevision)
}

// ownerOf reads signet:<cluster>:<node>:<endpoint id>.
func (v *view) ownerOf(metadata string) (node, endpoint string) {
	rest, ok := strings.CutPrefix(metadata, "signet:"+v.layout.Cluster()+":")
	if !ok {
		return "", ""
	}
	node, endpoint, _ = strings.Cut(rest, ":")
	return node, endpoint
}

// tellOwner passes news of an address that the table has on to it.
func (v *view) tellOwner(p *pair, present bool, revision int64) {
	if !p.prefix.IsSingleIP() || !v.own.has(p.prefix.Addr()) {
		return
	}
	owner := p.publisher()
	v.out.own = append(v.out.own, ownSeen{addr: p.prefix.Addr(), seen: seen{present: present, ours: present && p.node == v.node,
		endpoint: p.endpoint, number: p.number, owner: owner, revision: revision}})
}

func (v *view) unlink(p *pair) {
	if info := v.numbers[p.number]; info != nil && p.number != 0 {
		delete(info.pairs, p.prefix)
		v.prune(p.number, info)
	}
}

// prune forgets a number that nothing is known of and nothing uses.
func (v *view) prune(n identity.Number, info *numberInfo) {
	if !info.master && !info.tomb && len(info.pairs) == 0 {
		delete(v.numbers, n)
	}
}

// drop applies one deletion.
func (v *view) drop(k allocator.Key, revision int64) {
	switch k.Kind {
	case allocator.KindMaster:
		if info := v.numbers[k.Number]; info != nil {
			info.master = false
			v.prune(k.Number, info)
		}
	case allocator.KindTombstone:
		// A number that was dead for its pairs stays so until a master says otherwise.
		if info := v.numbers[k.Number]; info != nil {
			info.tomb = false
			v.prune(k.Number, info)
		}
	case allocator.KindAddress:
		v.dropPair(k, revision)
	}
}

func (v *view) dropPair(k allocator.Key, revision int64) {
	prefix, ok := keyPrefix(k.Name)
	p := v.pairs[prefix]
	if !ok || p == nil {
		return
	}
	v.tellOwner(p, false, revision)
	if v.restored && p.revision == 0 {
		p.heldOver = true
		return
	}
	delete(v.pairs, prefix)
	v.unlink(p)
	v.show(p, remoteEntry{})
}

// restate works out anew every pair of the numbers that were touched.
func (v *view) restate() {
	for n := range v.touched {
		info := v.numbers[n]
		if info == nil {
			continue
		}
		for _, p := range info.pairs {
			v.show(p, v.entryOf(p, info))
		}
	}
	clear(v.touched)
}

func (v *view) entryOf(p *pair, info *numberInfo) remoteEntry {
	if p.node == v.node && p.prefix.IsSingleIP() &&
		(v.own.states(p.prefix.Addr()) || p.revision <= v.withdrawn[p.prefix]) {
		return remoteEntry{} // the table states it, or has taken it back
	}
	return remoteEntry{number: p.number, dead: info.buried || p.revision != 0 && p.revision < info.since}
}

func (v *view) show(p *pair, e remoteEntry) {
	if p.shown == e {
		return
	}
	if p.shown.dead {
		v.dead--
	}
	if e.dead {
		v.dead++
	}
	p.shown = e
	v.out.entries = append(v.out.entries, entryChange{prefix: p.prefix, entry: e})
}

// released takes note of addresses that the table has let go of: what others
// publish for them counts from now on.
func (v *view) released(gone []departure) []entryChange {
	for _, d := range gone {
		prefix := hostPrefix(d.addr)
		p := v.pairs[prefix]
		if d.withdrawnAt > v.position.Revision {
			v.withdrawn[prefix] = d.withdrawnAt
		}
		if p == nil {
			continue
		}
		if p.node == v.node && p.revision <= d.withdrawnAt {
			v.withdrawn[prefix] = d.withdrawnAt
		}
		v.show(p, v.entryOf(p, v.info(p.number)))
	}
	return v.takeEntries()
}

// claimed takes note that the table has put an address into the map.
func (v *view) claimed(a netip.Addr) []entryChange {
	if p := v.pairs[hostPrefix(a)]; p != nil {
		v.show(p, v.entryOf(p, v.info(p.number)))
	}
	return v.takeEntries()
}

func (v *view) takeEntries() []entryChange {
	out := v.out.entries
	v.out.entries = nil
	return out
}

// publisher names who published a pair, for messages.
func (p *pair) publisher() string {
	switch {
	case p.node != "":
		return "node " + p.node
	case p.owner != "":
		return p.owner
	default:
		return "somebody unnamed"
	}
}

// takenBy says who publishes an address, unless that is this node for the
// endpoint of this id, or was and has been taken back.
func (v *view) takenBy(a netip.Addr, id string) (owner string, taken bool) {
	prefix := hostPrefix(a)
	p := v.pairs[prefix]
	if p == nil || p.node == v.node && (p.endpoint == id || p.revision <= v.withdrawn[prefix]) {
		return "", false
	}
	if p.endpoint != "" {
		return fmt.Sprintf("endpoint %s of %s", labels.Quote(p.endpoint), p.publisher()), true
	}
	return p.publisher(), true
}

// leftovers lists addresses that are published for this node and that the
// table does not have.
func (v *view) leftovers() map[netip.Addr]identity.Number {
	out := make(map[netip.Addr]identity.Number)
	for prefix, p := range v.pairs {
		if p.node == v.node && prefix.IsSingleIP() && !v.own.has(prefix.Addr()) && p.revision > v.withdrawn[prefix] {
			out[prefix.Addr()] = p.number
		}
	}
	return out
}

// settle ends the time after a restore: what the store does not name goes.
func (v *view) settle() []entryChange {
	v.restored = false
	for prefix, p := range v.pairs {
		if p.heldOver {
			delete(v.pairs, prefix)
			v.unlink(p)
			v.show(p, remoteEntry{})
		}
	}
	return v.takeEntries()
}

// keyPrefix reads an address key's name: "10.0.0.1" or "10.0.0.0/24".
func keyPrefix(name string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(name); err == nil {
		return hostPrefix(a), true
	}
	p, err := netip.ParsePrefix(name)
	return p, err == nil
}

func keyName(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
