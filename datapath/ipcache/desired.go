// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"net/netip"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/bpf"
)

// table says in which of the two address maps an entry stands.
type table uint8

const (
	hosts    table = iota // the exact hash: /32 and /128
	prefixes              // the LPM trie: everything shorter
	tableCount
)

// place is where an entry stands. It is more than a prefix: a stray may stand in
// the wrong map, or under a key that is no prefix of ours.
type place struct {
	table table
	key   bpf.AddrKey
}

func placeOf(p netip.Prefix) place {
	if p.IsSingleIP() {
		return place{hosts, bpf.Key(p)}
	}
	return place{prefixes, bpf.Key(p)}
}

// prefix is invalid when the key is none of ours.
func (p place) prefix() netip.Prefix {
	prefix, _ := bpf.Prefix(p.key)
	return prefix
}

// want is the entry that counts at a place.
type want struct {
	number identity.Number
	source Source
	dead   bool
}

// stated is what the sources say about one place; a zero source is none.
type stated [SourceEndpoint + 1]want

func (s *stated) winner() (want, bool) {
	for source := SourceEndpoint; source >= SourceCIDR; source-- {
		if s[source].source != 0 {
			return s[source], true
		}
	}
	return want{}, false
}

// desired is the table of what the sources state.
type desired struct {
	places map[place]*stated
	count  [tableCount]int // places with a winner, per table
}

func newDesired() *desired {
	return &desired{places: map[place]*stated{}}
}

func (d *desired) set(p place, w want) {
	s := d.places[p]
	if s == nil {
		s = new(stated)
		d.places[p] = s
		d.count[p.table]++
	}
	s[w.source] = w
}

func (d *desired) unset(p place, source Source) {
	s := d.places[p]
	if s == nil {
		return
	}
	s[source] = want{}
	if _, any := s.winner(); !any {
		delete(d.places, p)
		d.count[p.table]--
	}
}

func (d *desired) winner(p place) (want, bool) {
	if s := d.places[p]; s != nil {
		return s.winner()
	}
	return want{}, false
}

// check refuses entries that no map could hold.
func (e Entry) check() error {
	if err := checkPlace(e.Prefix, e.Source); err != nil {
		return err
	}
	if e.Number == 0 && !e.Dead {
		return &EntryError{e.Prefix, "number 0 means unknown: give a number, or mark the entry dead"}
	}
	return nil
}

func checkPlace(p netip.Prefix, source Source) error {
	switch {
	case !p.IsValid():
		return &EntryError{p, "not a valid prefix"}
	case p.Addr().Is4In6():
		return &EntryError{p, "an IPv4 address in IPv6 form: give it as IPv4"}
	case p.Masked() != p:
		return &EntryError{p, "has host bits set: did you mean " + p.Masked().String() + "?"}
	case source < SourceCIDR || source > SourceEndpoint:
		return &EntryError{p, "unknown source"}
	}
	return nil
}

// String names the source.
func (s Source) String() string {
	switch s {
	case SourceCIDR:
		return "cidr"
	case SourceRemote:
		return "remote"
	case SourceNode:
		return "node"
	case SourceEndpoint:
		return "endpoint"
	}
	return "unknown"
}

// String names the verdict.
func (v Verdict) String() string {
	switch v {
	case Miss:
		return "miss"
	case Hit:
		return "hit"
	case Deny:
		return "deny"
	}
	return "unknown"
}
