// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

// repairer plans over a judged content.
type repairer struct {
	*checker
	kvs     map[string]kvstore.KV
	byCode  map[Code]Repair
	named   bool             // the codes were named
	written map[Bytes]*Bytes // by the steps so far; nil: deleted
	touched map[Bytes]bool   // written or guarded by the steps so far
	steps   []Step
	left    []Left
}

func newRepairer(kvs []kvstore.KV, revision int64, o Options, codes []Code) *repairer {
	r := &repairer{checker: judge(kvs, revision, o), kvs: map[string]kvstore.KV{}, byCode: map[Code]Repair{},
		named: len(codes) > 0, written: map[Bytes]*Bytes{}, touched: map[Bytes]bool{}, steps: []Step{}, left: []Left{}}
	for _, kv := range kvs {
		r.kvs[kv.Key] = kv
	}
	for _, repair := range Repairs() {
		r.byCode[repair.Code] = repair
	}
	return r
}

// remedy is what a planner proposes for one finding.
type remedy struct {
	guards []Guard
	writes []Write
	// byName: it takes something that could still be needed, so it is planned
	// only when its code is named.
	byName bool
	// left says why nothing is proposed.
	left string
}

func leave(format string, args ...any) remedy { return remedy{left: fmt.Sprintf(format, args...)} }

// plan makes a step for a finding, or says why there is none.
func (r *repairer) plan(f Finding) {
	repair := r.byCode[f.Code]
	m := remedy{left: repair.Text}
	if repair.plan != nil {
		m = repair.plan(r, f)
	}
	if m.left == "" && m.byName && !r.named {
		m.left = "It is done only when the code is named: " + repair.Text
	}
	if m.left == "" && r.done(m) {
		return
	}
	if m.left == "" && r.clash(m) {
		m.left = "Another step changes what it is about; plan again once that is done."
	}
	if m.left != "" {
		r.left = append(r.left, Left{Code: f.Code, Severity: f.Severity, Object: Bytes(f.Object), Why: m.left})
		return
	}
	for _, g := range m.guards {
		r.touched[g.Key] = true
	}
	for _, w := range m.writes {
		r.written[w.Key] = w.Value
	}
	r.steps = append(r.steps, Step{Code: f.Code, Object: Bytes(f.Object), Why: repair.Text, Guards: m.guards, Writes: m.writes})
}

// done says whether the steps so far do all of it.
func (r *repairer) done(m remedy) bool {
	return !slices.ContainsFunc(m.writes, func(w Write) bool {
		v, ok := r.written[w.Key]
		return !ok || (v == nil) != (w.Value == nil) || v != nil && *v != *w.Value
	})
}

// clash says whether a step so far and this one would change what the other
// one compares: then the second would find its ground changed.
func (r *repairer) clash(m remedy) bool {
	return slices.ContainsFunc(m.writes, func(w Write) bool { return r.touched[w.Key] }) ||
		slices.ContainsFunc(m.guards, func(g Guard) bool { _, ok := r.written[g.Key]; return ok })
}

// at guards that a key stands as it was read; absent if it was.
func (m *remedy) at(r *repairer, key string) {
	g := Guard{Key: Bytes(key), Revision: r.kvs[key].ModRevision}
	if !slices.Contains(m.guards, g) {
		m.guards = append(m.guards, g)
	}
}

// empty guards that no key begins with prefix.
func (m *remedy) empty(prefix string) {
	m.guards = append(m.guards, Guard{Key: Bytes(prefix), Prefix: true})
}

// del deletes a key as it was read.
func (m *remedy) del(r *repairer, key string) {
	m.at(r, key)
	m.writes = append(m.writes, Write{Key: Bytes(key), Was: r.was(key)})
}

// put writes a key in the place of what was read, without a lease.
func (m *remedy) put(r *repairer, key string, value []byte) {
	m.at(r, key)
	v := Bytes(value)
	m.writes = append(m.writes, Write{Key: Bytes(key), Value: &v, Was: r.was(key)})
}

// set is put for a key and a value of ours; what cannot be written is left.
func (m *remedy) set(r *repairer, k allocator.Key, v allocator.Value) {
	key, err := r.layout.Key(k)
	if err != nil {
		m.left = err.Error()
		return
	}
	data, err := kvstore.EncodeValue(k, v)
	if err != nil {
		m.left = err.Error()
		return
	}
	m.put(r, key, data)
}

func (r *repairer) was(key string) *Bytes {
	kv, ok := r.kvs[key]
	if !ok {
		return nil
	}
	b := Bytes(kv.Value)
	return &b
}

// now is the moment that a mark written now carries: served time as stored, so
// that a grace begins anew and never ends early. ok: there is a lineage to tell.
func (r *repairer) now() (t allocator.Time, ok bool) {
	if r.lineage == nil {
		return t, false
	}
	l, _ := r.lineage.Value.(allocator.Lineage)
	return allocator.Time{Revision: r.revision, ServedS: l.ServedS}, true
}

// winner is the number that counts for a label set: that of a readable master
// in the own range.
func (r *repairer) winner(text string) (identity.Number, bool) {
	s := r.sets[text]
	if s == nil || len(s.numbers) == 0 {
		return 0, false
	}
	best := slices.MaxFunc(s.numbers, r.better)
	return best, r.inRange(best) && !best.IsReserved()
}

// reference finds a readable reference by its key.
func (r *repairer) reference(key string) (item, bool) {
	i := slices.IndexFunc(r.references, func(it item) bool { return it.key == key })
	if i < 0 {
		return item{}, false
	}
	return r.references[i], true
}

// naming are the readable references that name a number, by key.
func (r *repairer) naming(n identity.Number) []item {
	var out []item
	for _, it := range r.references {
		if numberOf(it) == n {
			out = append(out, it)
		}
	}
	return out
}
