// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
)

// world is everything that one run consists of.
type world struct {
	opt     Options
	random  *rand.Rand
	now     time.Duration // the store's clock, and everybody's
	queue   happenings
	order   uint64
	stats   Stats
	faults  faults
	quiet   bool    // no more faults
	fastest float64 // how much faster than the store's a clock may run

	layout  kvstore.Layout
	model   *fake.Model
	told    int64 // revision up to which checker and watches know
	links   []*link
	checker *checker

	candidates []*candidate
	agents     []*agent
	pins       []*agent
	hand       hand

	trace   *trace
	failure *Violation
}

type happening struct {
	at    time.Duration
	order uint64
	f     func()
}

type happenings []happening

func (h happenings) Len() int { return len(h) }
func (h happenings) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h happenings) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *happenings) Push(x any)   { *h = append(*h, x.(happening)) }
func (h *happenings) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = happening{}
	*h = old[:len(old)-1]
	return x
}

// in lets f happen after d.
func (w *world) in(d time.Duration, f func()) { w.at(w.now+d, f) }

func (w *world) at(t time.Duration, f func()) {
	w.order++
	heap.Push(&w.queue, happening{at: max(t, w.now), order: w.order, f: f})
}

// run lets time pass until the moment end, or a violation.
func (w *world) run(end time.Duration) {
	for w.failure == nil {
		next := end
		if len(w.queue) > 0 {
			next = min(next, w.queue[0].at)
		}
		if at, any := w.model.NextExpiry(); any && at <= next {
			w.now = max(w.now, at)
			w.change(origin{kind: byStore}, func() { w.model.Expire(w.now) })
			continue
		}
		if len(w.queue) == 0 || w.queue[0].at > end {
			w.now = max(w.now, end)
			return
		}
		h := heap.Pop(&w.queue).(happening)
		w.now = max(w.now, h.at)
		h.f()
	}
}

// change does something to the store on somebody's behalf: the checker judges
// what came of it, and the watches are told.
func (w *world) change(o origin, f func()) {
	f()
	head := w.model.Revision()
	if head == w.told {
		return
	}
	events, compacted := w.model.Events(w.told+1, "", "\x00")
	if compacted {
		panic("the checker fell behind compaction")
	}
	w.told = head
	w.checker.happened(o, events)
	for _, l := range w.links {
		l.tell()
	}
}

// chance is true with probability p.
func (w *world) chance(p float64) bool { return p > 0 && w.random.Float64() < p }

// between is a random duration in [lo, hi).
func (w *world) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.random.Int64N(int64(hi-lo)))
}

// fault counts a fault and says whether it is to happen.
func (w *world) fault(kind string, p float64) bool {
	if w.quiet || !w.chance(p) || w.left(kind) {
		return false
	}
	w.stats.Faults[kind]++
	return true
}

// left says whether this kind of fault is left out.
func (w *world) left(kind string) bool { return slices.Contains(w.opt.Without, kind) }

// violate notes the first violation; the run ends with it.
func (w *world) violate(i Violation) {
	if w.failure == nil {
		i.At, i.Revision = w.now, w.told
		w.failure = &i
		w.log("checker", "VIOLATION %s: %s", i.Invariant, i.Text)
	}
}

// log adds a line to the trace, if one is kept.
func (w *world) log(who, format string, args ...any) {
	if w.trace != nil {
		w.trace.add(fmt.Sprintf("%10.3fs r%-5d %-5s %s", w.now.Seconds(), w.model.Revision(), who, fmt.Sprintf(format, args...)))
	}
}

// trace keeps the last lines of a run.
type trace struct {
	lines []string
	next  int
}

const traceLines = 3000

func (t *trace) add(line string) {
	if len(t.lines) < traceLines {
		t.lines = append(t.lines, line)
		return
	}
	t.lines[t.next] = line
	t.next = (t.next + 1) % traceLines
}

// all is the lines kept, oldest first.
func (t *trace) all() []string {
	return append(append([]string{}, t.lines[t.next:]...), t.lines[:t.next]...)
}
