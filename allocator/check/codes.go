// SPDX-License-Identifier: Apache-2.0

package check

import "github.com/signet-identity/signet/allocator"

// Code names a kind of finding. Codes are stable: scripts may compare them.
type Code string

// The codes. Codes says what each means.
const (
	KeyUnknown         Code = "KEY-UNKNOWN"
	KeyMalformed       Code = "KEY-MALFORMED"
	ValueMalformed     Code = "VALUE-MALFORMED"
	LabelsMalformed    Code = "LABELS-MALFORMED"
	LabelsNotCanonical Code = "LABELS-NOT-CANONICAL"
	LabelsReserved     Code = "LABELS-RESERVED"
	LeaseUnexpected    Code = "LEASE-UNEXPECTED"
	TimeAhead          Code = "TIME-AHEAD"

	DuplicateIdentity Code = "DUPLICATE-IDENTITY"
	NumberShared      Code = "NUMBER-SHARED"
	NumberOutOfRange  Code = "NUMBER-OUT-OF-RANGE"
	OtherCluster      Code = "OTHER-CLUSTER"
	NumberReserved    Code = "NUMBER-RESERVED"

	IdleMarkMissing       Code = "IDLE-MARK-MISSING"
	IdleReferenced        Code = "IDLE-REFERENCED"
	IdleWithoutMaster     Code = "IDLE-WITHOUT-MASTER"
	TombstoneBesideMaster Code = "TOMBSTONE-BESIDE-MASTER"
	TombstoneLabelsDiffer Code = "TOMBSTONE-LABELS-DIFFER"

	ReferenceForeign       Code = "REFERENCE-FOREIGN"
	ReferenceMismatch      Code = "REFERENCE-MISMATCH"
	ReferenceWithoutMaster Code = "REFERENCE-WITHOUT-MASTER"
	HolderUnknown          Code = "HOLDER-UNKNOWN"
	LockHeld               Code = "LOCK-HELD"
	LockWithoutLease       Code = "LOCK-WITHOUT-LEASE"

	NodeNameInvalid      Code = "NODE-NAME-INVALID"
	NodeAbsent           Code = "NODE-ABSENT"
	NodeBack             Code = "NODE-BACK"
	NodeGone             Code = "NODE-GONE"
	PresenceWithoutLease Code = "PRESENCE-WITHOUT-LEASE"

	AddressForeign      Code = "ADDRESS-FOREIGN"
	AddressNumberDead   Code = "ADDRESS-NUMBER-DEAD"
	AddressOwnerUnknown Code = "ADDRESS-OWNER-UNKNOWN"
	AddressUnreferenced Code = "ADDRESS-UNREFERENCED"

	CandidateLease  Code = "CANDIDATE-LEASE"
	ClusterIDFree   Code = "CLUSTER-ID-FREE"
	ClusterIDTaken  Code = "CLUSTER-ID-TAKEN"
	ClusterIDTwice  Code = "CLUSTER-ID-TWICE"
	ClusterMismatch Code = "CLUSTER-MISMATCH"
	ClusterMissing  Code = "CLUSTER-MISSING"
	LineageBroken   Code = "LINEAGE-BROKEN"
	LineageMissing  Code = "LINEAGE-MISSING"
	RecoveryOpen    Code = "RECOVERY-OPEN"
)

// CodeInfo is what is documented of a code.
type CodeInfo struct {
	Code      Code
	Severity  Severity
	Invariant allocator.Invariant // "" for none
	Meaning   string
	Action    string
}

// Codes lists every code with its severity, meaning and action, grouped as the
// constants are. The caller owns the slice.
func Codes() []CodeInfo {
	var out []CodeInfo
	for _, group := range [][]CodeInfo{grammarCodes(), identityCodes(), referenceCodes(), nodeCodes(), recordCodes()} {
		out = append(out, group...)
	}
	return out
}

func grammarCodes() []CodeInfo {
	return []CodeInfo{
		{KeyUnknown, Info, "", "A key lies under Signet's prefixes in a table that this version does not know.",
			"Nothing, if a newer version or another program put it there; else delete the key."},
		{KeyMalformed, Warning, "", "A key of a known table cannot be read. Every reader passes over it.",
			"Find out who writes it, then delete the key."},
		{ValueMalformed, Error, "", "A value cannot be read. Every reader passes over the key.",
			"Find out who writes it; rewrite the value, or delete the key."},
		{LabelsMalformed, Error, allocator.I1, "A label set cannot be read. The identity serves nobody, and its number is kept out of use.",
			"Find out who writes it; give its holders a readable label set, then delete the key."},
		{LabelsNotCanonical, Error, allocator.I1, "A label set is not in canonical form, so it does not count as the set that it means.",
			"Find out who writes it; let its holders allocate anew, then delete the key."},
		{LabelsReserved, Error, allocator.I9, "A label set is stored that has a fixed number, or that each node numbers for itself.",
			"Find out who writes it, then delete its references and the master."},
		{LeaseUnexpected, Error, allocator.I5, "A key has a lease that must have none, and would vanish with it.",
			"Find out who wrote it; write the same value again without a lease."},
		{TimeAhead, Warning, allocator.I7, "A mark or tombstone carries a time that the store has not reached yet, as after a restore that was not recognised.",
			"Let a leader rewrite it; if the store was restored or copied by hand, restart the operators."},
	}
}

func identityCodes() []CodeInfo {
	return []CodeInfo{
		{DuplicateIdentity, Error, allocator.I1, "A label set has another master that counts before this one: the one in the own range, with a reference, and oldest.",
			"Move this number's references to the one that counts (its holders allocate again); the sweep then collects it. Find the second allocator."},
		{NumberShared, Error, allocator.I2, "References of several label sets name one number.",
			"Let the holders of those sets allocate again, and find out who wrote the references."},
		{OtherCluster, Info, "", "Another cluster shares the store: its id is bound in the table of cluster ids. Its keys are for its own check to judge.",
			"Nothing."},
		{NumberOutOfRange, Error, allocator.I9, "A number is stored that lies outside the cluster's range.",
			"If it comes from another cluster or a changed cluster id, let its holders allocate again, then delete its keys."},
		{NumberReserved, Error, allocator.I9, "A reserved number (1 to 255) is stored.",
			"Let its holders allocate again, then delete its keys."},
		{IdleMarkMissing, Info, allocator.I5, "An identity has no reference and no idle mark yet. The leader marks it.",
			"Nothing; if it stays, see whether an operator leads and sweeps."},
		{IdleReferenced, Info, allocator.I5, "An idle mark stands beside a reference. The leader takes the mark away.",
			"Nothing; if it stays, see whether an operator leads."},
		{IdleWithoutMaster, Warning, allocator.I5, "An idle mark stands for a number without a readable master.",
			"Delete the mark."},
		{TombstoneBesideMaster, Warning, allocator.I3, "A number is live and has a tombstone of the same labels. Taking a number deletes its tombstone, so one of the two was written by somebody else.",
			"Delete the tombstone."},
		{TombstoneLabelsDiffer, Error, allocator.I3, "A number is live under other labels than its tombstone says: it changed hands without its quarantine.",
			"Let the holders of the live label set allocate under a new number, delete the master, keep the tombstone."},
	}
}

func referenceCodes() []CodeInfo {
	return []CodeInfo{
		{ReferenceForeign, Info, "", "References with a lease belong to another allocator. Signet never deletes them.",
			"Nothing, if other allocators run on this store; else wait until their leases end."},
		{ReferenceMismatch, Error, allocator.I3, "A reference names a number whose master has other labels.",
			"Let the holder allocate again, and find out who wrote the reference or the master."},
		{ReferenceWithoutMaster, Error, allocator.I5, "A reference names a number without a readable master: somebody deleted or damaged it.",
			"Nothing, if an operator leads: it writes the master back within seconds. If it stays, see the operator's status."},
		{HolderUnknown, Warning, "", "A reference without a lease has a holder of no known kind. Signet never collects it.",
			"Find out whose it is; purge it by hand."},
		{LockHeld, Info, "", "Another allocator holds a lock. Signet waits for it.",
			"Nothing; it ends with its lease."},
		{LockWithoutLease, Warning, "", "A lock has no lease, or another one than its name says, so it may never end.",
			"Delete the key once its owner is known not to run."},
	}
}

func nodeCodes() []CodeInfo {
	return []CodeInfo{
		{NodeNameInvalid, Warning, "", "A presence or gone mark is that of a name that no node can have.",
			"Correct the agent's node name, then delete the key."},
		{NodeAbsent, Warning, allocator.I5, "A node without presence and without gone mark holds references or addresses. The leader marks it gone.",
			"Nothing; if it stays, see whether an operator leads."},
		{NodeBack, Info, "", "A node has a presence and a gone mark. The leader takes the mark away.",
			"Nothing; if it stays, see whether an operator leads."},
		{NodeGone, Info, "", "A node is gone. Its references and addresses are removed after the node grace; until it is forgotten no freed number is reused.",
			"Start its agent again, or forget the node."},
		{PresenceWithoutLease, Warning, "", "A presence has no lease. The node counts as absent.",
			"Restart that node's agent; delete the key if the node does not exist."},
		{AddressForeign, Info, "", "Addresses that no node of this cluster published. Signet leaves them alone.",
			"Nothing, if other programs publish addresses on this store; else delete the keys."},
		{AddressNumberDead, Error, allocator.I8, "An address has a number that is not live.",
			"Restart the owner's agent, which publishes anew; delete the key if the workload is gone."},
		{AddressOwnerUnknown, Warning, "", "An address says that Signet published it, for an owner that cannot be read or in another cluster.",
			"Find out who wrote it; delete the key if nobody owns it."},
		{AddressUnreferenced, Warning, allocator.I8, "An address has a number that its owner holds no reference to. It is so for a moment while a node leaves.",
			"If it stays, restart the owner's agent, which publishes anew."},
	}
}

func recordCodes() []CodeInfo {
	return []CodeInfo{
		{CandidateLease, Error, allocator.I6, "An election key does not hang on the lease in its name, so it may never vanish and would block the election.",
			"Delete the key."},
		{ClusterIDFree, Warning, "", "The cluster's id is not bound to its name, so another cluster could take it.",
			"Put the cluster's name under the key, if no other cluster on this store has the id."},
		{ClusterIDTaken, Error, allocator.I9, "The cluster's id is bound to another cluster's name.",
			"Give one of the two clusters another id and a store or name of its own."},
		{ClusterIDTwice, Warning, "", "Another cluster id is bound to this cluster's name.",
			"Delete the key if the cluster never had that id, or no longer has numbers of its range."},
		{ClusterMismatch, Error, allocator.I9, "The stored cluster record is not that of the configuration, or of no possible cluster.",
			"Use the store's values, or another store."},
		{ClusterMissing, Warning, "", "The store holds identities and no cluster record.",
			"If Signet never ran on this store, start the operator with --new-cluster. If it did, the record was lost: restore it."},
		{LineageBroken, Error, allocator.I7, "The lineage contradicts itself, so a restored store could not be recognised.",
			"Find out who wrote it; restore the store from a snapshot, or let a leader open a recovery window."},
		{LineageMissing, Error, allocator.I7, "The cluster has no lineage, so a restored store could not be recognised.",
			"Start an operator: its first write in a term makes one."},
		{RecoveryOpen, Info, "", "A recovery window is open: new label sets get no number until it ends.",
			"Nothing; it ends by itself."},
	}
}
