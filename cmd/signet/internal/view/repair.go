// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strconv"

	"github.com/signet-identity/signet/allocator/check"
	"github.com/signet-identity/signet/cmd/signet/internal/run"
)

// PlanTable shows what a plan would do. As JSON a plan is shown as it is, so
// that it can be fed back.
func PlanTable(p check.Plan) Table {
	t := Table{Heading: []string{"CODE", "CHANGE", "KEY", "WAS", "BECOMES", "NOTE"}, Empty: "nothing to repair"}
	for _, s := range p.Steps {
		t.Rows = append(t.Rows, stepRows(s, "", s.Why)...)
	}
	return t.left(p.Left)
}

// stepRows shows a step, one row for each write; the note stands in the first.
func stepRows(s check.Step, fate, note string) [][]string {
	var rows [][]string
	for _, w := range s.Writes {
		change := "put"
		if w.Value == nil {
			change = "delete"
		}
		if fate != "" {
			change = fate + ": " + change
		}
		rows = append(rows, []string{string(s.Code), change, quoted(&w.Key), quoted(w.Was), quoted(w.Value), note})
		note = ""
	}
	return rows
}

// quoted shows bytes of the store on one line; base64 where they are no text.
func quoted(b *check.Bytes) string {
	if b == nil {
		return "-"
	}
	text, _ := b.MarshalText() // never fails
	return strconv.Quote(string(text))
}

func (t Table) left(left []check.Left) Table {
	for _, l := range left {
		t.Rows = append(t.Rows, []string{string(l.Code), "left", quoted(&l.Object), "", "", l.Why})
	}
	return t
}

// Repaired is what became of a repair.
type Repaired struct {
	Complete bool           `json:"complete"`
	Results  []check.Result `json:"results"`
	Left     []check.Left   `json:"left"`
	Errors   int            `json:"errors"` // findings that the store has now
	Warnings int            `json:"warnings"`
	Infos    int            `json:"infos"`
}

// NewRepaired makes the view of a repair.
func NewRepaired(r run.Repaired) Repaired {
	out := Repaired{Complete: r.Complete(), Results: r.Results, Left: r.Left,
		Errors: r.After.Count(check.Error), Warnings: r.After.Count(check.Warning), Infos: r.After.Count(check.Info)}
	if out.Left == nil {
		out.Left = []check.Left{}
	}
	return out
}

// Table is for people; what the store holds now comes last.
func (r Repaired) Table() Table {
	t := Table{Heading: []string{"CODE", "CHANGE", "KEY", "WAS", "BECOMES", "NOTE"}}
	for _, x := range r.Results {
		t.Rows = append(t.Rows, stepRows(x.Step, string(x.Fate), x.Detail)...)
	}
	t = t.left(r.Left)
	t.Rows = append(t.Rows, []string{"findings now", fmt.Sprintf("%d errors, %d warnings, %d infos", r.Errors, r.Warnings, r.Infos)})
	return t
}
