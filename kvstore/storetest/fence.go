// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

const (
	webText = "k8s:app=web;"
	dbText  = "k8s:app=db;"
)

// campaign is a case with a layout of its own.
type campaign struct {
	*caseOf
	layout kvstore.Layout
	lastID uint64
}

func newCampaign(t *testing.T, c *caseOf) *campaign {
	t.Helper()
	base := strings.TrimSuffix(c.prefix, "/")
	cluster := strings.NewReplacer("/", "-", " ", "-", ":", "").Replace(base)
	l, err := kvstore.NewLayout(base, cluster)
	if err != nil {
		t.Fatal(err)
	}
	return &campaign{caseOf: c, layout: l}
}

// candidate is who stands in the election, with the fence of its term.
type candidate struct {
	*campaign
	who   allocator.Candidate
	fence commit.Fence
}

// stand writes a candidate's election key, create-only.
func (c *campaign) stand(t *testing.T, who string) *candidate {
	t.Helper()
	lease := c.grant(t, time.Minute)
	value := allocator.Candidate{Who: who, TTLS: 60}
	data, err := kvstore.EncodeValue(allocator.Key{Kind: allocator.KindElection, Name: kvstore.LeaseName(lease)}, value)
	if err != nil {
		t.Fatal(err)
	}
	r := c.txn(t, kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: c.layout.ElectionKey(lease), Value: data, Lease: lease}}})
	return &candidate{campaign: c, who: value, fence: commit.Fence{Lease: lease, Epoch: r.Revision, Mod: r.Revision}}
}

// run sends a transaction with the candidate's fence.
func (c *candidate) run(t *testing.T, kind commit.Kind, ops ...allocator.Op) commit.Result {
	t.Helper()
	c.lastID++
	r, err := c.layout.Run(c.ctx, c.Store, commit.Transaction{ID: c.lastID, Kind: kind, Fence: c.fence, Ops: ops}, c.who)
	if err != nil {
		t.Fatalf("%s: %v", c.who.Who, err)
	}
	if r.ID != c.lastID {
		t.Errorf("the answer to transaction %d is for %d", c.lastID, r.ID)
	}
	return r
}

// create is the op that makes an identity with its first reference.
func create(id uint64, n uint32, text, holder string) allocator.Op {
	master, ref := allocator.MasterKey(identity.Number(n)), allocator.ReferenceKey(text, holder)
	return allocator.Op{
		ID: id, Verb: allocator.VerbCreate,
		Guards: []allocator.Guard{
			{Kind: allocator.GuardAbsent, Key: master},
			{Kind: allocator.GuardEmpty, Key: allocator.ReferenceKey(text, "")},
		},
		Writes: []allocator.Write{
			{Key: master, Value: allocator.LabelSet(text)},
			{Key: ref, Value: allocator.NumberValue(n)},
		},
	}
}

func confirm(text, holder string) allocator.Op {
	return allocator.Op{Verb: allocator.VerbConfirm, Guards: []allocator.Guard{{Kind: allocator.GuardPresent, Key: allocator.ReferenceKey(text, holder)}}}
}

// testFenceOldest: of two candidates only the older one writes; once its lease
// is gone it cannot, and the younger one can.
func testFenceOldest(t *testing.T, base *caseOf) {
	c := newCampaign(t, base)
	old, young := c.stand(t, "old"), c.stand(t, "young")
	if r := old.run(t, commit.Work, create(1, 256, webText, "n1")); !r.Succeeded {
		t.Fatalf("the oldest candidate is refused: %+v", r)
	}
	r := young.run(t, commit.Work, create(2, 257, dbText, "n1"))
	if r.Succeeded || r.Oldest != old.fence.Epoch || r.Own.ModRevision != young.fence.Mod || !r.Own.Present {
		t.Errorf("the younger candidate: %+v", r)
	}
	if err := c.Store.Revoke(c.ctx, old.fence.Lease); err != nil {
		t.Fatal(err)
	}
	r = old.run(t, commit.Work, create(3, 258, dbText, "n1"))
	if r.Succeeded || r.Own.Present || r.Oldest != young.fence.Epoch {
		t.Errorf("the deposed candidate: %+v", r)
	}
	if r := young.run(t, commit.Work, create(4, 257, dbText, "n1")); !r.Succeeded {
		t.Errorf("the younger candidate, now the oldest: %+v", r)
	}
	if r := old.run(t, commit.Barrier); r.Succeeded || r.Own.Present {
		t.Errorf("the deposed candidate's barrier: %+v", r)
	}
	// A phantom that writes its key anew is the youngest.
	phantom := c.stand(t, "old")
	if r := phantom.run(t, commit.Work, create(5, 259, "k8s:app=x;", "n1")); r.Succeeded {
		t.Errorf("a candidate that came back: %+v", r)
	}
}

// testFenceBarrier: a barrier refuses what was sent before it.
func testFenceBarrier(t *testing.T, base *caseOf) {
	c := newCampaign(t, base)
	own := c.stand(t, "op-1")
	before := own.fence
	r := own.run(t, commit.Barrier)
	want := commit.OwnKey{Present: true, CreateRevision: before.Epoch, ModRevision: r.Revision, Count: 1}
	if !r.Succeeded || r.Own != want {
		t.Fatalf("the barrier: %+v, want %+v", r, want)
	}
	// The late twin of a barrier that has landed finds the key as it left it.
	r = own.run(t, commit.Barrier)
	if r.Succeeded || r.Own != want {
		t.Errorf("the same barrier again: %+v", r)
	}
	if r := own.run(t, commit.Work, create(1, 256, webText, "n1")); r.Succeeded || r.Own != want || r.Oldest != before.Epoch {
		t.Errorf("a transaction from before the barrier: %+v", r)
	}
	own.fence.Mod, own.fence.Count = want.ModRevision, want.Count
	if r := own.run(t, commit.Work, create(1, 256, webText, "n1")); !r.Succeeded {
		t.Errorf("a transaction after the barrier: %+v", r)
	}
	kv := c.list(t, kvstore.RangeRequest{Key: c.layout.ElectionKey(own.fence.Lease)}).KVs[0]
	record, err := c.layout.Decode(kv)
	if err != nil || record.Value.(allocator.Candidate).Barrier != 1 || record.Lease != own.fence.Lease {
		t.Errorf("the election key after the barrier: %+v, %v", record, err)
	}
}

// testFenceObserved: a refusal shows, entry for entry, how the keys stood, a
// malformed value included.
func testFenceObserved(t *testing.T, base *caseOf) {
	c := newCampaign(t, base)
	own := c.stand(t, "op-1")
	first := own.run(t, commit.Work, create(1, 256, webText, "n1"))
	ref := allocator.ReferenceKey(webText, "n1")
	stored, err := c.layout.Key(ref)
	if err != nil {
		t.Fatal(err)
	}
	raw := c.txn(t, kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: stored, Value: []byte("five")}}})

	again := create(2, 256, webText, "n2")
	other := create(3, 300, dbText, "n1")
	other.Guards = append(other.Guards, allocator.Guard{Kind: allocator.GuardValue, Key: ref, Value: allocator.NumberValue(256)})
	r := own.run(t, commit.Work, again, other)
	if r.Succeeded || r.Oldest != own.fence.Epoch || r.Own.ModRevision != own.fence.Mod {
		t.Fatalf("a create that exists: %+v", r)
	}
	master := &allocator.Record{
		Key: allocator.MasterKey(256), Value: allocator.LabelSet(webText),
		CreateRevision: first.Revision, ModRevision: first.Revision,
	}
	malformed := &allocator.Record{
		Key: ref, Value: allocator.Raw("five"), CreateRevision: first.Revision, ModRevision: raw.Revision,
	}
	want := [][]allocator.Observed{
		{
			{Key: allocator.MasterKey(256), Record: master},
			{Key: allocator.ReferenceKey(webText, ""), Record: malformed},
			{Key: allocator.MasterKey(256), Record: master},
			{Key: allocator.ReferenceKey(webText, "n2")},
		},
		{
			{Key: allocator.MasterKey(300)},
			{Key: allocator.ReferenceKey(dbText, "")},
			{Key: ref, Record: malformed},
			{Key: allocator.MasterKey(300)},
			{Key: allocator.ReferenceKey(dbText, "n1")},
		},
	}
	if !reflect.DeepEqual(r.Observed, want) {
		t.Errorf("observed\n%+v, want\n%+v", r.Observed, want)
	}
	if left := c.list(t, kvstore.RangeRequest{Key: c.layout.Masters() + "300"}).KVs; len(left) != 0 {
		t.Error("an op beside one that is refused has written")
	}
}

// testFencedRead: ops without writes are answered and leave no trace.
func testFencedRead(t *testing.T, base *caseOf) {
	c := newCampaign(t, base)
	own := c.stand(t, "op-1")
	at := own.run(t, commit.Work, create(1, 256, webText, "n1")).Revision
	r := own.run(t, commit.Work, confirm(webText, "n1"))
	if !r.Succeeded || r.Revision != at {
		t.Errorf("a fenced read at %d: %+v", at, r)
	}
	r = own.run(t, commit.Work, confirm(webText, "n1"), confirm(webText, "n2"))
	if r.Succeeded || r.Revision != at || len(r.Observed) != 2 || r.Observed[0][0].Record == nil || r.Observed[1][0].Record != nil {
		t.Errorf("a fenced read of an absent reference: %+v", r)
	}
	c.stand(t, "op-2")
	if r := own.run(t, commit.Work, confirm(webText, "n1")); !r.Succeeded {
		t.Errorf("a fenced read beside a younger candidate: %+v", r)
	}
	if err := c.Store.Revoke(c.ctx, own.fence.Lease); err != nil {
		t.Fatal(err)
	}
	if r := own.run(t, commit.Work, confirm(webText, "n1")); r.Succeeded {
		t.Errorf("a deposed leader's fenced read: %+v", r)
	}
}

func testSettle(t *testing.T, base *caseOf) {
	c := newCampaign(t, base)
	own := c.stand(t, "op-1")
	op := create(1, 256, webText, "n1")
	at := own.run(t, commit.Work, op).Revision
	r := own.run(t, commit.Settle, op, create(2, 257, dbText, "n1"))
	if !r.Succeeded || r.Revision != at || len(r.Observed) != 2 {
		t.Fatalf("settle: %+v", r)
	}
	for i, o := range r.Observed[0] {
		if o.Record == nil || o.Record.ModRevision != at {
			t.Errorf("entry %d of what has landed: %+v", i, o)
		}
	}
	for i, o := range r.Observed[1] {
		if o.Record != nil {
			t.Errorf("entry %d of what has not: %+v", i, o)
		}
	}
	if ref := r.Observed[0][1].Record.Key; ref != allocator.ReferenceKey(webText, "n1") {
		t.Errorf("under the prefix was %v", ref)
	}
}
