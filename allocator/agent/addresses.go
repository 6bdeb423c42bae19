// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/signet-identity/signet/allocator"
)

// addressPool hands out addresses of the node's prefixes: always the lowest
// free one of the first prefix that has any.
type addressPool struct {
	prefixes []netip.Prefix
	next     []netip.Addr // no address of the prefix below it is free
	used     map[netip.Addr]bool
}

func newAddressPool(prefixes []netip.Prefix) *addressPool {
	p := &addressPool{used: make(map[netip.Addr]bool)}
	for _, prefix := range prefixes {
		p.prefixes = append(p.prefixes, prefix.Masked())
		p.next = append(p.next, prefix.Masked().Addr())
	}
	return p
}

// take gives the lowest free address that is not taken elsewhere; false: there
// is none. What is taken elsewhere is looked at again the next time.
func (p *addressPool) take(elsewhere func(netip.Addr) bool) (netip.Addr, bool) {
	for i, prefix := range p.prefixes {
		var again netip.Addr
		for a := p.next[i]; a.IsValid() && prefix.Contains(a); a = a.Next() {
			if p.used[a] || !assignable(prefix, a) {
				continue
			}
			if elsewhere(a) {
				again = cmp.Or(again, a)
				continue
			}
			p.next[i] = cmp.Or(again, a.Next())
			p.used[a] = true
			return a, true
		}
		p.next[i] = again
	}
	return netip.Addr{}, false
}

// claim marks an address as used.
func (p *addressPool) claim(a netip.Addr) { p.used[a] = true }

// free gives an address back.
func (p *addressPool) free(a netip.Addr) {
	delete(p.used, a)
	for i, prefix := range p.prefixes {
		if prefix.Contains(a) && (!p.next[i].IsValid() || a.Less(p.next[i])) {
			p.next[i] = a
		}
	}
}

// check refuses an address that the node may not publish.
func (p *addressPool) check(a netip.Addr) *allocator.Error {
	for _, prefix := range p.prefixes {
		if !prefix.Contains(a) {
			continue
		}
		if !edge(prefix, a) {
			return nil
		}
		return refuse(allocator.InvalidArgument, "addresses",
			"address %s is the network or broadcast address of %s; choose one in between", a, prefix)
	}
	names := make([]string, len(p.prefixes))
	for i, prefix := range p.prefixes {
		names[i] = prefix.String()
	}
	return refuse(allocator.InvalidArgument, "addresses",
		"address %s lies outside of this node's prefixes (%s); choose one of them, or leave addresses empty to get one",
		a, strings.Join(names, ", "))
}

// edge reports whether a is the network address of the prefix or, for IPv4, its
// broadcast address. Prefixes of one or two addresses have neither.
func edge(prefix netip.Prefix, a netip.Addr) bool {
	if prefix.Bits() >= a.BitLen()-1 {
		return false
	}
	return a == prefix.Addr() || a.Is4() && a == lastAddr(prefix)
}

// assignable reports whether the pool hands a out by itself: no edge, and for
// IPv4 none that ends in .0 or .255, which some stacks still take for one.
func assignable(prefix netip.Prefix, a netip.Addr) bool {
	if edge(prefix, a) {
		return false
	}
	if b := a.AsSlice(); a.Is4() && prefix.Bits() < 31 && (b[3] == 0 || b[3] == 255) {
		return false
	}
	return true
}

func lastAddr(prefix netip.Prefix) netip.Addr {
	b := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// parseAddresses reads endpoint addresses: single hosts, IPv4-in-IPv6 forms
// taken as IPv4, without zones and without repeats; sorted.
func parseAddresses(texts []string) ([]netip.Addr, error) {
	out := make([]netip.Addr, 0, len(texts))
	for _, text := range texts {
		a, err := parseAddress(text)
		if err != nil {
			return nil, err
		}
		if slices.Contains(out, a) {
			return nil, refuse(allocator.InvalidArgument, "addresses", "address %s stands there twice; give it once", a)
		}
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out, nil
}

func parseAddress(text string) (netip.Addr, error) {
	host := text
	if prefix, err := netip.ParsePrefix(text); err == nil {
		if !prefix.IsSingleIP() {
			return netip.Addr{}, refuse(allocator.InvalidArgument, "addresses",
				"%q is a range; an endpoint has single addresses", text)
		}
		host = prefix.Addr().String()
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, refuse(allocator.InvalidArgument, "addresses",
			"%q is no IP address; write one such as 10.244.0.7 or 2001:db8::7", text)
	}
	if a.Zone() != "" {
		return netip.Addr{}, refuse(allocator.InvalidArgument, "addresses",
			"address %q carries a zone; drop the part from %% on", text)
	}
	return a.Unmap(), nil
}

func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// refuse makes a typed refusal.
func refuse(code allocator.Code, field, format string, args ...any) *allocator.Error {
	return &allocator.Error{Code: code, Field: field, Message: fmt.Sprintf(format, args...)}
}
