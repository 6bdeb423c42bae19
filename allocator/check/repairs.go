// SPDX-License-Identifier: Apache-2.0

package check

import "github.com/signet-identity/signet/allocator"

// Mode says when a code's repair is planned.
type Mode string

// The modes.
const (
	// Always: it cannot do harm, and is planned without being asked for.
	Always Mode = "yes"
	// ByName: it takes something that could still be needed, so the code has to be named.
	ByName Mode = "by name"
	// Never: there is no repair that a program could know to be right.
	Never Mode = "no"
)

// Repair is what is documented of a code's repair. Single findings of a code
// may be left where it cannot be done.
type Repair struct {
	Code Code
	Mode Mode
	Text string // what is done, or for Never why nothing is and the way out
	plan func(*repairer, Finding) remedy
}

// Repairs lists the repair of every code, in the order of Codes. The caller
// owns the slice.
func Repairs() []Repair {
	var out []Repair
	for _, group := range [][]Repair{grammarRepairs(), identityRepairs(), referenceRepairs(), nodeRepairs(), recordRepairs()} {
		out = append(out, group...)
	}
	return out
}

func grammarRepairs() []Repair {
	return []Repair{
		{KeyUnknown, Never, "It may be a newer version's; whoever knows that it is not deletes the key.", nil},
		{KeyMalformed, Always, "Delete the key, unless it hangs on a lease.", (*repairer).deleteUnleased},
		{ValueMalformed, Always, "A mark of a gone node and a tombstone begin their time anew; a reference takes the number that counts for its label set; a tombstone of a live number, an idle mark, a candidate, and a reference whose label set has no number are deleted. Addresses and presences are deleted by name only. Records of the cluster, and what hangs on a lease, are left.", (*repairer).repairValue},
		{LabelsMalformed, Always, "A master that references of one label set name gets that label set back while no operator leads or campaigns; one that nobody names is deleted and its number quarantined; a reference is deleted unless it hangs on a lease.", (*repairer).repairLabels},
		{LabelsNotCanonical, Always, "As for LABELS-MALFORMED.", (*repairer).repairLabels},
		{LabelsReserved, Never, "Holders use it: let them allocate other labels, release it, and the sweep frees the number.", nil},
		{LeaseUnexpected, Always, "Write the same value again without a lease. The lineage and the recovery window are left to the leader, who rewrites them.", (*repairer).dropLease},
		{TimeAhead, Always, "Set the time back to now, so that a grace or quarantine begins anew.", (*repairer).setTimeBack},
	}
}

func identityRepairs() []Repair {
	return []Repair{
		{DuplicateIdentity, Never, "The leader moves no holder: each moves when it allocates again, and then the sweep collects the number.", nil},
		{NumberShared, Never, "The references that do not match the master are repaired as REFERENCE-MISMATCH.", nil},
		{OtherCluster, Never, "They are another cluster's.", nil},
		{NumberOutOfRange, Never, "It may be another cluster's. If it is not, let its holders allocate again, then delete its keys.", nil},
		{NumberReserved, Never, "Whoever wrote it may still use it. Let its holders allocate again, then delete its keys.", nil},
		{IdleMarkMissing, Never, "The leader marks it.", nil},
		{IdleReferenced, Never, "The leader takes the mark away.", nil},
		{IdleWithoutMaster, Always, "Delete the mark.", (*repairer).deleteIdleMark},
		{TombstoneBesideMaster, Always, "Delete the tombstone.", (*repairer).deleteTombstone},
		{TombstoneLabelsDiffer, Never, "The number is in use: let the holders of the live label set allocate under another one, then delete the master and keep the tombstone.", nil},
	}
}

func referenceRepairs() []Repair {
	return []Repair{
		{ReferenceForeign, Never, "References with a lease are another allocator's and end with it.", nil},
		{ReferenceMismatch, Always, "Write the number that counts for the reference's label set. Without one the holder gets it when it allocates again.", (*repairer).moveReference},
		{ReferenceWithoutMaster, Always, "Write the number that counts for the label set; where there is none, an operator that leads or campaigns writes the master back, and without any this does.", (*repairer).bringMasterBack},
		{HolderUnknown, ByName, "Delete the reference. Its label set may be freed then.", (*repairer).purge},
		{LockHeld, Never, "It ends with its lease.", nil},
		{LockWithoutLease, Always, "Delete the lock, unless it hangs on a lease.", (*repairer).deleteUnleased},
	}
}

func nodeRepairs() []Repair {
	return []Repair{
		{NodeNameInvalid, ByName, "Delete the key, unless it hangs on a lease.", (*repairer).deleteUnleased},
		{NodeAbsent, Never, "The leader marks the node gone.", nil},
		{NodeBack, Never, "The leader takes the mark away.", nil},
		{NodeGone, Never, "signet node forget NODE removes what it holds and stops waiting for it.", nil},
		{PresenceWithoutLease, ByName, "Delete the presence. The node's agent, if it runs, writes it again under a lease.", (*repairer).purge},
		{AddressForeign, Never, "They are other programs'.", nil},
		{AddressNumberDead, ByName, "Withdraw the address, if Signet published it. Traffic of a workload that still has it counts as coming from the world then, and no longer as denied.", (*repairer).withdraw},
		{AddressOwnerUnknown, ByName, "Withdraw the address. Traffic of a workload that still has it counts as coming from the world then.", (*repairer).withdraw},
		{AddressUnreferenced, ByName, "Withdraw the address. Traffic of a workload that still has it counts as coming from the world then.", (*repairer).withdraw},
	}
}

func recordRepairs() []Repair {
	return []Repair{
		{CandidateLease, Always, "Delete the key. Whoever campaigns does it under a lease of its own.", (*repairer).purge},
		{ClusterIDFree, Always, "Bind the id that the cluster record names to the cluster's name.", (*repairer).bindID},
		{ClusterIDTaken, Never, "Two clusters have one id; one of them needs another id, and a store or name of its own.", nil},
		{ClusterIDTwice, ByName, "Delete the key. Another cluster can have that id then.", (*repairer).freeID},
		{ClusterMismatch, Never, "Use the store's values, or another store.", nil},
		{ClusterMissing, Never, "If Signet never ran on this store, start an operator with --new-cluster; else restore a snapshot.", nil},
		{LineageBroken, Never, "A made-up lineage would hide a restore. Restore a snapshot, or start the operators anew.", nil},
		{LineageMissing, Never, "A leader's first write in a term makes one: start an operator.", nil},
		{RecoveryOpen, Never, "It ends by itself.", nil},
	}
}

// deleteUnleased deletes the finding's key; one under a lease goes with it.
func (r *repairer) deleteUnleased(f Finding) remedy {
	if kv := r.kvs[f.Object]; kv.Lease != 0 {
		return leave("It hangs on the lease %x of somebody who lives, and goes with it.", kv.Lease)
	}
	return r.purge(f)
}

// purge deletes the finding's key.
func (r *repairer) purge(f Finding) remedy {
	m := remedy{byName: r.byCode[f.Code].Mode == ByName}
	m.del(r, f.Object)
	return m
}

// deleteIdleMark deletes a mark or tombstone while the master stands as read.
func (r *repairer) deleteIdleMark(f Finding) remedy {
	m := r.purge(f)
	k, _ := r.layout.Parse(f.Object)
	m.at(r, r.spell(allocator.MasterKey(k.Number)))
	return m
}

func (r *repairer) deleteTombstone(f Finding) remedy { return r.deleteIdleMark(f) }

// withdraw deletes an address of ours as it was read.
func (r *repairer) withdraw(f Finding) remedy {
	k, _ := r.layout.Parse(f.Object)
	for _, a := range r.addresses {
		if a.Key != k {
			continue
		}
		if _, _, foreign := r.owner(a); foreign {
			return leave("Another program published the address.")
		}
		m := r.deleteUnleased(f)
		pair, _ := a.Value.(allocator.Address)
		if m.left == "" && pair.ID != 0 {
			m.at(r, r.spell(allocator.Key{Kind: allocator.KindMaster, Number: numberOfPair(pair)}))
		}
		return m
	}
	return leave("The address cannot be read.")
}

// bindID writes the table entry that the cluster record stands for.
func (r *repairer) bindID(Finding) remedy {
	if r.cluster == nil || !r.spaceOK || recordOf(r.space) != r.cluster.Value {
		return leave("The cluster record does not say which id the cluster has.")
	}
	m := remedy{}
	m.at(r, r.cluster.key)
	m.set(r, allocator.ClusterIDKey(r.space.ClusterID), allocator.Text(r.layout.Cluster()))
	return m
}

func (r *repairer) freeID(f Finding) remedy {
	m := r.purge(f)
	m.at(r, r.spell(allocator.ClusterKey()))
	return m
}
