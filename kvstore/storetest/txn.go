// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/signet-identity/signet/kvstore"
)

func testTransactions(t *testing.T, c *caseOf) {
	create := kvstore.Txn{
		If:   []kvstore.Compare{{Key: c.key("a"), Target: kvstore.CompareCreate, Op: '='}},
		Then: []kvstore.Action{c.putAction("a", "1"), c.putAction("b", "2")},
		Else: []kvstore.Action{{Key: c.prefix, RangeEnd: c.end()}, {Key: c.key("a"), KeysOnly: true}, {Key: c.key("x")}},
	}
	first := c.txn(t, create)
	if !first.Succeeded || len(first.Reads) != 2 {
		t.Fatalf("the first create: %+v", first)
	}
	second := c.txn(t, create)
	if second.Succeeded || second.Revision != first.Revision {
		t.Fatalf("the second create: %+v", second)
	}
	if got := c.text(second.Reads[0]); got != "a=1 b=2 " {
		t.Errorf("the Else branch read %q", got)
	}
	if kvs := second.Reads[1]; len(kvs) != 1 || len(kvs[0].Value) != 0 || kvs[0].ModRevision != first.Revision {
		t.Errorf("without values: %+v", kvs)
	}
	if len(second.Reads[2]) != 0 {
		t.Errorf("an absent key was read: %+v", second.Reads[2])
	}
	for _, op := range []struct {
		op   byte
		rev  int64
		want bool
	}{{'=', first.Revision, true}, {'=', first.Revision + 1, false}, {'>', first.Revision - 1, true}, {'>', first.Revision, false}, {'<', first.Revision + 1, true}, {'<', first.Revision, false}} {
		r := c.txn(t, kvstore.Txn{If: []kvstore.Compare{{Key: c.key("a"), Target: kvstore.CompareMod, Op: op.op, Revision: op.rev}}})
		if r.Succeeded != op.want || r.Revision < first.Revision {
			t.Errorf("mod revision %d %c %d: %+v, want %v", first.Revision, op.op, op.rev, r, op.want)
		}
	}
}

func testRevisions(t *testing.T, c *caseOf) {
	at := c.put(t, "a", "1")
	for name, txn := range map[string]kvstore.Txn{
		"empty":                  {},
		"a read":                 {Then: []kvstore.Action{{Key: c.key("a")}}},
		"an absent key's delete": {Then: []kvstore.Action{{Delete: true, Key: c.key("x")}}},
		"a refused write":        {If: []kvstore.Compare{{Key: c.key("a"), Target: kvstore.CompareMod, Op: '='}}, Then: []kvstore.Action{c.putAction("a", "2")}},
	} {
		if r := c.txn(t, txn); r.Revision != at {
			t.Errorf("%s: revision %d, want %d", name, r.Revision, at)
		}
	}
	r := c.txn(t, kvstore.Txn{Then: []kvstore.Action{c.putAction("a", "1"), c.putAction("b", "1"), {Delete: true, Key: c.key("c")}}})
	if r.Revision != at+1 {
		t.Errorf("two puts moved the revision from %d to %d", at, r.Revision)
	}
	a, b := c.get(t, "a"), c.get(t, "b")
	if a.CreateRevision != at || a.ModRevision != at+1 || a.Version != 2 || b.CreateRevision != at+1 || b.Version != 1 {
		t.Errorf("a: %+v, b: %+v", a, b)
	}
	c.delete(t, "a")
	if again := c.put(t, "a", "3"); c.get(t, "a").CreateRevision != again || c.get(t, "a").Version != 1 {
		t.Errorf("a key that comes back: %+v", c.get(t, "a"))
	}
}

func testReadOwnWrites(t *testing.T, c *caseOf) {
	c.put(t, "a", "1")
	all := kvstore.Action{Key: c.prefix, RangeEnd: c.end()}
	r := c.txn(t, kvstore.Txn{Then: []kvstore.Action{
		all, c.putAction("b", "2"), all, {Delete: true, Key: c.key("a")}, all, {Key: c.key("b")},
	}})
	for i, want := range map[int]string{0: "a=1 ", 2: "a=1 b=2 ", 4: "b=2 ", 5: "b=2 "} {
		if got := c.text(r.Reads[i]); got != want {
			t.Errorf("read %d saw %q, want %q", i, got, want)
		}
	}
	if kv := r.Reads[5][0]; kv.ModRevision != r.Revision || kv.CreateRevision != r.Revision {
		t.Errorf("a key of the same transaction: %+v at %d", kv, r.Revision)
	}
}

// testRangeCompares: create revision 0 over a range holds exactly when no key
// is there; create revision > r-1 exactly when every key is at least as young
// as r and there is one.
func testRangeCompares(t *testing.T, c *caseOf) {
	holds := func(op byte, target kvstore.Target, rev int64) bool {
		return c.txn(t, kvstore.Txn{If: []kvstore.Compare{{
			Key: c.prefix, RangeEnd: c.end(), Target: target, Op: op, Revision: rev,
		}}}).Succeeded
	}
	if !holds('=', kvstore.CompareCreate, 0) || holds('>', kvstore.CompareCreate, 0) {
		t.Error("an empty range does not compare as 0")
	}
	old := c.put(t, "a", "1")
	young := c.put(t, "b", "1")
	c.put(t, "a", "2") // younger by mod revision alone
	if holds('=', kvstore.CompareCreate, 0) {
		t.Error("create revision 0 holds over a range with keys")
	}
	if !holds('>', kvstore.CompareCreate, old-1) || holds('>', kvstore.CompareCreate, young-1) {
		t.Error("create revision > r-1 does not tell the oldest key")
	}
	if holds('=', kvstore.CompareMod, young) {
		t.Error("a range compare holds though one key fails it")
	}
	c.delete(t, "a")
	if !holds('>', kvstore.CompareCreate, young-1) || !holds('=', kvstore.CompareMod, young) {
		t.Error("a deleted key still counts")
	}
}

func testValueCompares(t *testing.T, c *caseOf) {
	holds := func(name string, op byte, value string) bool {
		return c.txn(t, kvstore.Txn{If: []kvstore.Compare{{
			Key: c.key(name), Target: kvstore.CompareValue, Op: op, Value: []byte(value),
		}}}).Succeeded
	}
	c.put(t, "a", "m")
	c.put(t, "empty", "")
	for _, want := range []struct {
		name  string
		op    byte
		value string
		holds bool
	}{
		{"a", '=', "m", true}, {"a", '=', "n", false}, {"a", '<', "n", true}, {"a", '>', "l", true},
		{"empty", '=', "", true}, {"absent", '=', "", false}, {"absent", '<', "x", false},
	} {
		if got := holds(want.name, want.op, want.value); got != want.holds {
			t.Errorf("value of %s %c %q: %v", want.name, want.op, want.value, got)
		}
	}
}

func testLimits(t *testing.T, c *caseOf) {
	var txn kvstore.Txn
	for i := range kvstore.MaxTxnOps {
		txn.If = append(txn.If, kvstore.Compare{Key: c.key("x"), Target: kvstore.CompareCreate, Op: '='})
		txn.Then = append(txn.Then, c.putAction(fmt.Sprint(i), "1"))
		txn.Else = append(txn.Else, kvstore.Action{Key: c.key("x")})
	}
	if r := c.txn(t, txn); !r.Succeeded {
		t.Errorf("a transaction at the limits: %+v", r)
	}
	big := kvstore.Action{Put: true, Key: c.key("big"), Value: bytes.Repeat([]byte("x"), 1700<<10)}
	huge := kvstore.Action{Put: true, Key: c.key("big"), Value: bytes.Repeat([]byte("x"), 3<<20)}
	for name, txn := range map[string]kvstore.Txn{
		"compares": {If: append(txn.If, txn.If[0])},
		"writes":   {Then: append(txn.Then, c.putAction("more", "1"))},
		"reads":    {Else: append(txn.Else, txn.Else[0])},
		"bytes":    {Then: []kvstore.Action{c.putAction("small", "1"), big}},
		"message":  {Then: []kvstore.Action{c.putAction("small", "1"), huge}},
	} {
		if _, err := c.Store.Txn(c.ctx, txn); !errors.Is(err, kvstore.ErrTooLarge) || errors.Is(err, kvstore.ErrUnknownOutcome) {
			t.Errorf("too many %s: %v", name, err)
		}
	}
	if c.get(t, "more") != nil || c.get(t, "small") != nil {
		t.Error("a transaction that was refused has written")
	}
}

func testDuplicateKey(t *testing.T, c *caseOf) {
	a, del := c.putAction("a", "1"), kvstore.Action{Delete: true, Key: c.key("a")}
	for name, txn := range map[string]kvstore.Txn{
		"two puts":             {Then: []kvstore.Action{a, a}},
		"two puts in Else":     {Else: []kvstore.Action{a, a}},
		"put and delete":       {Then: []kvstore.Action{a, del}},
		"delete and put":       {Then: []kvstore.Action{del, a}},
		"put and range delete": {Then: []kvstore.Action{a, {Delete: true, Key: c.prefix, RangeEnd: c.end()}}},
	} {
		if _, err := c.Store.Txn(c.ctx, txn); !errors.Is(err, kvstore.ErrDuplicateKey) || errors.Is(err, kvstore.ErrUnknownOutcome) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c.txn(t, kvstore.Txn{Then: []kvstore.Action{del, del}})
	if r := c.txn(t, kvstore.Txn{Then: []kvstore.Action{a}, Else: []kvstore.Action{a}}); !r.Succeeded {
		t.Errorf("one put in each branch: %+v", r)
	}
}

func testUnknownLease(t *testing.T, c *caseOf) {
	leased := c.putAction("a", "1")
	leased.Lease = 4711
	_, err := c.Store.Txn(c.ctx, kvstore.Txn{Then: []kvstore.Action{c.putAction("b", "1"), leased}})
	if !errors.Is(err, kvstore.ErrLeaseNotFound) || errors.Is(err, kvstore.ErrUnknownOutcome) {
		t.Errorf("a put under an unknown lease: %v", err)
	}
	if c.get(t, "a") != nil || c.get(t, "b") != nil {
		t.Error("a transaction that was refused has written")
	}
	if r := c.txn(t, kvstore.Txn{Then: []kvstore.Action{c.putAction("b", "1")}, Else: []kvstore.Action{leased}}); !r.Succeeded {
		t.Errorf("an unknown lease in the branch that does not run: %+v", r)
	}
}

func testCancelled(t *testing.T, c *caseOf) {
	ctx, cancel := context.WithCancel(c.ctx)
	cancel()
	_, err := c.Store.Txn(ctx, kvstore.Txn{Then: []kvstore.Action{c.putAction("a", "1")}})
	if !errors.Is(err, context.Canceled) || errors.Is(err, kvstore.ErrUnknownOutcome) {
		t.Errorf("Txn: %v", err)
	}
	if c.get(t, "a") != nil {
		t.Error("a transaction that was never sent has written")
	}
	if _, err := c.Store.Range(c.ctx, kvstore.RangeRequest{}); !errors.Is(err, kvstore.ErrEmptyKey) {
		t.Errorf("a range without a key: %v", err)
	}
	if _, err := c.Store.Txn(c.ctx, kvstore.Txn{Then: []kvstore.Action{{Put: true}}}); !errors.Is(err, kvstore.ErrEmptyKey) {
		t.Errorf("a put without a key: %v", err)
	}
}

func testHistory(t *testing.T, c *caseOf) {
	first := c.put(t, "a", "1")
	c.put(t, "b", "1")
	c.put(t, "a", "2")
	gone := c.delete(t, "b")
	at := func(rev int64) string {
		return c.text(c.list(t, kvstore.RangeRequest{Key: c.prefix, RangeEnd: c.end(), Revision: rev}).KVs)
	}
	for i, want := range []string{"a=1 ", "a=1 b=1 ", "a=2 b=1 ", "a=2 "} {
		if got := at(first + int64(i)); got != want {
			t.Errorf("at %d: %q, want %q", first+int64(i), got, want)
		}
	}
	r := c.list(t, kvstore.RangeRequest{Key: c.prefix, RangeEnd: c.end(), Revision: first + 1, Limit: 1, KeysOnly: true})
	if len(r.KVs) != 1 || !r.More || len(r.KVs[0].Value) != 0 || r.Revision != gone {
		t.Errorf("one key without value: %+v", r)
	}
	if _, err := c.Store.Range(c.ctx, kvstore.RangeRequest{Key: c.key("a"), Revision: gone + 100}); !errors.Is(err, kvstore.ErrFutureRevision) {
		t.Errorf("a read beyond the head: %v", err)
	}
	c.Compact(t, first+2)
	if _, err := c.Store.Range(c.ctx, kvstore.RangeRequest{Key: c.key("a"), Revision: first + 1}); !errors.Is(err, kvstore.ErrCompacted) {
		t.Errorf("a read before the compaction: %v", err)
	}
	if got := at(first + 2); got != "a=2 b=1 " {
		t.Errorf("at the compaction: %q", got)
	}
}

// testPages is scenario W-02: all pages of a list show one revision, whatever
// is written between them, and a watch from the next one shows the rest.
func testPages(t *testing.T, c *caseOf) {
	const keys = 57
	for i := range keys {
		c.put(t, fmt.Sprintf("%03d", i), "old")
	}
	writer := &writerBetween{Store: c.Store, before: func(page int) {
		c.put(t, fmt.Sprintf("%03d", page), "new")                        // already read
		c.put(t, fmt.Sprintf("%03d-new", keys-1-page), "new")             // not yet read
		c.delete(t, fmt.Sprintf("%03d", keys-1-page))                     // not yet read
		c.put(t, strings.Repeat("0", 3)+fmt.Sprintf("-%d", page), "late") // already read
	}}
	kvs, at, err := kvstore.ListAll(c.ctx, writer, c.prefix, c.end(), 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	if writer.pages != 6 || len(kvs) != keys {
		t.Errorf("%d keys in %d pages", len(kvs), writer.pages)
	}
	state := map[string]string{}
	for i, kv := range kvs {
		if kv.ModRevision > at || string(kv.Value) != "old" || kv.Key != c.key(fmt.Sprintf("%03d", i)) {
			t.Errorf("key %d of the list at %d: %+v", i, at, kv)
		}
		state[kv.Key] = string(kv.Value)
	}
	head := c.list(t, kvstore.RangeRequest{Key: c.prefix, RangeEnd: c.end()})
	w := c.watch(t, at+1)
	for _, e := range w.until(t, head.Revision) {
		if state[e.KV.Key] = string(e.KV.Value); e.Delete {
			delete(state, e.KV.Key)
		}
	}
	for _, kv := range head.KVs {
		if state[kv.Key] != string(kv.Value) {
			t.Errorf("list and watch make %s %q, the store says %q", kv.Key, state[kv.Key], kv.Value)
		}
		delete(state, kv.Key)
	}
	if len(state) != 0 {
		t.Errorf("list and watch have keys that the store has not: %v", state)
	}
	if _, again, err := kvstore.ListAll(c.ctx, c.Store, c.prefix, c.end(), at, 0); err != nil || again != at {
		t.Errorf("the list at %d once more: %d, %v", at, again, err)
	}
}

// writerBetween writes before each page but the first.
type writerBetween struct {
	kvstore.Store
	pages  int
	before func(page int)
}

func (w *writerBetween) Range(ctx context.Context, r kvstore.RangeRequest) (kvstore.RangeResult, error) {
	if w.pages > 0 {
		w.before(w.pages)
	}
	w.pages++
	return w.Store.Range(ctx, r)
}
