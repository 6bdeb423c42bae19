// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The brake's measures. So many may always go at once, so that small clusters
// and ordinary scale-downs pass; above that, at most the share.
const (
	brakeFloorNodes      = 8
	brakeShareNodes      = 20 // per cent of all nodes, present or gone
	brakeFloorIdentities = 1000
	brakeShareIdentities = 50 // per cent of the identities in use or idle
	// provenAfter is after how many graces an absence counts as proven: the brake
	// does not hold it any more.
	provenAfter = 4
)

// brake is why the sweep stopped itself; an empty text means that it did not.
type brake struct {
	nodes, identities string
}

// Pause is the stored wish that nothing be collected (setting "gc").
type Pause struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
	Since  Time   `json:"since"`
}

// pauseKey is where a Pause is stored.
func pauseKey() Key { return Key{Kind: KindSetting, Name: "gc"} }

// paused returns the stored pause, if there is one.
func (c *Core) paused() (Pause, bool) {
	r, ok := c.t.singles[pauseKey()]
	if !ok {
		return Pause{}, false
	}
	p := Pause{}
	if raw, isRaw := r.Value.(Raw); isRaw {
		_ = json.Unmarshal(raw, &p) // what cannot be read pauses all the same
	}
	return p, true
}

// SetView tells the core why its view of the store may be stale; empty: it is not.
func (c *Core) SetView(stale string) { c.stale = stale }

// stopped says why nothing at all is collected now; empty: nothing stops it.
func (c *Core) stopped() string {
	if p, ok := c.paused(); ok {
		return fmt.Sprintf("paused by %s: %s", p.By, p.Reason)
	}
	if c.stale != "" {
		return "the view may be stale: " + c.stale
	}
	if r, ok := c.recovering(); ok {
		return "a recovery window is open: " + r.Reason
	}
	return ""
}

// setBrake looks at how much would go at once.
func (c *Core) setBrake() {
	var b brake
	due, all := 0, 0
	for _, n := range c.t.nodes {
		if n.presence != nil || n.gone.mod != 0 {
			all++
		}
		if c.absentLong(n) && len(n.refs)+len(n.addrs) > 0 && !c.proven(n.gone.since, c.cfg.NodeGrace) {
			due++
		}
	}
	if most := max(brakeFloorNodes, all*brakeShareNodes/100); due > most {
		b.nodes = fmt.Sprintf("%d of %d nodes are due at once, more than %d", due, all, most)
	}
	due = c.dueBurst()
	if most := max(brakeFloorIdentities, len(c.t.masters)*brakeShareIdentities/100); due > most {
		b.identities = fmt.Sprintf("%d of %d identities that went idle together are due at once, more than %d", due, len(c.t.masters), most)
	}
	if b.nodes == "" && b.identities == "" {
		c.term.released = false // what was let go by hand has gone
	}
	c.term.brake = b
}

// dueBurst is the largest number of identities that went idle within two minutes
// and are due. What went idle one after the other is no burst: when pressure
// shortens the grace, much is due at once that is rightly so.
func (c *Core) dueBurst() int {
	grace, perMinute, most := c.identityGrace(), map[int64]int{}, 0
	for _, i := range c.t.idle {
		if c.due(i.since, grace) && !c.proven(i.since, c.cfg.IdentityGrace) {
			perMinute[i.since.ServedS/60]++
		}
	}
	for at, n := range perMinute {
		most = max(most, n+perMinute[at+1])
	}
	return most
}

// proven says whether something has been absent for so long that no brake holds it.
func (c *Core) proven(since Time, grace time.Duration) bool { return c.due(since, provenAfter*grace) }

// absentLong says whether the node is marked gone for the node grace, and seen
// absent by this leader for two TTLs.
func (c *Core) absentLong(n *node) bool {
	return !n.present() && n.gone.mod != 0 && c.due(n.gone.since, c.cfg.NodeGrace) &&
		n.absentSince.set && c.now-n.absentSince.at >= 2*c.presenceTTL(n)
}

// mayPurge says whether what the gone node holds may go now.
func (c *Core) mayPurge(n *node) bool {
	return c.absentLong(n) && c.holdsNode(n) == ""
}

// holdsNode says what holds back a node that is due.
func (c *Core) holdsNode(n *node) string {
	if why := c.stopped(); why != "" {
		return why
	}
	if b := c.term.brake.nodes; b != "" && !c.term.released && !c.proven(n.gone.since, c.cfg.NodeGrace) {
		return b
	}
	return ""
}

// holdsIdentity says what holds back an identity that is due.
func (c *Core) holdsIdentity(i mark) string {
	if why := c.stopped(); why != "" {
		return why
	}
	if b := c.term.brake.identities; b != "" && !c.term.released && !c.proven(i.since, c.cfg.IdentityGrace) {
		return b
	}
	return ""
}

// Brake says why the sweep holds something back; empty: it does not.
func (c *Core) Brake() string {
	if c.term == nil {
		return ""
	}
	if why := c.stopped(); why != "" {
		return why
	}
	if c.term.released {
		return ""
	}
	parts := slices.DeleteFunc([]string{c.term.brake.nodes, c.term.brake.identities}, func(s string) bool { return s == "" })
	return strings.Join(parts, "; ")
}

// SweepRequest sweeps now. With ReleaseBrake what the brake holds back goes.
type SweepRequest struct{ ReleaseBrake bool }

// PauseRequest stops the collection until it is resumed, over failovers.
type PauseRequest struct{ By, Reason string }

// ResumeRequest lets the collection go on.
type ResumeRequest struct{}

func (c *Core) requestSweep(id uint64, r SweepRequest) {
	c.term.released = c.term.released || r.ReleaseBrake
	c.term.lastSweep = seen{c.now, true}
	c.sweep()
	c.reply(id, nil)
}

// requestPause writes or deletes the stored pause.
func (c *Core) requestPause(id uint64, pause *Pause, tries int) {
	r := c.t.singles[pauseKey()]
	p := &plan{op: Op{Verb: VerbSetting}}
	p.atOrAbsent(pauseKey(), r.ModRevision)
	if pause != nil {
		pause.Since = c.time()
		raw, err := json.Marshal(pause)
		if err != nil {
			c.fail(id, &Error{Code: InvalidArgument, Field: "pause", Message: err.Error()})
			return
		}
		p.write(pauseKey(), Raw(raw))
	} else if r.ModRevision != 0 {
		p.write(pauseKey(), nil)
	}
	ask := &request{id: id}
	c.wait(ask)
	landed := false
	c.submitThen(p.op, func(int64) { landed = true }, func() { c.fail(ask.id, leadershipLost()) }, func() {
		switch {
		case landed:
			c.reply(ask.id, nil)
		case tries < maxTries:
			c.requestPause(ask.id, pause, tries+1)
		default:
			c.fail(ask.id, &Error{Code: Unavailable, Field: "contention", Retry: time.Second, Message: "the setting kept changing; try again"})
		}
	})
}
