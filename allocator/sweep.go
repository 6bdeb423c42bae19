// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

// sweep looks at every node and every idle identity whose grace may be over,
// and again at the label sets that could not be kept in order.
func (c *Core) sweep() {
	c.setBrake()
	for _, name := range sortedKeys(c.t.nodes) {
		if n := c.t.nodes[name]; !n.present() || n.gone.mod != 0 {
			c.markNode(n)
		}
	}
	for _, n := range c.dueIdle() {
		if m := c.t.masters[n]; m != nil {
			c.markSet(c.t.set(m.text))
		} else if _, lost := c.t.lost[n]; !lost {
			c.unmarkNothing(n)
		}
	}
	for _, text := range sortedKeys(c.tired) {
		s := c.t.set(text)
		s.vain = 0
		c.markSet(s)
	}
	clear(c.tired)
	c.buryLost()
	c.countReusable()
	if !c.collecting() {
		c.term.swept = seen{c.now, true}
	}
}

// dueIdle lists the numbers whose idle mark is due, or has no master, the
// longest marked first. The others are looked at when something of them changes.
func (c *Core) dueIdle() []identity.Number {
	var out []identity.Number
	grace := c.identityGrace()
	for n, i := range c.t.idle {
		if c.t.masters[n] == nil || c.due(i.since, grace) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b identity.Number) int {
		return cmp.Or(cmp.Compare(c.t.idle[a].mod, c.t.idle[b].mod), cmp.Compare(a, b))
	})
	return out
}

// unmarkNothing removes an idle mark whose master somebody deleted while no
// operator followed the store: nobody knows any more whose number it was.
func (c *Core) unmarkNothing(n identity.Number) {
	p := &plan{op: Op{Verb: VerbUnidle}}
	p.absent(MasterKey(n))
	p.at(IdleKey(n), c.t.idle[n].mod)
	p.write(IdleKey(n), nil)
	c.submit(p.op, nil, nil, nil)
}

// collecting says whether an operation of the collection is still in flight: a
// sweep counts as done only once what the one before wanted is done.
func (c *Core) collecting() bool {
	for _, f := range c.inFlight {
		switch f.op.Verb {
		case VerbIdle, VerbCollect, VerbGone, VerbPurge, VerbForget, VerbBury:
			return true
		}
	}
	return false
}

// identityGrace is the grace in force: pressure shortens it, down to a minute
// (or to what is configured, if that is less).
func (c *Core) identityGrace() time.Duration {
	g, full := c.cfg.IdentityGrace, (c.t.pool.used-min(c.free, c.t.pool.used))*100/c.t.pool.capacity()
	switch {
	case full >= 90:
		g = g / 15
	case full >= 80:
		g = g / 3
	}
	return max(g, min(minIdentityGrace, c.cfg.IdentityGrace))
}

// eater remembers which label key eats the number space; counting it anew for
// each refusal would cost more than the refusal.
type eater struct {
	key  string
	from seen
}

// eaterEvery is how long the answer is good for, leader's clock.
const eaterEvery = 10 * time.Second

func (c *Core) exhausted() *Error {
	if !c.eater.from.set || c.now-c.eater.from.at >= eaterEvery {
		c.eater = eater{key: c.eatingKey(), from: seen{c.now, true}}
	}
	used, limit := c.t.pool.used, c.t.pool.capacity()
	return &Error{Code: Exhausted, Field: c.eater.key, Used: used, Limit: limit, Retry: 30 * time.Second, Message: fmt.Sprintf(
		"no number is left: %d of %d are in use or in quarantine; label key %q has the most values: exclude it from the identity labels, or release what is not needed",
		used, limit, c.eater.key)}
}

// eatingKey is the label key with the most distinct values among live identities.
func (c *Core) eatingKey() string {
	values := map[string]map[string]bool{}
	for text := range c.t.sets {
		for _, l := range labels.Decode(text) {
			if values[l.Key] == nil {
				values[l.Key] = map[string]bool{}
			}
			values[l.Key][l.Value] = true
		}
	}
	keys := sortedKeys(values)
	if len(keys) == 0 {
		return ""
	}
	return slices.MaxFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(values[a]), len(values[b])), strings.Compare(b, a))
	})
}
