// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

// master judges a master's creation, change or deletion.
func (c *checker) master(o origin, r record) {
	n := r.key.Number
	old := c.masters[n]
	live := old != nil && old.removed == 0
	if r.deleted {
		if live {
			old.removed = r.kv.ModRevision
			c.numbers[old.text]--
			c.knowLess(old.text)
			c.collected(o, n)
		}
		return
	}
	text := string(r.value.(allocator.LabelSet))
	if live && old.text == text {
		return
	}
	if o.kind != byHand {
		c.created(n, text, old, live)
	}
	if live {
		c.numbers[old.text]--
		c.knowLess(old.text)
	}
	c.numbers[text]++
	c.knowMore(text)
	c.masters[n] = &life{text: text, born: r.kv.ModRevision}
	c.w.stats.Created++
}

// created judges a number's new life with these labels.
func (c *checker) created(n identity.Number, text string, old *life, live bool) {
	switch {
	case !c.space.Contains(n):
		c.fail(allocator.I9, "number %d lies outside of %d to %d", n, c.space.Min(), c.space.Max())
	case live:
		c.fail(allocator.I3, "live number %d went from %s to %s", n, old.text, text)
	case old != nil && old.text != text && !c.touched[n]:
		c.reused(n, text, old)
	}
}

// collected judges the time at which a number was freed.
func (c *checker) collected(o origin, n identity.Number) {
	if o.kind == byHand {
		return
	}
	c.w.stats.Collected++
	if since, marked := c.idle[n]; marked {
		c.waited(allocator.I5, fmt.Sprintf("number %d was collected", n), since, identityGrace)
	}
}

// markSlack is how far a mark may stand back behind the moment it was written,
// since it carries the served time last stored: what one rewrite of the lineage
// adds at most, the time between two, and the rounding to seconds.
const markSlack = electionTTL + lineageEvery + time.Second

// reference judges a reference's put or deletion.
func (c *checker) reference(o origin, r record) {
	k := refKey{r.key.Labels, r.key.Name}
	old := c.refs[k]
	stands := old != nil && old.removed == 0
	if stands {
		old.removed = r.kv.ModRevision
		if o.kind != byHand && old.lease == 0 {
			c.removedBecause(k, old, r)
		}
	}
	if r.deleted {
		if stands {
			c.holders[k.text]--
		}
		return
	}
	v := &version{number: kvstore.ReferenceNumber(allocator.Record{Value: r.value}), hold: r.kv.ModRevision,
		since: r.kv.ModRevision, lease: r.kv.Lease}
	if stands {
		v.since = old.since
	} else {
		c.holders[k.text]++
	}
	c.refs[k] = v
	if c.versions[v.hold] == nil {
		c.versions[v.hold] = map[refKey]*version{}
	}
	c.versions[v.hold][k] = v
}

// removedBecause looks for what allowed the leader to take a hold away: a
// release or an allocation that named it, or the purge of a node that was
// absent at that revision and gone for its grace.
func (c *checker) removedBecause(k refKey, old *version, r record) {
	if c.named(k, old.hold, r.deleted) {
		if c.w.believes(k, old.hold) && !c.releasedAny(k) {
			c.fail(allocator.I10, "%s lost %s under hold %d, which it still believes in", k.holder, k.text, old.hold)
		}
		return
	}
	if !r.deleted && c.w.opt.hand() && kvstore.ReferenceNumber(allocator.Record{Value: r.value}) != old.number {
		return // healed with another number after somebody's edits
	}
	since, gone := c.gone[k.holder]
	kind, node, _ := allocator.ParseHolder(k.holder)
	switch {
	case kind == allocator.HolderNode && r.deleted && c.leaving(node):
		c.w.stats.Purged++
	case kind != allocator.HolderNode || !r.deleted:
		c.fail(allocator.I10, "%s of %s under hold %d was taken (deleted %v) and nobody had asked for it", k.text, k.holder, old.hold, r.deleted)
	case c.present[node]:
		c.fail(allocator.I10, "%s of %s under hold %d was taken while the node is present", k.text, k.holder, old.hold)
	case !gone && !c.w.opt.hand():
		c.fail(allocator.I10, "%s of %s under hold %d was taken without a gone mark", k.text, k.holder, old.hold)
	default:
		if gone && !c.forgetting(node) {
			c.waited(allocator.I10, fmt.Sprintf("%s of %s under hold %d was taken", k.text, k.holder, old.hold), since, nodeGrace)
		}
		c.w.stats.Purged++
	}
}

// forgotten judges the end of a gone mark: the node is back, it left, somebody
// asked to forget it, or it is gone for long enough.
func (c *checker) forgotten(node string) {
	since, marked := c.gone[node]
	if marked && !c.present[node] && !c.leaving(node) && !c.forgetting(node) && !c.w.opt.hand() {
		c.waited(allocator.I4, node+" was forgotten", since, forgetAfter)
		c.w.stats.Forgotten++
	}
}

// leaving and forgetting say whether somebody asked for it and the answer, if
// any, came only now.
func (c *checker) leaving(node string) bool    { return c.askedOf(node, c.instances[node]) }
func (c *checker) forgetting(node string) bool { return c.askedOf(node, "") }

func (c *checker) askedOf(node, leave string) bool {
	for _, a := range c.nodeAsks[node] {
		if !a.answered && a.leave == leave {
			return true
		}
	}
	return false
}

// ask is a request of a client that can take a reference, as long as it is known.
type ask struct {
	hold     int64 // 0: any
	allocate bool
	leave    string // the instance that leaves
	answered bool
}

// asks notes a request before it is sent.
func (c *checker) asks(req any) *ask {
	switch r := req.(type) {
	case allocator.LeaveRequest:
		a := &ask{leave: r.Instance}
		c.nodeAsks[r.Node] = append(c.nodeAsks[r.Node], a)
		return a
	case allocator.ForgetRequest:
		a := &ask{}
		c.nodeAsks[r.Node] = append(c.nodeAsks[r.Node], a)
		return a
	case allocator.ReleaseRequest:
		a := &ask{hold: r.Hold}
		k := refKey{r.Labels.Text(), r.Holder}
		c.asked[k] = append(c.asked[k], a)
		return a
	case allocator.AllocateRequest:
		if r.GivenUpHold != 0 {
			a := &ask{hold: r.GivenUpHold, allocate: true}
			k := refKey{r.Labels.Text(), r.Holder}
			c.asked[k] = append(c.asked[k], a)
			return a
		}
	}
	return &ask{}
}

// named says whether somebody asked for the end of this hold: by a release if
// it was deleted, by an allocation that gave it up if it was rewritten.
func (c *checker) named(k refKey, hold int64, deleted bool) bool {
	for _, a := range c.asked[k] {
		if a.allocate != deleted && (a.hold == hold || a.hold == 0 && !a.answered) {
			return true
		}
	}
	return false
}

// releasedAny says whether a release of any hold may still be under way.
func (c *checker) releasedAny(k refKey) bool {
	for _, a := range c.asked[k] {
		if a.hold == 0 && !a.allocate && !a.answered {
			return true
		}
	}
	return false
}

// allocated is I10 for an answer to an Allocate: at some moment between the
// request (sent at revision from) and now the reference stood under this hold,
// and the number was live for these labels.
func (c *checker) allocated(k refKey, a allocator.Allocation, from int64) {
	n := a.Identity.Number
	v := c.versions[a.Hold][k]
	switch {
	case v == nil:
		c.fail(allocator.I10, "%s was told hold %d for %s, which never stood", k.holder, a.Hold, k.text)
	case v.removed != 0 && v.removed <= from:
		c.fail(allocator.I10, "%s was told hold %d for %s, which had gone at %d before it asked at %d", k.holder, a.Hold, k.text, v.removed, from)
	case v.number != n && !c.touched[n]:
		c.fail(allocator.I10, "%s was told number %d for %s, its reference says %d", k.holder, n, k.text, v.number)
	}
	m := c.masters[n]
	if (m == nil || m.text != k.text || m.removed != 0 && m.removed <= from) && !c.touched[n] {
		c.fail(allocator.I10, "%s was told number %d for %s, which was not live for it", k.holder, n, k.text)
	}
}

// released is I10 for an answer to a Release.
func (c *checker) released(k refKey, hold int64, r allocator.Released, from int64) {
	v := c.versions[hold][k]
	cur := c.refs[k]
	switch {
	case r.Done && hold != 0 && (v == nil || v.removed == 0):
		c.fail(allocator.I10, "%s was told that hold %d of %s is released, and it stands", k.holder, hold, k.text)
	case !r.Done && cur != nil && cur.removed == 0 && cur.since <= from:
		c.fail(allocator.I10, "%s was told that it has no reference to %s, and hold %d stands since %d", k.holder, k.text, cur.hold, cur.since)
	}
}
