// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/kvstore"
)

// Bytes is a key or a value as the store holds it. As text it stands for
// itself when it is UTF-8; else it is base64 behind "base64:", so that nothing
// is lost on the way through a file.
type Bytes string

const base64Mark = "base64:"

// MarshalText implements encoding.TextMarshaler.
func (b Bytes) MarshalText() ([]byte, error) {
	if utf8.ValidString(string(b)) && !strings.HasPrefix(string(b), base64Mark) {
		return []byte(b), nil
	}
	return []byte(base64Mark + base64.StdEncoding.EncodeToString([]byte(b))), nil
}

// UnmarshalText implements encoding.TextUnmarshaler: the inverse of MarshalText.
func (b *Bytes) UnmarshalText(text []byte) error {
	coded, ok := strings.CutPrefix(string(text), base64Mark)
	if !ok {
		*b = Bytes(text)
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(coded)
	if err != nil {
		return fmt.Errorf("%q is no base64: %w", text, err)
	}
	*b = Bytes(data)
	return nil
}

// Guard is one condition of a Step: the key's mod revision is Revision, 0 for
// absent. With Prefix no key begins with Key.
type Guard struct {
	Key      Bytes `json:"key"`
	Prefix   bool  `json:"prefix,omitempty"`
	Revision int64 `json:"mod_revision"`
}

// Write is one change of a Step: Value is put without a lease, nil deletes.
type Write struct {
	Key   Bytes  `json:"key"`
	Value *Bytes `json:"value"`
	// Was is what stood there; nil: nothing.
	Was *Bytes `json:"was"`
}

// Step is one repair: its guards hold and all its writes happen, in one
// transaction, or nothing does. Each key that it writes is guarded.
type Step struct {
	Code   Code    `json:"code"`
	Object Bytes   `json:"object"` // the finding's
	Why    string  `json:"why"`
	Guards []Guard `json:"guards"`
	Writes []Write `json:"writes"`
}

// Left is a finding that no step of the plan repairs, and why.
type Left struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Object   Bytes    `json:"object"`
	Why      string   `json:"why"`
}

// PlanFormat is the version of a plan's form.
const PlanFormat = 1

// Plan is what would be done about the findings of one content. It can be
// saved as JSON, reviewed, and applied later: a step whose ground has changed
// meanwhile does nothing.
type Plan struct {
	Format     int    `json:"format"`
	Cluster    string `json:"cluster"`
	BasePrefix string `json:"base_prefix"`
	// Position is where the store stood. A store that does not continue it
	// (another one, or one that was restored) refuses the plan.
	Position allocator.Position `json:"position"`
	Steps    []Step             `json:"steps"`
	Left     []Left             `json:"left"`
}

// NewPlan judges a content as Store does and plans the repairs. With codes it
// looks at findings of these alone, and includes repairs that take something
// which could still be needed; without, only repairs that cannot do harm. It
// is a pure function.
//
// No two steps of a plan touch what the other one writes: where one waits for
// another, its finding is left for the next plan.
func NewPlan(kvs []kvstore.KV, revision int64, o Options, codes ...Code) Plan {
	r := newRepairer(kvs, revision, o, codes)
	for _, f := range slices.Backward(r.report().Findings) { // the worst first: it may settle others
		if len(codes) == 0 || slices.Contains(codes, f.Code) {
			r.plan(f)
		}
	}
	return Plan{Format: PlanFormat, Cluster: o.Layout.Cluster(), BasePrefix: o.Layout.Base(),
		Position: FactsOf(kvs, o.Layout).Position(revision), Steps: r.steps, Left: r.left}
}

// PlanError is a plan that must not be applied here.
type PlanError struct{ Reason string }

// Error implements error.
func (e *PlanError) Error() string { return "the plan cannot be applied: " + e.Reason }

// Check refuses a plan that is of another form or cluster, or that writes what
// no repair does: a key outside the cluster's tables, one that it does not
// guard, or a record that makes a store this store. The error is a *PlanError.
func (p Plan) Check(l kvstore.Layout) error {
	if p.Format != PlanFormat {
		return &PlanError{Reason: fmt.Sprintf("its format is %d, this version knows %d", p.Format, PlanFormat)}
	}
	if p.Cluster != l.Cluster() || p.BasePrefix != l.Base() {
		return &PlanError{Reason: fmt.Sprintf("it is for cluster %q under %q, not for %q under %q", p.Cluster, p.BasePrefix, l.Cluster(), l.Base())}
	}
	prefixes := Prefixes(l)
	for _, s := range p.Steps {
		if len(s.Writes) == 0 {
			return &PlanError{Reason: fmt.Sprintf("a step for %s writes nothing", s.Code)}
		}
		for _, w := range s.Writes {
			guarded := slices.ContainsFunc(s.Guards, func(g Guard) bool { return g.Key == w.Key && !g.Prefix })
			k, _ := l.Parse(string(w.Key))
			switch {
			case !covered(prefixes, string(w.Key)) || k.Kind == allocator.KindLineage || k.Kind == allocator.KindRecovery:
				return &PlanError{Reason: fmt.Sprintf("it writes %q, which no repair touches", w.Key)}
			case !guarded:
				return &PlanError{Reason: fmt.Sprintf("it writes %q without comparing how it stands", w.Key)}
			}
		}
	}
	return nil
}

// Serious says whether somebody has to look at one of these.
func Serious(left []Left) bool {
	return slices.ContainsFunc(left, func(l Left) bool { return l.Severity >= Warning })
}
