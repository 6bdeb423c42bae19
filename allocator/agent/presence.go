// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/kvstore"
)

// gate lets work pass only while the node's presence is its own: whoever has
// no presence does not speak for the node.
type gate struct {
	mu     sync.Mutex
	pass   context.Context // ends when the gate closes; nil: it is closed
	end    context.CancelFunc
	opened chan struct{} // closed when the gate opens
}

func newGate() *gate { return &gate{opened: make(chan struct{})} }

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case open && g.pass == nil:
		g.pass, g.end = context.WithCancel(context.Background())
		close(g.opened)
	case !open && g.pass != nil:
		g.end()
		g.pass, g.opened = nil, make(chan struct{})
	}
}

// through gives a context that ends with ctx, or when the gate closes; false
// when it is closed.
func (g *gate) through(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pass == nil {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.pass, cancel)
	return ctx, func() { stop(); cancel() }, true
}

// wait returns once the gate is open; the error is ctx's.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// codeTaken is the finding that another instance keeps the node's presence.
const codeTaken = "NODE-TAKEN"

// absence says why the node may not be spoken for.
func absence(s kvstore.PresenceStatus) string {
	switch {
	case errors.Is(s.Err, kvstore.ErrNodeTaken):
		return fmt.Sprintf("%s: %v", codeTaken, s.Err)
	case s.Err != nil:
		return fmt.Sprintf("the node's presence does not stand in the store (%s): %v", s.State, s.Err)
	default:
		return fmt.Sprintf("the node's presence does not stand in the store yet (%s)", s.State)
	}
}

// presenceChanged opens or closes the gate, and tries anew what was held back.
func (a *Agent) presenceChanged(s kvstore.PresenceStatus) {
	a.notes.look(s)
	e := a.engine
	if !s.Present {
		e.suspend(absence(s), errors.Is(s.Err, kvstore.ErrNodeTaken))
		return
	}
	e.gate.set(true)
	e.update(func() {
		e.taken, e.presentAt = false, s.Revision
		e.table.resume()
		e.wake(admission)
	})
	a.mirror.Want(s.Revision)
	a.presentOnce.Do(func() { close(a.present) })
}

// suspend holds back what speaks for the node. taken: another instance does.
func (e *engine) suspend(reason string, taken bool) {
	e.update(func() {
		e.table.suspend(reason)
		if e.taken = taken; taken {
			e.trusted, e.presentAt = false, 0
		}
		e.wake(admission)
	})
	e.gate.set(false)
}

// admission is the name of what a put waits for before it is taken in.
const admission = "admission"

// admits reports whether endpoints may be taken in, or why not: the agent has
// to know which addresses the node has in the store. It knows them by its
// checkpoint, or once its presence was its own and the mirror has come past
// that revision. The lock is held.
func (e *engine) admits() (reason string, ok bool) {
	if !e.taken && !e.trusted && e.presentAt > 0 && e.view.lists > 0 && e.view.position.Revision >= e.presentAt {
		e.trusted = true
	}
	switch {
	case e.trusted && !e.taken:
		return "", true
	case e.table.suspended != "":
		return e.table.suspended, false
	default:
		return "the store has not been listed yet", false
	}
}

// admit waits until endpoints may be taken in.
func (e *engine) admit(ctx context.Context, id string) error {
	for {
		e.mu.Lock()
		reason, ok := e.admits()
		changed, stopped := e.waitFor(admission), e.stopped
		e.mu.Unlock()
		switch {
		case stopped:
			return stopping()
		case ok:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return refuse(allocator.Unavailable, "id", "endpoint %s was not taken in: %s", id, reason)
		}
	}
}

// presenceNotes logs what an operator of the node has to know of its presence,
// once when it begins and once when it is over.
type presenceNotes struct {
	log  *slog.Logger
	node string
	ttl  time.Duration

	mu      sync.Mutex
	taken   string    // the instance that was warned of
	missing bool      // it was warned of
	since   time.Time // when either began
	now     func() time.Time
}

func (n *presenceNotes) look(s kvstore.PresenceStatus) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var taken *kvstore.NodeTaken
	switch noted := n.missing || n.taken != ""; {
	case s.Present && noted:
		n.log.Warn("the node's presence is back", "node", n.node, "lease", fmt.Sprintf("%x", s.Lease), "after", n.now().Sub(n.since).Round(time.Millisecond))
		n.missing, n.taken = false, ""
	case s.Present:
	case errors.As(s.Err, &taken):
		instance := taken.Instance
		if instance == "" {
			instance = "unknown"
		}
		if n.taken != instance {
			n.log.Warn("another agent has this node's name: nothing is allocated or published here until it is gone", "node", n.node,
				"instance", instance, "do", "stop the other agent, or give this one another node name")
			n.begin(s)
			n.taken = instance
		}
	case !noted && s.Age > 2*n.ttl:
		n.log.Warn("the node's presence is lost: it does not stand in the store for more than two TTLs", withError([]any{
			"node", n.node, "age", s.Age.Round(time.Millisecond), "do", "see whether the store answers; it comes back by itself"}, s.Err)...)
		n.begin(s)
		n.missing = true
	}
}

func (n *presenceNotes) begin(s kvstore.PresenceStatus) {
	if !n.missing && n.taken == "" {
		n.since = n.now().Add(-s.Age)
	}
}

func withError(args []any, err error) []any {
	if err == nil {
		return args
	}
	return append(args, "error", err)
}
