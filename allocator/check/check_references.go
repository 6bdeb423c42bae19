// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"slices"
	"strings"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	"github.com/signet-identity/signet/kvstore"
)

func numberOf(ref item) identity.Number { return kvstore.ReferenceNumber(ref.Record) }

// checkReferences judges references: I2, I3, I5, and whose they are.
func (c *checker) checkReferences() {
	byNumber := map[identity.Number][]item{}
	foreign := map[string]int{}
	for _, r := range c.references {
		n := numberOf(r)
		byNumber[n] = append(byNumber[n], r)
		c.checkReference(r, n)
		if r.Lease != 0 {
			foreign[r.Key.Name]++
		} else {
			c.checkHolder(r, n)
		}
	}
	for _, n := range sortedKeys(byNumber) {
		c.checkReferencesOf(n, byNumber[n])
	}
	for _, holder := range sortedKeys(foreign) {
		c.add(ReferenceForeign, holder, "The holder %s has %s under a lease.", labels.Quote(holder), count(foreign[holder], "reference"))
	}
}

// checkReference compares a reference with the master of its number.
func (c *checker) checkReference(r item, n identity.Number) {
	master, ok := c.masters[n]
	switch {
	case ok && textOf(master) != r.Key.Labels:
		c.add(ReferenceMismatch, r.key, "The reference names the number %d, whose master says %s.", n, labels.Quote(textOf(master)))
	case ok:
	case c.unreadable[n] != "":
		c.add(ReferenceWithoutMaster, r.key, "The reference names the number %d, whose master cannot be read.", n)
	default:
		if tomb, freed := c.tombstones[n]; freed {
			v, _ := tomb.Value.(allocator.Tombstone)
			c.add(ReferenceWithoutMaster, r.key, "The reference names the number %d, which has no master; a tombstone says it was freed from %s.", n, labels.Quote(v.Labels))
			return
		}
		c.add(ReferenceWithoutMaster, r.key, "The reference names the number %d, which has no master.", n)
	}
}

// checkHolder notes whose a reference without a lease is.
func (c *checker) checkHolder(r item, n identity.Number) {
	kind, name, err := allocator.ParseHolder(r.Key.Name)
	switch {
	case err != nil:
		c.add(HolderUnknown, r.key, "%s.", sentence(err.Error()))
	case kind == allocator.HolderNode:
		holder := c.node(name)
		holder.refs++
		holder.held[n] = true
	}
}

// checkReferencesOf is I2 and I9 for one number, seen from its references.
func (c *checker) checkReferencesOf(n identity.Number, refs []item) {
	sets := map[string]bool{}
	for _, r := range refs {
		sets[r.Key.Labels] = true
	}
	first := slices.MinFunc(refs, func(a, b item) int { return cmp.Compare(a.key, b.key) })
	if len(sets) > 1 {
		c.add(NumberShared, first.key, "The number %d is named by the references of %d label sets: %s.", n, len(sets), quoteSome(sortedKeys(sets)))
	}
	_, live := c.masters[n]
	_, freed := c.tombstones[n]
	_, marked := c.idle[n]
	if !live && !freed && !marked && c.unreadable[n] == "" {
		c.checkNumber(n, first.key)
	}
}

// quoteSome lists the first few of many texts.
func quoteSome(texts []string) string {
	const most = 3
	var out []string
	for _, t := range texts[:min(len(texts), most)] {
		out = append(out, labels.Quote(t))
	}
	if len(texts) > most {
		out = append(out, "…")
	}
	return strings.Join(out, ", ")
}
