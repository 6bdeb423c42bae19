// SPDX-License-Identifier: Apache-2.0

package allocator

import "time"

// requestLookup confirms what the table says of an identity, and answers.
func (c *Core) requestLookup(id uint64, q LookupRequest, tries int) {
	if tries > maxTries {
		c.fail(id, &Error{Code: Unavailable, Field: "contention", Retry: time.Second,
			Message: "the store kept changing under this lookup; try again"})
		return
	}
	got, ok := c.lookup(q)
	p := &plan{op: Op{Verb: VerbConfirm}}
	if m := c.t.masters[got.Number]; ok && m != nil {
		p.at(MasterKey(m.number), m.mod)
	} else if q.Number != 0 {
		p.absent(MasterKey(q.Number))
	}
	r := &request{id: id}
	c.wait(r)
	confirmed := int64(0)
	land := func(rev int64) { confirmed = rev }
	again := func() { c.requestLookup(r.id, q, tries+1) }
	lose := func() { c.fail(r.id, leadershipLost()) }
	c.submitThen(p.op, land, lose, func() {
		switch {
		case r.id == 0: // cancelled
		case confirmed != 0:
			c.reply(r.id, Found{Identity: got, OK: ok, Position: c.Position(), Confirmed: confirmed})
		default:
			again()
		}
	})
}

func (c *Core) lookup(q LookupRequest) (Identity, bool) {
	if q.Number != 0 {
		return c.Identity(q.Number)
	}
	return c.ByLabels(q.Labels)
}
