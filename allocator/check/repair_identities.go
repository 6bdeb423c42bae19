// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

func numberOfPair(a allocator.Address) identity.Number { return identity.Number(a.ID) }

const noLineage = "Without a lineage nobody can tell since when: start an operator, then plan again."

// maxRepairGuards bounds the references that a step compares.
const maxRepairGuards = 32

// repairValue mends a value that cannot be read, by what it should have been.
func (r *repairer) repairValue(f Finding) remedy {
	k, _ := r.layout.Parse(f.Object)
	if kv := r.kvs[f.Object]; kv.Lease != 0 {
		return leave("It hangs on the lease %x of somebody who lives, and goes with it.", kv.Lease)
	}
	m := remedy{}
	switch k.Kind {
	case allocator.KindReference:
		n, ok := r.winner(k.Labels)
		if !ok {
			return r.purge(f)
		}
		return r.pointAt(k, n)
	case allocator.KindGone, allocator.KindKnown:
		now, ok := r.now()
		if !ok {
			return remedy{left: noLineage}
		}
		m.set(r, k, allocator.Mark{Since: now})
	case allocator.KindTombstone:
		if _, live := r.masters[k.Number]; live {
			return r.deleteTombstone(f) // the number was taken again, or never freed
		}
		return r.tombstone(k.Number, readableLabels(r.kvs[f.Object].Value))
	case allocator.KindAddress, allocator.KindPresence:
		m.del(r, f.Object)
		m.byName = true
	case allocator.KindIdle, allocator.KindElection:
		m.del(r, f.Object)
	default:
		return leave("No program can know what the %s said. Restore a snapshot, or write it by hand.", k.Kind)
	}
	return m
}

// readableLabels is the label set that a damaged tombstone still names; "": none.
func readableLabels(data []byte) string {
	var v struct {
		Labels string `json:"labels"`
	}
	if json.Unmarshal(data, &v) != nil {
		return ""
	}
	if _, err := labels.ParseText(v.Labels); err != nil {
		return ""
	}
	return v.Labels
}

// unreadableText stands in a tombstone for labels that nobody can read any
// more: a set that no workload has, so that the number waits out its
// quarantine and then goes to others.
func unreadableText(n identity.Number) string { return fmt.Sprintf("signet:unreadable=%d;", n) }

// tombstone puts a number into quarantine from now on.
func (r *repairer) tombstone(n identity.Number, text string) remedy {
	now, ok := r.now()
	if !ok {
		return remedy{left: noLineage}
	}
	if text == "" {
		text = unreadableText(n)
	}
	m := remedy{}
	m.at(r, r.spell(allocator.MasterKey(n)))
	m.set(r, allocator.TombstoneKey(n), allocator.Tombstone{Labels: text, Freed: now, Quarantine: allocator.QuarantinePending})
	return m
}

// repairLabels mends a master or a reference with unreadable labels.
func (r *repairer) repairLabels(f Finding) remedy {
	if k, _ := r.layout.Parse(f.Object); k.Kind == allocator.KindMaster {
		return r.repairMaster(f, k.Number)
	}
	return r.deleteUnleased(f)
}

// repairMaster gives an unreadable master the labels that its references name,
// or takes it away and quarantines its number.
func (r *repairer) repairMaster(f Finding, n identity.Number) remedy {
	if kv := r.kvs[f.Object]; kv.Lease != 0 {
		return leave("It hangs on the lease %x of somebody who lives, and goes with it.", kv.Lease)
	}
	refs := r.naming(n)
	if len(refs) == 0 {
		return r.buryMaster(f, n)
	}
	text := refs[0].Key.Labels
	for _, ref := range refs {
		if ref.Key.Labels != text {
			return leave("References of several label sets name the number %d: let their holders allocate again.", n)
		}
	}
	if len(r.sets[text].numbers) > 0 {
		return leave("References name the number %d, and their label set has another one: repair REFERENCE-WITHOUT-MASTER first, then plan again.", n)
	}
	if r.campaigned() {
		return leave("An operator leads or campaigns, and a master is written only while nobody does: stop the operators, repair, start them again.")
	}
	return r.writeMaster(n, text, refs)
}

// buryMaster deletes an unreadable master and quarantines its number, which
// may have been a good one before.
func (r *repairer) buryMaster(f Finding, n identity.Number) remedy {
	m := remedy{}
	tomb := r.spell(allocator.TombstoneKey(n))
	if _, ok := r.kvs[tomb]; ok || !r.inRange(n) || n.IsReserved() {
		m.at(r, tomb)
	} else if m = r.tombstone(n, ""); m.left != "" {
		return m
	}
	m.del(r, f.Object)
	if idle, ok := r.idle[n]; ok {
		m.del(r, idle.key)
	}
	return m
}

// campaigned says whether an operator leads or may lead soon.
func (r *repairer) campaigned() bool {
	return slices.ContainsFunc(r.singles, func(it item) bool { return it.Key.Kind == allocator.KindElection })
}

// writeMaster writes a number's master with the label set that refs name. The
// leader relies on being the only one who writes masters: an allocation of the
// same label set could be on its way. So the step compares that nobody campaigns.
func (r *repairer) writeMaster(n identity.Number, text string, refs []item) remedy {
	set, err := labels.ParseText(text)
	if err != nil || identity.CheckStorable(set) != nil || !r.inRange(n) || n.IsReserved() {
		return leave("The number %d cannot be that of %s in this cluster: let its holders allocate again.", n, labels.Quote(text))
	}
	m := remedy{}
	tomb, freed := r.tombstones[n]
	switch v, _ := tomb.Value.(allocator.Tombstone); {
	case freed && v.Labels != text:
		return leave("A tombstone says that the number %d was freed from %s: let the holders of %s allocate again.", n, labels.Quote(v.Labels), labels.Quote(text))
	case freed:
		m.del(r, tomb.key)
	default:
		m.at(r, r.spell(allocator.TombstoneKey(n)))
	}
	m.set(r, allocator.MasterKey(n), allocator.LabelSet(text))
	for _, ref := range refs[:min(len(refs), maxRepairGuards)] {
		m.at(r, ref.key)
	}
	if idle, ok := r.idle[n]; ok {
		m.del(r, idle.key)
	}
	m.empty(r.layout.Election())
	return m
}

// dropLease writes the same value without a lease.
func (r *repairer) dropLease(f Finding) remedy {
	k, _ := r.layout.Parse(f.Object)
	if k.Kind == allocator.KindLineage || k.Kind == allocator.KindRecovery {
		return leave("The leader rewrites it: start an operator, or wait.")
	}
	m := remedy{}
	m.put(r, f.Object, r.kvs[f.Object].Value)
	return m
}

// setTimeBack rewrites a mark or tombstone whose time lies ahead.
func (r *repairer) setTimeBack(f Finding) remedy {
	now, ok := r.now()
	if !ok {
		return remedy{left: noLineage}
	}
	back := func(t allocator.Time) allocator.Time {
		return allocator.Time{Revision: min(t.Revision, now.Revision), ServedS: min(t.ServedS, now.ServedS)}
	}
	m := remedy{}
	k, _ := r.layout.Parse(f.Object)
	rec, err := r.layout.Decode(r.kvs[f.Object])
	switch v := rec.Value.(type) {
	case allocator.Mark:
		m.set(r, k, allocator.Mark{Since: back(v.Since)})
	case allocator.Tombstone:
		v.Born, v.Freed = back(v.Born), back(v.Freed)
		m.set(r, k, v)
	default:
		return leave("The leader ends the recovery window by its own clock (%v).", err)
	}
	return m
}
