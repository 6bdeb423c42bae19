// SPDX-License-Identifier: Apache-2.0

package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"pgregory.net/rapid"

	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
	"github.com/signet-identity/signet/kvstore/storetest"
)

// twins are the model and a real etcd that get the same operations. Their
// revisions differ by a constant, their leases by a table.
type twins struct {
	ctx    context.Context
	prefix string
	model  *fake.Model
	etcd   kvstore.Store
	comp   func(rev int64) error
	offset int64      // etcd's revision less the model's
	leases [][2]int64 // the model's, etcd's; revoked ones too
}

func (w *twins) key(name string) string { return w.prefix + name }

// keyOf draws from few names, so that operations meet.
func (w *twins) keyOf() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return w.key(rapid.SampledFrom([]string{"a", "b", "b/1", "b/2", "c"}).Draw(t, "key"))
	})
}

// rangeOf draws a key and a range's end, often none.
func (w *twins) rangeOf(t *rapid.T) (key, end string) {
	key = w.keyOf().Draw(t, "from")
	switch rapid.IntRange(0, 3).Draw(t, "range") {
	case 0:
		return key, kvstore.PrefixEnd(key)
	case 1:
		return w.prefix, kvstore.PrefixEnd(w.prefix)
	case 2:
		return key, w.keyOf().Draw(t, "to")
	}
	return key, ""
}

// revision draws a revision of the model near its head.
func (w *twins) revision(t *rapid.T) int64 {
	return max(0, w.model.Revision()-rapid.Int64Range(-1, 6).Draw(t, "back"))
}

// action and compare draw in the model's terms; translate makes etcd's of them.
func (w *twins) action(t *rapid.T) kvstore.Action {
	switch rapid.IntRange(0, 3).Draw(t, "action") {
	case 0:
		key, end := w.rangeOf(t)
		return kvstore.Action{Key: key, RangeEnd: end, Limit: rapid.Int64Range(0, 2).Draw(t, "limit"), KeysOnly: rapid.Bool().Draw(t, "keys")}
	case 1:
		key, end := w.rangeOf(t)
		return kvstore.Action{Delete: true, Key: key, RangeEnd: end}
	}
	a := kvstore.Action{Put: true, Key: w.keyOf().Draw(t, "key"), Value: []byte(rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "value"))}
	if n := rapid.IntRange(-3, len(w.leases)-1).Draw(t, "lease"); n >= 0 {
		a.Lease = w.leases[n][0]
	} else if n == -3 {
		a.Lease = 4711
	}
	return a
}

func (w *twins) compare(t *rapid.T) kvstore.Compare {
	key, end := w.rangeOf(t)
	c := kvstore.Compare{
		Key: key, RangeEnd: end,
		Target: rapid.SampledFrom([]kvstore.Target{kvstore.CompareCreate, kvstore.CompareMod, kvstore.CompareValue}).Draw(t, "target"),
		Op:     rapid.SampledFrom([]byte("=><")).Draw(t, "op"),
	}
	if c.Target == kvstore.CompareValue {
		c.Value = []byte(rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "value"))
	} else if rapid.Bool().Draw(t, "present") {
		c.Revision = w.revision(t)
	}
	return c
}

func (w *twins) txn(t *rapid.T) kvstore.Txn {
	return kvstore.Txn{
		If:   drawSome(t, "if", 2, w.compare),
		Then: drawSome(t, "then", 3, w.action),
		Else: drawSome(t, "else", 3, w.action),
	}
}

func drawSome[T any](t *rapid.T, name string, most int, draw func(*rapid.T) T) (out []T) {
	for range rapid.IntRange(0, most).Draw(t, name) {
		out = append(out, draw(t))
	}
	return out
}

// abroad turns a revision of the model into etcd's; 0 and what no key of this
// run can have stay what they are.
func (w *twins) abroad(rev int64) int64 {
	if rev == 0 {
		return 0
	}
	return rev + w.offset
}

func (w *twins) translate(txn kvstore.Txn) kvstore.Txn {
	out := kvstore.Txn{If: append([]kvstore.Compare(nil), txn.If...)}
	for i := range out.If {
		out.If[i].Revision = w.abroad(out.If[i].Revision)
	}
	out.Then, out.Else = w.abroadActions(txn.Then), w.abroadActions(txn.Else)
	return out
}

func (w *twins) abroadActions(actions []kvstore.Action) []kvstore.Action {
	out := append([]kvstore.Action(nil), actions...)
	for i := range out {
		for _, pair := range w.leases {
			if pair[0] == out[i].Lease {
				out[i].Lease = pair[1]
			}
		}
	}
	return out
}

// home turns keys of etcd into the model's terms.
func (w *twins) home(kvs []kvstore.KV) string {
	s := ""
	for _, kv := range kvs {
		for _, pair := range w.leases {
			if pair[1] == kv.Lease {
				kv.Lease = pair[0]
			}
		}
		kv.CreateRevision, kv.ModRevision = w.homeRevision(kv.CreateRevision), w.homeRevision(kv.ModRevision)
		s += show(kv)
	}
	return s
}

func (w *twins) homeRevision(rev int64) int64 {
	if rev == 0 {
		return 0
	}
	return rev - w.offset
}

func show(kv kvstore.KV) string {
	return fmt.Sprintf("%s=%q c%d m%d v%d l%x\n", kv.Key, kv.Value, kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease)
}

func showAll(kvs []kvstore.KV) string {
	s := ""
	for _, kv := range kvs {
		s += show(kv)
	}
	return s
}

// kindOf is the typed error that err stands for.
func kindOf(err error) error {
	for _, kind := range []error{
		kvstore.ErrCompacted, kvstore.ErrFutureRevision, kvstore.ErrLeaseNotFound,
		kvstore.ErrDuplicateKey, kvstore.ErrTooLarge, kvstore.ErrEmptyKey,
	} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return err
}

// typed gives an error of etcd's own client its kind.
func typed(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return kvstore.ErrCompacted
	case errors.Is(err, rpctypes.ErrFutureRev):
		return kvstore.ErrFutureRevision
	}
	return err
}

func (w *twins) doTxn(t *rapid.T) {
	txn := w.txn(t)
	got, gotErr := w.etcd.Txn(w.ctx, w.translate(txn))
	want, wantErr := w.model.Txn(txn)
	if kindOf(gotErr) != kindOf(wantErr) {
		t.Fatalf("%+v:\netcd says %v, the model %v", txn, gotErr, wantErr)
	}
	if gotErr != nil {
		return
	}
	if got.Succeeded != want.Succeeded || w.homeRevision(got.Revision) != want.Revision || len(got.Reads) != len(want.Reads) {
		t.Fatalf("%+v:\netcd says %+v, the model %+v", txn, got, want)
	}
	for i := range got.Reads {
		if a, b := w.home(got.Reads[i]), showAll(want.Reads[i]); a != b {
			t.Fatalf("%+v: read %d:\netcd says\n%sthe model\n%s", txn, i, a, b)
		}
	}
}

func (w *twins) doRange(t *rapid.T) {
	key, end := w.rangeOf(t)
	r := kvstore.RangeRequest{Key: key, RangeEnd: end, Limit: rapid.Int64Range(0, 3).Draw(t, "limit"), KeysOnly: rapid.Bool().Draw(t, "keys")}
	if rapid.Bool().Draw(t, "past") {
		r.Revision = w.revision(t)
	}
	abroad := r
	abroad.Revision = w.abroad(r.Revision)
	got, gotErr := w.etcd.Range(w.ctx, abroad)
	want, wantErr := w.model.Range(r)
	if kindOf(gotErr) != kindOf(wantErr) {
		t.Fatalf("%+v: etcd says %v, the model %v", r, gotErr, wantErr)
	}
	if gotErr == nil && (w.home(got.KVs) != showAll(want.KVs) || got.More != want.More || w.homeRevision(got.Revision) != want.Revision) {
		t.Fatalf("%+v:\netcd says %+v\nthe model %+v", r, got, want)
	}
}

func (w *twins) doGrant(t *rapid.T) {
	if len(w.leases) >= 5 {
		t.Skip("enough leases")
	}
	here, hereErr := w.model.Grant(time.Hour, 0)
	there, thereErr := w.etcd.Grant(w.ctx, time.Hour)
	if hereErr != nil || thereErr != nil {
		t.Fatalf("Grant: %v, %v", hereErr, thereErr)
	}
	w.leases = append(w.leases, [2]int64{here, there})
}

func (w *twins) doRevoke(t *rapid.T) {
	if len(w.leases) == 0 {
		t.Skip("no lease")
	}
	pair := rapid.SampledFrom(w.leases).Draw(t, "lease")
	if got, want := w.etcd.Revoke(w.ctx, pair[1]), w.model.Revoke(pair[0]); kindOf(got) != kindOf(want) {
		t.Fatalf("Revoke: etcd says %v, the model %v", got, want)
	}
	_, got := w.etcd.KeepAlive(w.ctx, pair[1])
	_, want := w.model.KeepAlive(pair[0], 0)
	if kindOf(got) != kindOf(want) {
		t.Fatalf("KeepAlive: etcd says %v, the model %v", got, want)
	}
}

func (w *twins) doCompact(t *rapid.T) {
	rev := max(1, w.revision(t))
	if got, want := w.comp(w.abroad(rev)), w.model.Compact(rev); kindOf(got) != kindOf(want) {
		t.Fatalf("Compact(%d) at %d after %d: etcd says %v, the model %v", rev, w.model.Revision(), w.model.Compacted(), got, want)
	}
}

// watchAll compares everything that a watch from a revision on delivers.
func (w *twins) watchAll(t *rapid.T) {
	from := max(1, w.revision(t))
	key, end := w.rangeOf(t)
	if end != "" && end <= key {
		t.Skip("etcd refuses to watch an empty range")
	}
	want, compacted := w.model.Events(from, key, end)
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	batches := w.etcd.Watch(ctx, kvstore.WatchRequest{Key: key, RangeEnd: end, Revision: w.abroad(from)})
	var got []kvstore.Event
	for len(got) < len(want) || compacted {
		b, open := <-batches
		if !open || errors.Is(b.Err, kvstore.ErrCompacted) && compacted && w.homeRevision(b.CompactRevision) == w.model.Compacted() {
			break
		}
		if b.Err != nil {
			t.Fatalf("watch of %q to %q from %d (compacted: %v at %d): %v", key, end, from, compacted, w.model.Compacted(), b.Err)
		}
		got = append(got, b.Events...)
	}
	if w.ctx.Err() != nil {
		t.Fatalf("watch of %q to %q from %d: etcd delivered %+v, the model %+v", key, end, from, got, want)
	}
	for i := range got {
		if a, b := w.home([]kvstore.KV{got[i].KV}), show(want[i].KV); a != b || got[i].Delete != want[i].Delete {
			t.Fatalf("event %d from %d: etcd says %v %s, the model %v %s", i, from, got[i].Delete, a, want[i].Delete, b)
		}
	}
}

// TestModelIsLikeEtcd gives the same random operations to the model and to a
// real etcd and compares every answer.
func TestModelIsLikeEtcd(t *testing.T) {
	server := startEtcd(t)
	store := openEtcd(t, server)
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		ctx, cancel := context.WithTimeout(t.Context(), storetest.Patience)
		defer cancel()
		w := &twins{
			ctx: ctx, prefix: fmt.Sprintf("twins/%d/", runs), etcd: store,
			model: fake.NewModel(fake.Limits{}, uint64(runs)),
			comp: func(rev int64) error {
				_, err := store.Client().Compact(ctx, rev)
				return typed(err)
			},
		}
		w.start(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"txn": w.doTxn, "txn again": w.doTxn, "txn once more": w.doTxn,
			"range": w.doRange, "grant": w.doGrant, "revoke": w.doRevoke,
			"compact": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "compact") == 0 {
					w.doCompact(t)
				}
			},
			"watch": w.watchAll,
		})
	})
}

// start fixes the offset of revisions. etcd goes on from run to run, so a
// first compaction makes what lies before this run invisible to both.
func (w *twins) start(t *rapid.T) {
	put := kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: w.key("start")}}}
	var at [2]int64
	for i, do := range []func() (kvstore.TxnResult, error){
		func() (kvstore.TxnResult, error) { return w.etcd.Txn(w.ctx, put) },
		func() (kvstore.TxnResult, error) { return w.model.Txn(put) },
	} {
		r, err := do()
		if err != nil {
			t.Fatal(err)
		}
		at[i] = r.Revision
	}
	w.offset = at[0] - at[1]
	if err := w.comp(at[0]); err != nil {
		t.Fatal(err)
	}
	if err := w.model.Compact(at[1]); err != nil {
		t.Fatal(err)
	}
}
