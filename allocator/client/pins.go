// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// pins is what the holder holds: never evicted, gone only when released.
type pins struct {
	mu       sync.Mutex
	bySet    map[labels.Set]*pin
	byNumber map[identity.Number]labels.Set
}

// pin is one label set. Its states:
//
//	have, refs > 0          in use
//	have, refs = 0          held, but the callers went away; being given back
//	!have, flight           Allocate or Release is on its way
//	!have, givenUp/orphan   the outcome of a Release/Allocate is unknown
//
// A flight never meets refs > 0: Allocate flies while nothing is held, Release
// once nothing is in use.
type pin struct {
	refs    int
	have    bool
	alloc   Allocation // Created is true until the first caller took it
	flight  *flight
	waiters int   // callers that wait for a flight of this pin
	givenUp int64 // hold of a Release without an answer; 0: none
	orphan  bool  // an Allocate without an answer that nobody waits for any more
}

// flight is one call on its way; done is closed when err is set.
type flight struct {
	done   chan struct{}
	cancel context.CancelFunc // nil for Release, which is not cancelled by leaving waiters
	err    *Error
	last   atomic.Pointer[Error] // why the newest try failed
}

func newPins() *pins {
	return &pins{bySet: map[labels.Set]*pin{}, byNumber: map[identity.Number]labels.Set{}}
}

// get returns the pin of set, made if need be. The lock is held.
func (p *pins) get(set labels.Set) *pin {
	e := p.bySet[set]
	if e == nil {
		e = &pin{}
		p.bySet[set] = e
	}
	return e
}

// hold records what the holder holds for set. The lock is held.
func (p *pins) hold(set labels.Set, e *pin, a Allocation) {
	p.unhold(set, e)
	e.have, e.alloc = true, a
	p.byNumber[a.Number] = set
}

// unhold forgets it again. The lock is held.
func (p *pins) unhold(set labels.Set, e *pin) {
	if e.have && p.byNumber[e.alloc.Number] == set {
		delete(p.byNumber, e.alloc.Number)
	}
	e.have, e.alloc = false, Allocation{}
}

// tidy forgets a pin that says nothing any more. The lock is held.
func (p *pins) tidy(set labels.Set, e *pin) {
	if e.refs == 0 && !e.have && e.flight == nil && e.waiters == 0 && e.givenUp == 0 && !e.orphan {
		delete(p.bySet, set)
	}
}

func (p *pins) number(n identity.Number) (Identity, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set, ok := p.byNumber[n]
	return Identity{Number: n, Labels: set}, ok
}

func (p *pins) labels(set labels.Set) (Identity, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.bySet[set]; e != nil && e.have {
		return Identity{Number: e.alloc.Number, Labels: set}, true
	}
	return Identity{}, false
}

// Pin is a label set that the holder holds.
type Pin struct {
	Labels labels.Set
	Number identity.Number
	// Hold is the token of the reference; 0: not yet known, or a reserved number.
	Hold int64
	// Uses counts Allocate and Adopt without Release.
	Uses int
}

// Pins lists what is pinned, sorted by number: for a checkpoint, or a hello.
func (c *Client) Pins() []Pin {
	c.pins.mu.Lock()
	out := make([]Pin, 0, len(c.pins.bySet))
	for set, e := range c.pins.bySet {
		if e.have {
			out = append(out, Pin{Labels: set, Number: e.alloc.Number, Hold: e.alloc.Hold, Uses: e.refs})
		}
	}
	c.pins.mu.Unlock()
	slices.SortFunc(out, func(a, b Pin) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

// Adopt pins, without a call, what the holder is known to hold: from a
// checkpoint, or an operator's Welcome. Each Adopt is one use, which Release
// gives back. A hold of 0 means unknown: it is learned before it is needed.
// Adopt reports false, and does nothing, while a call for the set is on its
// way or an earlier Release is unsettled; Allocate is the way then.
func (c *Client) Adopt(set labels.Set, number identity.Number, hold int64) bool {
	c.pins.mu.Lock()
	defer c.pins.mu.Unlock()
	e := c.pins.get(set)
	if e.flight != nil || e.givenUp != 0 || e.orphan || set.IsZero() || number == 0 {
		c.pins.tidy(set, e)
		return false
	}
	if !e.have {
		c.pins.hold(set, e, Allocation{Number: number, Hold: hold, Identity: adopted(set, number)})
	}
	e.refs++
	return true
}

// Refresh replaces number and hold of a pinned set and keeps its uses: for
// what an operator's Welcome says after a recovery. It reports whether the set
// is pinned.
func (c *Client) Refresh(set labels.Set, number identity.Number, hold int64) bool {
	c.pins.mu.Lock()
	defer c.pins.mu.Unlock()
	e := c.pins.bySet[set]
	if e == nil || !e.have || e.flight != nil || number == 0 {
		return false
	}
	if e.alloc.Number != number || e.alloc.Hold != hold {
		c.pins.hold(set, e, Allocation{Number: number, Hold: hold, Identity: adopted(set, number)})
	}
	return true
}

// adopted is what is known of an identity without asking a server.
func adopted(set labels.Set, n identity.Number) *signetv1.Identity {
	scope := signetv1.Scope_SCOPE_CLUSTER
	if n.IsReserved() {
		scope = signetv1.Scope_SCOPE_RESERVED
	}
	return &signetv1.Identity{Number: uint32(n), Labels: set.Strings(), Text: set.Text(),
		Scope: scope, State: signetv1.State_STATE_LIVE}
}
