// SPDX-License-Identifier: Apache-2.0

package nemesis

import (
	"sync"
	"time"
)

type kind int

const (
	allocate kind = iota
	release
	getLabels
	getNumber
	putEndpoint
	deleteEndpoint
)

// op is one call of a client with its answer.
type op struct {
	client int
	kind   kind
	text   string // the label set asked for; of getNumber the one answered, "" for none
	holder string // the pin, or <node>/<endpoint id>
	arg    int64  // release: the hold; allocate: the hold that was given up
	number uint32 // answered; of getNumber asked for; 0: none
	hold   int64  // allocate: answered
	// holders is what a read showed.
	holders held
	created bool
	done    bool // release: there was something; else nothing, or
	refused bool // another hold
	unknown bool // no answer: it may have happened, or may happen yet

	call, ret time.Duration // since the history began
}

// history collects the calls of all clients.
type history struct {
	began time.Time
	mu    sync.Mutex
	ops   []op
}

func newHistory() *history { return &history{began: time.Now()} }

func (h *history) now() time.Duration { return time.Since(h.began) }

// add takes a call that began at call and has just returned.
func (h *history) add(o op, call time.Duration) {
	o.call, o.ret = call, h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// count is how many calls there were, and how many without an answer.
func (h *history) count() (all, unknown int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.ops {
		if o.unknown {
			unknown++
		}
	}
	return len(h.ops), unknown
}
