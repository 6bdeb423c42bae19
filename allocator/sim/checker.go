// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

// originKind says who changed the store.
type originKind uint8

const (
	byStore     originKind = iota // a lease that ended
	byMachine                     // an election's or presence's call
	byCommitter                   // a transaction of a candidate's term
	byHand
)

// origin is on whose behalf the store changed.
type origin struct {
	kind originKind
	who  string
	life int
	tx   commit.Transaction
}

// opKey names an op of one life of a candidate.
type opKey struct {
	who  string
	life int
	op   uint64
}

// fate is what became of an op: at the store, and as its core was told.
type fate struct {
	landed int64 // revision; 0: not
	told   allocator.OutcomeKind
}

type refKey struct{ text, holder string }

// version is one state of a reference: its hold and how long it stood.
type version struct {
	number  identity.Number
	hold    int64
	since   int64 // revision from which the reference existed without a gap
	removed int64 // 0: it stands
	lease   int64
}

// life is a master from its creation to its deletion.
type life struct {
	text          string
	born, removed int64
}

// stamp is a mark, and when it was written.
type stamp struct {
	revision int64
	at       time.Duration
	servedS  int64 // as the mark says
}

// checker holds the store's full history as far as the invariants need it.
type checker struct {
	w         *world
	space     identity.Space
	masters   map[identity.Number]*life // the newest of each number
	numbers   map[string]int            // live masters of a label set
	refs      map[refKey]*version       // the newest of each
	holders   map[string]int            // live references of a label set
	versions  map[int64]map[refKey]*version
	elections map[string]kvstore.KV
	present   map[string]bool   // nodes with a presence under a lease
	instances map[string]string // of the last presence of each node
	gone      map[string]stamp
	idle      map[identity.Number]stamp
	lineage   []served
	fates     map[opKey]*fate
	touched   map[identity.Number]bool // somebody edited this number's keys by hand

	tombs      map[identity.Number]freed // that stand
	freed      map[identity.Number]freed // the last removal of each number
	memory     map[string]int            // masters and tombstones of a label set
	knownSince map[string]int64
	knownTill  map[string]int64
	standing   map[string]standing // by node

	nodeAsks map[string][]*ask // leaves and forgets, by node
	asked    map[refKey][]*ask // releases, and allocations with a given-up hold
}

// served is one rewrite of the lineage.
type served struct {
	at      time.Duration
	seconds int64
}

func newChecker(w *world) *checker {
	return &checker{
		w: w, space: w.coreConfig().Space,
		masters: map[identity.Number]*life{}, numbers: map[string]int{}, refs: map[refKey]*version{},
		holders: map[string]int{}, versions: map[int64]map[refKey]*version{}, elections: map[string]kvstore.KV{},
		present: map[string]bool{}, instances: map[string]string{}, gone: map[string]stamp{}, idle: map[identity.Number]stamp{},
		fates: map[opKey]*fate{}, touched: map[identity.Number]bool{}, asked: map[refKey][]*ask{}, nodeAsks: map[string][]*ask{},
		tombs: map[identity.Number]freed{}, freed: map[identity.Number]freed{}, memory: map[string]int{}, knownSince: map[string]int64{}, knownTill: map[string]int64{}, standing: map[string]standing{},
	}
}

func (c *checker) fail(i allocator.Invariant, format string, args ...any) {
	c.w.violate(Violation{Invariant: i, Text: fmt.Sprintf(format, args...)})
}

// happened judges everything that one change did, revision by revision.
func (c *checker) happened(o origin, events []kvstore.Event) {
	if o.kind == byCommitter {
		c.checkFence(o)
		c.landed(o, events[0].KV.ModRevision)
	}
	for len(events) > 0 {
		n := 1
		for n < len(events) && events[n].KV.ModRevision == events[0].KV.ModRevision {
			n++
		}
		c.revision(o, events[:n])
		events = events[n:]
	}
}

// checkFence is I6: at the moment of the commit the sender's own key stood as
// the last barrier left it, and was the oldest.
func (c *checker) checkFence(o origin) {
	f := o.tx.Fence
	key := c.w.layout.ElectionKey(f.Lease)
	own, ok := c.elections[key]
	switch {
	case !ok:
		c.fail(allocator.I6, "%s wrote (%s) although its election key is gone", o.who, txText(o.tx))
	case own.ModRevision != f.Mod:
		c.fail(allocator.I6, "%s wrote (%s) behind a barrier: its key stands at %d, the fence at %d", o.who, txText(o.tx), own.ModRevision, f.Mod)
	}
	for k, kv := range c.elections {
		if kv.CreateRevision < own.CreateRevision && o.tx.Kind == commit.Work {
			c.fail(allocator.I6, "%s wrote (%s) although an older candidate stands: %s", o.who, txText(o.tx), k)
		}
	}
}

// deposed judges a leader that takes itself for deposed: no key of an election
// is ever written by others here, so its own must be gone.
func (c *checker) deposed(who string, lease int64) {
	if own, ok := c.elections[c.w.layout.ElectionKey(lease)]; ok && !c.w.opt.mutation.phantom {
		c.fail(allocator.I11, "%s gave up its term although its key stands at %d", who, own.ModRevision)
	}
}

func (c *checker) fate(k opKey) *fate {
	f := c.fates[k]
	if f == nil {
		f = &fate{}
		c.fates[k] = f
	}
	return f
}

// landed notes that the ops of a transaction are in the store.
func (c *checker) landed(o origin, rev int64) {
	if o.tx.Kind != commit.Work {
		return
	}
	for _, op := range o.tx.Ops {
		f := c.fate(opKey{o.who, o.life, op.ID})
		if f.landed != 0 {
			c.fail(allocator.I6, "op %d of %s landed twice: at %d and at %d", op.ID, o.who, f.landed, rev)
		}
		if f.told != 0 && f.told != allocator.Abandoned {
			c.fail(allocator.I6, "op %d of %s (%s) landed after its core was told: %v", op.ID, o.who, opText(op), f.told)
		}
		f.landed = rev
	}
}

// outcome judges what a core is told of its op.
func (c *checker) outcome(k opKey, o allocator.Outcome) {
	f := c.fate(k)
	if f.told != 0 {
		c.fail(allocator.I6, "op %d of %s has two outcomes: %v and %v", k.op, k.who, f.told, o.Kind)
	}
	f.told = o.Kind
	switch {
	case o.Kind == allocator.Refused && f.landed != 0:
		c.fail(allocator.I6, "op %d of %s landed at %d and its core was told it was refused", k.op, k.who, f.landed)
	case o.Kind == allocator.Committed && f.landed != 0 && f.landed != o.Revision:
		c.fail(allocator.I6, "op %d of %s landed at %d and its core was told %d", k.op, k.who, f.landed, o.Revision)
	}
}

// revision judges the events of one revision: first each by itself, then what
// has to hold once all of them are in.
func (c *checker) revision(o origin, events []kvstore.Event) {
	var records []record
	for _, ev := range events {
		r, err := c.decode(ev)
		if err != nil {
			if o.kind != byHand {
				c.fail(allocator.I9, "%s wrote a key that cannot be read: %v", o.who, err)
			}
			continue
		}
		records = append(records, r)
		if o.kind == byHand {
			c.touched[r.key.Number] = true
		}
	}
	for _, r := range records {
		c.checkWriter(o, r)
		c.apply(o, r)
	}
	for _, r := range records { // last, since the marks say why others were deleted
		c.mark(r)
		c.know(r)
	}
	for _, r := range records {
		c.after(o, r)
	}
}

// record is one event, decoded.
type record struct {
	key     allocator.Key
	value   allocator.Value // nil: deleted
	kv      kvstore.KV
	deleted bool
}

func (c *checker) decode(ev kvstore.Event) (record, error) {
	if ev.Delete {
		k, err := c.w.layout.Parse(ev.KV.Key)
		return record{key: k, kv: ev.KV, deleted: true}, err
	}
	r, err := c.w.layout.Decode(ev.KV)
	return record{key: r.Key, value: r.Value, kv: ev.KV}, err
}

// checkWriter is I6's other half: nobody but a term's committer writes the core's keys.
func (c *checker) checkWriter(o origin, r record) {
	switch r.key.Kind {
	case allocator.KindElection, allocator.KindPresence:
		return
	}
	if o.kind != byCommitter && o.kind != byHand && !(o.kind == byStore && r.key.Kind == allocator.KindReference) {
		c.fail(allocator.I6, "%s was written by %s outside of any term", r.key, o.who)
	}
}

func (c *checker) apply(o origin, r record) {
	switch r.key.Kind {
	case allocator.KindMaster:
		c.master(o, r)
	case allocator.KindReference:
		c.reference(o, r)
	case allocator.KindElection:
		if r.deleted {
			delete(c.elections, r.kv.Key)
		} else {
			c.elections[r.kv.Key] = r.kv
		}
	case allocator.KindPresence:
		c.present[r.key.Name] = !r.deleted && r.kv.Lease != 0
		if p, ok := r.value.(allocator.Presence); ok {
			c.instances[r.key.Name] = p.Instance
		}
	case allocator.KindTombstone:
		c.tombstone(r)
	case allocator.KindLineage:
		c.lineageWritten(r)
	}
}

func (c *checker) mark(r record) {
	value, _ := r.value.(allocator.Mark)
	stand := stamp{r.kv.ModRevision, c.w.now, value.Since.ServedS}
	switch {
	case r.key.Kind == allocator.KindGone && r.deleted:
		c.forgotten(r.key.Name)
		delete(c.gone, r.key.Name)
	case r.key.Kind == allocator.KindGone:
		c.gone[r.key.Name] = stand
	case r.key.Kind == allocator.KindIdle && r.deleted:
		delete(c.idle, r.key.Number)
	case r.key.Kind == allocator.KindIdle:
		c.idle[r.key.Number] = stand
	}
}

// after judges a record once its whole revision is in.
func (c *checker) after(o origin, r record) {
	if o.kind == byHand {
		return
	}
	switch {
	case r.key.Kind == allocator.KindMaster && r.deleted:
		if m := c.masters[r.key.Number]; m != nil && c.holders[m.text] > 0 {
			c.fail(allocator.I5, "number %d was collected while %s has %d references", r.key.Number, m.text, c.holders[m.text])
		}
	case r.key.Kind == allocator.KindMaster:
		if n := c.numbers[string(r.value.(allocator.LabelSet))]; n > 1 {
			c.fail(allocator.I1, "%v has %d live numbers", r.value, n)
		}
		if !c.touched[r.key.Number] {
			c.firewalls(r.key.Number, string(r.value.(allocator.LabelSet)))
		}
	case r.key.Kind == allocator.KindReference && !r.deleted:
		n := kvstore.ReferenceNumber(allocator.Record{Value: r.value})
		if m := c.masters[n]; (m == nil || m.removed != 0 || m.text != r.key.Labels) && !c.touched[n] {
			c.fail(allocator.I5, "%s names number %d, which is not live for it", r.key, n)
		}
	}
}

// lineageWritten checks that served time runs no faster than time.
func (c *checker) lineageWritten(r record) {
	l, ok := r.value.(allocator.Lineage)
	if !ok {
		return
	}
	for _, s := range c.lineage {
		if l.ServedS-s.seconds > int64(float64(c.w.now-s.at+servedSlack)*c.w.fastest/float64(time.Second)) {
			c.fail(allocator.I7, "served time went from %d s (at %v) to %d s (at %v)", s.seconds, s.at, l.ServedS, c.w.now)
		}
		if l.ServedS < s.seconds {
			c.fail(allocator.I7, "served time went back from %d s to %d s", s.seconds, l.ServedS)
		}
	}
	c.lineage = append(c.lineage, served{c.w.now, l.ServedS})
	if n := len(c.lineage); n > 16 { // the first, and the newest few
		c.lineage = append(c.lineage[:1], c.lineage[n-8:]...)
	}
}

// servedSlack is how much later than its decision a rewrite may land.
const servedSlack = 2*electionTTL + 2*time.Second
