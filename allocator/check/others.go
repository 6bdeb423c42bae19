// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
)

// setOthersAside takes out what belongs to another cluster on the same store:
// identities, references and addresses whose number lies in the range of a
// cluster id that is bound to another name. They are that cluster's to judge.
func (c *checker) setOthersAside() {
	others := map[uint32]string{}
	for _, it := range c.singles {
		if name, ok := it.Value.(allocator.Text); ok && it.Key.Kind == allocator.KindClusterID && string(name) != c.layout.Cluster() {
			others[uint32(it.Key.Number)] = string(name)
		}
	}
	if len(others) == 0 || !c.spaceOK {
		return
	}
	found := map[string]int{}
	theirs := func(n identity.Number) bool {
		name, bound := others[c.space.ClusterIDOf(n)]
		if !bound || c.space.Contains(n) || n.IsReserved() {
			return false
		}
		found[name]++
		return true
	}
	theirsRef := func(r item) bool { return theirs(numberOf(r)) }
	for _, n := range sortedKeys(c.masters) {
		if theirs(n) {
			s := c.set(textOf(c.masters[n]))
			s.numbers = slices.DeleteFunc(s.numbers, func(m identity.Number) bool { return m == n })
			delete(c.masters, n)
		}
	}
	c.references = slices.DeleteFunc(c.references, theirsRef)
	c.addresses = slices.DeleteFunc(c.addresses, func(a item) bool {
		pair, _ := a.Value.(allocator.Address)
		return theirs(identity.Number(pair.ID))
	})
	for _, name := range sortedKeys(found) {
		c.add(OtherCluster, name, "The cluster %q has %s on this store.", name, count(found[name], "key"))
	}
	for _, text := range sortedKeys(c.sets) { // counted above
		c.sets[text].refs = slices.DeleteFunc(c.sets[text].refs, theirsRef)
	}
}
