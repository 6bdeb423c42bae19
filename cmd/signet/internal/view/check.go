// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strconv"

	"github.com/signet-identity/signet/allocator/check"
)

// Check is the judgement on a store's content.
type Check struct {
	Revision   int64           `json:"revision"`
	Keys       int             `json:"keys"`
	Identities int             `json:"identities"`
	References int             `json:"references"`
	Nodes      int             `json:"nodes"`
	Addresses  int             `json:"addresses"`
	Items      []check.Finding `json:"items"` // worst last
}

// NewCheck makes the view of a report.
func NewCheck(r check.Report) Check {
	c := Check{Revision: r.Revision, Keys: r.Keys, Identities: r.Identities, References: r.References,
		Nodes: r.Nodes, Addresses: r.Addresses, Items: r.Findings}
	if c.Items == nil {
		c.Items = []check.Finding{}
	}
	return c
}

// Table shows what was looked at, and then each finding.
func (c Check) Table() Table {
	t := Table{Heading: []string{"SEVERITY", "CODE", "INVARIANT", "OBJECT", "TEXT", "ACTION"}}
	for _, f := range c.Items {
		t.Rows = append(t.Rows, []string{f.Severity.String(), string(f.Code), string(f.Invariant), strconv.Quote(f.Object), f.Text, f.Action})
	}
	t.Empty = fmt.Sprintf("nothing found: revision %d, %d keys, %d identities, %d references, %d nodes, %d addresses",
		c.Revision, c.Keys, c.Identities, c.References, c.Nodes, c.Addresses)
	return t
}
