// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/allocator/labels"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
)

// leader is a core with a committer on a modelled store, in one thread.
type leader struct {
	t      *testing.T
	layout kvstore.Layout
	model  *fake.Model
	core   *allocator.Core
	commit *commit.Committer
	now    time.Duration
	seen   int64
	asked  uint64
	reply  map[uint64]allocator.Reply
	// damaged: keys that cannot be read are no reason to fail.
	damaged bool
}

func newLeader(t *testing.T) *leader {
	l := &leader{
		t: t, layout: newLayout(t), model: fake.NewModel(fake.Limits{}, 1), commit: commit.New(commit.DefaultConfig()),
		core: allocator.New(allocator.Config{
			Space: newSpace(t, "default", 0), NewCluster: true, NodeGrace: 10 * time.Second, IdentityGrace: 10 * time.Second,
			ForgetAfter: time.Minute, SweepInterval: time.Second, PresenceTTL: time.Second, ElectionTTL: 5 * time.Second, LineageEvery: time.Second,
		}),
		reply: map[uint64]allocator.Reply{},
	}
	lease := l.grant()
	rev := l.write(l.layout.ElectionKey(lease), `{"who":"op-1","address":"","version":"","ttl_s":5,"barrier":0}`, lease)
	l.commit.BeginTerm(commit.Fence{Lease: lease, Epoch: rev, Mod: rev})
	l.core.BeginTerm(0, "nonce")
	l.run()
	return l
}

func (l *leader) grant() int64 {
	lease, err := l.model.Grant(time.Hour, l.now)
	if err != nil {
		l.t.Fatal(err)
	}
	return lease
}

func (l *leader) write(key, value string, lease int64) int64 {
	l.t.Helper()
	r, err := l.model.Txn(kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: key, Value: []byte(value), Lease: lease}}})
	if err != nil {
		l.t.Fatal(err)
	}
	return r.Revision
}

// run lets everything settle.
func (l *leader) run() {
	l.t.Helper()
	for moved := true; moved; {
		moved = l.mirror()
		ready := l.core.Ready()
		for _, r := range ready.Replies {
			l.reply[r.ID] = r
		}
		for _, op := range ready.Ops {
			l.commit.Submit(op)
		}
		out := l.commit.Ready()
		for _, tx := range out.Send {
			l.send(tx)
		}
		for _, o := range out.Outcomes {
			l.core.Done(o)
		}
		moved = moved || len(ready.Ops)+len(ready.Replies)+len(out.Send)+len(out.Outcomes) > 0
	}
}

func (l *leader) send(tx commit.Transaction) {
	l.t.Helper()
	txn, err := l.layout.Encode(tx, allocator.Candidate{Who: "op-1"})
	if err != nil {
		l.t.Fatal(err)
	}
	r, err := l.model.Txn(txn)
	if err != nil {
		l.t.Fatal(err)
	}
	res, err := l.layout.Answer(tx, r)
	if err != nil {
		l.t.Fatal(err)
	}
	l.commit.Result(res)
}

func (l *leader) mirror() bool {
	rev := l.model.Revision()
	if rev == l.seen {
		return false
	}
	events, _ := l.model.Events(l.seen+1, allKeys, allKeys)
	batch, bad := kvstore.DecodeBatch(l.layout, kvstore.MirrorBatch{Revision: rev, Events: events})
	if len(bad) > 0 && !l.damaged {
		l.t.Fatal(bad)
	}
	l.core.Apply(batch)
	l.seen = rev
	return true
}

// pass lets seconds pass.
func (l *leader) pass(seconds int) {
	for range seconds {
		l.now += time.Second
		l.model.Expire(l.now)
		l.core.Tick(l.now)
		l.run()
	}
}

// ask hands in a request and returns its answer.
func ask[T any](l *leader, req any) T {
	l.t.Helper()
	l.asked++
	l.core.Request(l.asked, req)
	l.run()
	r := l.reply[l.asked]
	v, ok := r.Value.(T)
	if !ok {
		l.t.Fatalf("%T: %+v", req, r)
	}
	return v
}

func set(t *testing.T, text string) labels.Set {
	t.Helper()
	s, err := labels.ParseText(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// live runs a cluster through everything that a leader does on its own.
func live(t *testing.T) *leader {
	l := newLeader(t)
	lease := l.grant()
	l.write(l.layout.Presences()+"n1", `{"node":"n1","addresses":[],"prefixes":["10.0.0.0/8"],"version":"","ttl_s":1,"instance":"u"}`, lease)
	l.run()
	a := ask[allocator.Allocation](l, allocator.AllocateRequest{Labels: set(t, web), Holder: "n1"})
	b := ask[allocator.Allocation](l, allocator.AllocateRequest{Labels: set(t, db), Holder: "n1"})
	ask[allocator.Allocation](l, allocator.AllocateRequest{Labels: set(t, db), Holder: "pin-me"})
	p := ask[allocator.Published](l, allocator.PublishRequest{Node: "n1", Put: []allocator.AddressClaim{
		{Address: allocator.Address{IP: "10.0.0.1", HostIP: "192.168.0.1", ID: uint32(a.Identity.Number)}, Labels: web, EndpointID: "e1"},
		{Address: allocator.Address{IP: "10.0.0.2", HostIP: "192.168.0.1", ID: uint32(b.Identity.Number)}, Labels: db, EndpointID: "e2"},
	}})
	for _, r := range p.Results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	ask[allocator.Published](l, allocator.PublishRequest{Node: "n1", Withdraw: []string{"10.0.0.1"}})
	ask[allocator.Released](l, allocator.ReleaseRequest{Labels: set(t, web), Holder: "n1", Hold: a.Hold})
	l.pass(15) // web is collected
	again := ask[allocator.Allocation](l, allocator.AllocateRequest{Labels: set(t, web), Holder: "pin-me"})
	if !again.Created || again.Identity.Number != a.Identity.Number {
		t.Fatalf("web had %d and has %+v", a.Identity.Number, again)
	}
	if err := l.model.Revoke(lease); err != nil {
		t.Fatal(err)
	}
	l.pass(15) // n1 is gone and purged
	ask[allocator.Released](l, allocator.ReleaseRequest{Labels: set(t, db), Holder: "pin-me"})
	l.pass(70) // db is collected, n1 forgotten
	return l
}

// What a leader writes is sound at every single revision, and step by step.
// Only what it has yet to answer (a release, a lapse) shows, mildly.
func TestLifeIsSoundAtEveryRevision(t *testing.T) {
	l := live(t)
	o := Options{Layout: l.layout, Space: newSpace(t, "default", 0)}
	passing := map[Code]bool{IdleMarkMissing: true, IdleReferenced: true, NodeAbsent: true, NodeGone: true, NodeBack: true, ClusterMissing: true}
	shown := map[Code]bool{}
	for rev := int64(1); rev <= l.model.Revision(); rev++ {
		r, err := l.model.Range(kvstore.RangeRequest{Key: allKeys, RangeEnd: allKeys, Revision: rev})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range Store(r.KVs, rev, o).Findings {
			shown[f.Code] = true
			if !passing[f.Code] {
				t.Errorf("revision %d: %+v", rev, f)
			}
		}
	}
	for _, code := range []Code{IdleMarkMissing, NodeAbsent, NodeGone} {
		if !shown[code] {
			t.Errorf("the life never passed through %s", code)
		}
	}
	h := NewHistory(o)
	events, _ := l.model.Events(1, allKeys, allKeys)
	if err := h.Add(events); err != nil || len(h.Violations()) != 0 {
		t.Errorf("history: %v, %v", err, h.Violations())
	}
	if h.Revision() != l.model.Revision() || h.Events() != len(events) {
		t.Errorf("judged %d events up to %d, want %d up to %d", h.Events(), h.Revision(), len(events), l.model.Revision())
	}
}

func TestReadIsOfOneRevision(t *testing.T) {
	l := live(t)
	s := fake.NewStore(l.model, nil)
	kvs, rev, err := Read(t.Context(), s, l.layout)
	if err != nil || rev != l.model.Revision() {
		t.Fatalf("revision %d, %v", rev, err)
	}
	want, _ := l.model.Range(kvstore.RangeRequest{Key: allKeys, RangeEnd: allKeys})
	if len(kvs) != len(want.KVs) {
		t.Errorf("%d keys, want %d", len(kvs), len(want.KVs))
	}
	if r := Store(kvs, rev, Options{Layout: l.layout}); len(r.Findings) != 0 || r.Identities != 1 || r.References != 1 {
		t.Errorf("%+v", r)
	}

	calls := 0
	s.SetFault(func(string) fake.Fault {
		calls++
		switch calls {
		case 1: // between the first list and the second everything changes
			return fake.Fault{}
		case 2:
			l.write(ids+"9999", web, 0)
			return fake.Fault{}
		case 3:
			return fake.Fault{Before: kvstore.ErrCompacted}
		}
		return fake.Fault{}
	})
	if kvs, rev, err = Read(t.Context(), s, l.layout); err != nil || rev != l.model.Revision() || len(kvs) != len(want.KVs)+1 {
		t.Errorf("a read that compaction overtook: %d keys at %d, %v", len(kvs), rev, err)
	}
	s.SetFault(func(string) fake.Fault { return fake.Fault{Before: kvstore.ErrCompacted} })
	if _, _, err := Read(t.Context(), s, l.layout); err == nil {
		t.Error("a read that is always overtaken gives no error")
	}
}
