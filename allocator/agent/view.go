// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"hash/maphash"
	"maps"
	"net/netip"
	"slices"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

// view is what the mirror shows of the store, reduced to what a node needs: the
// published addresses, and for each number a fingerprint of its label set (the
// labels themselves are looked up when somebody asks). It has no I/O and no
// clock, and is not safe for concurrent use.
//
// A number leaves the view only if its tombstone stands or its master carries
// other labels. A master that merely vanished changes nothing. Addresses whose
// number is dead stay, denied.
type view struct {
	layout  kvstore.Layout
	node    string
	seed    maphash.Seed
	numbers map[identity.Number]*numberInfo
	pairs   map[netip.Prefix]*pair
	// withdrawn holds own addresses that were let go of, and the revision of
	// their withdrawal, until the mirror has come past it.
	withdrawn map[netip.Prefix]int64
	own       ownAddresses

	position  allocator.Position
	malformed map[string]string        // key → why it is skipped
	touched   map[identity.Number]bool // numbers whose pairs are to be worked out anew
	// restored: the store does not continue the view's lineage, and addresses
	// that it does not name are held over until settle.
	restored bool
	lists    uint64
	dead     int // pairs that are shown as dead

	out viewChange
}

// ownAddresses is what the view asks the table.
type ownAddresses interface {
	// has reports whether the table has the address.
	has(netip.Addr) bool
	// states reports whether the table has put it into the map.
	states(netip.Addr) bool
}

// numberInfo is what is known of a number. A pair means what it says if it was
// published no earlier than since, and the number is not buried.
type numberInfo struct {
	print  uint64 // fingerprint of the label set; 0: not known
	master bool   // its master stands
	tomb   bool   // its tombstone stands
	buried bool   // its tombstone stands, or was the last that was seen of it
	since  int64  // revision at which the number took on the present labels; 0: from the start
	pairs  map[netip.Prefix]*pair
}

// pair is one published address.
type pair struct {
	prefix   netip.Prefix
	number   identity.Number
	revision int64
	owner    string // who published it, as its metadata says
	node     string // the node in it; empty: none of this cluster's agents
	endpoint string
	heldOver bool // a restored store does not name it
	shown    remoteEntry
}

// remoteEntry is what the map should say of a pair; the zero value: nothing.
type remoteEntry struct {
	number identity.Number
	dead   bool
}

// viewChange is what a batch led to.
type viewChange struct {
	entries  []entryChange
	own      []ownSeen
	meanings []meaning
	restored bool
}

// entryChange is a new or changed entry; without a number it is to be removed.
type entryChange struct {
	prefix netip.Prefix
	entry  remoteEntry
}

// ownSeen is news of an address that the table has.
type ownSeen struct {
	addr netip.Addr
	seen seen
}

// meaning is news of a number: it has these labels, or (text empty) it is freed.
type meaning struct {
	number   identity.Number
	text     string
	revision int64
}

func newView(layout kvstore.Layout, node string, at allocator.Position, own ownAddresses) *view {
	return &view{layout: layout, node: node, seed: maphash.MakeSeed(), own: own, position: at,
		numbers: make(map[identity.Number]*numberInfo), pairs: make(map[netip.Prefix]*pair),
		withdrawn: make(map[netip.Prefix]int64), touched: make(map[identity.Number]bool), malformed: make(map[string]string)}
}

// apply takes the next batch of the mirror and returns what it led to.
func (v *view) apply(b kvstore.MirrorBatch) viewChange {
	if b.Reset {
		v.reset(b)
	}
	for _, ev := range b.Events {
		if b.Reset && v.kindOf(ev.KV.Key) == allocator.KindTombstone {
			continue // taken first, so that a master outdoes it
		}
		v.event(ev, b.Revision)
	}
	v.position.Revision = b.Revision
	for p, revision := range v.withdrawn {
		if revision <= b.Revision {
			delete(v.withdrawn, p)
		}
	}
	v.restate()
	out := v.out
	v.out = viewChange{}
	return out
}

// reset begins a complete state: it settles the lineage and takes out what is gone.
func (v *view) reset(b kvstore.MirrorBatch) {
	v.lists++
	clear(v.malformed)
	named := make(map[allocator.Key]bool, len(b.Events))
	var lineage allocator.Lineage
	for _, ev := range b.Events {
		r, err := v.layout.Decode(ev.KV)
		if err != nil {
			continue
		}
		named[r.Key] = true
		if l, ok := r.Value.(allocator.Lineage); ok {
			lineage = l
		}
	}
	v.follow(lineage, b.Revision < v.position.Revision)
	for _, k := range v.missing(named) {
		v.drop(k, b.Revision)
	}
	for _, ev := range b.Events {
		if v.kindOf(ev.KV.Key) == allocator.KindTombstone {
			v.event(ev, b.Revision)
		}
	}
}

func (v *view) kindOf(key string) allocator.Kind {
	k, err := v.layout.Parse(key)
	if err != nil {
		return 0
	}
	return k.Kind
}

// event applies one change. What is malformed is noted and counts as absent.
func (v *view) event(ev kvstore.Event, revision int64) {
	delete(v.malformed, ev.KV.Key)
	if ev.Delete {
		if k, err := v.layout.Parse(ev.KV.Key); err == nil {
			v.drop(k, ev.KV.ModRevision)
		}
		return
	}
	r, err := v.layout.Decode(ev.KV)
	var foreign *kvstore.KeyError
	switch {
	case err == nil:
		v.take(&r)
	case errors.As(err, &foreign) && foreign.Unknown:
	default:
		v.malformed[ev.KV.Key] = err.Error()
		if k, err := v.layout.Parse(ev.KV.Key); err == nil {
			v.drop(k, ev.KV.ModRevision)
		}
	}
}

// missing lists the keys of the view that a complete state does not name.
func (v *view) missing(named map[allocator.Key]bool) []allocator.Key {
	var out []allocator.Key
	for _, n := range slices.Sorted(maps.Keys(v.numbers)) {
		info := v.numbers[n]
		if k := allocator.MasterKey(n); info.master && !named[k] {
			out = append(out, k)
		}
		if k := allocator.TombstoneKey(n); info.tomb && !named[k] {
			out = append(out, k)
		}
	}
	for p := range v.pairs {
		if k := allocator.AddressKey(keyName(p)); !named[k] {
			out = append(out, k)
		}
	}
	return out
}

// follow compares the store's lineage with the view's. A copy from within the
// present term may have the same counter: then the revision tells.
func (v *view) follow(l allocator.Lineage, wentBack bool) {
	if wentBack || v.position.Nonce != "" && !l.Continues(v.position) {
		v.restored, v.out.restored = true, true
		clear(v.withdrawn)
		for _, info := range v.numbers {
			info.since = 0
		}
		for _, p := range v.pairs {
			p.revision = 0
		}
	}
	if len(l.Terms) > 0 {
		v.position.Nonce, v.position.Counter = l.Terms[len(l.Terms)-1].Nonce, l.Counter
	}
}

func (v *view) info(n identity.Number) *numberInfo {
	info := v.numbers[n]
	if info == nil {
		info = &numberInfo{pairs: make(map[netip.Prefix]*pair)}
		v.numbers[n] = info
	}
	return info
}

func (v *view) print(text string) uint64 { return max(1, maphash.String(v.seed, text)) }

// take applies one put.
func (v *view) take(r *allocator.Record) {
	switch value := r.Value.(type) {
	case allocator.LabelSet:
		info := v.info(r.Key.Number)
		if print := v.print(string(value)); info.print != print {
			if info.print != 0 {
				info.since = r.ModRevision
			}
			info.print = print
		}
		info.master, info.buried = true, false
		v.touched[r.Key.Number] = true
		v.out.meanings = append(v.out.meanings, meaning{number: r.Key.Number, text: string(value), revision: r.ModRevision})
	case allocator.Tombstone:
		info := v.info(r.Key.Number)
		info.print = v.print(value.Labels)
		info.tomb, info.buried = true, true
		v.touched[r.Key.Number] = true
		v.out.meanings = append(v.out.meanings, meaning{number: r.Key.Number, revision: max(r.ModRevision, 1)})
	case allocator.Address:
		v.takePair(r, value)
	case allocator.Lineage:
		v.follow(value, false)
	}
}
