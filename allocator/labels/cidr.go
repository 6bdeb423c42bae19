// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"fmt"
	"net/netip"
	"strings"
)

// Families says which address families a cluster uses.
type Families struct{ IPv4, IPv6 bool }

// World is the label of everything outside for the family of addr: with both
// families in use each has a label of its own.
func (f Families) World(addr netip.Addr) Label {
	key := "world"
	if f.IPv4 && f.IPv6 {
		if addr.Is4() || addr.Is4In6() {
			key = "world-ipv4"
		} else {
			key = "world-ipv6"
		}
	}
	return Label{Source: SourceReserved, Key: key}
}

// CIDR is the label of a prefix; its host bits are cleared. Since ":" cannot
// stand in a label, "-" replaces it, with a "0" where one would be first or last.
func CIDR(p netip.Prefix) Label {
	p = p.Masked()
	addr := p.Addr().String()
	if p.Addr().Is6() {
		addr = strings.ReplaceAll(addr, ":", "-")
		if strings.HasPrefix(addr, "-") {
			addr = "0" + addr
		}
		if strings.HasSuffix(addr, "-") {
			addr += "0"
		}
	}
	return Label{Source: SourceCIDR, Key: fmt.Sprintf("%s/%d", addr, p.Bits())}
}

// CIDRSet are the labels of a prefix's identity: its own and the world's; the
// prefix of length 0 is the world alone.
func (f Families) CIDRSet(p netip.Prefix) []Label {
	if p.Bits() == 0 {
		return []Label{f.World(p.Addr())}
	}
	return []Label{CIDR(p), f.World(p.Addr())}
}

// ForAddress reads an address or a prefix and returns the one label that
// selects it.
func (f Families) ForAddress(s string) (Label, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		addr, addrErr := netip.ParseAddr(s)
		if addrErr != nil {
			return Label{}, fmt.Errorf("%s is neither an address nor a prefix such as 10.0.0.0/8", Quote(s))
		}
		p = netip.PrefixFrom(addr.WithZone(""), addr.BitLen())
	}
	if p.Bits() == 0 {
		return f.World(p.Addr()), nil
	}
	return CIDR(p), nil
}

// cidrContains reports whether the prefix in one cidr key contains that of another.
func cidrContains(outer, inner string) bool {
	o, err := netip.ParsePrefix(strings.ReplaceAll(outer, "-", ":"))
	if err != nil {
		return false
	}
	i, err := netip.ParsePrefix(strings.ReplaceAll(inner, "-", ":"))
	if err != nil {
		return false
	}
	return o.Bits() <= i.Bits() && o.Overlaps(i)
}
