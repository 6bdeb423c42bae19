// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
)

// bench is a core with a committer on a modelled store, all in one thread: each
// transaction is answered at once, unless lose says otherwise.
type bench struct {
	t       *testing.T
	core    *allocator.Core
	commit  *commit.Committer
	layout  kvstore.Layout
	model   *fake.Model
	seen    int64
	now     time.Duration
	nextID  uint64
	replies map[uint64]allocator.Reply
	lost    []commit.Transaction // sent, and not answered
	lose    func(commit.Transaction) bool
	who     allocator.Candidate
	lease   int64
	verbs   map[allocator.Verb]int
}

func testConfig(t *testing.T) allocator.Config {
	space, err := identity.NewSpace("default", 0, 255, false)
	if err != nil {
		t.Fatal(err)
	}
	return allocator.Config{Space: space, NewCluster: true, NodeGrace: 10 * time.Second, IdentityGrace: 10 * time.Second,
		ForgetAfter: time.Hour, SweepInterval: time.Second, PresenceTTL: 5 * time.Second, ElectionTTL: 5 * time.Second,
		LineageEvery: time.Second, Quarantine: time.Minute}
}

func newBench(t *testing.T) *bench { return newBenchWith(t, func(*allocator.Config) {}) }

func newBenchWith(t *testing.T, change func(*allocator.Config)) *bench {
	cfg := testConfig(t)
	change(&cfg)
	layout, err := kvstore.NewLayout("cilium", "default")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, core: allocator.New(cfg), commit: commit.New(commit.DefaultConfig()), layout: layout,
		model: fake.NewModel(fake.Limits{}, 1), replies: map[uint64]allocator.Reply{}, verbs: map[allocator.Verb]int{}}
	b.lead()
	return b
}

// lead puts an election key and begins a term under it.
func (b *bench) lead() {
	b.t.Helper()
	lease, err := b.model.Grant(time.Hour, b.now)
	if err != nil {
		b.t.Fatal(err)
	}
	b.lease = lease
	key := b.layout.ElectionKey(lease)
	r, err := b.model.Txn(kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: key, Value: []byte(`{"who":"test"}`), Lease: lease}}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.commit.BeginTerm(commit.Fence{Lease: lease, Epoch: r.Revision, Mod: r.Revision})
	b.core.BeginTerm(b.now, kvstore.LeaseName(lease))
	b.run()
}

// run lets everything settle.
func (b *bench) run() {
	b.t.Helper()
	for round := 0; ; round++ {
		if round > 1000 {
			b.t.Fatal("the core does not come to rest")
		}
		moved := b.mirror()
		ready := b.core.Ready()
		for _, r := range ready.Replies {
			b.replies[r.ID] = r
		}
		if ready.Fatal != nil {
			b.t.Fatal(ready.Fatal)
		}
		for _, op := range ready.Ops {
			b.verbs[op.Verb]++
			b.commit.Submit(op)
		}
		out := b.commit.Ready()
		for _, tx := range out.Send {
			b.send(tx)
		}
		for _, o := range out.Outcomes {
			b.core.Done(o)
		}
		if !moved && len(ready.Ops)+len(ready.Replies)+len(out.Send)+len(out.Outcomes) == 0 {
			return
		}
	}
}

func (b *bench) send(tx commit.Transaction) {
	b.t.Helper()
	if b.lose != nil && b.lose(tx) {
		b.lost = append(b.lost, tx)
		b.commit.Result(commit.Result{ID: tx.ID, Unknown: true})
		return
	}
	b.commit.Result(b.apply(tx))
}

func (b *bench) apply(tx commit.Transaction) commit.Result {
	b.t.Helper()
	txn, err := b.layout.Encode(tx, b.who)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := b.model.Txn(txn)
	if err != nil {
		b.t.Fatalf("%v: %v", tx, err)
	}
	res, err := b.layout.Answer(tx, r)
	if err != nil {
		b.t.Fatal(err)
	}
	return res
}

// mirror brings the core everything that happened since.
func (b *bench) mirror() bool {
	b.t.Helper()
	rev := b.model.Revision()
	if rev == b.seen {
		return false
	}
	events, compacted := b.model.Events(b.seen+1, "\x00", "\x00")
	if compacted {
		b.t.Fatal("compacted")
	}
	batch, malformed := kvstore.DecodeBatch(b.layout, kvstore.MirrorBatch{Revision: rev, Events: events})
	if len(malformed) > 0 {
		b.t.Logf("malformed: %v", malformed)
	}
	b.core.Apply(batch)
	b.seen = rev
	return true
}

// pass lets served time go by.
func (b *bench) pass(d time.Duration) {
	b.t.Helper()
	step := 500 * time.Millisecond
	if d > 5*time.Minute {
		step = 4 * time.Second // below the election TTL, so that all of it is served time
	}
	for end := b.now + d; b.now < end; {
		b.now += step
		b.core.Tick(b.now)
		b.run()
	}
}

func (b *bench) ask(req any) allocator.Reply {
	b.t.Helper()
	id := b.send1(req)
	b.run()
	r, ok := b.replies[id]
	if !ok {
		b.t.Fatalf("no reply to %+v", req)
	}
	return r
}

func (b *bench) send1(req any) uint64 {
	b.nextID++
	b.core.Request(b.nextID, req)
	return b.nextID
}

func (b *bench) allocate(holder string, ls ...string) allocator.Allocation {
	b.t.Helper()
	r := b.ask(allocator.AllocateRequest{Labels: set(b.t, ls...), Holder: holder})
	if r.Err != nil {
		b.t.Fatalf("allocate: %v", r.Err)
	}
	return r.Value.(allocator.Allocation)
}

func (b *bench) release(holder string, hold int64, ls ...string) allocator.Reply {
	b.t.Helper()
	return b.ask(allocator.ReleaseRequest{Labels: set(b.t, ls...), Holder: holder, Hold: hold})
}

func (b *bench) put(key, value string, lease int64) {
	b.t.Helper()
	if _, err := b.model.Txn(kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: key, Value: []byte(value), Lease: lease}}}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) del(key string) {
	b.t.Helper()
	if _, err := b.model.Txn(kvstore.Txn{Then: []kvstore.Action{{Delete: true, Key: key}}}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) key(k allocator.Key) string {
	b.t.Helper()
	s, err := b.layout.Key(k)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *bench) get(k allocator.Key) *kvstore.KV {
	b.t.Helper()
	r, err := b.model.Range(kvstore.RangeRequest{Key: b.key(k)})
	if err != nil {
		b.t.Fatal(err)
	}
	if len(r.KVs) == 0 {
		return nil
	}
	return &r.KVs[0]
}

// node gives a node a presence and returns its lease.
func (b *bench) node(name string) int64 {
	b.t.Helper()
	lease, err := b.model.Grant(time.Hour, b.now)
	if err != nil {
		b.t.Fatal(err)
	}
	value, err := kvstore.EncodeValue(allocator.PresenceKey(name), allocator.Presence{Node: name, TTLS: 5, Instance: "i-" + name,
		Prefixes: []string{"10.0.0.0/8"}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.put(b.key(allocator.PresenceKey(name)), string(value), lease)
	b.run()
	return lease
}

func set(t *testing.T, ls ...string) labels.Set {
	t.Helper()
	s, err := labels.ParseSet(ls...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAllocate_givesTheSameNumberAgain(t *testing.T) {
	b := newBench(t)
	first := b.allocate("pin-ann", "k8s:app=web")
	again := b.allocate("pin-ann", "k8s:app=web")
	other := b.allocate("pin-bob", "k8s:app=web")
	if !first.Created || again.Created || first.Identity.Number != again.Identity.Number || first.Hold != again.Hold {
		t.Errorf("first %+v, again %+v", first, again)
	}
	if other.Identity.Number != first.Identity.Number || other.Hold == first.Hold {
		t.Errorf("other holder: %+v", other)
	}
	want := identity.Start(testConfig(t).Space, "k8s:app=web;")
	if first.Identity.Number != want {
		t.Errorf("number %d, the hash start is %d", first.Identity.Number, want)
	}
	if kv := b.get(allocator.MasterKey(want)); kv == nil || string(kv.Value) != "k8s:app=web;" || kv.Lease != 0 {
		t.Errorf("master: %+v", kv)
	}
	if kv := b.get(allocator.ReferenceKey("k8s:app=web;", "pin-bob")); kv == nil || kv.ModRevision != other.Hold {
		t.Errorf("reference: %+v", kv)
	}
}

func TestLife_idleGraceCollectTombstoneAndTheSameNumberBack(t *testing.T) {
	b := newBench(t)
	a := b.allocate("pin-ann", "k8s:app=web")
	n := a.Identity.Number
	if r := b.release("pin-ann", a.Hold, "k8s:app=web"); r.Err != nil || !r.Value.(allocator.Released).Done {
		t.Fatalf("release: %+v", r)
	}
	if b.get(allocator.IdleKey(n)) == nil {
		t.Fatal("no idle mark after the last release")
	}
	b.pass(8 * time.Second)
	if b.get(allocator.MasterKey(n)) == nil {
		t.Fatal("collected before its grace was over")
	}
	b.pass(5 * time.Second)
	if b.get(allocator.MasterKey(n)) != nil || b.get(allocator.TombstoneKey(n)) == nil || b.get(allocator.IdleKey(n)) != nil {
		t.Fatal("not collected after its grace")
	}
	if id, ok := b.core.Identity(n); !ok || id.State != allocator.Quarantined {
		t.Errorf("picture of the freed number: %+v", id)
	}
	if back := b.allocate("pin-ann", "k8s:app=web"); back.Identity.Number != n {
		t.Errorf("the same labels got %d, had %d", back.Identity.Number, n)
	}
	if b.get(allocator.TombstoneKey(n)) != nil {
		t.Error("the tombstone outlived the return of its number")
	}
}

func TestRelease_comparesTheHold(t *testing.T) {
	b := newBench(t)
	b.node("n1")
	a := b.allocate("n1", "k8s:app=web")
	if r := b.release("n1", a.Hold+1, "k8s:app=web"); r.Err == nil || r.Err.Code != allocator.FailedPrecondition {
		t.Errorf("another hold: %+v", r)
	}
	given := b.ask(allocator.AllocateRequest{Labels: set(t, "k8s:app=web"), Holder: "n1", GivenUpHold: a.Hold})
	if h := given.Value.(allocator.Allocation).Hold; h == a.Hold {
		t.Error("a given-up hold was handed out again")
	}
	if r := b.release("n1", a.Hold, "k8s:app=web"); r.Err == nil {
		t.Error("a late release took the new reference")
	}
	if r := b.release("n1", 77, "k8s:app=other"); r.Err != nil || r.Value.(allocator.Released).Done {
		t.Errorf("no reference: %+v", r)
	}
}

// A release whose transaction landed without an answer is not told that there
// was nothing to give back; the same one again is.
func TestUnknownOutcome_releaseSaysWhatItTook(t *testing.T) {
	for _, lands := range []bool{false, true} {
		b := newBench(t)
		a := b.allocate("pin-ann", "k8s:app=web")
		done := false
		b.lose = func(tx commit.Transaction) bool {
			if done || tx.Kind != commit.Work || tx.Ops[0].Verb == allocator.VerbConfirm {
				return false
			}
			done = true
			if lands {
				b.apply(tx)
			}
			return true
		}
		if r := b.release("pin-ann", a.Hold, "k8s:app=web"); r.Err != nil || !r.Value.(allocator.Released).Done || !done {
			t.Errorf("lands %v: %+v", lands, r)
		}
		if r := b.release("pin-ann", a.Hold, "k8s:app=web"); r.Err != nil || r.Value.(allocator.Released).Done {
			t.Errorf("lands %v, again: %+v", lands, r)
		}
	}
}

func TestUnknownOutcome_isSettledBehindABarrier(t *testing.T) {
	for _, lands := range []string{"never", "before the barrier", "after the barrier"} {
		t.Run(lands, func(t *testing.T) {
			b := newBench(t)
			done := false
			b.lose = func(tx commit.Transaction) bool {
				if done || tx.Kind != commit.Work || tx.Ops[0].Verb != allocator.VerbCreate {
					return false
				}
				done = true
				if lands == "before the barrier" {
					b.apply(tx)
				}
				return true
			}
			a := b.allocate("pin-ann", "k8s:app=web")
			if lands == "after the barrier" {
				if r := b.apply(b.lost[0]); r.Succeeded {
					t.Fatal("a transaction landed behind the barrier")
				}
			}
			if kv := b.get(allocator.ReferenceKey("k8s:app=web;", "pin-ann")); kv == nil || kv.ModRevision != a.Hold {
				t.Errorf("hold %d, reference %+v", a.Hold, kv)
			}
			if s := b.commit.Stats(); s.Barriers != 1 {
				t.Errorf("barriers: %d", s.Barriers)
			}
		})
	}
}

func TestScenario_M11_GoneNodesReferencesAndAddressesGoAfterTheGrace(t *testing.T) {
	b := newBench(t)
	lease := b.node("n1")
	a := b.allocate("n1", "k8s:app=web")
	pub := b.ask(allocator.PublishRequest{Node: "n1", Put: []allocator.AddressClaim{{
		Address: allocator.Address{IP: "10.1.0.1", HostIP: "192.0.2.1", ID: uint32(a.Identity.Number)}, Labels: "k8s:app=web;", EndpointID: "e1"}}})
	if pub.Err != nil || pub.Value.(allocator.Published).Results[0].Err != nil {
		t.Fatalf("publish: %+v", pub)
	}
	if err := b.model.Revoke(lease); err != nil {
		t.Fatal(err)
	}
	b.run()
	if b.get(allocator.GoneKey("n1")) == nil {
		t.Fatal("no gone mark")
	}
	b.pass(8 * time.Second)
	if b.get(allocator.ReferenceKey("k8s:app=web;", "n1")) == nil {
		t.Fatal("a lapsed lease took a reference away within the grace")
	}
	b.node("n1")
	if b.get(allocator.GoneKey("n1")) != nil {
		t.Fatal("the gone mark outlived the return")
	}
	b.pass(20 * time.Second)
	if b.get(allocator.ReferenceKey("k8s:app=web;", "n1")) == nil {
		t.Fatal("a node that came back lost its reference")
	}
	b.del(b.key(allocator.PresenceKey("n1")))
	b.run()
	b.pass(13 * time.Second)
	if b.get(allocator.ReferenceKey("k8s:app=web;", "n1")) != nil || b.get(allocator.AddressKey("10.1.0.1")) != nil {
		t.Fatal("references and addresses of a gone node stay")
	}
	if b.get(allocator.IdleKey(a.Identity.Number)) == nil {
		t.Fatal("no idle mark")
	}
}

func TestMasterDeletedByHand_comesBackOrIsBuried(t *testing.T) {
	b := newBench(t)
	a := b.allocate("pin-ann", "k8s:app=web")
	n := a.Identity.Number
	b.del(b.key(allocator.MasterKey(n)))
	b.run()
	if kv := b.get(allocator.MasterKey(n)); kv == nil || string(kv.Value) != "k8s:app=web;" {
		t.Fatalf("not healed: %+v", kv)
	}
	b.release("pin-ann", 0, "k8s:app=web")
	b.del(b.key(allocator.MasterKey(n)))
	b.run()
	if b.get(allocator.TombstoneKey(n)) == nil {
		t.Fatal("a master deleted by hand without a reference got no tombstone")
	}
	if id, _ := b.core.Identity(n); id.State != allocator.Quarantined {
		t.Errorf("state %v", id.State)
	}
}

func TestScenario_D02_A07_OfTwoNumbersTheReferencedOneStays(t *testing.T) {
	b := newBench(t)
	b.put(b.key(allocator.MasterKey(1000)), "k8s:app=web;", 0)
	b.put(b.key(allocator.MasterKey(2000)), "k8s:app=web;", 0)
	b.put(b.key(allocator.ReferenceKey("k8s:app=web;", "pin-ann")), "2000", 0)
	b.run()
	if a := b.allocate("pin-bob", "k8s:app=web"); a.Identity.Number != 2000 {
		t.Errorf("allocated %d, want the referenced 2000", a.Identity.Number)
	}
	b.pass(15 * time.Second)
	if b.get(allocator.MasterKey(1000)) != nil || b.get(allocator.TombstoneKey(1000)) == nil {
		t.Error("the unused twin stays")
	}
	if b.get(allocator.MasterKey(2000)) == nil {
		t.Error("the number in use was collected")
	}
}

func TestScenario_A10_A11_DeletedMastersComeBackWithTheirNumbers(t *testing.T) {
	b := newBench(t)
	numbers := map[string]identity.Number{}
	for i := range 100 {
		l := fmt.Sprintf("k8s:n=%d", i)
		numbers[l] = b.allocate("pin-ann", l).Identity.Number
	}
	for _, n := range numbers {
		b.del(b.key(allocator.MasterKey(n)))
	}
	b.send1(allocator.AllocateRequest{Labels: set(t, "k8s:new=1"), Holder: "pin-ann"})
	b.run()
	for l, n := range numbers {
		if kv := b.get(allocator.MasterKey(n)); kv == nil || string(kv.Value) != l+";" {
			t.Errorf("%s: number %d: %+v", l, n, kv)
		}
	}
}

func TestScenario_A10_NumberGivenToOthersIsReplaced(t *testing.T) {
	b := newBench(t)
	n := b.allocate("pin-ann", "k8s:app=web").Identity.Number
	b.put(b.key(allocator.MasterKey(n)), "k8s:app=other;", 0) // a foreign writer takes the number
	b.run()
	got := b.allocate("pin-ann", "k8s:app=web").Identity.Number
	if got == n {
		t.Errorf("two label sets share number %d", n)
	}
	if kv := b.get(allocator.ReferenceKey("k8s:app=web;", "pin-ann")); kv == nil || string(kv.Value) != got.String() {
		t.Errorf("reference %+v, number %d", kv, got)
	}
}

func TestScenario_A05_AbandonedCallsWriteNothing(t *testing.T) {
	b := newBench(t)
	before := b.model.Revision()
	var ids []uint64
	for i := range 500 {
		ids = append(ids, b.send1(allocator.AllocateRequest{Labels: set(t, fmt.Sprintf("k8s:n=%d", i)), Holder: "pin-ann"}))
	}
	for _, id := range ids {
		b.core.Cancel(id)
	}
	b.run()
	if rev := b.model.Revision(); rev != before || b.core.Waiting() != 0 {
		t.Errorf("%d writes for abandoned calls, %d still wait", rev-before, b.core.Waiting())
	}
}

func TestScenario_G03_ReleasedReferencesStayAway(t *testing.T) {
	b := newBench(t)
	for i := range 300 {
		l := fmt.Sprintf("k8s:n=%d", i)
		a := b.allocate("pin-ann", l)
		b.release("pin-ann", a.Hold, l)
	}
	b.pass(15 * time.Second)
	if n := b.core.Numbers(); n.Live+n.Idle+n.References != 0 {
		t.Errorf("left over: %+v", n)
	}
}

func TestScenario_G05_G06_MarksSurviveFailoversAndAreNoSignOfLife(t *testing.T) {
	b := newBench(t)
	a := b.allocate("pin-ann", "k8s:app=web")
	b.release("pin-ann", a.Hold, "k8s:app=web")
	var gone time.Duration
	start := b.now
	for b.get(allocator.MasterKey(a.Identity.Number)) != nil && b.now-start < time.Minute {
		b.pass(2 * time.Second)
		b.core.EndTerm()
		b.commit.EndTerm()
		if err := b.model.Revoke(b.lease); err != nil {
			t.Fatal(err)
		}
		b.lead()
		gone = b.now - start
	}
	if gone < 10*time.Second || gone > 22*time.Second {
		t.Errorf("collected after %s with a failover every 2 s, the grace is 10 s", gone)
	}
}

func TestScenario_E01_ExhaustionRefusesNewSetsAndNeverKnownOnes(t *testing.T) {
	b := newBenchWith(t, small)
	known := b.allocate("pin-ann", "k8s:app=web")
	capacity := int(b.core.Numbers().Capacity)
	for i := 1; i < capacity; i++ {
		b.send1(allocator.AllocateRequest{Labels: set(t, fmt.Sprintf("k8s:job-name=%d", i)), Holder: "pin-ann"})
		if i%2000 == 0 {
			b.run()
		}
	}
	b.run()
	r := b.ask(allocator.AllocateRequest{Labels: set(t, "k8s:app=new"), Holder: "pin-ann"})
	if r.Err == nil || r.Err.Code != allocator.Exhausted || r.Err.Retry == 0 || r.Err.Field != "job-name" ||
		r.Err.Used != uint64(capacity) || r.Err.Limit != uint64(capacity) {
		t.Fatalf("a new set with no number left: %+v", r.Err)
	}
	if again := b.allocate("pin-bob", "k8s:app=web"); again.Identity.Number != known.Identity.Number {
		t.Errorf("a known set got %d, had %d", again.Identity.Number, known.Identity.Number)
	}
	b.release("pin-ann", 0, "k8s:job-name=1")
	b.pass(15 * time.Second)
	r = b.ask(allocator.AllocateRequest{Labels: set(t, "k8s:app=new"), Holder: "pin-ann"})
	if r.Err == nil {
		t.Error("a number in quarantine was given to other labels")
	}
	b.allocate("pin-ann", "k8s:job-name=1")
}

func TestScenario_G02_OtherClustersNumbersAreNeverTouched(t *testing.T) {
	b := newBench(t)
	b.put(b.key(allocator.MasterKey(70000)), "k8s:io.cilium.k8s.policy.cluster=two;", 0)
	b.run()
	b.pass(20 * time.Second)
	if b.get(allocator.MasterKey(70000)) == nil || b.get(allocator.IdleKey(70000)) != nil {
		t.Error("another cluster's number was touched")
	}
	if a := b.allocate("pin-ann", "k8s:io.cilium.k8s.policy.cluster=two"); a.Identity.Number == 70000 {
		t.Error("a foreign number was reused for an allocation")
	}
}

func TestScenario_O05_ForeignMastersAreSeenAndSweptInTheOwnRange(t *testing.T) {
	b := newBench(t)
	for i := range 200 {
		b.put(b.key(allocator.MasterKey(identity.Number(300+i))), fmt.Sprintf("k8s:probe=load;k8s:seq=%d;", i), 0)
		b.put(b.key(allocator.MasterKey(identity.Number(65600+i))), fmt.Sprintf("k8s:probe=load;k8s:seq=%d;", i), 0)
	}
	b.run()
	seen := 0
	b.core.Each(0, func(allocator.Identity) bool { seen++; return true })
	if seen != 400 {
		t.Errorf("%d identities are listed, want 400", seen)
	}
	b.pass(15 * time.Second)
	if n := b.core.Numbers(); n.Live+n.Idle != 0 || b.get(allocator.MasterKey(65600)) == nil {
		t.Errorf("after the grace: %+v", n)
	}
}

func TestScenario_L05_LeasedForeignReferencesStayAndCount(t *testing.T) {
	b := newBench(t)
	lease, err := b.model.Grant(time.Hour, b.now)
	if err != nil {
		t.Fatal(err)
	}
	n := b.allocate("pin-ann", "k8s:app=web").Identity.Number
	b.put(b.key(allocator.ReferenceKey("k8s:app=web;", "10.0.0.9")), n.String(), lease)
	b.release("pin-ann", 0, "k8s:app=web")
	b.pass(20 * time.Second)
	if b.get(allocator.MasterKey(n)) == nil || b.get(allocator.ReferenceKey("k8s:app=web;", "10.0.0.9")) == nil {
		t.Error("a foreign allocator's reference, or what it holds, was removed")
	}
}

func TestMalformedMaster_isNeitherAnIdentityNorANumberToGiveAway(t *testing.T) {
	b := newBench(t)
	start := identity.Start(testConfig(t).Space, "k8s:app=web;")
	b.put(b.key(allocator.MasterKey(start)), "no labels at all", 0)
	b.run()
	if a := b.allocate("pin-ann", "k8s:app=web"); a.Identity.Number != start+1 {
		t.Errorf("number %d, want the next one after %d, which somebody spoiled", a.Identity.Number, start)
	}
	n := start + 1
	b.put(b.key(allocator.MasterKey(n)), "spoiled", 0)
	b.run() // comes to rest: neither healed nor buried over a key that is there
	b.del(b.key(allocator.MasterKey(n)))
	b.run()
	if kv := b.get(allocator.MasterKey(n)); kv == nil || string(kv.Value) != "k8s:app=web;" {
		t.Errorf("not healed after the spoiled text went: %+v", kv)
	}
}

func TestScenario_G09_HealingGoesOnUntilItIsDone(t *testing.T) {
	b := newBench(t)
	n := b.allocate("pin-ann", "k8s:app=web").Identity.Number
	lost := 0
	b.lose = func(tx commit.Transaction) bool {
		if tx.Kind != commit.Work || tx.Ops[0].Verb != allocator.VerbHeal || lost == 5 {
			return false
		}
		lost++
		return true
	}
	b.del(b.key(allocator.MasterKey(n)))
	b.run()
	if lost != 5 || b.get(allocator.MasterKey(n)) == nil {
		t.Errorf("after %d lost attempts the master is %+v", lost, b.get(allocator.MasterKey(n)))
	}
}

func TestScenario_G11_ASweepThatHangsShowsItsAge(t *testing.T) {
	b := newBench(t)
	a := b.allocate("pin-ann", "k8s:app=web")
	b.release("pin-ann", a.Hold, "k8s:app=web")
	b.pass(8 * time.Second)
	if s := b.core.SweepState(); !s.Swept || b.now-s.LastSweep > 2*time.Second {
		t.Fatalf("the sweep goes, and shows %+v at %s", s, b.now)
	}
	hung := false
	b.lose = func(commit.Transaction) bool { return false }
	for range 40 { // the collection's transaction is sent, and never answered
		b.now += 500 * time.Millisecond
		b.core.Tick(b.now)
		b.mirror()
		for _, op := range b.core.Ready().Ops {
			if op.Verb == allocator.VerbCollect {
				hung = true
				continue
			}
			b.commit.Submit(op)
		}
		for _, tx := range b.commit.Ready().Send {
			b.send(tx)
		}
		for _, o := range b.commit.Ready().Outcomes {
			b.core.Done(o)
		}
	}
	if s := b.core.SweepState(); !hung || b.now-s.LastSweep < 10*time.Second {
		t.Errorf("hung: %v; the last sweep is said to have ended %s ago", hung, b.now-s.LastSweep)
	}
}

func TestScenario_O01_CountsEqualTheStore(t *testing.T) {
	b := newBench(t)
	holds := map[string]int64{}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		l := fmt.Sprintf("k8s:n=%d", random.IntN(40))
		if hold, ok := holds[l]; ok {
			b.release("pin-ann", hold, l)
			delete(holds, l)
		} else {
			holds[l] = b.allocate("pin-ann", l).Hold
		}
		if i%97 == 0 {
			b.pass(time.Second)
		}
		if i%50 == 0 {
			b.compareCounts()
		}
	}
	b.pass(30 * time.Second)
	b.compareCounts()
}

// compareCounts compares the core's numbers with the keys of the store.
func (b *bench) compareCounts() {
	b.t.Helper()
	r, err := b.model.Range(kvstore.RangeRequest{Key: "\x00", RangeEnd: "\x00"})
	if err != nil {
		b.t.Fatal(err)
	}
	count := map[allocator.Kind]uint64{}
	for _, kv := range r.KVs {
		k, err := b.layout.Parse(kv.Key)
		if err != nil {
			b.t.Fatal(err)
		}
		count[k.Kind]++
	}
	n := b.core.Numbers()
	if n.Live+n.Idle != count[allocator.KindMaster] || n.Idle != count[allocator.KindIdle] || n.Quarantined != count[allocator.KindTombstone] ||
		n.References != count[allocator.KindReference] || n.Live+n.Idle+n.Quarantined+n.Free != n.Capacity {
		b.t.Fatalf("the core counts %+v, the store holds %v", n, count)
	}
}

// acks lets a node acknowledge everything.
func (b *bench) acks(node string) {
	b.core.Acknowledge(allocator.AckRequest{Node: node, Instance: "i-" + node, Position: b.core.Position()})
}

// fillPool allocates a label set for every number that was never used.
func (b *bench) fillPool() {
	for i := 0; ; i++ {
		if n := b.core.Numbers(); n.Live+n.Idle+n.Quarantined >= n.Capacity {
			return
		}
		for j := range 2000 {
			b.send1(allocator.AllocateRequest{Labels: set(b.t, fmt.Sprintf("k8s:fill=%d-%d", i, j)), Holder: "pin-fill"})
		}
		b.run()
	}
}

func small(c *allocator.Config) { c.Space.ClusterID, c.Space.MaxConnectedClusters = 3, 511 }

// freeOne leaves exactly one number that is not in use, freed just now.
func (b *bench) freeOne() identity.Number {
	a := b.allocate("pin-ann", "k8s:app=old")
	b.fillPool()
	b.release("pin-ann", a.Hold, "k8s:app=old")
	b.pass(13 * time.Second)
	if b.get(allocator.TombstoneKey(a.Identity.Number)) == nil {
		b.t.Fatal("not collected")
	}
	return a.Identity.Number
}

func (b *bench) tryNew() allocator.Reply {
	return b.ask(allocator.AllocateRequest{Labels: set(b.t, "k8s:app=new"), Holder: "pin-ann"})
}

func TestReuse_waitsForTimeAndForEveryNode(t *testing.T) {
	b := newBenchWith(t, small)
	b.node("n1")
	lease := b.node("n2")
	n := b.freeOne()
	b.acks("n1")
	b.acks("n2")
	if r := b.tryNew(); r.Err == nil || r.Err.Code != allocator.Exhausted {
		t.Fatalf("reused before the least time: %+v", r)
	}
	b.pass(time.Minute)
	b.core.EndTerm() // the next leader knows no acknowledgement
	b.commit.EndTerm()
	if err := b.model.Revoke(b.lease); err != nil {
		t.Fatal(err)
	}
	b.lead()
	b.pass(2 * time.Second)
	b.acks("n1")
	if r := b.tryNew(); r.Err == nil {
		t.Fatal("reused although n2 has not acknowledged")
	}
	if bl := b.core.Blockers(); len(bl) != 1 || bl[0].Node != "n2" || bl[0].Gone {
		t.Errorf("blockers: %+v", bl)
	}
	if err := b.model.Revoke(lease); err != nil {
		t.Fatal(err)
	}
	b.pass(30 * time.Second)
	if r := b.tryNew(); r.Err == nil {
		t.Fatal("reused although n2 is gone and not forgotten")
	}
	if bl := b.core.Blockers(); len(bl) != 1 || !bl[0].Gone {
		t.Errorf("blockers: %+v", bl)
	}
	if r := b.ask(allocator.ForgetRequest{Node: "n2"}); r.Err != nil {
		t.Fatal(r.Err)
	}
	b.acks("n1")
	r := b.tryNew()
	if r.Err != nil || r.Value.(allocator.Allocation).Identity.Number != n {
		t.Errorf("after n2 is forgotten: %+v", r)
	}
	if b.get(allocator.TombstoneKey(n)) != nil {
		t.Error("the tombstone outlived the reuse")
	}
}

func TestReuse_anAcknowledgementFromBeforeTheRemovalOrFromElsewhereSaysNothing(t *testing.T) {
	b := newBenchWith(t, small)
	b.node("n1")
	early := b.core.Position()
	b.freeOne()
	b.pass(2 * time.Minute)
	b.core.Acknowledge(allocator.AckRequest{Node: "n1", Instance: "i-n1", Position: early})
	if r := b.tryNew(); r.Err == nil {
		t.Error("an acknowledgement from before the removal counted")
	}
	b.core.Acknowledge(allocator.AckRequest{Node: "n1", Instance: "another", Position: b.core.Position()})
	if r := b.tryNew(); r.Err == nil {
		t.Error("another instance's acknowledgement counted")
	}
	other := b.core.Position()
	other.Nonce = "of another store"
	b.core.Acknowledge(allocator.AckRequest{Node: "n1", Instance: "i-n1", Position: other})
	if r := b.tryNew(); r.Err == nil {
		t.Error("an acknowledgement from another lineage counted")
	}
	b.acks("n1")
	if r := b.tryNew(); r.Err != nil {
		t.Errorf("after a good one: %v", r.Err)
	}
}

func TestReuse_foreignReadersMakeItWaitAnHour(t *testing.T) {
	b := newBenchWith(t, small)
	lease, err := b.model.Grant(24*time.Hour, b.now)
	if err != nil {
		t.Fatal(err)
	}
	foreign := b.allocate("pin-x", "k8s:app=foreign")
	b.put(b.key(allocator.ReferenceKey("k8s:app=foreign;", "10.0.0.9")), foreign.Identity.Number.String(), lease)
	b.freeOne()
	b.pass(5 * time.Minute)
	if r := b.tryNew(); r.Err == nil {
		t.Error("reused within the hour although a foreign allocator reads the store")
	}
	b.pass(time.Hour)
	if r := b.tryNew(); r.Err != nil {
		t.Errorf("after an hour: %v", r.Err)
	}
}

func kvstoreFence(lease, revision int64) commit.Fence {
	return commit.Fence{Lease: lease, Epoch: revision, Mod: revision}
}

// TestScenario_G02_M12_TwoClustersOnOneStore: a leader that sees another
// cluster's nodes neither marks them gone nor takes anything from them.
func TestScenario_G02_M12_TwoClustersOnOneStore(t *testing.T) {
	b := newBench(t)
	const theirs = "k8s:io.cilium.k8s.policy.cluster=two;"
	b.put(b.key(allocator.MasterKey(2<<16+5)), theirs, 0)
	b.put(b.key(allocator.ReferenceKey(theirs, "node-1")), fmt.Sprint(2<<16+5), 0)
	b.put(b.key(allocator.ReferenceKey(theirs, "pin-ann")), fmt.Sprint(2<<16+5), 0)
	b.put("signet/v1/two/nodes/node-1", `{"node":"node-1","ttl_s":5,"instance":"x"}`, 0)
	b.put(b.key(allocator.AddressKey("10.9.0.1")), fmt.Sprintf(`{"IP":"10.9.0.1","Mask":null,"HostIP":"","ID":%d,"Key":0,"Metadata":"signet:two:node-1:e1"}`, 2<<16+5), 0)
	b.run()
	b.pass(time.Minute)
	for _, k := range []allocator.Key{allocator.MasterKey(2<<16 + 5), allocator.ReferenceKey(theirs, "node-1"),
		allocator.ReferenceKey(theirs, "pin-ann"), allocator.AddressKey("10.9.0.1")} {
		if b.get(k) == nil {
			t.Errorf("%s of another cluster was taken away", k)
		}
	}
	if b.get(allocator.GoneKey("node-1")) != nil || len(b.core.Nodes()) != 0 {
		t.Errorf("another cluster's node is thought to be ours: %+v", b.core.Nodes())
	}
}

func TestScenario_M12_ReferencesOfAnotherClusterAreNotTakenOver(t *testing.T) {
	b := newBench(t)
	b.put(b.key(allocator.MasterKey(2<<16+5)), "k8s:shared=1;", 0)
	b.put(b.key(allocator.ReferenceKey("k8s:shared=1;", "pin-s")), fmt.Sprint(2<<16+5), 0)
	b.run()
	r := b.ask(allocator.AllocateRequest{Labels: set(t, "k8s:shared=1"), Holder: "pin-s"})
	if r.Err == nil || r.Err.Code != allocator.FailedPrecondition {
		t.Errorf("allocate: %+v", r)
	}
	if r := b.release("pin-s", 0, "k8s:shared=1"); r.Err == nil || r.Err.Code != allocator.FailedPrecondition {
		t.Errorf("release: %+v", r)
	}
	if kv := b.get(allocator.ReferenceKey("k8s:shared=1;", "pin-s")); kv == nil || string(kv.Value) != fmt.Sprint(2<<16+5) {
		t.Errorf("the other cluster's reference: %+v", kv)
	}
	if a := b.allocate("pin-t", "k8s:shared=1"); !testConfig(t).Space.Contains(a.Identity.Number) {
		t.Errorf("another holder got %d", a.Identity.Number)
	}
}

func TestTerm_writesTheClaimOnTheClusterIDBack(t *testing.T) {
	b := newBench(t)
	b.del(b.key(allocator.ClusterIDKey(0)))
	b.run()
	b.core.EndTerm()
	b.commit.EndTerm()
	if err := b.model.Revoke(b.lease); err != nil {
		t.Fatal(err)
	}
	b.lead()
	if b.get(allocator.ClusterIDKey(0)) == nil {
		t.Error("another cluster could take the id")
	}
}
