// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"maps"
	"slices"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// checkIdentities judges masters, idle marks and tombstones: I1, I3, I5, I9.
func (c *checker) checkIdentities() {
	for _, text := range sortedKeys(c.sets) {
		c.checkSet(text, c.sets[text])
	}
	for _, n := range sortedKeys(c.masters) {
		c.checkLease(c.masters[n])
		c.checkNumber(n, c.masters[n].key)
		c.checkIdleness(n)
	}
	for _, n := range sortedKeys(c.unreadable) {
		c.checkNumber(n, c.unreadable[n])
	}
	for _, n := range sortedKeys(c.idle) {
		c.checkIdleMark(n, c.idle[n])
	}
	for _, n := range sortedKeys(c.tombstones) {
		c.checkTombstone(n, c.tombstones[n])
	}
}

// checkSet judges what stands for one label set: one master (I1), and a set
// that may be stored at all (I9).
func (c *checker) checkSet(text string, s *labelSet) {
	if len(s.numbers) > 1 {
		best := slices.MaxFunc(s.numbers, c.better)
		for _, n := range s.numbers {
			if n != best {
				c.add(DuplicateIdentity, c.masters[n].key, "The label set %s has the number %d, and %d counts before it.", labels.Quote(text), n, best)
			}
		}
	}
	set, err := labels.ParseText(text)
	if err != nil {
		return // Decode has let it pass, so it is readable
	}
	if err := identity.CheckStorable(set); err != nil {
		object := ""
		if len(s.numbers) > 0 {
			object = c.masters[slices.Min(s.numbers)].key
		} else {
			object = slices.MinFunc(s.refs, func(a, b item) int { return cmp.Compare(a.key, b.key) }).key
		}
		c.add(LabelsReserved, object, "%s.", sentence(err.Error()))
	}
}

// better orders the numbers of one label set: the one that counts is the
// greatest. It is the rule of the leader: of those in the own range the oldest
// one that is referenced, else the oldest; at last the lowest.
func (c *checker) better(a, b identity.Number) int {
	return cmp.Or(
		compareBool(c.inRange(a), c.inRange(b)),
		compareBool(c.referenced(a), c.referenced(b)),
		cmp.Compare(c.masters[b].CreateRevision, c.masters[a].CreateRevision),
		cmp.Compare(b, a),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func (c *checker) inRange(n identity.Number) bool { return !c.spaceOK || c.space.Contains(n) }

// referenced says whether a reference of n's label set names n.
func (c *checker) referenced(n identity.Number) bool {
	return slices.ContainsFunc(c.set(textOf(c.masters[n])).refs, func(r item) bool { return numberOf(r) == n })
}

// checkNumber is I9 for a number that is stored under key.
func (c *checker) checkNumber(n identity.Number, key string) {
	switch {
	case n.IsReserved():
		c.add(NumberReserved, key, "The number %d is reserved (%s) and never stored.", n, n.Name())
	case c.spaceOK && !c.space.Contains(n):
		c.add(NumberOutOfRange, key, "The number %d lies outside the range %d to %d of cluster %q (id %d).",
			n, c.space.Min(), c.space.Max(), c.space.ClusterName, c.space.ClusterID)
	}
}

// checkIdleness compares a master's references with its idle mark.
func (c *checker) checkIdleness(n identity.Number) {
	master := c.masters[n]
	refs := len(c.sets[textOf(master)].refs)
	mark, marked := c.idle[n]
	switch {
	case marked && refs > 0:
		c.add(IdleReferenced, mark.key, "The number %d is marked idle and its label set has %d references.", n, refs)
	case !marked && refs == 0 && master.Lease == 0 && c.inRange(n):
		c.add(IdleMarkMissing, master.key, "The number %d has neither a reference nor an idle mark.", n)
	}
}

func (c *checker) checkIdleMark(n identity.Number, mark item) {
	c.checkLease(mark)
	v, _ := mark.Value.(allocator.Mark)
	c.checkTime(mark, "since", v.Since)
	if _, ok := c.masters[n]; ok {
		return
	}
	if _, ok := c.unreadable[n]; ok {
		c.add(IdleWithoutMaster, mark.key, "The number %d is marked idle and its master cannot be read.", n)
		return
	}
	c.add(IdleWithoutMaster, mark.key, "The number %d is marked idle and has no master.", n)
	c.checkNumber(n, mark.key)
}

func (c *checker) checkTombstone(n identity.Number, tomb item) {
	c.checkLease(tomb)
	v, _ := tomb.Value.(allocator.Tombstone)
	c.checkTime(tomb, "born", v.Born)
	c.checkTime(tomb, "freed", v.Freed)
	master, live := c.masters[n]
	switch {
	case live && textOf(master) == v.Labels:
		c.add(TombstoneBesideMaster, tomb.key, "The number %d is live for the same labels that its tombstone names.", n)
	case live:
		c.add(TombstoneLabelsDiffer, tomb.key, "The number %d is live for %s, its tombstone names %s (quarantine %s).",
			n, labels.Quote(textOf(master)), labels.Quote(v.Labels), v.Quarantine)
	case c.unreadable[n] == "":
		c.checkNumber(n, tomb.key)
	}
}

// checkTime compares a stored moment with what the store has reached: marks
// carry a revision and a served time that were already there.
func (c *checker) checkTime(it item, field string, t allocator.Time) {
	if t.Revision > it.ModRevision {
		c.add(TimeAhead, it.key, "The time %q is revision %d, yet the key was written at revision %d.", field, t.Revision, it.ModRevision)
	}
	if c.lineage == nil {
		return
	}
	if l, _ := c.lineage.Value.(allocator.Lineage); t.ServedS > l.ServedS {
		c.add(TimeAhead, it.key, "The time %q is served second %d, the lineage stands at %d.", field, t.ServedS, l.ServedS)
	}
}

// checkLease is for keys that live until somebody deletes them.
func (c *checker) checkLease(it item) {
	if it.Lease != 0 {
		c.add(LeaseUnexpected, it.key, "The %s has the lease %x.", it.Key.Kind, it.Lease)
	}
}
