// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"time"

	"github.com/signet-identity/signet/kvstore"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// tickEvery is how often acknowledgements and graces are looked at: no two
// acknowledgements come closer together.
const tickEvery = 500 * time.Millisecond

// follower takes the mirror's batches for the agent.
type follower Agent

// Apply implements kvstore.MirrorConsumer.
func (f *follower) Apply(_ context.Context, b kvstore.MirrorBatch) error {
	a := (*Agent)(f)
	e := a.engine
	restored := false
	e.update(func() { restored = e.follow(b) })
	if restored {
		a.cfg.Logger.Error("the store was restored: what it does not name is kept until the operator has recovered", "revision", b.Revision)
		a.session.Hello()
	}
	return nil
}

// WentBack implements kvstore.MirrorConsumer: a restored store is taken as it
// is; the view sees by its lineage what it is.
func (f *follower) WentBack(kvstore.WentBack) { f.mirror.Accept() }

// follow applies a batch. The lock is held.
func (e *engine) follow(b kvstore.MirrorBatch) (restored bool) {
	c := e.view.apply(b)
	if c.restored {
		e.stats.restores++
		e.restoredAt = e.now()
		e.table.forgetRevisions()
	}
	e.show(c.entries)
	for _, m := range c.meanings {
		e.table.numberMeans(m.number, m.text, m.revision)
		e.client.Drop(m.number)
	}
	for _, o := range c.own {
		e.table.observe(o.addr, o.seen)
	}
	if b.Reset {
		e.observeAbsent(b.Revision)
	}
	e.trySync()
	e.wake(admission)
	return c.restored
}

// observeAbsent tells the table which of its addresses a list did not name.
func (e *engine) observeAbsent(revision int64) {
	for at := range e.table.addresses {
		if e.view.pairs[hostPrefix(at)] == nil {
			e.table.observe(at, seen{revision: revision})
		}
	}
}

// trySync lets the datapath prune once that is safe: the checkpoint is restored
// (Run does that first), the store is listed, and it is no restored one whose
// recovery is still under way.
func (e *engine) trySync() {
	if !e.synced && e.view.lists > 0 && !e.view.restored {
		e.synced = true
		e.dp.Synced()
	}
}

// sessionState is what is known of the conversation with the operators.
type sessionState struct {
	mu        sync.Mutex
	alive     time.Time // last sign of life; zero: none yet
	connected bool
	recovery  bool      // the last Welcome said that a recovery window is open
	asked     time.Time // when it was last asked whether it still is
	err       error
}

// hello says what the node holds.
func (a *Agent) hello() *signetv1.Hello {
	e := a.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	h := &signetv1.Hello{Node: a.cfg.Node, Instance: a.dir.instance, Lineage: positionOut(e.view.position),
		Complete: true, Version: a.cfg.Version}
	for _, s := range e.table.setsInOrder() {
		if s.have && !s.fixed && !s.letGo {
			h.Pairs = append(h.Pairs, &signetv1.HeldPair{Text: s.labels.Text(), Number: uint32(s.number),
				Hold: s.hold, CreateRevision: s.born, Counter: s.counter})
		}
	}
	return h
}

// welcome compares the operator's list of the node's references with the own
// one, and tries anew what had waited for an operator.
func (a *Agent) welcome(w *signetv1.Welcome) {
	e := a.engine
	pairs := make([]heldPair, 0, len(w.GetHolds()))
	for _, p := range w.GetHolds() {
		if pair, ok := pairOf(p); ok {
			pairs = append(pairs, pair)
		} else {
			a.cfg.Logger.Error("the operator lists a reference that is malformed", "text", p.GetText(), "number", p.GetNumber())
		}
	}
	e.update(func() {
		refreshed, extra := e.table.welcome(pairs, w.GetLineage().GetRevision())
		for _, p := range refreshed {
			e.client.Refresh(p.labels, p.number, p.hold)
		}
		e.noteSurplus(extra)
		e.table.kick()
	})
	a.sessions.mu.Lock()
	defer a.sessions.mu.Unlock()
	a.sessions.alive, a.sessions.connected = a.cfg.Now(), true
	a.sessions.recovery, a.sessions.err = w.GetRecovery(), nil
}

func (a *Agent) lost(err error) {
	a.sessions.mu.Lock()
	defer a.sessions.mu.Unlock()
	a.sessions.connected, a.sessions.err = false, err
}

// surplus is a reference that the operator lists and the node does not use.
type surplus struct {
	pair  heldPair
	since time.Time
}

func (e *engine) noteSurplus(extra []heldPair) {
	now := make(map[string]surplus, len(extra))
	for _, p := range extra {
		s := surplus{pair: p, since: e.now()}
		if old, ok := e.surplus[p.labels.Text()]; ok {
			s.since = old.since
		}
		now[p.labels.Text()] = s
	}
	e.surplus = now
}

// tick looks at what is due from time to time, until ctx ends.
func (a *Agent) tick(ctx context.Context) error {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			a.ticked()
		case <-ctx.Done():
			return nil
		}
	}
}

func (a *Agent) ticked() {
	a.notes.look(a.presence.Status())
	a.sessions.mu.Lock()
	connected, recovery := a.sessions.connected, a.sessions.recovery
	if connected { // keepalive ends a connection that is silent
		a.sessions.alive = a.cfg.Now()
	}
	again := connected && recovery && a.cfg.Now().Sub(a.sessions.asked) >= a.cfg.PresenceTTL
	if again {
		a.sessions.asked = a.cfg.Now()
	}
	a.sessions.mu.Unlock()
	if again { // nobody tells when the window ends: the next Welcome does
		a.session.Hello()
	}
	e := a.engine
	grace := a.cfg.SurplusGrace
	e.update(func() {
		if connected && !recovery {
			e.releaseSurplus(grace)
			e.withdrawLeftovers(grace)
			if e.view.restored && e.now().Sub(e.restoredAt) >= grace {
				e.show(e.view.settle())
				e.trySync()
			}
		}
	})
	if at := e.acknowledged(); at != nil {
		a.session.Ack(at)
	}
}

// releaseSurplus gives back references that nobody has used for the grace.
func (e *engine) releaseSurplus(grace time.Duration) {
	for text, s := range e.surplus {
		if e.now().Sub(s.since) >= grace {
			delete(e.surplus, text)
			e.table.adopt(s.pair)
		}
	}
}

// withdrawLeftovers takes back addresses that stand in the store for this node
// and that no endpoint has had for the grace.
func (e *engine) withdrawLeftovers(grace time.Duration) {
	if !e.synced || e.now().Sub(e.scanned) < grace/4 {
		return
	}
	e.scanned = e.now()
	found := e.view.leftovers()
	for at, n := range found {
		since, known := e.leftovers[at]
		switch {
		case !known:
			e.leftovers[at] = e.now()
		case e.now().Sub(since) >= grace:
			delete(e.leftovers, at)
			e.table.leftover(at, n)
		}
	}
	for at := range e.leftovers {
		if _, ok := found[at]; !ok {
			delete(e.leftovers, at)
		}
	}
}

// mark is a position whose effects are to be over before it is acknowledged.
type mark struct {
	at       *signetv1.Position
	mapSeq   uint64 // the table's map effects that came of it
	dpSeq    uint64 // the datapath's changes, once those are carried out; 0: not yet
	complete bool
}

// acknowledged returns the position that can be acknowledged now; nil: none
// that is new. It is one whose map effects were carried out and whose changes,
// deferred clearing included, are in the maps.
func (e *engine) acknowledged() *signetv1.Position {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.synced {
		return nil
	}
	progress := e.dp.Progress()
	if e.mark.at == nil {
		if e.view.position.Revision == e.acked {
			return nil
		}
		e.mark = mark{at: positionOut(e.view.position), mapSeq: e.mapSeq}
	}
	if !e.mark.complete && e.mapDone >= e.mark.mapSeq {
		e.mark.complete, e.mark.dpSeq = true, progress.Last
	}
	if !e.mark.complete || progress.Cleared < e.mark.dpSeq {
		return nil
	}
	at := e.mark.at
	e.mark, e.acked = mark{}, at.Revision
	return at
}
