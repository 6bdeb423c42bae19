// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
)

// freed is a number's removal, as its tombstone tells.
type freed struct {
	text     string
	revision int64
	at       time.Duration
	servedS  int64
}

// standing is what the store says of a node that has to acknowledge.
type standing struct {
	known bool  // a leader has seen it, and it has not left and is not forgotten
	since int64 // revision at which that changed
}

// tombstone notes a number's removal, or the end of its memory.
func (c *checker) tombstone(r record) {
	n := r.key.Number
	if old, ok := c.tombs[n]; ok {
		c.knowLess(old.text)
		delete(c.tombs, n)
	}
	if tb, ok := r.value.(allocator.Tombstone); ok {
		c.tombs[n] = freed{tb.Labels, r.kv.ModRevision, c.w.now, tb.Freed.ServedS}
		c.freed[n] = c.tombs[n]
		c.knowMore(tb.Labels)
	}
}

// knowMore and knowLess count the masters and tombstones of a label set. One
// that has any is known, and never runs out of numbers.
func (c *checker) knowMore(text string) {
	if c.memory[text]++; c.memory[text] == 1 && c.knownTill[text] != c.w.told {
		c.knownSince[text] = c.w.told
	}
}

func (c *checker) knowLess(text string) {
	if c.memory[text]--; c.memory[text] == 0 {
		c.knownTill[text] = c.w.told
	}
}

// exhausted judges a refusal for want of numbers: sets that were known all the
// while get theirs.
func (c *checker) exhausted(text string, from int64) {
	c.w.stats.Exhausted++
	if c.memory[text] > 0 && c.knownSince[text] <= from && !c.w.opt.hand() {
		c.fail(allocator.I12, "%s was refused for want of numbers, and is known since revision %d", text, c.knownSince[text])
	}
}

// reused is I4: the number went from one label set to another.
func (c *checker) reused(n identity.Number, text string, old *life) {
	c.w.stats.Reused++
	f, ok := c.freed[n]
	if !ok || f.revision < old.removed {
		c.fail(allocator.I4, "number %d went from %s to %s without a tombstone", n, old.text, text)
		return
	}
	least := int64(quarantine / time.Second)
	if age := c.served() - f.servedS; age < least {
		c.fail(allocator.I4, "number %d went from %s to %s %d s of served time after it was freed", n, old.text, text, age)
	}
	if age := c.w.now - f.at; age < c.w.shortened(quarantine) {
		c.fail(allocator.I4, "number %d went from %s to %s %v after it was freed", n, old.text, text, age)
	}
	for _, a := range c.w.agents {
		if c.judged(a) && a.kernel.cleared < f.revision {
			c.fail(allocator.I4, "number %d went from %s to %s, and %s has carried out the removals up to %d only, not that of %d",
				n, old.text, text, a.name, a.kernel.cleared, f.revision)
		}
	}
}

// judged says whether a node's kernel has to be right: a leader has seen the
// node, and one that was new then, or forgotten, has come as far as that. Before,
// it has no reference, hence no workload.
func (c *checker) judged(a *agent) bool {
	s := c.standing[a.holder]
	return s.known && a.kernel.cleared >= s.since
}

// firewalls checks that no kernel takes a number for other labels than the store
// gives it now.
func (c *checker) firewalls(n identity.Number, text string) {
	for _, a := range c.w.agents {
		if have, ok := a.kernel.entries[n]; ok && have != text && c.judged(a) {
			c.fail(allocator.I8, "%s takes number %d for %s, and it belongs to %s", a.name, n, have, text)
		}
	}
}

// entered checks an entry as it is put into a kernel.
func (c *checker) entered(a *agent, n identity.Number, text string) {
	if m := c.masters[n]; m != nil && m.removed == 0 && m.text != text && c.judged(a) && !c.touched[n] {
		c.fail(allocator.I8, "%s puts number %d in force for %s, and it belongs to %s", a.name, n, text, m.text)
	}
}

// know notes how a node stands once a revision is in.
func (c *checker) know(r record) {
	if r.key.Kind == allocator.KindKnown {
		c.standing[r.key.Name] = standing{known: !r.deleted, since: r.kv.ModRevision}
	}
}

// served is the served time that the store holds, in seconds.
func (c *checker) served() int64 {
	if n := len(c.lineage); n > 0 {
		return c.lineage[n-1].seconds
	}
	return 0
}

// waited checks that a grace has passed in served time since a mark.
func (c *checker) waited(i allocator.Invariant, what string, since stamp, grace time.Duration) {
	if age := c.served() - since.servedS; age < int64(grace/time.Second) {
		c.fail(i, "%s %d s of served time after its mark, before the grace of %v", what, age, grace)
	}
	if age := c.w.now - since.at; age < c.w.shortened(grace) {
		c.fail(i, "%s %v after its mark, before the grace of %v", what, age, grace)
	}
}

// shortened is how much of the store's time a grace takes at least: the fastest
// clock may lead, and marks carry the served time last stored.
func (w *world) shortened(grace time.Duration) time.Duration {
	return time.Duration(float64(grace-markSlack) / w.fastest)
}

// overdue is the part of I11 that says that a failover restarts no clock: what
// is due when a term begins goes within seconds. serving is the served time
// since which the leader leads undisturbed.
func (c *checker) overdue(serving int64) {
	for _, n := range slices.Sorted(maps.Keys(c.idle)) {
		m, since := c.masters[n], c.idle[n]
		due := max(serving, since.servedS+int64(identityGrace/time.Second))
		if m != nil && m.removed == 0 && c.holders[m.text] == 0 && c.served() >= due+overdueAfter {
			c.fail(allocator.I11, "number %d is marked idle since %d s of served time and still stands at %d s; the leader leads since %d s",
				n, since.servedS, c.served(), serving)
		}
	}
}

// overdueAfter is how long a sweep may take to free what is due, in seconds.
const overdueAfter = 4
