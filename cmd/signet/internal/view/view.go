// SPDX-License-Identifier: Apache-2.0

// Package view is how the command line shows things: the JSON fields that
// scripts rely on, and tables for people. Enumerations are in lower case and
// whole numbers are numbers.
package view

import (
	"cmp"
	"slices"
	"strings"

	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// List is how every list looks.
type List[T any] struct {
	Items []T `json:"items"`
}

// NewList makes a list that is never null.
func NewList[P, T any](in []P, make func(P) T) List[T] {
	out := List[T]{Items: []T{}}
	for _, item := range in {
		out.Items = append(out.Items, make(item))
	}
	return out
}

// Position says how far a view of the store goes.
type Position struct {
	Nonce    string `json:"nonce"`
	Counter  uint64 `json:"counter"`
	Revision int64  `json:"revision"`
}

func position(p *signetv1.Position) Position {
	return Position{Nonce: p.GetNonce(), Counter: p.GetCounter(), Revision: p.GetRevision()}
}

// Time is a moment as the store tells it; null where there is none.
type Time struct {
	Revision int64 `json:"revision"`
	ServedS  int64 `json:"served_s"`
}

func moment(t *signetv1.Time) *Time {
	if t.GetRevision() == 0 && t.GetServedS() == 0 {
		return nil
	}
	return &Time{Revision: t.GetRevision(), ServedS: t.GetServedS()}
}

// Holder is one reference.
type Holder struct {
	Holder string `json:"holder"`
	Hold   int64  `json:"hold"`
}

// Identity is a number with its label set.
type Identity struct {
	Number         uint32   `json:"number"`
	Labels         []string `json:"labels"`
	Text           string   `json:"text"`
	Cluster        string   `json:"cluster"`
	Scope          string   `json:"scope"` // cluster, reserved, remote or node
	State          string   `json:"state"` // live, idle, quarantined or free
	Holders        []Holder `json:"holders"`
	CreateRevision int64    `json:"create_revision"`
	Revision       int64    `json:"revision"`
	Lineage        Position `json:"lineage"`
}

// NewIdentity makes the view of an identity.
func NewIdentity(i *signetv1.Identity) Identity {
	out := Identity{Number: i.GetNumber(), Labels: list(i.GetLabels()), Text: i.GetText(), Cluster: i.GetCluster(),
		Scope: enum(i.GetScope().String(), "SCOPE_"), State: enum(i.GetState().String(), "STATE_"), Holders: []Holder{},
		CreateRevision: i.GetCreateRevision(), Revision: i.GetRevision(), Lineage: position(i.GetLineage())}
	for _, h := range i.GetHolders() {
		out.Holders = append(out.Holders, Holder{Holder: h.GetHolder(), Hold: h.GetHold()})
	}
	slices.SortFunc(out.Holders, func(a, b Holder) int { return cmp.Compare(a.Holder, b.Holder) })
	return out
}

// enum is a protobuf enumeration's name as people write it; unspecified is "".
func enum(name, prefix string) string {
	name = strings.ToLower(strings.TrimPrefix(name, prefix))
	if name == "unspecified" {
		return ""
	}
	return name
}

// list is never null.
func list(in []string) []string {
	if in == nil {
		return []string{}
	}
	return in
}

// Allocation is an identity with the caller's hold on it.
type Allocation struct {
	Identity
	Holder  string `json:"holder"`
	Hold    int64  `json:"hold"`
	Created bool   `json:"created"`
}

// Released says whether a reference was given back.
type Released struct {
	Released bool     `json:"released"`
	Holder   string   `json:"holder"`
	Labels   []string `json:"labels"`
}

// Event is one step of a watch.
type Event struct {
	Event string `json:"event"` // reset, upsert, delete or current
	*Identity
	// At is what the event brings the view to.
	At Position `json:"at"`
}

// NewEvent makes the view of a watch event.
func NewEvent(e *signetv1.WatchIdentitiesResponse) Event {
	out := Event{Event: enum(e.GetKind().String(), "KIND_"), At: position(e.GetLineage())}
	if e.GetIdentity() != nil {
		i := NewIdentity(e.GetIdentity())
		out.Identity = &i
	}
	return out
}

// Explanation is an identity's story.
type Explanation struct {
	Identity  Identity  `json:"identity"`
	Born      *Time     `json:"born"`
	Freed     *Time     `json:"freed"`
	IdleSince *Time     `json:"idle_since"`
	Story     []string  `json:"story"`
	Findings  []Finding `json:"findings"`
}

// NewExplanation makes the view of an explanation.
func NewExplanation(e *signetv1.ExplainIdentityResponse) Explanation {
	return Explanation{Identity: NewIdentity(e.GetIdentity()), Born: moment(e.GetBorn()), Freed: moment(e.GetFreed()),
		IdleSince: moment(e.GetIdleSince()), Story: list(e.GetStory()), Findings: NewFindings(e.GetFindings())}
}

// Endpoint is something with addresses and labels on a node.
type Endpoint struct {
	ID        string   `json:"id"`
	Addresses []string `json:"addresses"`
	Labels    []string `json:"labels"`
	Number    uint32   `json:"number"`
	Node      string   `json:"node"`
	State     string   `json:"state"` // waiting-for-identity, waiting-to-publish, ready or failed
	Reason    string   `json:"reason,omitempty"`
}

// NewEndpoint makes the view of an endpoint.
func NewEndpoint(e *signetv1.Endpoint) Endpoint {
	return Endpoint{ID: e.GetId(), Addresses: list(e.GetAddresses()), Labels: list(e.GetLabels()), Number: e.GetNumber(),
		Node: e.GetNode(), State: e.GetState(), Reason: e.GetReason()}
}

// Deleted says whether there was something to delete.
type Deleted struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

// IPCacheEntry is one address of a node's map.
type IPCacheEntry struct {
	Address string   `json:"address"`
	Row     uint32   `json:"row"`
	Number  uint32   `json:"number"`
	Labels  []string `json:"labels"`
	Dead    bool     `json:"dead"`
}

// NewIPCacheEntry makes the view of an address.
func NewIPCacheEntry(e *signetv1.IPCacheEntry) IPCacheEntry {
	return IPCacheEntry{Address: e.GetAddress(), Row: e.GetRow(), Number: e.GetNumber(), Labels: list(e.GetLabels()), Dead: e.GetDead()}
}

// Finding is one thing that is not as it should be.
type Finding struct {
	Code     string `json:"code"`
	Severity string `json:"severity"` // info, warning or error
	Object   string `json:"object"`
	Text     string `json:"text"`
	Action   string `json:"action"`
}

// NewFinding makes the view of a finding.
func NewFinding(f *signetv1.Finding) Finding {
	return Finding{Code: f.GetCode(), Severity: enum(f.GetSeverity().String(), "SEVERITY_"), Object: f.GetObject(), Text: f.GetText(), Action: f.GetAction()}
}

// NewFindings makes the view of findings, worst last.
func NewFindings(fs []*signetv1.Finding) []Finding {
	sorted := slices.Clone(fs)
	slices.SortStableFunc(sorted, func(a, b *signetv1.Finding) int { return cmp.Compare(a.GetSeverity(), b.GetSeverity()) })
	return NewList(sorted, NewFinding).Items
}

// Node is a node that is present or gone.
type Node struct {
	Name         string   `json:"name"`
	State        string   `json:"state"` // present or gone
	Addresses    []string `json:"addresses"`
	Version      string   `json:"version"`
	Instance     string   `json:"instance"`
	References   uint32   `json:"references"`
	Published    uint32   `json:"published"`
	GoneSince    *Time    `json:"gone_since"`
	Acknowledged Position `json:"acknowledged"`
}

// NewNode makes the view of a node.
func NewNode(n *signetv1.Node) Node {
	return Node{Name: n.GetName(), State: n.GetState(), Addresses: list(n.GetAddresses()), Version: n.GetVersion(), Instance: n.GetInstance(),
		References: n.GetReferences(), Published: n.GetPublished(), GoneSince: moment(n.GetGoneSince()), Acknowledged: position(n.GetAcknowledged())}
}
