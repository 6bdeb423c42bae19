// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

// judge looks at one change of a revision whose changes are all applied.
func (h *History) judge(c change, all []change, old map[identity.Number]before) {
	k := c.Key
	switch k.Kind {
	case allocator.KindMaster:
		if c.Value != nil {
			h.judgeMaster(c, old[k.Number])
		} else if !c.unreadable {
			h.judgeEnd(c, all, old[k.Number])
		}
	case allocator.KindReference:
		if c.Value != nil {
			h.judgeReference(c)
		}
	case allocator.KindIdle:
		if p := h.numbers[k.Number]; c.Value != nil && p != nil && p.live && h.inUse(k.Number, p.labels) {
			h.violate(allocator.I5, c.key, "the number %d is marked idle and has references", k.Number)
		}
	case allocator.KindTombstone:
		if v, ok := c.Value.(allocator.Tombstone); ok {
			h.judgeTombstone(c, v, old[k.Number])
		}
	case allocator.KindLineage:
		h.judgeLineage(c)
	case allocator.KindCluster:
		h.judgeCluster(c)
	}
}

// inUse says whether a reference of a label set names the number.
func (h *History) inUse(n identity.Number, text string) bool {
	for p := range h.refsTo[n] {
		if p.labels == text {
			return true
		}
	}
	return false
}

// judgeMaster: one number for the label set (I1), the labels that the number
// had in life (I3) and in quarantine (I4), and a number of the range (I9).
func (h *History) judgeMaster(c change, was before) {
	n, text := c.Key.Number, textOf(c.item)
	if others := len(h.live[text]); others > 1 {
		h.violate(allocator.I1, c.key, "%s has %d numbers: %v", labels.Quote(text), others, sortedKeys(h.live[text]))
	}
	switch {
	case was.live && was.labels != text:
		h.violate(allocator.I3, c.key, "the number %d changed its labels in life, from %s to %s", n, labels.Quote(was.labels), labels.Quote(text))
	case !was.live && was.labels != "" && was.labels != text && !was.done:
		h.violate(allocator.I4, c.key, "the number %d went from %s to %s and no tombstone had said that its quarantine is over",
			n, labels.Quote(was.labels), labels.Quote(text))
	}
	if _, left := h.tombstones[n]; left {
		h.violate(allocator.I3, c.key, "the number %d is live and its tombstone stands", n)
	}
	if h.spaceOK && !h.space.Contains(n) {
		h.violate(allocator.I9, c.key, "the number %d lies outside the range %d to %d", n, h.space.Min(), h.space.Max())
	} else if n.IsReserved() {
		h.violate(allocator.I9, c.key, "the number %d is reserved", n)
	}
	if set, err := labels.ParseText(text); err == nil {
		if err := identity.CheckStorable(set); err != nil {
			h.violate(allocator.I9, c.key, "%v", err)
		}
	}
}

// judgeEnd: a master that is deleted had no reference (I5), and when it was
// collected, that is with a tombstone in the same revision, an idle mark.
func (h *History) judgeEnd(c change, all []change, was before) {
	n := c.Key.Number
	if !was.live {
		return
	}
	if h.inUse(n, was.labels) {
		h.violate(allocator.I5, c.key, "the number %d of %s was deleted with references", n, labels.Quote(was.labels))
	}
	collected := slices.ContainsFunc(all, func(o change) bool {
		return o.Key.Kind == allocator.KindTombstone && o.Key.Number == n && o.Value != nil
	})
	if collected && !was.idle {
		h.violate(allocator.I5, c.key, "the number %d of %s was collected without an idle mark", n, labels.Quote(was.labels))
	}
}

// judgeReference: the number's master stands (I5) and has these labels (I2).
func (h *History) judgeReference(c change) {
	n := numberOf(c.item)
	switch p := h.numbers[n]; {
	case p == nil || !p.live:
		h.violate(allocator.I5, c.key, "the reference was written for the number %d, which is not live", n)
	case p.labels != c.Key.Labels:
		h.violate(allocator.I2, c.key, "the reference was written for the number %d, which is that of %s", n, labels.Quote(p.labels))
	}
}

// judgeTombstone: it remembers the labels that the number had (I3), of a number
// that is not live, and its quarantine takes time (I4).
func (h *History) judgeTombstone(c change, v allocator.Tombstone, was before) {
	n := c.Key.Number
	if was.labels != "" && was.labels != v.Labels {
		h.violate(allocator.I3, c.key, "the tombstone of the number %d says %s, its labels were %s", n, labels.Quote(v.Labels), labels.Quote(was.labels))
	}
	if p := h.numbers[n]; p != nil && p.live {
		if was.live { // else it is judged with the master that came beside it
			h.violate(allocator.I3, c.key, "a tombstone was written for the number %d, which is live", n)
		}
		return
	}
	if was.live && !was.tombed && v.Quarantine == allocator.QuarantineDone {
		h.violate(allocator.I4, c.key, "the number %d was freed without any quarantine", n)
	}
}

// judgeLineage: the counter and the served time only grow, and the record is
// never deleted (I7).
func (h *History) judgeLineage(c change) {
	if c.unreadable {
		return
	}
	v, ok := c.Value.(allocator.Lineage)
	if !ok {
		h.violate(allocator.I7, c.key, "the lineage was deleted")
		return
	}
	if was := h.lineage; was != nil {
		if v.Counter <= was.Counter {
			h.violate(allocator.I7, c.key, "the lineage's counter went from %d to %d", was.Counter, v.Counter)
		}
		if v.ServedS < was.ServedS {
			h.violate(allocator.I7, c.key, "the served time went from %d to %d", was.ServedS, v.ServedS)
		}
	}
	for _, reason := range brokenLineage(v) {
		h.violate(allocator.I7, c.key, "%s", reason)
	}
	h.lineage = &v
}

// judgeCluster: the record is fixed at birth, and decides the range (I9).
func (h *History) judgeCluster(c change) {
	v, ok := c.Value.(allocator.Cluster)
	switch {
	case c.unreadable:
	case !ok:
		h.violate(allocator.I9, c.key, "the cluster record was deleted")
	case h.cluster != nil && *h.cluster != v:
		h.violate(allocator.I9, c.key, "the cluster record changed from %s to %s", clusterText(*h.cluster), clusterText(v))
	case h.cluster == nil:
		h.cluster = &v
		if s, err := identity.NewSpace(v.Name, v.ID, v.MaxConnectedClusters, v.LocalBits == wideBits); err == nil && !h.spaceOK {
			h.space, h.spaceOK = s, true
		}
	}
}
