// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"reflect"

	"github.com/signet-identity/signet/allocator/identity"
)

// Op is one typed operation that the core wants done: its guards hold and all
// its writes happen, in one transaction together with the leader's fence; or
// nothing happens. An Op without writes is a fenced read: it confirms that its
// guards hold at a revision later than its submission.
//
// No two ops in flight touch the same label set or number; the committer sees
// to it that no two transactions in flight touch the same holder or address.
type Op struct {
	ID     uint64
	Verb   Verb
	Guards []Guard
	Writes []Write
}

// Verb says what an Op is for: in metrics, logs and traces.
type Verb string

// The verbs.
const (
	VerbCreate    Verb = "create"    // master and first reference
	VerbReference Verb = "reference" // one more reference
	VerbConfirm   Verb = "confirm"   // fenced read
	VerbRelease   Verb = "release"
	VerbHeal      Verb = "heal" // write back a master that someone deleted
	VerbIdle      Verb = "idle"
	VerbUnidle    Verb = "unidle"
	VerbCollect   Verb = "collect"
	VerbBury      Verb = "bury" // tombstone for a master deleted by someone else
	VerbKnow      Verb = "know" // remember a node that is present
	VerbGone      Verb = "gone"
	VerbBack      Verb = "back"
	VerbForget    Verb = "forget"
	VerbPurge     Verb = "purge" // a gone or leaving node's reference or address
	VerbPublish   Verb = "publish"
	VerbWithdraw  Verb = "withdraw"
	VerbLineage   Verb = "lineage"
	VerbSetting   Verb = "setting"
	VerbRecovery  Verb = "recovery" // opens or closes the recovery window
	VerbAnnounce  Verb = "announce" // rebuilds what a node announced
	VerbRenumber  Verb = "renumber" // moves a label set to another number
)

// GuardKind is the comparison of a Guard.
type GuardKind uint8

// The comparisons that guards use.
const (
	// GuardAbsent: the key does not exist.
	GuardAbsent GuardKind = iota + 1
	// GuardPresent: the key exists.
	GuardPresent
	// GuardRevision: the key's mod revision is Revision.
	GuardRevision
	// GuardValue: the key holds exactly Value.
	GuardValue
	// GuardEmpty: no key lies under the prefix that Key names: KindReference with
	// Labels (all references of a label set), KindLock with Labels, KindNumberLock with Number.
	GuardEmpty
	// GuardNotNewer: no key under the prefix (as for GuardEmpty) has a mod
	// revision above Revision.
	GuardNotNewer
)

// Guard is one condition of an Op.
type Guard struct {
	Kind     GuardKind
	Key      Key
	Revision int64
	Value    Value
}

// Write is one write of an Op: a put without a lease, or a deletion when Value is nil.
type Write struct {
	Key   Key
	Value Value
}

// Holds says whether observed state satisfies the guard. For GuardEmpty
// and GuardNotNewer observed is one key under the prefix, or absent.
func (g Guard) Holds(o Observed) bool {
	switch g.Kind {
	case GuardAbsent, GuardEmpty:
		return o.Record == nil
	case GuardPresent:
		return o.Record != nil
	case GuardRevision:
		return o.Record != nil && o.Record.ModRevision == g.Revision
	case GuardNotNewer:
		return o.Record == nil || o.Record.ModRevision <= g.Revision
	case GuardValue:
		return o.Record != nil && reflect.DeepEqual(o.Record.Value, g.Value)
	}
	return false
}

// Touched is something that at most one transaction in flight may touch.
type Touched struct {
	Labels string
	Number identity.Number
	Name   string // holder or node
	Kind   Kind   // KindAddress with Name, or a singleton's kind
}

// Touches lists what the op touches: label sets, numbers, holders, addresses, single records.
func (op Op) Touches() []Touched {
	out := make([]Touched, 0, 4)
	for _, g := range op.Guards {
		out = touch(out, g.Key)
	}
	for _, w := range op.Writes {
		out = touch(out, w.Key)
	}
	return out
}

// Keys lists the op's keys, each written one that a guard names only once: what
// a read of all of them costs.
func (op Op) Keys() []Key {
	out := make([]Key, 0, len(op.Guards)+len(op.Writes))
	for _, g := range op.Guards {
		out = append(out, g.Key)
	}
	for _, w := range op.Writes {
		guarded := false
		for _, g := range op.Guards {
			guarded = guarded || g.Key == w.Key
		}
		if !guarded {
			out = append(out, w.Key)
		}
	}
	return out
}

func touch(out []Touched, k Key) []Touched {
	switch k.Kind {
	case KindMaster, KindIdle, KindTombstone, KindNumberLock:
		return add(out, Touched{Number: k.Number})
	case KindReference:
		out = add(out, Touched{Labels: k.Labels})
		if k.Name != "" {
			out = add(out, Touched{Name: k.Name})
		}
		return out
	case KindLock:
		return add(out, Touched{Labels: k.Labels})
	case KindPresence, KindGone, KindKnown:
		return add(out, Touched{Name: k.Name})
	case KindAddress:
		return add(out, Touched{Kind: KindAddress, Name: k.Name})
	default:
		return add(out, Touched{Kind: k.Kind, Name: k.Name, Number: k.Number})
	}
}

func add(out []Touched, t Touched) []Touched {
	for _, have := range out {
		if have == t {
			return out
		}
	}
	return append(out, t)
}

// OutcomeKind is what became of an Op.
type OutcomeKind uint8

// The outcomes. An outcome that nobody saw is first Unknown to the committer,
// which writes a barrier, reads, and only then reports Settled.
const (
	// Committed: the op's guards held and its writes happened at Revision.
	Committed OutcomeKind = iota + 1
	// Refused: a guard of this op did not hold; nothing was written. Observed
	// says how the op's keys stood at Revision.
	Refused
	// Settled: the answer was lost; after a barrier the op's keys were read as
	// Observed at Revision. The op can no longer land. Whether it had landed
	// shows in Observed alone.
	Settled
	// Abandoned: the term ended before the outcome was known. The op may have
	// landed, or may not; it will not be tried again.
	Abandoned
)

// String returns the outcome's word.
func (k OutcomeKind) String() string {
	return [...]string{"", "committed", "refused", "settled", "abandoned"}[k]
}

// Outcome is the committer's report on one Op. Observed names every key of the
// op's guards and writes unless the kind is Committed or Abandoned.
type Outcome struct {
	Op       uint64
	Kind     OutcomeKind
	Revision int64
	Observed []Observed
}
