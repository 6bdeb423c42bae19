// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

// count is a number with its noun.
func count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// checkNodes judges presences, gone marks, and what nodes without either hold.
// References are counted by now; addresses are counted here.
func (c *checker) checkNodes() {
	for _, a := range c.addresses {
		if owner, ok, _ := c.owner(a); ok {
			c.node(owner).addrs++
		}
	}
	for _, name := range sortedKeys(c.nodes) {
		c.checkNode(name, c.nodes[name])
	}
}

func (c *checker) checkNode(name string, n *node) {
	for _, it := range []*item{n.presence, n.gone} {
		if it == nil {
			continue
		}
		if err := allocator.CheckNode(name); err != nil {
			c.add(NodeNameInvalid, it.key, "%s.", sentence(err.Error()))
		}
	}
	if n.presence != nil && n.presence.Lease == 0 {
		c.add(PresenceWithoutLease, n.presence.key, "The presence of node %s has no lease.", labels.Quote(name))
	}
	if n.gone != nil {
		c.checkLease(*n.gone)
		v, _ := n.gone.Value.(allocator.Mark)
		c.checkTime(*n.gone, "since", v.Since)
	}
	holds := fmt.Sprintf("%s and %s", count(n.refs, "reference"), count(n.addrs, "address"))
	switch {
	case n.present() && n.gone != nil:
		c.add(NodeBack, n.gone.key, "The node %s is present and marked gone.", labels.Quote(name))
	case n.gone != nil:
		c.add(NodeGone, n.gone.key, "The node %s is gone and holds %s.", labels.Quote(name), holds)
	case !n.present() && n.refs+n.addrs > 0:
		c.add(NodeAbsent, name, "The node %s is absent, is not marked gone, and holds %s.", labels.Quote(name), holds)
	}
}

// ownerParts are what follows the prefix in an owner's mark: cluster, node, endpoint.
const ownerParts = 3

// owner reads who published an address. ok: a node of this cluster; foreign:
// nobody who marks addresses as Signet does.
func (c *checker) owner(a item) (node string, ok, foreign bool) {
	pair, _ := a.Value.(allocator.Address)
	mark, _, _ := strings.Cut(allocator.OwnerMetadata("", "", ""), ":")
	rest, marked := strings.CutPrefix(pair.Metadata, mark+":")
	if !marked {
		return "", false, true
	}
	parts := strings.SplitN(rest, ":", ownerParts)
	if len(parts) != ownerParts || parts[0] != c.layout.Cluster() || allocator.CheckNode(parts[1]) != nil {
		return "", false, false
	}
	return parts[1], true, false
}

// checkAddresses judges the pairs of address and number.
func (c *checker) checkAddresses() {
	foreign := 0
	for _, a := range c.addresses {
		pair, _ := a.Value.(allocator.Address)
		n := identity.Number(pair.ID)
		owner, ok, isForeign := c.owner(a)
		switch {
		case isForeign:
			foreign++
		case !ok:
			c.add(AddressOwnerUnknown, a.key, "The owner %s is no node of cluster %q.", labels.Quote(pair.Metadata), c.layout.Cluster())
		default:
			c.checkLease(a)
		}
		_, live := c.masters[n]
		switch {
		case isForeign && n.IsReserved():
		case !live:
			c.add(AddressNumberDead, a.key, "The address has the number %d, which has no readable master.", n)
		case ok && !c.node(owner).held[n] && c.node(owner).gone == nil:
			c.add(AddressUnreferenced, a.key, "The address has the number %d, and its owner %s holds no reference to it.", n, labels.Quote(owner))
		}
	}
	if foreign > 0 {
		c.add(AddressForeign, c.layout.Addresses(), "Others published %s here.", count(foreign, "address"))
	}
}
