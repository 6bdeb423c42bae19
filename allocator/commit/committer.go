// SPDX-License-Identifier: Apache-2.0

package commit

import (
	"slices"

	"github.com/signet-identity/signet/allocator"
)

// Config bounds what a Committer sends.
type Config struct {
	MaxOps   int // compares, writes and reads each, per transaction; etcd's default is 128
	MaxBytes int // keys and values per transaction
	InFlight int // Work transactions at once
}

// DefaultConfig suits an etcd with default limits.
func DefaultConfig() Config { return Config{MaxOps: 128, MaxBytes: 512 << 10, InFlight: 4} }

// overhead is what the fence adds to a transaction: two compares, one read.
const overhead = 2

// Stats counts what a Committer did since it was made.
type Stats struct {
	Transactions, Ops, Barriers, Splits, Overtaken, StaleWritesRejected, Unknown uint64
}

// Ready is what a Committer wants done, and what it has found out.
type Ready struct {
	Send     []Transaction
	Outcomes []allocator.Outcome
	// Deposed: the term is over. Foreign says why: the own key stands as this
	// leader never wrote it, so its lease has to be revoked.
	Deposed bool
	Foreign bool
}

// Committer packs ops into fenced transactions. It is not safe for concurrent use.
//
// Invariants: no two Work transactions in flight touch the same thing; while
// an outcome is unknown, nothing but a barrier is sent, and after it nothing
// but the read that settles.
type Committer struct {
	cfg   Config
	stats Stats

	active  bool
	fence   Fence
	nextID  uint64
	queue   []item
	flights map[uint64]*Transaction
	touched map[allocator.Touched]uint64 // by which transaction
	unknown []allocator.Op               // to be settled after a barrier
	barrier uint64                       // id of the barrier in flight; 0: none
	settle  map[uint64][]allocator.Op    // Settle reads in flight
	ready   Ready
}

// item is an op in the queue. alone: it is sent by itself, since a transaction
// with others was refused and nobody could tell why.
type item struct {
	op    allocator.Op
	alone bool
}

// New makes a committer outside any term.
func New(cfg Config) *Committer {
	c := &Committer{cfg: cfg}
	c.reset()
	return c
}

func (c *Committer) reset() {
	c.queue, c.unknown = nil, nil
	c.flights = map[uint64]*Transaction{}
	c.touched = map[allocator.Touched]uint64{}
	c.settle = map[uint64][]allocator.Op{}
	c.barrier, c.active = 0, false
}

// BeginTerm starts to send under this fence.
func (c *Committer) BeginTerm(f Fence) {
	c.reset()
	c.fence, c.active = f, true
}

// EndTerm forgets everything that is queued or in flight. Late results of the
// term are ignored.
func (c *Committer) EndTerm() { c.reset() }

// Fence is the fence in force.
func (c *Committer) Fence() Fence { return c.fence }

// Stats counts what the committer did since it was made.
func (c *Committer) Stats() Stats { return c.stats }

// Queued counts the ops that wait or are in flight.
func (c *Committer) Queued() int {
	n := len(c.queue) + len(c.unknown)
	for _, t := range c.flights {
		n += len(t.Ops)
	}
	return n
}

// Submit queues an op. Outside a term it is abandoned.
func (c *Committer) Submit(op allocator.Op) {
	if !c.active {
		c.outcome(allocator.Outcome{Op: op.ID, Kind: allocator.Abandoned})
		return
	}
	c.queue = append(c.queue, item{op: op})
}

// Ready returns what is to be sent and what has become known.
func (c *Committer) Ready() Ready {
	if c.active {
		switch {
		case c.barrier != 0 || len(c.settle) > 0:
		case len(c.unknown) > 0:
			c.sendBarrier()
		default:
			c.pack()
		}
	}
	out := c.ready
	c.ready = Ready{}
	return out
}

func (c *Committer) outcome(o allocator.Outcome) { c.ready.Outcomes = append(c.ready.Outcomes, o) }

func (c *Committer) send(t Transaction) {
	c.nextID++
	t.ID, t.Fence = c.nextID, c.fence
	if t.Kind == Work {
		c.flights[t.ID] = &t
		c.stats.Transactions++
		c.stats.Ops += uint64(len(t.Ops))
	}
	c.ready.Send = append(c.ready.Send, t)
}

// pack fills transactions from the queue, in order, as many as may fly. An op
// that touches what is in flight waits, and so does whatever it touches.
func (c *Committer) pack() {
	for len(c.flights) < c.cfg.InFlight {
		ops := c.next()
		if len(ops) == 0 {
			return
		}
		c.send(Transaction{Kind: Work, Ops: ops})
		for _, op := range ops {
			for _, t := range op.Touches() {
				c.touched[t] = c.nextID
			}
		}
	}
}

// next takes the ops of one transaction off the queue.
func (c *Committer) next() []allocator.Op {
	var ops []allocator.Op
	var rest []item
	size := budget{compares: overhead, reads: 1}
	blocked := map[allocator.Touched]bool{}
	written := map[allocator.Key]bool{} // a transaction may write a key once
	full := false
	for i, it := range c.queue {
		if full {
			rest = append(rest, c.queue[i:]...)
			break
		}
		cost := costOf(it.op)
		touches := it.op.Touches()
		fits := len(ops) == 0 || !it.alone && size.plus(cost).within(c.cfg)
		if fits && c.free(touches, blocked) && !writesAny(it.op, written) {
			ops, size = append(ops, it.op), size.plus(cost)
			for _, w := range it.op.Writes {
				written[w.Key] = true
			}
			full = it.alone
			continue
		}
		full = full || len(ops) > 0 && !fits
		for _, t := range touches {
			blocked[t] = true
		}
		rest = append(rest, it)
	}
	c.queue = rest
	return ops
}

func writesAny(op allocator.Op, written map[allocator.Key]bool) bool {
	return slices.ContainsFunc(op.Writes, func(w allocator.Write) bool { return written[w.Key] })
}

// free says whether nothing in flight, nor an earlier op that waits, touches any of these.
func (c *Committer) free(touches []allocator.Touched, blocked map[allocator.Touched]bool) bool {
	return !slices.ContainsFunc(touches, func(t allocator.Touched) bool {
		_, busy := c.touched[t]
		return busy || blocked[t]
	})
}

func (c *Committer) land(t *Transaction) {
	delete(c.flights, t.ID)
	for k, id := range c.touched {
		if id == t.ID {
			delete(c.touched, k)
		}
	}
}

// budget is what a transaction costs the store.
type budget struct{ compares, writes, reads, bytes int }

func costOf(op allocator.Op) budget {
	b := budget{compares: len(op.Guards), writes: len(op.Writes), reads: len(op.Keys())}
	for _, k := range op.Keys() {
		b.bytes += 64 + len(k.Labels) + len(k.Name)
	}
	for _, w := range op.Writes {
		if l, ok := w.Value.(allocator.LabelSet); ok {
			b.bytes += len(l)
		}
		b.bytes += 256
	}
	return b
}

func (b budget) plus(o budget) budget {
	return budget{b.compares + o.compares, b.writes + o.writes, b.reads + o.reads, b.bytes + o.bytes}
}

func (b budget) within(cfg Config) bool {
	return max(b.compares, b.writes, b.reads) <= cfg.MaxOps && b.bytes <= cfg.MaxBytes
}
