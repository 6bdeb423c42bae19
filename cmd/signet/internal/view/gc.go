// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strconv"

	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// Plan is what waits to be collected.
type Plan struct {
	Items       []PlanItem `json:"items"`
	Brake       string     `json:"brake"` // why something is held back; empty: nothing is
	Paused      bool       `json:"paused"`
	PausedBy    string     `json:"paused_by,omitempty"`
	PauseReason string     `json:"pause_reason,omitempty"`
	ServedS     int64      `json:"served_s"`
}

// PlanItem is one candidate.
type PlanItem struct {
	Kind       string `json:"kind"` // node, identity or quarantine
	Object     string `json:"object"`
	Text       string `json:"text,omitempty"`
	SinceS     int64  `json:"since_served_s"`
	DueInS     int64  `json:"due_in_s"`
	References uint32 `json:"references,omitempty"`
	Addresses  uint32 `json:"addresses,omitempty"`
	Why        string `json:"why"`
}

// NewPlan makes the view of a plan.
func NewPlan(r *signetv1.GCResponse) Plan {
	p := Plan{Items: []PlanItem{}, Brake: r.GetBrake(), Paused: r.GetPaused(), PausedBy: r.GetPausedBy(),
		PauseReason: r.GetPauseReason(), ServedS: r.GetServedS()}
	for _, k := range r.GetItems() {
		p.Items = append(p.Items, PlanItem{Kind: k.GetKind(), Object: k.GetObject(), Text: k.GetText(), SinceS: k.GetSince().GetServedS(),
			DueInS: k.GetDueInS(), References: k.GetReferences(), Addresses: k.GetAddresses(), Why: k.GetWhy()})
	}
	return p
}

// Table shows the candidates, and last what stops the collection.
func (p Plan) Table() Table {
	t := Table{Heading: []string{"KIND", "OBJECT", "DUE IN", "REFERENCES", "ADDRESSES", "WHY", "LABELS"}}
	for _, k := range p.Items {
		t.Rows = append(t.Rows, []string{k.Kind, k.Object, strconv.FormatInt(k.DueInS, 10) + "s",
			strconv.FormatUint(uint64(k.References), 10), strconv.FormatUint(uint64(k.Addresses), 10), k.Why, k.Text})
	}
	if p.Brake != "" {
		t.Rows = append(t.Rows, []string{"brake", "-", "-", "-", "-", p.Brake, ""})
	}
	t.Empty = "nothing waits to be collected"
	return t
}
