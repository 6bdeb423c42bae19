// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

func number(n uint32) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(uint64(n), 10)
}

func words(parts []string) string {
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, " ")
}

// holders names the first few and counts the rest.
func (i Identity) holders() string {
	const most = 2
	var names []string
	for _, h := range i.Holders[:min(most, len(i.Holders))] {
		names = append(names, h.Holder)
	}
	if left := len(i.Holders) - most; left > 0 {
		names = append(names, fmt.Sprintf("+%d", left))
	}
	return words(names)
}

// IdentityTable shows identities.
func IdentityTable(items ...Identity) Table {
	t := Table{Heading: []string{"NUMBER", "STATE", "SCOPE", "HOLDERS", headingLabels}, Empty: "no identities"}
	for _, i := range items {
		t.Rows = append(t.Rows, []string{number(i.Number), i.State, i.Scope, i.holders(), words(i.Labels)})
	}
	return t
}

// Table shows an allocation.
func (a Allocation) Table() Table {
	return Table{Heading: []string{"NUMBER", "NEW", "HOLDER", "HOLD", headingLabels},
		Rows: [][]string{{number(a.Number), yes(a.Created), a.Holder, strconv.FormatInt(a.Hold, 10), words(a.Labels)}}}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// EndpointTable shows endpoints.
func EndpointTable(items ...Endpoint) Table {
	t := Table{Heading: []string{"ID", "NUMBER", "ADDRESSES", "STATE", headingLabels}, Empty: "no endpoints"}
	for _, e := range items {
		state := e.State
		if e.Reason != "" {
			state += " (" + e.Reason + ")"
		}
		t.Rows = append(t.Rows, []string{e.ID, number(e.Number), words(e.Addresses), state, words(e.Labels)})
	}
	return t
}

// IPCacheTable shows the addresses of a node's map; raw leaves the labels out.
func IPCacheTable(raw bool, items ...IPCacheEntry) Table {
	t := Table{Heading: []string{"ADDRESS", "ROW", "NUMBER", "DEAD", headingLabels}, Empty: "no addresses"}
	if raw {
		t.Heading = t.Heading[:4]
	}
	for _, e := range items {
		row := []string{e.Address, strconv.FormatUint(uint64(e.Row), 10), number(e.Number), yes(e.Dead), words(e.Labels)}
		t.Rows = append(t.Rows, row[:len(t.Heading)])
	}
	return t
}

// NodeTable shows nodes. served is the served time now, in seconds; 0: not known.
func NodeTable(served int64, items ...Node) Table {
	t := Table{Heading: []string{"NAME", "STATE", "GONE SINCE", "REFERENCES", "PUBLISHED", "VERSION", "ADDRESSES"}, Empty: "no nodes"}
	for _, n := range items {
		since := "-"
		if n.GoneSince != nil {
			since = servedAge(n.GoneSince.ServedS, served)
		}
		t.Rows = append(t.Rows, []string{n.Name, n.State, since, strconv.FormatUint(uint64(n.References), 10),
			strconv.FormatUint(uint64(n.Published), 10), n.Version, words(n.Addresses)})
	}
	return t
}

// servedAge is how long ago a moment was, in the only time that counts for
// graces: seconds during which an operator led.
func servedAge(then, now int64) string {
	if now < then || now == 0 {
		return fmt.Sprintf("served second %d", then)
	}
	return seconds(now-then) + " ago (served)"
}

// Table tells the story.
func (e Explanation) Table() Table {
	t := IdentityTable(e.Identity)
	var out Table
	for i, cell := range t.Rows[0] {
		out.Rows = append(out.Rows, []string{strings.ToLower(t.Heading[i]), cell})
	}
	for i, line := range e.Story {
		name := ""
		if i == 0 {
			name = "story"
		}
		out.Rows = append(out.Rows, []string{name, line})
	}
	for _, f := range e.Findings {
		out.Rows = append(out.Rows, []string{"finding", f.Line()})
	}
	return out
}

// Line is a finding on one line.
func (f Finding) Line() string {
	s := fmt.Sprintf("%s %s %s: %s", f.Severity, f.Code, f.Object, f.Text)
	if f.Action != "" {
		s += "; " + f.Action
	}
	return s
}

// Table is how the collection stands.
func (s Sweep) Table() Table {
	n := func(v uint64) string { return strconv.FormatUint(v, 10) }
	return Table{Rows: [][]string{
		{"last sweep", ageOf(s.LastSuccessMS)},
		{"served time", (time.Duration(s.ServedS) * time.Second).String()},
		{"nodes marked gone", n(s.NodesMarkedGone) + ", waiting " + n(s.GoneWaiting) + " (node grace " + seconds(s.NodeGraceS) + ")"},
		{"references removed", n(s.PurgedReferences)},
		{"addresses removed", n(s.PurgedAddresses)},
		{"identities marked idle", n(s.MarkedIdle) + ", waiting " + n(s.IdleWaiting) + " (identity grace " + seconds(s.IdentityGraceS) + ")"},
		{"identities freed", n(s.Collected) + " (quarantine " + seconds(s.QuarantineS) + ")"},
	}}
}

// Table is how the collection stands, and whose counts they are.
func (g GC) Table() Table {
	t := g.Sweep.Table()
	t.Rows = append([][]string{{"counted by", g.Replica + ", " + g.Role}}, t.Rows...)
	return t
}

func seconds(s int64) string { return (time.Duration(s) * time.Second).String() }

func ageOf(ms int64) string {
	if ms < 0 {
		return "never"
	}
	return (time.Duration(ms) * time.Millisecond).Round(10*time.Millisecond).String() + " ago"
}

// Table is one screen, worst last.
func (s Status) Table() Table {
	t := Table{}
	add := func(name, format string, args ...any) {
		t.Rows = append(t.Rows, []string{name, fmt.Sprintf(format, args...)})
	}
	if o := s.Operator; o != nil {
		o.rows(add)
	} else {
		add("operator", "none answers")
	}
	if a := s.Agent; a != nil {
		a.rows(add)
	}
	for _, f := range s.Findings {
		add("finding", "%s", f.Line())
	}
	add("state", "%s", s.State)
	return t
}

func (o *Operator) rows(add func(name, format string, args ...any)) {
	c, e, n := o.Cluster, o.Election, o.Numbers
	add("operator", "%s, %s, ready: %s, version %s", o.Replica, e.Role, yes(o.Ready), o.Version)
	add("cluster", "%s, id %d, %d local bits, numbers %d to %d", c.Name, c.ID, c.LocalBits, c.Min, c.Max)
	add("leader", "%s at %s", dash(e.Leader), dash(e.LeaderAddress))
	add("store", "%s, revision %d", words(o.Store.Endpoints), o.Store.Applied)
	add("numbers", "%d live, %d idle, %d quarantined, %d free of %d; %d references", n.Live, n.Idle, n.Quarantined, n.Free, n.Capacity, n.References)
	add("nodes", "%d present, %d gone, %d addresses", o.Nodes.Present, o.Nodes.Gone, o.Nodes.Addresses)
	add("sweep", "last %s, %d freed, %d idle waiting, %d gone waiting", ageOf(o.Sweep.LastSuccessMS), o.Sweep.Collected, o.Sweep.IdleWaiting, o.Sweep.GoneWaiting)
	add("loops", "%s", loopLine(o.Loops))
}

func (a *Agent) rows(add func(name, format string, args ...any)) {
	add("agent", "node %s, ready: %s, %d endpoints, version %s", a.Node, yes(a.Ready), a.Endpoints, a.Version)
	add("datapath", "%s (%s), %d of %d addresses, %d pending", a.Datapath, a.DatapathDetail, a.IPCache.Entries, a.IPCache.Wanted, a.IPCache.Pending)
	add("loops", "%s", loopLine(a.Loops))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func loopLine(ls []Loop) string {
	parts := make([]string, len(ls))
	for i, l := range ls {
		parts[i] = l.Name + " " + ageOf(l.LastSuccessMS)
		if l.Error != "" {
			parts[i] += " (" + l.Error + ")"
		}
	}
	return strings.Join(parts, ", ")
}
