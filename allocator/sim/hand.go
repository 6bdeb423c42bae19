// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/kvstore"
)

// hand is somebody who edits the store past Signet: a person with etcdctl, or a
// foreign allocator that puts references under a lease of its own.
type hand struct {
	lease int64 // the foreign allocator's
}

// edit makes one edit.
func (w *world) edit() {
	edits := []struct {
		name string
		f    func() bool
	}{
		{"master deleted by hand", func() bool { return w.removeOne(w.layout.Masters()) }},
		{"reference deleted by hand", func() bool { return w.removeOne(w.layout.References()) }},
		{"idle mark deleted by hand", func() bool { return w.removeOne(w.layout.Own() + "idle/") }},
		{"gone mark deleted by hand", func() bool { return w.removeOne(w.layout.Own() + "gone/") }},
		{"reference rewritten by hand", w.rewriteReference},
		{"foreign reference", w.foreignReference},
		{"foreign reference", w.foreignReference},
		{"foreign lease ended", w.endForeignLease},
	}
	e := edits[w.random.IntN(len(edits))]
	if e.f() {
		w.stats.Faults[e.name]++
	}
}

func (w *world) someKey(prefix string) (kvstore.KV, bool) {
	r, err := w.model.Range(kvstore.RangeRequest{Key: prefix, RangeEnd: kvstore.PrefixEnd(prefix)})
	if err != nil || len(r.KVs) == 0 {
		return kvstore.KV{}, false
	}
	return r.KVs[w.random.IntN(len(r.KVs))], true
}

func (w *world) byHand(txn kvstore.Txn) (err error) {
	w.change(origin{kind: byHand, who: "hand"}, func() { _, err = w.model.Txn(txn) })
	return err
}

func (w *world) removeOne(prefix string) bool {
	kv, ok := w.someKey(prefix)
	if ok {
		w.log("hand", "deletes %s", kv.Key)
		return w.byHand(kvstore.Txn{Then: []kvstore.Action{{Delete: true, Key: kv.Key}}}) == nil
	}
	return false
}

// rewriteReference puts what stands there already: the hold changes.
func (w *world) rewriteReference() bool { return w.rewrite(w.someKey(w.layout.References())) }

func (w *world) rewrite(kv kvstore.KV, ok bool) bool {
	if !ok || kv.Lease != 0 {
		return false
	}
	w.log("hand", "rewrites %s", kv.Key)
	return w.byHand(kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: kv.Key, Value: kv.Value}}}) == nil
}

// meddle edits, now and then, just what a transaction that is on its way
// compares: it adds a reference to what is to be collected, and rewrites what is
// to be released.
func (w *world) meddle(tx commit.Transaction) {
	if !w.opt.hand() || w.quiet || tx.Kind != commit.Work {
		return
	}
	for _, op := range tx.Ops {
		for _, wr := range op.Writes {
			key := mustKey(w.layout, wr.Key)
			switch {
			case op.Verb == allocator.VerbCollect && wr.Key.Kind == allocator.KindMaster && w.fault("foreign reference", 0.3):
				w.in(0, func() { w.referTo(w.read(key)) })
			case op.Verb == allocator.VerbRelease && wr.Key.Kind == allocator.KindReference && w.fault("reference rewritten by hand", 0.1):
				w.in(0, func() { w.rewrite(w.read(key)) })
			}
		}
	}
}

func (w *world) read(key string) (kvstore.KV, bool) {
	r, err := w.model.Range(kvstore.RangeRequest{Key: key})
	if err != nil || len(r.KVs) == 0 {
		return kvstore.KV{}, false
	}
	return r.KVs[0], true
}

// foreignReference puts a reference under a lease, if the master is still there.
func (w *world) foreignReference() bool { return w.referTo(w.someKey(w.layout.Masters())) }

func (w *world) referTo(master kvstore.KV, ok bool) bool {
	if !ok {
		return false
	}
	if w.hand.lease == 0 {
		lease, err := w.model.Grant(w.opt.Broken+w.opt.Settle*2, w.now)
		if err != nil {
			panic(err)
		}
		w.hand.lease = lease
	}
	rec, err := w.layout.Decode(master)
	if err != nil {
		return false
	}
	text := string(rec.Value.(allocator.LabelSet))
	key := mustKey(w.layout, allocator.ReferenceKey(text, "cilium-7"))
	number := allocator.NumberValue(rec.Key.Number).String()
	w.log("hand", "puts %s", key)
	err = w.byHand(kvstore.Txn{
		If:   []kvstore.Compare{{Key: master.Key, Target: kvstore.CompareMod, Op: '=', Revision: master.ModRevision}},
		Then: []kvstore.Action{{Put: true, Key: key, Value: []byte(number), Lease: w.hand.lease}},
	})
	if err != nil {
		w.hand.lease = 0 // somebody revoked it
	}
	return err == nil
}

func (w *world) endForeignLease() bool {
	if w.hand.lease == 0 {
		return false
	}
	id := w.hand.lease
	w.hand.lease = 0
	w.log("hand", "ends its lease")
	w.change(origin{kind: byStore}, func() { _ = w.model.Revoke(id) })
	return true
}
