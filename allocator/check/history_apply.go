// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

func unknownKey(err error) bool {
	var bad *kvstore.KeyError
	return errors.As(err, &bad) && bad.Unknown
}

// apply moves the state by one change.
func (h *History) apply(c change) {
	switch k := c.Key; k.Kind {
	case allocator.KindMaster:
		h.applyMaster(k.Number, textOf(c.item))
	case allocator.KindReference:
		h.applyReference(pair{k.Labels, k.Name}, numberOf(c.item))
	case allocator.KindIdle:
		if c.Value != nil {
			h.idle[k.Number] = true
		} else {
			delete(h.idle, k.Number)
		}
	case allocator.KindTombstone:
		h.applyTombstone(k.Number, c)
	}
}

// applyMaster sets or (text "") ends the life of a number.
func (h *History) applyMaster(n identity.Number, text string) {
	p := h.numbers[n]
	if p == nil {
		p = &past{}
		h.numbers[n] = p
	}
	if p.live && p.labels != text {
		delete(h.live[p.labels], n)
		p.live, p.done = false, false
	}
	if text == "" {
		return
	}
	p.labels, p.live = text, true
	if h.live[text] == nil {
		h.live[text] = map[identity.Number]bool{}
	}
	h.live[text][n] = true
}

// applyReference sets or (n 0) ends a reference.
func (h *History) applyReference(of pair, n identity.Number) {
	if was, ok := h.refs[of]; ok {
		delete(h.refsTo[was], of)
		delete(h.refs, of)
	}
	if n == 0 {
		return
	}
	h.refs[of] = n
	if h.refsTo[n] == nil {
		h.refsTo[n] = map[pair]bool{}
	}
	h.refsTo[n][of] = true
}

func (h *History) applyTombstone(n identity.Number, c change) {
	v, ok := c.Value.(allocator.Tombstone)
	if !ok {
		delete(h.tombstones, n)
		return
	}
	h.tombstones[n] = v
	if p := h.numbers[n]; p != nil && !p.live && v.Quarantine == allocator.QuarantineDone {
		p.done = true
	}
}
