// SPDX-License-Identifier: Apache-2.0

package allocator

// keepSet keeps a set in order that nobody waits for: heal a master that was
// deleted, mark what has no reference, unmark what has one again.
func (c *Core) keepSet(s *set) {
	if s.vain > maxTries { // something in the store that the table cannot show is in the way
		c.tired[s.text] = true
		return
	}
	if s.winner(c.cfg.Space) == nil && c.ownReference(s) {
		c.heal(s)
		return
	}
	winner := s.winner(c.cfg.Space)
	for _, m := range s.masters {
		if !c.cfg.Space.Contains(m.number) || m.lease != 0 {
			continue
		}
		i, marked := c.t.idle[m.number]
		unused := len(s.refs) == 0 || m != winner && !s.referenced(m.number)
		switch {
		case unused && !marked:
			c.markIdle(s, m)
		case !unused && marked:
			c.unmarkIdle(s, m, i)
		case unused && c.due(i.since, c.identityGrace()) && c.holdsIdentity(i) == "":
			c.collect(s, m, i)
		}
		if s.busy {
			return
		}
	}
}

// ownReference says whether a reference of ours names a number of this cluster.
func (c *Core) ownReference(s *set) bool {
	for _, r := range s.refs {
		if r.lease == 0 && c.cfg.Space.Contains(r.number) && !c.t.malformed[r.number] {
			return true
		}
	}
	return false
}

// heal writes back the master of a set that has references. A number that
// other labels got meanwhile is replaced, and the references with it.
func (c *Core) heal(s *set) {
	n, err := c.choose(s)
	if err != nil {
		c.tired[s.text] = true // nothing is free
		return
	}
	p := &plan{op: Op{Verb: VerbHeal}, number: n, create: true}
	c.planCreate(s, p)
	for i, holder := range sortedKeys(s.refs) {
		r := s.refs[holder]
		if i >= maxGroup || r.lease != 0 {
			continue
		}
		p.at(ReferenceKey(s.text, holder), r.mod)
		if r.number != n {
			p.write(ReferenceKey(s.text, holder), NumberValue(n))
		}
	}
	c.submitKeep(s, p, &c.stats.Healed)
}

func (c *Core) markIdle(s *set, m *master) {
	p := &plan{op: Op{Verb: VerbIdle}}
	p.at(MasterKey(m.number), m.mod)
	p.unreferenced(s)
	p.absent(IdleKey(m.number))
	p.write(IdleKey(m.number), Mark{Since: c.time()})
	c.submitKeep(s, p, &c.stats.MarkedIdle)
}

func (c *Core) unmarkIdle(s *set, m *master, i mark) {
	p := &plan{op: Op{Verb: VerbUnidle}}
	p.at(IdleKey(m.number), i.mod)
	p.write(IdleKey(m.number), nil)
	c.submitKeep(s, p, nil)
}

// collect frees an identity: no reference, the idle mark unchanged, its grace over.
func (c *Core) collect(s *set, m *master, i mark) {
	p := &plan{op: Op{Verb: VerbCollect}}
	p.at(MasterKey(m.number), m.mod)
	p.at(IdleKey(m.number), i.mod)
	p.unreferenced(s)
	p.write(MasterKey(m.number), nil)
	p.write(IdleKey(m.number), nil)
	p.write(TombstoneKey(m.number), Tombstone{Labels: s.text, Born: Time{Revision: m.create},
		Freed: c.time(), Quarantine: QuarantinePending})
	c.submitKeep(s, p, &c.stats.Collected)
}

// submitKeep sends an operation that no request waits for.
func (c *Core) submitKeep(s *set, p *plan, count *uint64) {
	s.busy = true
	s.vain++
	free := func() {
		s.busy = false
		c.freePromise(p)
		c.markSet(s)
	}
	c.submit(p.op, free, func(int64) {
		s.vain = 0
		if count != nil {
			*count++
		}
	}, nil)
}

// buryLost gives a tombstone to numbers whose master somebody deleted, unless
// a reference brings the master back.
func (c *Core) buryLost() {
	if !c.Serving() {
		return
	}
	for _, n := range sortedKeys(c.t.lost) {
		text := c.t.lost[n]
		s := c.t.sets[text]
		if c.t.malformed[n] || s != nil && (s.busy || s.referenced(n)) {
			continue // a reference brings the master back
		}
		if !c.cfg.Space.Contains(n) {
			delete(c.t.lost, n)
			continue
		}
		s = c.t.set(text)
		p := &plan{op: Op{Verb: VerbBury}}
		p.absent(MasterKey(n))
		p.absent(TombstoneKey(n))
		p.write(TombstoneKey(n), Tombstone{Labels: text, Freed: c.time(), Quarantine: QuarantinePending})
		if i, ok := c.t.idle[n]; ok {
			p.at(IdleKey(n), i.mod)
			p.write(IdleKey(n), nil)
		}
		c.submitKeep(s, p, &c.stats.Buried)
	}
}
