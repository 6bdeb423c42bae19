// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/kvstore"
)

// tickEvery is how often the core learns the time.
const tickEvery = 100 * time.Millisecond

// maxInputs bounds the inputs that one step takes together.
const maxInputs = 256

var errStopped = errors.New("the operator has stopped")

// loop owns the core and the committer until ctx ends.
func (o *Operator) loop(ctx context.Context) {
	defer close(o.stopped)
	defer o.endLoop()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case f := <-o.inbox:
			f()
			o.drain()
		case <-tick.C:
			o.core.SetView(o.staleView())
			o.core.Tick(o.now())
			o.refresh()
		case <-ctx.Done():
			return
		}
		o.step()
	}
}

// staleView says why the view of the store may be stale; empty: it is not.
func (o *Operator) staleView() string {
	if o.wentBack != nil {
		return "the store's revision went back"
	}
	if age := o.mirror.Status().Age(); age > watchSilence {
		return fmt.Sprintf("the store has said nothing for %s", age.Round(time.Second))
	}
	return ""
}

// drain takes the inputs that have come meanwhile, so that one step serves them all.
func (o *Operator) drain() {
	for range maxInputs {
		select {
		case f := <-o.inbox:
			f()
		default:
			return
		}
	}
}

func (o *Operator) endLoop() {
	o.endTerm()
	o.step()
	o.hub.close()
}

// post hands an input to the loop without waiting for it.
func (o *Operator) post(f func()) {
	select {
	case o.inbox <- f:
	case <-o.stopped:
	}
}

// ask runs f in the loop and waits for it.
func (o *Operator) ask(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case o.inbox <- func() { f(); close(done) }:
	case <-ctx.Done():
		return ctx.Err()
	case <-o.stopped:
		return errStopped
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-o.stopped:
		return errStopped
	}
}

// step carries out what the core and the committer want, until both rest.
func (o *Operator) step() {
	for {
		ready := o.core.Ready()
		for _, r := range ready.Replies {
			o.deliver(r)
		}
		for _, op := range ready.Ops {
			o.commit.Submit(op)
		}
		if len(ready.Changed) > 0 {
			o.hub.publish(o.core, ready.Changed)
		}
		if ready.Fatal != nil {
			o.endWith(ready.Fatal)
		}
		out := o.commit.Ready()
		for _, t := range out.Send {
			o.send(t)
		}
		for _, oc := range out.Outcomes {
			o.core.Done(oc)
			if oc.Kind == allocator.Committed {
				o.lastWork = time.Now()
				o.election.Progress()
			}
		}
		if out.Deposed {
			o.core.EndTerm()
			o.endWith(errDeposed)
		}
		if len(ready.Ops)+len(ready.Replies)+len(out.Send)+len(out.Outcomes) == 0 && !out.Deposed {
			break
		}
	}
	if begun := o.core.Begun(); begun != 0 {
		o.mirror.Want(begun)
	}
}

var errDeposed = errors.New("a transaction was refused by the fence: another leader took over")

// endWith ends the term from this side.
func (o *Operator) endWith(err error) {
	if o.term == nil {
		return
	}
	select {
	case o.term.over <- err:
	default:
	}
}

func (o *Operator) deliver(r allocator.Reply) {
	if ch := o.waiters[r.ID]; ch != nil {
		delete(o.waiters, r.ID)
		ch <- r
	}
}

// send gives a transaction to the store; the answer comes back as an input.
func (o *Operator) send(t commit.Transaction) {
	if o.term == nil {
		return
	}
	ctx, who := o.term.ctx, o.election.Candidate()
	go func() {
		r, ok := o.transact(ctx, t, who)
		if ok {
			o.post(func() { o.commit.Result(r) })
		}
	}()
}

// retryPause is the pause before a barrier or a read is repeated.
const retryPause = 100 * time.Millisecond

// transact runs one transaction. Work is tried once; what was not answered is
// unknown. Barriers and reads are repeated byte-identical until the term ends.
func (o *Operator) transact(ctx context.Context, t commit.Transaction, who allocator.Candidate) (commit.Result, bool) {
	for {
		try, cancel := context.WithTimeout(ctx, o.cfg.CommitTimeout)
		r, err := o.cfg.Layout.Run(try, o.cfg.Store, t, who)
		cancel()
		switch {
		case err == nil && (t.Kind == commit.Work || !r.Unknown):
			return r, true
		case err != nil:
			o.log.Warn("transaction failed", "kind", t.Kind, "ops", len(t.Ops), "error", err)
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return commit.Result{}, false
		}
		if t.Kind == commit.Work {
			return commit.Result{ID: t.ID, Unknown: true}, true
		}
	}
}

// consumer brings the mirror's batches to the loop.
type consumer struct{ o *Operator }

// Apply implements kvstore.MirrorConsumer.
func (c consumer) Apply(ctx context.Context, b kvstore.MirrorBatch) error {
	batch, bad := kvstore.DecodeBatch(c.o.cfg.Layout, b)
	return c.o.ask(ctx, func() {
		c.o.noteMalformed(b, bad)
		c.o.core.Apply(batch)
		if b.Reset {
			c.o.wentBack = nil
		}
		if b.Reset && !c.o.isListed {
			c.o.isListed, c.o.listedAt = true, c.o.now()
			close(c.o.listed)
		}
	})
}

// WentBack implements kvstore.MirrorConsumer: the store was restored. The term
// ends, and the store is listed anew as it is; the core sees by its lineage what
// is lost, and the next term opens a recovery window.
func (c consumer) WentBack(w kvstore.WentBack) {
	c.o.post(func() {
		c.o.wentBack = &w
		c.o.endWith(errWentBack)
		go c.o.mirror.Accept()
	})
}

var errWentBack = errors.New("the store's revision went back: it was restored from an older copy")

// noteMalformed keeps the list of keys that cannot be read up to date.
func (o *Operator) noteMalformed(b kvstore.MirrorBatch, bad []error) {
	if b.Reset {
		clear(o.malformed)
	}
	for _, e := range b.Events {
		delete(o.malformed, e.KV.Key)
	}
	for _, err := range bad {
		key := malformedKey(err)
		if _, known := o.malformed[key]; !known {
			o.log.Warn("a key of the store is malformed and skipped", "key", key, "error", err)
		}
		o.malformed[key] = err.Error()
	}
}

func malformedKey(err error) string {
	var value *kvstore.MalformedError
	var key *kvstore.KeyError
	switch {
	case errors.As(err, &value):
		return value.Key
	case errors.As(err, &key):
		return key.Key
	}
	return err.Error()
}
