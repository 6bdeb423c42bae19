// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/signet-identity/signet/allocator"
)

// Severity orders findings.
type Severity uint8

// The severities, mildest first.
const (
	// Info: worth knowing; nothing is wrong, or Signet mends it by itself.
	Info Severity = iota + 1
	// Warning: somebody should look; no invariant is broken.
	Warning
	// Error: an invariant is broken, or data cannot be read.
	Error
)

var severityNames = [...]string{"", "info", "warning", "error"}

// String is the severity as JSON and tables show it; "" for none.
func (s Severity) String() string {
	if int(s) < len(severityNames) {
		return severityNames[s]
	}
	return fmt.Sprintf("severity-%d", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler: the inverse of MarshalText.
func (s *Severity) UnmarshalText(text []byte) error {
	i := slices.Index(severityNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("severity %q is unknown", text)
	}
	*s = Severity(i)
	return nil
}

// Finding is one thing that is not as it should be.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	// Invariant is the promise that the finding speaks of; "" for none.
	Invariant allocator.Invariant `json:"invariant,omitempty"`
	// Object is what is at fault: a key as it is stored, or for a finding
	// about a whole node or holder its name.
	Object string `json:"object"`
	// Text says what is wrong, in one sentence.
	Text string `json:"text"`
	// Action says what to do about it.
	Action string `json:"action"`
}

// Report is the judgement on a store's content at one revision.
type Report struct {
	Revision   int64 `json:"revision"`
	Keys       int   `json:"keys"`       // keys under Prefixes
	Identities int   `json:"identities"` // masters that can be read
	References int   `json:"references"` // references that can be read
	Nodes      int   `json:"nodes"`      // presences
	Addresses  int   `json:"addresses"`  // pairs that can be read
	// Findings are sorted by severity (worst last), code, object and text.
	Findings []Finding `json:"findings"`
}

// Worst is the severity of the worst finding; 0 when there is none.
func (r Report) Worst() Severity {
	if len(r.Findings) == 0 {
		return 0
	}
	return r.Findings[len(r.Findings)-1].Severity
}

// Count is how many findings have a severity.
func (r Report) Count(s Severity) int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

func sortFindings(fs []Finding) {
	slices.SortFunc(fs, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Object, b.Object), cmp.Compare(a.Text, b.Text))
	})
}
