// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"time"
)

// Span is a range of keys [Key, End) that a Mirror follows.
type Span struct {
	Key, End string
}

// PrefixSpan is the span of all keys with this prefix.
func PrefixSpan(prefix string) Span { return Span{Key: prefix, End: PrefixEnd(prefix)} }

// holds says whether the span holds key.
func (s Span) holds(key string) bool {
	return key >= s.Key && (s.End == "\x00" || key < s.End)
}

// MirrorConfig is what a Mirror needs to know. Spans must not overlap.
type MirrorConfig struct {
	Spans []Span
	// Heartbeat: a watch that said nothing for so long is asked for progress; one
	// that says nothing for two more is dead. Default 5 s, at most 10 s.
	Heartbeat time.Duration
	// PageSize of a list, in keys. Default 5,000.
	PageSize int64
	// PageTimeout bounds one page. Default 10 s.
	PageTimeout time.Duration
	// MaxHeld bounds the events held back while another watch lags; a watch that
	// runs further ahead is closed and resumed later. Default 100,000.
	MaxHeld int
	// Backoff before a list or watch is tried again: from Backoff, doubled up to
	// MaxBackoff, each time between half and the whole of it. Defaults 50 ms and 5 s.
	Backoff, MaxBackoff time.Duration
	// AskEvery is the least time between two requests for progress while
	// somebody waits, doubled up to Heartbeat while nothing comes. Default 5 ms.
	AskEvery time.Duration
	// Audit: every so often everything is listed anew although nothing seems
	// amiss (what a faulty server left out of a watch is found so). 0: never.
	Audit time.Duration
}

func (c MirrorConfig) withDefaults() MirrorConfig {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&c.Heartbeat, 5*time.Second)
	c.Heartbeat = min(c.Heartbeat, 10*time.Second)
	set(&c.PageTimeout, 10*time.Second)
	set(&c.Backoff, 50*time.Millisecond)
	set(&c.MaxBackoff, 5*time.Second)
	set(&c.AskEvery, 5*time.Millisecond)
	if c.PageSize <= 0 {
		c.PageSize = 5000
	}
	if c.MaxHeld <= 0 {
		c.MaxHeld = 100_000
	}
	return c
}

func (c MirrorConfig) check() error {
	if len(c.Spans) == 0 {
		return fmt.Errorf("a mirror needs at least one span of keys")
	}
	spans := append([]Span(nil), c.Spans...)
	sort.Slice(spans, func(i, j int) bool { return spans[i].Key < spans[j].Key })
	for i := 1; i < len(spans); i++ {
		if spans[i-1].holds(spans[i].Key) {
			return fmt.Errorf("the spans from %q and from %q overlap", spans[i-1].Key, spans[i].Key)
		}
	}
	return nil
}

// MirrorBatch is a step of a mirror: everything that happened in its spans up
// to Revision since the batch before. All events of one revision stand in one
// batch, and no events of another (so each key at most once). With Reset, Events
// is instead the complete state at Revision, one put for each key, and what it
// does not name is gone: compare it with the state before (MirrorIndex does),
// never delete all and then add.
type MirrorBatch struct {
	Revision int64
	Reset    bool
	Events   []Event
}

// WentBack says that the store's head (linearizable) is lower than what has
// been applied: the store was restored. The mirror applies nothing more until Accept.
type WentBack struct {
	Have, Seen int64
}

// MirrorReady is what Step left to do. Batches come before WentBack.
type MirrorReady struct {
	Batches  []MirrorBatch
	WentBack *WentBack
	Calls    []Call
	Wake     time.Duration
}

// MirrorStatus is what a Mirror knows.
type MirrorStatus struct {
	State   string // listing, following, went-back
	Applied int64  // revision up to which batches were given out
	Head    int64  // highest header revision seen
	// Ages is, for each span, the time since its watch (or the list) last gave a sign of life.
	Ages      []time.Duration
	Held      int    // events held back since another watch lags
	Relists   uint64 // lists after the first
	Rewatches uint64 // watches opened after the first of each span and list
	Err       error  // the last failure; nil once all watches live
}

// Age is the highest of Ages.
func (s MirrorStatus) Age() time.Duration {
	var age time.Duration
	for _, a := range s.Ages {
		age = max(age, a)
	}
	return age
}

type mirrorState uint8

const (
	mirrorListing mirrorState = iota
	mirrorFollowing
	mirrorWentBack
)

func (s mirrorState) String() string {
	return [...]string{"listing", "following", "went-back"}[s]
}

// Mirror follows several spans of keys as one, as a state machine without I/O
// or clock. It lists all at one revision and watches each from the next on:
//
//	applied = min over the spans of (the revision up to which the watch has told all)
//
// so what it gives out is the store's state at one revision, step by step, and
// never of a lower revision than before.
type Mirror struct {
	calls
	cfg  MirrorConfig
	rand *rand.Rand

	state   mirrorState
	list    listing
	watches []following
	confirm pending // asks linearizably whether the store went back
	seen    int64   // what its revision is compared with

	applied int64
	head    int64
	wanted  int64         // a reader waits for this revision
	asked   time.Duration // when progress was last asked for
	askGap  time.Duration
	audit   time.Duration // when to list anew; Never: not

	batches   []MirrorBatch
	wentBack  *WentBack
	relists   uint64
	rewatches uint64
	err       error
}

// NewMirror returns a mirror that has not begun: the first Tick begins. random
// spreads its retries.
func NewMirror(cfg MirrorConfig, random *rand.Rand) (*Mirror, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Mirror{cfg: cfg, rand: random, audit: Never, askGap: cfg.AskEvery, asked: -cfg.Heartbeat,
		watches: make([]following, len(cfg.Spans))}, nil
}

// Applied is the revision up to which batches were given out; 0 before the first list.
func (m *Mirror) Applied() int64 { return m.applied }

// Head is the highest header revision seen.
func (m *Mirror) Head() int64 { return m.head }

// Status reports at time now.
func (m *Mirror) Status(now time.Duration) MirrorStatus {
	s := MirrorStatus{State: m.state.String(), Applied: m.applied, Head: m.head,
		Held: m.held(), Relists: m.relists, Rewatches: m.rewatches, Err: m.err}
	for i := range m.watches {
		s.Ages = append(s.Ages, now-m.watches[i].sign)
	}
	return s
}
