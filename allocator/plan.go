// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"time"
)

// SweepCandidate is something that waits to be collected.
type SweepCandidate struct {
	Kind       string // identity, node or quarantine
	Object     string // the number, or the node's name
	Labels     string // of an identity or a freed number
	Since      Time
	DueIn      time.Duration // served time until its grace is over; 0: it is
	References int           // of a node
	Addresses  int
	Why        string // why it is or is not collected, in one sentence
}

// SweepPlan is what waits to be collected, and what stops it.
type SweepPlan struct {
	Candidates []SweepCandidate
	Brake      string // why something is held back; empty: nothing is
	Paused     *Pause
	Served     time.Duration
}

// Plan is the leader's plan of the collection. The error is an *Error with code
// Unavailable when this core does not lead.
func (c *Core) Plan(limit int) (SweepPlan, error) {
	if !c.Serving() {
		return SweepPlan{}, c.notServing()
	}
	s := c.SweepState()
	return SweepPlan{Candidates: c.Candidates(limit), Brake: s.Brake, Paused: s.Paused, Served: s.Served}, nil
}

// Candidates lists what waits to be collected, and why it is or is not: gone
// nodes, idle identities, and the freed numbers that the reuse waits for. At
// most limit of each kind.
func (c *Core) Candidates(limit int) []SweepCandidate {
	if !c.Serving() {
		return nil
	}
	out := c.goneCandidates(limit)
	count := 0
	for _, n := range sortedKeys(c.t.idle) {
		m := c.t.masters[n]
		if m == nil {
			continue
		}
		if count++; count > limit {
			break
		}
		i := c.t.idle[n]
		k := SweepCandidate{Kind: "identity", Object: n.String(), Labels: m.text, Since: i.since, DueIn: c.dueIn(i.since, c.identityGrace())}
		k.Why = c.whyIdentity(m, i, k.DueIn)
		out = append(out, k)
	}
	return append(out, c.quarantineCandidate()...)
}

func (c *Core) goneCandidates(limit int) []SweepCandidate {
	var out []SweepCandidate
	for _, name := range sortedKeys(c.t.nodes) {
		n := c.t.nodes[name]
		if n.gone.mod == 0 || len(out) == limit {
			continue
		}
		k := SweepCandidate{Kind: "node", Object: name, Since: n.gone.since, DueIn: c.dueIn(n.gone.since, c.cfg.NodeGrace),
			References: len(n.refs), Addresses: len(n.addrs)}
		switch {
		case n.present():
			k.Why = "its presence is back: the gone mark is being cancelled"
		case k.References+k.Addresses == 0:
			k.Why = fmt.Sprintf("it holds nothing any more; it is forgotten %s after the mark, and its acknowledgement is waited for until then", c.cfg.ForgetAfter)
		case k.DueIn > 0:
			k.Why = "its node grace runs; its presence coming back cancels it"
		case !c.absentLong(n):
			k.Why = "this leader has not yet seen it absent for two presence TTLs"
		case c.holdsNode(n) != "":
			k.Why = "held back: " + c.holdsNode(n)
		default:
			k.Why = "what it holds is being removed"
		}
		out = append(out, k)
	}
	return out
}

func (c *Core) whyIdentity(m *master, i mark, dueIn time.Duration) string {
	s := c.t.sets[m.text]
	switch {
	case m.lease != 0:
		return "its master has a lease: another allocator's, never collected here"
	case s != nil && s.referenced(m.number):
		return "it is in use again: the idle mark is being cancelled"
	case dueIn > 0:
		return "no reference is left; its identity grace runs, and a new reference cancels it"
	case c.holdsIdentity(i) != "":
		return "held back: " + c.holdsIdentity(i)
	}
	return "no reference is left and its grace is over: it is being freed"
}

// quarantineCandidate is the number that was freed longest ago, with what its
// reuse for other labels waits for.
func (c *Core) quarantineCandidate() []SweepCandidate {
	n, tb := c.t.oldestFreed()
	if tb == nil {
		return nil
	}
	k := SweepCandidate{Kind: "quarantine", Object: n.String(), Labels: tb.Labels, Since: tb.Freed, DueIn: c.dueIn(tb.Freed, c.leastQuarantine())}
	blockers := c.Blockers()
	switch {
	case c.reusable(tb, c.acknowledged()):
		k.Why = "it may go to other labels once no never-used number is left"
	case k.DueIn > 0:
		k.Why = "its quarantine runs; its own labels may have it back at once"
	case len(blockers) > 0:
		k.Why = fmt.Sprintf("%d nodes have not acknowledged its removal, the first is %s", len(blockers), blockers[0].Node)
	default:
		k.Why = "its removal is not acknowledged yet"
	}
	return []SweepCandidate{k}
}

// dueIn is the served time until a grace is over.
func (c *Core) dueIn(since Time, grace time.Duration) time.Duration {
	l, _ := c.lineage()
	return max(0, grace-time.Duration(max(0, l.ServedS-since.ServedS))*time.Second)
}

// overdue is for how long, in served time, the oldest candidate that nothing
// holds back has been due.
func (c *Core) overdue() time.Duration {
	l, _ := c.lineage()
	var most time.Duration
	note := func(since Time, grace time.Duration) {
		most = max(most, time.Duration(l.ServedS-since.ServedS)*time.Second-grace)
	}
	for n, i := range c.t.idle {
		if m := c.t.masters[n]; m != nil && m.lease == 0 && c.cfg.Space.Contains(n) && c.holdsIdentity(i) == "" {
			note(i.since, c.cfg.IdentityGrace)
		}
	}
	for _, n := range c.t.nodes {
		if n.gone.mod != 0 && len(n.refs)+len(n.addrs) > 0 && c.holdsNode(n) == "" {
			note(n.gone.since, c.cfg.NodeGrace)
		}
	}
	return most
}
