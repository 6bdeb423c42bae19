// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"fmt"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
)

// What the fence adds to each Work transaction: compares in If, and reads in
// Else beside those of the ops' keys.
const (
	FenceCompares = 2
	FenceReads    = 1
)

// MaxTxnOps is etcd's default limit on the compares of a transaction, and on
// the actions of each of its branches.
const MaxTxnOps = 128

// TxnError is a transaction that cannot be put into etcd's form as it is.
type TxnError struct {
	Op     uint64 // the Op at fault
	Reason string
	Err    error // what Key, Prefix or EncodeValue said; may be nil
}

// Error implements error.
func (e *TxnError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("op %d: %s: %v", e.Op, e.Reason, e.Err)
	}
	return fmt.Sprintf("op %d: %s", e.Op, e.Reason)
}

// Unwrap is the error below.
func (e *TxnError) Unwrap() error { return e.Err }

// Encode puts a committer's transaction into etcd's form. who is the value of
// the own election key; its Barrier field is replaced by the fence's count.
//
//   - Work: If is the fence and then every guard; Then all writes; Else reads
//     the election prefix and then each key that the ops compare or write,
//     once. Without writes Then is empty: etcd serves such a transaction as a
//     linearizable read, and no raft entry is written.
//   - Barrier: If compares the own election key's mod revision, Then rewrites
//     it with the next count, Else reads the election prefix.
//   - Settle: Then reads the keys of the ops.
//
// The same Transaction and who always give the same bytes.
func (l Layout) Encode(t commit.Transaction, who allocator.Candidate) (Txn, error) {
	switch t.Kind {
	case commit.Work:
		return l.encodeWork(t)
	case commit.Barrier:
		return l.encodeBarrier(t.Fence, who)
	case commit.Settle:
		keys, err := l.reads(t.Ops)
		return Txn{Then: keys.actions}, err
	}
	return Txn{}, &TxnError{Reason: fmt.Sprintf("a transaction of kind %d is unknown", t.Kind)}
}

func (l Layout) encodeWork(t commit.Transaction) (Txn, error) {
	txn := Txn{If: l.fence(t.Fence)}
	written := map[string]bool{}
	for _, op := range t.Ops {
		for _, g := range op.Guards {
			c, err := l.compare(g)
			if err != nil {
				return Txn{}, &TxnError{Op: op.ID, Reason: "a guard cannot be written", Err: err}
			}
			txn.If = append(txn.If, c)
		}
		for _, w := range op.Writes {
			a, err := l.write(w)
			if err != nil {
				return Txn{}, &TxnError{Op: op.ID, Reason: "a write cannot be written", Err: err}
			}
			if written[a.Key] {
				return Txn{}, &TxnError{Op: op.ID, Reason: "the transaction writes one key twice: " + w.Key.String(), Err: ErrDuplicateKey}
			}
			written[a.Key] = true
			txn.Then = append(txn.Then, a)
		}
	}
	keys, err := l.reads(t.Ops)
	if err != nil {
		return Txn{}, err
	}
	txn.Else = append([]Action{l.readElection()}, keys.actions...)
	return txn, nil
}

// fence is DESIGN.md I6: the own election key is as the last barrier left it,
// and no candidate is older than the own one.
func (l Layout) fence(f commit.Fence) []Compare {
	return []Compare{
		l.ownUnchanged(f),
		{Key: l.Election(), RangeEnd: PrefixEnd(l.Election()), Target: CompareCreate, Op: '>', Revision: f.Epoch - 1},
	}
}

func (l Layout) ownUnchanged(f commit.Fence) Compare {
	return Compare{Key: l.ElectionKey(f.Lease), Target: CompareMod, Op: '=', Revision: f.Mod}
}

func (l Layout) readElection() Action {
	return Action{Key: l.Election(), RangeEnd: PrefixEnd(l.Election())}
}

func (l Layout) encodeBarrier(f commit.Fence, who allocator.Candidate) (Txn, error) {
	own := allocator.Key{Kind: allocator.KindElection, Name: LeaseName(f.Lease)}
	who.Barrier = f.Count + 1
	value, err := EncodeValue(own, who)
	if err != nil {
		return Txn{}, &TxnError{Reason: "the candidate cannot be written", Err: err}
	}
	return Txn{
		If:   []Compare{l.ownUnchanged(f)},
		Then: []Action{{Put: true, Key: l.ElectionKey(f.Lease), Value: value, Lease: f.Lease}},
		Else: []Action{l.readElection()},
	}, nil
}

func (l Layout) compare(g allocator.Guard) (Compare, error) {
	switch g.Kind {
	case allocator.GuardEmpty:
		prefix, err := l.Prefix(g.Key)
		return Compare{Key: prefix, RangeEnd: PrefixEnd(prefix), Target: CompareCreate, Op: '='}, err
	case allocator.GuardNotNewer:
		prefix, err := l.Prefix(g.Key)
		return Compare{Key: prefix, RangeEnd: PrefixEnd(prefix), Target: CompareMod, Op: '<', Revision: g.Revision + 1}, err
	}
	key, err := l.Key(g.Key)
	if err != nil {
		return Compare{}, err
	}
	switch g.Kind {
	case allocator.GuardAbsent:
		return Compare{Key: key, Target: CompareCreate, Op: '='}, nil
	case allocator.GuardPresent:
		return Compare{Key: key, Target: CompareCreate, Op: '>'}, nil
	case allocator.GuardRevision:
		return Compare{Key: key, Target: CompareMod, Op: '=', Revision: g.Revision}, nil
	case allocator.GuardValue:
		value, err := rawValue(g.Key, g.Value)
		return Compare{Key: key, Target: CompareValue, Op: '=', Value: value}, err
	}
	return Compare{}, &KeyError{Key: g.Key.String(), Reason: fmt.Sprintf("a guard of kind %d is unknown", g.Kind)}
}

func (l Layout) write(w allocator.Write) (Action, error) {
	key, err := l.Key(w.Key)
	if err != nil {
		return Action{}, err
	}
	if w.Value == nil {
		return Action{Delete: true, Key: key}, nil
	}
	value, err := EncodeValue(w.Key, w.Value)
	return Action{Put: true, Key: key, Value: value}, err
}

// subject is what one guard or write is about: a key, or all keys under the
// prefix that the key names.
type subject struct {
	key    allocator.Key
	prefix bool
}

// subjects are those of the op's guards and then of its writes, in order and
// with repetitions.
func subjects(op allocator.Op) []subject {
	out := make([]subject, 0, len(op.Guards)+len(op.Writes))
	for _, g := range op.Guards {
		out = append(out, subject{key: g.Key, prefix: g.Kind == allocator.GuardEmpty || g.Kind == allocator.GuardNotNewer})
	}
	for _, w := range op.Writes {
		out = append(out, subject{key: w.Key})
	}
	return out
}

// read is the action that reads a subject: of a prefix any one key will do.
func (l Layout) read(s subject) (Action, error) {
	if s.prefix {
		prefix, err := l.Prefix(s.key)
		return Action{Key: prefix, RangeEnd: PrefixEnd(prefix), Limit: 1}, err
	}
	key, err := l.Key(s.key)
	return Action{Key: key}, err
}

// keyReads are the reads of the keys of ops, each once, and where in them the
// answer for each guard and write stands.
type keyReads struct {
	actions []Action
	at      map[subject]int
}

// reads lists the keys of ops in the order in which they first occur.
func (l Layout) reads(ops []allocator.Op) (keyReads, error) {
	r := keyReads{at: map[subject]int{}}
	for _, op := range ops {
		for _, s := range subjects(op) {
			if _, known := r.at[s]; known {
				continue
			}
			a, err := l.read(s)
			if err != nil {
				return keyReads{}, &TxnError{Op: op.ID, Reason: "a key cannot be read", Err: err}
			}
			r.at[s] = len(r.actions)
			r.actions = append(r.actions, a)
		}
	}
	return r, nil
}
