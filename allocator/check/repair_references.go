// SPDX-License-Identifier: Apache-2.0

package check

import (
	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
)

// pointAt writes a number into a reference, while that number is its label
// set's.
func (r *repairer) pointAt(ref allocator.Key, n identity.Number) remedy {
	m := remedy{}
	m.at(r, r.masters[n].key)
	m.set(r, ref, allocator.NumberValue(n))
	return m
}

// ours finds the finding's reference, unless it is another allocator's.
func (r *repairer) ours(f Finding) (item, remedy) {
	ref, ok := r.reference(f.Object)
	switch {
	case !ok:
		return ref, leave("The reference cannot be read.")
	case ref.Lease != 0:
		return ref, leave("It hangs on the lease %x of another allocator, and goes with it.", ref.Lease)
	}
	return ref, remedy{}
}

// moveReference repairs a reference whose number is another label set's.
func (r *repairer) moveReference(f Finding) remedy {
	ref, m := r.ours(f)
	if m.left != "" {
		return m
	}
	n, ok := r.winner(ref.Key.Labels)
	if !ok {
		return leave("Its label set has no number: the holder gets one when it allocates again.")
	}
	return r.pointAt(ref.Key, n)
}

// bringMasterBack repairs a reference whose number has no master. Where an
// operator leads or may lead soon, the master is the leader's to write.
func (r *repairer) bringMasterBack(f Finding) remedy {
	ref, m := r.ours(f)
	if m.left != "" {
		return m
	}
	if n, ok := r.winner(ref.Key.Labels); ok {
		return r.pointAt(ref.Key, n)
	}
	n := numberOf(ref)
	if r.unreadable[n] != "" {
		return leave("The master is there and cannot be read: it is repaired as LABELS-MALFORMED.")
	}
	if r.campaigned() {
		return leave("An operator leads or campaigns: it writes the master back within seconds.")
	}
	refs := r.naming(n)
	for _, other := range refs {
		if other.Key.Labels != ref.Key.Labels {
			return leave("References of several label sets name the number %d: let their holders allocate again.", n)
		}
	}
	return r.writeMaster(n, ref.Key.Labels, refs)
}
