// SPDX-License-Identifier: Apache-2.0

package nemesis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// How the clients work. Label sets come in generations, so that some are
// always dying and no object's history grows without end; their numbers all
// begin in one small window, so that they meet.
const (
	generation    = 8 * time.Second
	setsAtOnce    = 8
	window        = 24 // numbers
	callTimeout   = 2 * time.Second
	thinkAtLeast  = 20 * time.Millisecond
	thinkAtMost   = 60 * time.Millisecond
	maxEndpoints  = 6
	agentMark     = "k8s:by=agent;"
	pinMark       = "k8s:by=pin;"
	pinHolderName = "pin-c"
)

// sets makes the label sets of a generation.
type sets struct {
	mu    sync.Mutex
	space identity.Space
	made  map[string][]string // by mark and generation: texts
}

func newSets() (*sets, error) {
	space, err := identity.NewSpace("default", 0, 0, false)
	return &sets{space: space, made: map[string][]string{}}, err
}

func (s *sets) of(mark string, gen int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprint(mark, gen)
	for i := 0; len(s.made[key]) < setsAtOnce; i++ {
		text := fmt.Sprintf("k8s:app=g%d-%d;%s", gen, i, mark)
		if identity.Start(s.space, text)-s.space.Min() < window {
			s.made[key] = append(s.made[key], text)
		}
	}
	return s.made[key]
}

// labelsOf splits a label set text of ours.
func labelsOf(text string) []string { return strings.Split(strings.TrimSuffix(text, ";"), ";") }

// client is one caller; it makes one call at a time.
type client struct {
	id     int
	rng    *rand.Rand
	log    *history
	sets   *sets
	idents []signetv1.IdentityServiceClient // each replica
	seen   []uint32                         // some numbers that were answered

	// A caller through an agent has these.
	node      string
	agent     signetv1.EndpointServiceClient
	endpoints []endpoint
	nextID    int

	// One with a pin of its own has these.
	holds map[string]*pinHold
}

type endpoint struct {
	id, text string
	number   uint32 // 0: not answered yet
	leaving  bool
}

// pinHold is what a client knows of its reference to one set.
type pinHold struct {
	hold   int64 // 0: none
	givenU bool  // a release of hold got no answer
	unsure bool  // an allocate got no answer
}

// outcome sorts an error: definite, or unknown.
func unknown(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal:
		return true
	}
	return false
}

// run works until ctx ends.
func (c *client) run(ctx context.Context) error {
	for ctx.Err() == nil {
		gen := int(c.log.now() / generation)
		var err error
		if c.agent != nil {
			err = c.agentTurn(gen)
		} else {
			err = c.pinTurn(gen)
		}
		if err != nil {
			return fmt.Errorf("client %d: %w", c.id, err)
		}
		select {
		case <-time.After(thinkAtLeast + time.Duration(c.rng.Int64N(int64(thinkAtMost-thinkAtLeast)))):
		case <-ctx.Done():
		}
	}
	return nil
}

func (c *client) replica() signetv1.IdentityServiceClient {
	return c.idents[c.rng.IntN(len(c.idents))]
}

// pick chooses a set: mostly one of the present generation, else one of the
// past that still is held.
func (c *client) pick(mark string, gen int) string {
	if c.rng.IntN(2) == 0 {
		var old []string
		for text := range c.holds {
			if !slices.Contains(c.sets.of(mark, gen), text) {
				old = append(old, text)
			}
		}
		if len(old) > 0 {
			slices.Sort(old)
			return old[c.rng.IntN(len(old))]
		}
	}
	return c.sets.of(mark, gen)[c.rng.IntN(setsAtOnce)]
}

func (c *client) pinTurn(gen int) error {
	text := c.pick(pinMark, gen)
	h := c.holds[text]
	if h == nil {
		h = &pinHold{}
	}
	past := !slices.Contains(c.sets.of(pinMark, gen), text)
	dice := c.rng.IntN(100)
	switch {
	case dice < 25:
		return c.get(text)
	case dice < 40 && len(c.seen) > 0:
		return c.getNumber(c.seen[c.rng.IntN(len(c.seen))])
	case h.hold == 0 && !h.unsure && dice < 50:
		return c.release(text, h, 1) // a hold that nobody has
	case h.hold != 0 && (past || dice < 75):
		return c.release(text, h, h.hold)
	}
	return c.allocate(text, h)
}

func (c *client) timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callTimeout)
}

func (c *client) holder() string { return pinHolderName + fmt.Sprint(c.id) }

func (c *client) allocate(text string, h *pinHold) error {
	o := op{client: c.id, kind: allocate, text: text, holder: c.holder()}
	if h.givenU {
		o.arg = h.hold
	}
	ctx, cancel := c.timeout()
	defer cancel()
	call := c.log.now()
	r, err := c.replica().Allocate(ctx, &signetv1.AllocateRequest{Labels: labelsOf(text), Holder: o.holder, GivenUpHold: o.arg})
	o.unknown = unknown(err)
	o.number, o.hold, o.created = r.GetIdentity().GetNumber(), r.GetHold(), r.GetCreated()
	c.log.add(o, call)
	c.holds[text] = h
	if o.unknown {
		h.unsure = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("allocate %s: %w", text, err)
	}
	*h = pinHold{hold: o.hold}
	c.note(o.number)
	return nil
}

func (c *client) release(text string, h *pinHold, hold int64) error {
	o := op{client: c.id, kind: release, text: text, holder: c.holder(), arg: hold}
	ctx, cancel := c.timeout()
	defer cancel()
	call := c.log.now()
	r, err := c.replica().Release(ctx, &signetv1.ReleaseRequest{Labels: labelsOf(text), Holder: o.holder, Hold: hold})
	o.unknown, o.done, o.refused = unknown(err), r.GetReleased(), status.Code(err) == codes.FailedPrecondition
	c.log.add(o, call)
	switch {
	case o.unknown:
		h.givenU = h.hold != 0
	case o.refused:
		if h.hold == hold && !h.unsure {
			return fmt.Errorf("release %s: %w", text, err)
		}
		h.hold, h.givenU, h.unsure = 0, false, true // a lost allocate has landed
		c.holds[text] = h
	case err != nil:
		return fmt.Errorf("release %s: %w", text, err)
	case h.unsure: // a lost allocate may land yet
		h.hold, h.givenU = 0, false
	default:
		delete(c.holds, text)
	}
	return nil
}

func (c *client) note(n uint32) {
	if n != 0 && !slices.Contains(c.seen, n) {
		if c.seen = append(c.seen, n); len(c.seen) > 16 {
			c.seen = c.seen[1:]
		}
	}
}

func (c *client) get(text string) error {
	return c.read(op{client: c.id, kind: getLabels, text: text}, &signetv1.GetIdentityRequest{Labels: labelsOf(text), Linearizable: true})
}

func (c *client) getNumber(n uint32) error {
	wide := uint64(n)
	return c.read(op{client: c.id, kind: getNumber, number: n}, &signetv1.GetIdentityRequest{Number: &wide, Linearizable: true})
}

func (c *client) read(o op, req *signetv1.GetIdentityRequest) error {
	ctx, cancel := c.timeout()
	defer cancel()
	call := c.log.now()
	r, err := c.replica().GetIdentity(ctx, req)
	o.unknown = unknown(err)
	i := r.GetIdentity()
	if s := i.GetState(); s == signetv1.State_STATE_LIVE || s == signetv1.State_STATE_IDLE {
		o.number, o.holders = i.GetNumber(), held{}
		set, err := labels.ParseSet(i.GetLabels()...)
		if err != nil || set.Text() != i.GetText() {
			return fmt.Errorf("get %v: labels %q beside the text %q: %w", req, i.GetLabels(), i.GetText(), err)
		}
		o.text = i.GetText()
		for _, h := range i.GetHolders() {
			o.holders[h.GetHolder()] = h.GetHold()
		}
	}
	c.log.add(o, call)
	if err != nil && !o.unknown && status.Code(err) != codes.NotFound {
		return fmt.Errorf("get %v: %w", req, err)
	}
	c.note(i.GetNumber())
	return nil
}

// settle makes every call without an answer again until it has one.
func (c *client) settle(ctx context.Context) error {
	for ctx.Err() == nil {
		open, err := c.settleTurn()
		if err != nil || !open {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("client %d: calls got no answer after all faults had stopped: %v %v", c.id, c.holds, c.endpoints)
}

func (c *client) settleTurn() (open bool, err error) {
	for text, h := range c.holds {
		if h.unsure || h.givenU {
			open = true
			if err := c.allocate(text, h); err != nil {
				return true, err
			}
		}
	}
	for i := range c.endpoints {
		if e := c.endpoints[i]; e.leaving || e.number == 0 {
			open = true
			return open, c.continueEndpoint(i)
		}
	}
	return open, nil
}
