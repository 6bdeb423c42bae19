// SPDX-License-Identifier: Apache-2.0

package labels

import "errors"

// Relevance turns the labels of a workload into the label set of its identity.
// Every source of workloads goes through it, so that all agree on one set for
// one workload. Today it is the filter; what else may decide (such as "only
// labels that policies use") belongs here and nowhere else.
type Relevance struct{ filter Filter }

// NewRelevance makes a relevance of a filter.
func NewRelevance(f Filter) Relevance { return Relevance{filter: f} }

// Filter is the filter in use.
func (r Relevance) Filter() Filter { return r.filter }

// Derive returns the label set of a workload with these labels. The error is
// an *Error: a relevant label that cannot be stored, or no relevant label at all.
// Labels that do not count are never the cause of an error.
func (r Relevance) Derive(ls []Label) (Set, error) {
	s, err := NewSet(r.filter.Apply(ls)...)
	var refused *Error
	if errors.As(err, &refused) && refused.Code == CodeEmptySet && len(ls) > 0 {
		return Set{}, &Error{Code: CodeEmptySet, Reason: "the label filter drops every label of the workload; include one of its keys"}
	}
	return s, err
}

// Decision says what happens to one label of a workload, and why.
type Decision struct {
	Label Label
	Kept  bool
	// Rule is the filter entry that decided, or a sentence when none matches.
	Rule string
}

// Explain gives the decision for each label, in the order of the labels.
func (r Relevance) Explain(ls []Label) []Decision {
	ds := make([]Decision, len(ls))
	for i, l := range ls {
		kept, rule := r.filter.Keep(l)
		ds[i] = Decision{Label: l, Kept: kept, Rule: rule}
	}
	return ds
}
