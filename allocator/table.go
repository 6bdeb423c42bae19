// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"sort"

	"github.com/signet-identity/signet/allocator/identity"
)

// table is the core's picture of the store: what the mirror delivered, with the
// outcomes of own operations laid over it until the mirror has caught up.
//
// Invariant: a key's state in the table is that of revision max(applied, ahead[key]).
type table struct {
	cluster string // name
	space   identity.Space
	applied int64
	ahead   map[Key]int64 // keys known beyond applied, and to which revision

	pool    *pool
	sets    map[string]*set
	masters map[identity.Number]*master
	tombs   map[identity.Number]*tomb
	tombsOf map[string][]identity.Number // label set text to its tombstones
	freed   freedQueue                   // tombstones, the longest freed first
	done    int                          // tombstones whose quarantine is stored as over
	foreign int                          // references under a lease: their owners cannot acknowledge
	idle    map[identity.Number]mark
	nodes   map[string]*node
	addrs   map[string]*address
	singles map[Key]Record // lineage, cluster, cluster ids, recovery, settings, policies

	promised  map[identity.Number]bool   // freed numbers that an operation in flight takes
	malformed map[identity.Number]bool   // masters whose text cannot be read, as far as known
	lost      map[identity.Number]string // masters deleted without a tombstone: number to label set text
	changed   map[identity.Number]bool   // numbers whose picture changed since the last Ready
}

// set is one label set: its masters, its references, and who waits for it.
type set struct {
	text    string
	masters []*master // sorted by number; more than one only through foreign writers
	refs    map[string]ref
	busy    bool // an operation on the set is in flight
	dirty   bool // it stands in the core's queue
	waiting []*request
	vain    int // operations in a row to keep it in order that came to nothing
}

type master struct {
	number      identity.Number
	text        string
	create, mod int64
	lease       int64
}

type ref struct {
	number identity.Number
	mod    int64 // the hold
	lease  int64
}

type mark struct {
	since Time
	mod   int64
}

type tomb struct {
	Tombstone
	mod int64
}

type address struct {
	key     string
	pair    Address
	mod     int64 // 0: not stored
	busy    bool
	dirty   bool
	waiting []*request
}

// newTable makes an empty table. limit is the highest number to hand out; 0: the space's.
func newTable(space identity.Space, limit identity.Number) *table {
	if !space.Contains(limit) {
		limit = space.Max()
	}
	t := &table{cluster: space.ClusterName, space: space, ahead: map[Key]int64{}, pool: newPool(space.Min(), limit)}
	t.clear()
	t.changed = map[identity.Number]bool{}
	return t
}

func (t *table) clear() {
	t.sets = map[string]*set{}
	t.masters = map[identity.Number]*master{}
	t.tombs = map[identity.Number]*tomb{}
	t.tombsOf = map[string][]identity.Number{}
	t.freed = freedQueue{}
	t.done, t.foreign = 0, 0
	t.idle = map[identity.Number]mark{}
	t.nodes = map[string]*node{}
	t.addrs = map[string]*address{}
	t.singles = map[Key]Record{}
	t.promised = map[identity.Number]bool{}
	t.lost = map[identity.Number]string{}
	t.malformed = map[identity.Number]bool{}
}

// set returns the label set with this text, made if need be.
func (t *table) set(text string) *set {
	s := t.sets[text]
	if s == nil {
		s = &set{text: text, refs: map[string]ref{}}
		t.sets[text] = s
	}
	return s
}

// prune forgets a set that nothing speaks of any more.
func (t *table) prune(s *set) {
	if len(s.masters) == 0 && len(s.refs) == 0 && len(s.waiting) == 0 && !s.busy && !s.dirty {
		delete(t.sets, s.text)
	}
}

func (t *table) node(name string) *node {
	n := t.nodes[name]
	if n == nil {
		n = newNode(name)
		t.nodes[name] = n
	}
	return n
}

func (t *table) address(key string) *address {
	a := t.addrs[key]
	if a == nil {
		a = &address{key: key}
		t.addrs[key] = a
	}
	return a
}

// observe lays over what a read or a commit showed of a key at revision rev.
// It returns whether the table now knows something new.
func (t *table) observe(key Key, rec *Record, rev int64) bool {
	if rev <= t.applied || t.ahead[key] > rev {
		t.observeMalformed(key, rec)
		return false
	}
	t.ahead[key] = rev
	if rec != nil {
		t.put(*rec)
	} else {
		t.remove(key)
	}
	return true
}

// observeMalformed notes a master whose text cannot be read: a mirror leaves it
// out, so only a read shows that its number is taken.
func (t *table) observeMalformed(key Key, rec *Record) {
	if key.Kind != KindMaster || rec == nil || t.masters[key.Number] != nil {
		return
	}
	if _, ok := rec.Value.(LabelSet); !ok {
		t.malformed[key.Number] = true
		t.pool.take(key.Number, true)
	}
}

// caughtUp moves the mirror's revision and drops what it now covers.
func (t *table) caughtUp(rev int64) {
	t.applied = max(t.applied, rev)
	for k, r := range t.ahead {
		if r <= t.applied {
			delete(t.ahead, k)
		}
	}
}

// put applies one record. Older or equal news about a key changes nothing.
func (t *table) put(r Record) {
	switch k := r.Key; k.Kind {
	case KindMaster:
		if v, ok := r.Value.(LabelSet); ok {
			t.putMaster(k.Number, string(v), r)
		} else {
			t.dropMaster(k.Number) // malformed text is no master, yet its number is taken
			t.malformed[k.Number] = true
			t.pool.take(k.Number, true)
		}
	case KindReference:
		v, _ := r.Value.(NumberValue)
		t.putRef(k, ref{number: identity.Number(v), mod: r.ModRevision, lease: r.Lease})
	case KindAddress:
		v, _ := r.Value.(Address)
		t.putAddress(k.Name, v, r.ModRevision)
	case KindPresence:
		v, _ := r.Value.(Presence)
		t.node(k.Name).appear(v, r)
	case KindGone:
		v, _ := r.Value.(Mark)
		n := t.node(k.Name)
		n.gone, n.lapsed = mark{since: v.Since, mod: r.ModRevision}, false
	case KindKnown:
		t.node(k.Name).known = r.ModRevision
	case KindIdle:
		v, _ := r.Value.(Mark)
		t.idle[k.Number] = mark{since: v.Since, mod: r.ModRevision}
		t.changed[k.Number] = true
	case KindTombstone:
		v, _ := r.Value.(Tombstone)
		t.putTombstone(k.Number, &tomb{Tombstone: v, mod: r.ModRevision})
	case KindElection, KindLock, KindNumberLock:
	default:
		t.singles[k] = r
	}
}

func (t *table) putMaster(n identity.Number, text string, r Record) {
	if old := t.masters[n]; old != nil {
		if old.text == text {
			old.create, old.mod, old.lease = r.CreateRevision, r.ModRevision, r.Lease
			t.changed[n] = true
			return
		}
		t.dropMaster(n)
	}
	m := &master{number: n, text: text, create: r.CreateRevision, mod: r.ModRevision, lease: r.Lease}
	t.masters[n] = m
	s := t.set(text)
	i := sort.Search(len(s.masters), func(i int) bool { return s.masters[i].number > n })
	s.masters = append(s.masters, nil)
	copy(s.masters[i+1:], s.masters[i:])
	s.masters[i] = m
	delete(t.lost, n)
	delete(t.malformed, n)
	t.pool.take(n, true)
	t.changed[n] = true
}

func (t *table) dropMaster(n identity.Number) {
	m := t.masters[n]
	if m == nil {
		return
	}
	delete(t.masters, n)
	s := t.set(m.text)
	for i, other := range s.masters {
		if other == m {
			s.masters = append(s.masters[:i], s.masters[i+1:]...)
			break
		}
	}
	t.changed[n] = true
	t.prune(s)
}

func (t *table) putRef(k Key, r ref) {
	s := t.set(k.Labels)
	t.countForeign(s.refs[k.Name].lease, -1)
	t.countForeign(r.lease, 1)
	s.refs[k.Name] = r
	t.countReference(k, r)
	if t.masters[r.number] == nil && t.tombs[r.number] == nil && t.pool.contains(r.number) {
		t.lost[r.number] = k.Labels // a reference keeps its number, even before the master is back
		t.pool.take(r.number, true)
	}
	t.changedSet(s)
}

// countReference notes what a node of this cluster holds. A reference to a number
// of another range belongs to another cluster on the same store, whose node may
// bear the same name: it is no business of ours.
func (t *table) countReference(k Key, r ref) {
	kind, name, err := ParseHolder(k.Name)
	if err != nil || kind != HolderNode || r.lease != 0 {
		return
	}
	if t.space.Contains(r.number) {
		t.node(name).refs[k.Labels] = true
	} else if n := t.nodes[name]; n != nil {
		delete(n.refs, k.Labels)
	}
}

func (t *table) countForeign(lease int64, by int) {
	if lease != 0 {
		t.foreign += by
	}
}

func (t *table) putAddress(name string, pair Address, mod int64) {
	a := t.address(name)
	t.disown(a)
	a.pair, a.mod = pair, mod
	if owner := t.ownerOf(pair); owner != "" {
		t.node(owner).addrs[name] = true
	}
}

func (t *table) disown(a *address) {
	if owner := t.ownerOf(a.pair); owner != "" && a.mod != 0 {
		delete(t.node(owner).addrs, a.key)
	}
}

func (t *table) putTombstone(n identity.Number, tb *tomb) {
	t.dropTombstone(n)
	t.tombs[n] = tb
	t.freed.push(n, tb.mod)
	if tb.Quarantine == QuarantineDone {
		t.done++
	}
	t.tombsOf[tb.Labels] = append(t.tombsOf[tb.Labels], n)
	delete(t.lost, n)
	t.pool.take(n, true)
	t.changed[n] = true
}

func (t *table) dropTombstone(n identity.Number) {
	tb := t.tombs[n]
	if tb == nil {
		return
	}
	delete(t.tombs, n)
	if tb.Quarantine == QuarantineDone {
		t.done--
	}
	t.changed[n] = true
	of := t.tombsOf[tb.Labels]
	for i, other := range of {
		if other == n {
			of = append(of[:i:i], of[i+1:]...)
			break
		}
	}
	if len(of) == 0 {
		delete(t.tombsOf, tb.Labels)
		return
	}
	t.tombsOf[tb.Labels] = of
}

// newestTombstone is the tombstone of a label set that was freed last.
func (t *table) newestTombstone(text string) (identity.Number, *tomb) {
	var number identity.Number
	var best *tomb
	for _, n := range t.tombsOf[text] {
		if tb := t.tombs[n]; best == nil || tb.Freed.Revision > best.Freed.Revision {
			number, best = n, tb
		}
	}
	return number, best
}

// remove applies one deletion.
func (t *table) remove(k Key) {
	switch k.Kind {
	case KindMaster:
		m := t.masters[k.Number]
		t.dropMaster(k.Number)
		delete(t.malformed, k.Number)
		if m != nil && t.tombs[k.Number] == nil {
			t.lost[k.Number] = m.text // a tombstone of the same transaction clears it
		} else if _, lost := t.lost[k.Number]; !lost && t.tombs[k.Number] == nil {
			t.pool.take(k.Number, false)
		}
	case KindReference:
		t.removeRef(k)
	case KindAddress:
		a := t.address(k.Name)
		t.disown(a)
		a.pair, a.mod = Address{}, 0
		t.pruneAddress(a)
	case KindPresence:
		t.node(k.Name).vanish()
	case KindGone:
		t.node(k.Name).gone = mark{}
	case KindKnown:
		t.node(k.Name).known = 0
	case KindIdle:
		delete(t.idle, k.Number)
		t.changed[k.Number] = true
	case KindTombstone:
		t.removeTombstone(k.Number)
	case KindElection, KindLock, KindNumberLock:
	default:
		delete(t.singles, k)
	}
}

func (t *table) removeRef(k Key) {
	s := t.sets[k.Labels]
	if s == nil {
		return
	}
	t.countForeign(s.refs[k.Name].lease, -1)
	delete(s.refs, k.Name)
	if n := t.nodes[k.Name]; n != nil {
		delete(n.refs, k.Labels)
	}
	t.changedSet(s)
	t.prune(s)
}

func (t *table) removeTombstone(n identity.Number) {
	t.dropTombstone(n)
	if t.masters[n] == nil {
		t.pool.take(n, false)
	}
}

func (t *table) pruneAddress(a *address) {
	if a.mod == 0 && !a.busy && !a.dirty && len(a.waiting) == 0 {
		delete(t.addrs, a.key)
	}
}

func (t *table) changedSet(s *set) {
	for _, m := range s.masters {
		t.changed[m.number] = true
	}
}

// keys lists every key that the table knows, in a fixed order.
func (t *table) keys() []Key {
	var out []Key
	for _, n := range sortedKeys(t.masters) {
		out = append(out, MasterKey(n))
	}
	for _, text := range sortedKeys(t.sets) {
		for _, holder := range sortedKeys(t.sets[text].refs) {
			out = append(out, ReferenceKey(text, holder))
		}
	}
	for _, name := range sortedKeys(t.nodes) {
		if t.nodes[name].presence != nil {
			out = append(out, PresenceKey(name))
		}
		if t.nodes[name].gone.mod != 0 {
			out = append(out, GoneKey(name))
		}
		if t.nodes[name].known != 0 {
			out = append(out, KnownKey(name))
		}
	}
	for _, n := range sortedKeys(t.idle) {
		out = append(out, IdleKey(n))
	}
	for _, n := range sortedKeys(t.tombs) {
		out = append(out, TombstoneKey(n))
	}
	for _, a := range sortedKeys(t.addrs) {
		if t.addrs[a].mod != 0 {
			out = append(out, AddressKey(a))
		}
	}
	singles := make([]Key, 0, len(t.singles))
	for k := range t.singles {
		singles = append(singles, k)
	}
	sort.Slice(singles, func(i, j int) bool { return singles[i].String() < singles[j].String() })
	return append(out, singles...)
}
