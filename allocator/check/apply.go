// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/signet-identity/signet/kvstore"
)

// Fate is what became of a step.
type Fate string

// The fates.
const (
	// Done: its writes happened, all of them.
	Done Fate = "done"
	// Changed: the store has changed since the plan was made; nothing was written.
	Changed Fate = "changed"
	// Unknown: no answer came. The step may have happened or may still happen,
	// if nothing it compares changes before.
	Unknown Fate = "unknown"
	// Failed: the store refused it; nothing was written.
	Failed Fate = "failed"
)

// Result is what became of one step.
type Result struct {
	Step
	Fate     Fate   `json:"fate"`
	Revision int64  `json:"revision"` // of the writes; 0: none are known
	Detail   string `json:"detail,omitempty"`
}

// applyTries is how often a step without an answer is sent.
const applyTries = 3

// Apply does a plan's steps, each in a transaction of its own that compares
// everything that the step was planned from. It needs no leadership: a step
// can destroy nothing that changed since, whoever changed it, and a leader sees
// it as it sees any foreign writer. Apply first refuses a plan that is not for
// this store: *PlanError. Other errors are those of reading the store; what
// happens to single steps stands in the results, also when ctx ends.
func Apply(ctx context.Context, s kvstore.Store, l kvstore.Layout, p Plan) ([]Result, error) {
	if err := p.Check(l); err != nil {
		return nil, err
	}
	kvs, _, err := kvstore.ListAll(ctx, s, l.Own(), kvstore.PrefixEnd(l.Own()), 0, 0)
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	if !FactsOf(kvs, l).Continues(p.Position) {
		return nil, &PlanError{Reason: "it was made for another store, or before this one was restored; make a new one"}
	}
	out := make([]Result, 0, len(p.Steps))
	for _, step := range p.Steps {
		out = append(out, applyStep(ctx, s, step))
	}
	return out, nil
}

// applyStep sends one step. It may be sent again when no answer came: it
// compares the keys that it writes, so it cannot happen twice.
func applyStep(ctx context.Context, s kvstore.Store, step Step) Result {
	out := Result{Step: step}
	txn := step.txn()
	for range applyTries {
		r, err := s.Txn(ctx, txn)
		switch {
		case errors.Is(err, kvstore.ErrUnknownOutcome):
			out.Fate, out.Detail = Unknown, err.Error()
			continue
		case err != nil && out.Fate != Unknown:
			out.Fate, out.Detail = Failed, err.Error()
		case err != nil:
		case r.Succeeded:
			out.Fate, out.Revision, out.Detail = Done, r.Revision, ""
		case out.Fate == Unknown && step.landed(r.Reads):
			out.Fate, out.Detail = Done, ""
		default:
			out.Fate, out.Detail = Changed, step.explain(r.Reads)
		}
		return out
	}
	return out
}

// txn is the step in etcd's form. Else reads what If compares, in that order.
func (s Step) txn() kvstore.Txn {
	var t kvstore.Txn
	for _, g := range s.Guards {
		key, end := string(g.Key), ""
		if g.Prefix {
			end = kvstore.PrefixEnd(key)
		}
		c := kvstore.Compare{Key: key, RangeEnd: end, Target: kvstore.CompareMod, Op: '=', Revision: g.Revision}
		read := kvstore.Action{Key: key, RangeEnd: end}
		if g.Prefix {
			c.Target, c.Revision, read.Limit = kvstore.CompareCreate, 0, 1
		}
		t.If, t.Else = append(t.If, c), append(t.Else, read)
	}
	for _, w := range s.Writes {
		if w.Value == nil {
			t.Then = append(t.Then, kvstore.Action{Delete: true, Key: string(w.Key)})
			continue
		}
		t.Then = append(t.Then, kvstore.Action{Put: true, Key: string(w.Key), Value: []byte(*w.Value)})
	}
	return t
}

// landed says whether the store stands as the step leaves it.
func (s Step) landed(reads [][]kvstore.KV) bool {
	have := map[Bytes]*Bytes{}
	for i, g := range s.Guards {
		if len(reads[i]) > 0 && !g.Prefix {
			v := Bytes(reads[i][0].Value)
			have[g.Key] = &v
		}
	}
	for _, w := range s.Writes {
		v := have[w.Key]
		if (v == nil) != (w.Value == nil) || v != nil && *v != *w.Value {
			return false
		}
	}
	return true
}

// explain says what is not as the plan has it.
func (s Step) explain(reads [][]kvstore.KV) string {
	var out []string
	for i, g := range s.Guards {
		var mod int64
		if len(reads[i]) > 0 {
			mod = reads[i][0].ModRevision
		}
		switch {
		case mod == g.Revision:
		case g.Prefix:
			out = append(out, fmt.Sprintf("%q is there", reads[i][0].Key))
		case mod == 0:
			out = append(out, fmt.Sprintf("%q is gone", g.Key))
		case g.Revision == 0:
			out = append(out, fmt.Sprintf("%q is there since revision %d", g.Key, mod))
		default:
			out = append(out, fmt.Sprintf("%q was written at revision %d, after the plan saw it at %d", g.Key, mod, g.Revision))
		}
	}
	return strings.Join(out, "; ")
}
