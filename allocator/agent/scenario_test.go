// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

func TestPutAndDelete(t *testing.T) {
	n := newNode(t).start()
	ep := n.put("shop/web-0", "k8s:app=web")
	if ep.GetState() != "ready" || ep.GetNumber() != 1001 || !ep.GetCreated() || ep.GetNode() != "n1" || ep.GetAddresses()[0] != "10.244.0.1" {
		t.Fatalf("endpoint %v", ep)
	}
	if got := n.dp.number("10.244.0.1"); got != 1001 {
		t.Errorf("the map says %d", got)
	}
	if a := n.stored("10.244.0.1"); a.ID != 1001 || a.Metadata != "signet:default:n1:shop/web-0" {
		t.Errorf("the store says %+v", a)
	}
	cache, err := n.api.ListIPCache(n.ctx(), &signetv1.ListIPCacheRequest{})
	if err != nil || len(cache.GetItems()) != 1 || cache.GetItems()[0].GetLabels()[0] != "k8s:app=web" {
		t.Errorf("ipcache %v, %v", cache, err)
	}
	resp, err := n.api.DeleteEndpoint(n.ctx(), &signetv1.DeleteEndpointRequest{Id: "shop/web-0"})
	if err != nil || !resp.GetDeleted() || n.dp.number("10.244.0.1") != 0 || n.stored("10.244.0.1").ID != 0 {
		t.Errorf("delete: %v %v, map %d", resp, err, n.dp.number("10.244.0.1"))
	}
	n.await("the release", func() bool { return n.stub.holdCount() == 0 })
	resp, err = n.api.DeleteEndpoint(n.ctx(), &signetv1.DeleteEndpointRequest{Id: "shop/web-0"})
	if err != nil || resp.GetDeleted() {
		t.Errorf("the second delete: %v %v", resp, err)
	}
}

func TestRefusalsOnTheSocket(t *testing.T) {
	n := newNode(t).start()
	n.put("other", "k8s:app=other")
	n.stub.mu.Lock()
	n.stub.refuse["k8s:app=full;"] = status.Error(codes.ResourceExhausted, "no number is left")
	n.stub.mu.Unlock()
	for name, c := range map[string]struct {
		ep   *signetv1.Endpoint
		code codes.Code
		want string
	}{
		"no endpoint":     {nil, codes.InvalidArgument, "no id"},
		"no id":           {&signetv1.Endpoint{Labels: []string{"k8s:a=b"}}, codes.InvalidArgument, "no id"},
		"control in id":   {&signetv1.Endpoint{Id: "a\n", Labels: []string{"k8s:a=b"}}, codes.InvalidArgument, "printed"},
		"no labels":       {&signetv1.Endpoint{Id: "a"}, codes.InvalidArgument, "at least one label"},
		"no source":       {&signetv1.Endpoint{Id: "a", Labels: []string{"app=web"}}, codes.InvalidArgument, "k8s:app=web"},
		"semicolon":       {&signetv1.Endpoint{Id: "a", Labels: []string{"k8s:app=a;b"}}, codes.InvalidArgument, ";"},
		"two of one key":  {&signetv1.Endpoint{Id: "a", Labels: []string{"k8s:app=a", "cni:app=b"}}, codes.InvalidArgument, "its key"},
		"reserved mixed":  {&signetv1.Endpoint{Id: "a", Labels: []string{"reserved:init", "k8s:a=b"}}, codes.InvalidArgument, "mixed"},
		"reserved host":   {&signetv1.Endpoint{Id: "a", Labels: []string{"reserved:host"}}, codes.InvalidArgument, "cannot be"},
		"not an address":  {&signetv1.Endpoint{Id: "a", Labels: []string{"k8s:a=b"}, Addresses: []string{"web"}}, codes.InvalidArgument, "no IP address"},
		"a range":         {&signetv1.Endpoint{Id: "a", Labels: []string{"k8s:a=b"}, Addresses: []string{"10.244.0.0/25"}}, codes.InvalidArgument, "range"},
		"outside":         {&signetv1.Endpoint{Id: "a", Labels: []string{"k8s:a=b"}, Addresses: []string{"10.9.0.1"}}, codes.InvalidArgument, "outside"},
		"twice":           {&signetv1.Endpoint{Id: "a", Labels: []string{"k8s:a=b"}, Addresses: []string{"10.244.0.7", "::ffff:10.244.0.7"}}, codes.InvalidArgument, "twice"},
		"of another":      {&signetv1.Endpoint{Id: "a", Labels: []string{"k8s:a=b"}, Addresses: []string{"10.244.0.1"}}, codes.FailedPrecondition, "endpoint other"},
		"a port of 0":     {&signetv1.Endpoint{Id: "a", Labels: []string{"k8s:a=b"}, NamedPorts: []*signetv1.NamedPort{{Name: "http"}}}, codes.InvalidArgument, "1 to 65535"},
		"an odd protocol": {&signetv1.Endpoint{Id: "a", Labels: []string{"k8s:a=b"}, NamedPorts: []*signetv1.NamedPort{{Name: "http", Port: 1, Protocol: "tcp"}}}, codes.InvalidArgument, "write TCP"},
		"no number left":  {&signetv1.Endpoint{Id: "full", Labels: []string{"k8s:app=full"}}, codes.ResourceExhausted, "no number is left"},
	} {
		_, err := n.api.PutEndpoint(n.ctx(), &signetv1.PutEndpointRequest{Endpoint: c.ep})
		if status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.want) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.code, c.want)
		}
	}
	if _, err := n.api.GetEndpoint(n.ctx(), &signetv1.GetEndpointRequest{Id: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("get: %v", err)
	}
	if _, err := n.api.ListEndpoints(n.ctx(), &signetv1.ListEndpointsRequest{Selector: "a in"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("list: %v", err)
	}
	if eps := n.list(); len(eps) != 2 { // other, and full, which is tried again
		t.Errorf("endpoints %v", eps)
	}
	if f := n.finding("ENDPOINT-FAILED"); f.GetObject() != "full" {
		t.Errorf("finding %v", f)
	}
	if r := n.agentStatus().GetRefusals(); r["semicolon"] != 1 || r["exhausted"] == 0 {
		t.Errorf("refusals %v", r)
	}
}

// registered without its labels, the endpoint ends with the number of its
// labels alone, also with a restart in between.
func TestScenario_A14_InitEndsWithRealLabels(t *testing.T) {
	n := newNode(t).start()
	for i, restart := range []bool{false, true, false} {
		id := fmt.Sprintf("pod-%d", i)
		ep := n.put(id, "reserved:init")
		if ep.GetNumber() != uint32(identity.Init) || n.dp.number(ep.GetAddresses()[0]) != identity.Init {
			t.Fatalf("init: %v", ep)
		}
		if restart {
			n.restart()
		}
		ep = n.put(id, "k8s:app="+id)
		at := ep.GetAddresses()[0]
		if ep.GetState() != "ready" || ep.GetNumber() < 1000 || n.dp.number(at) != identity.Number(ep.GetNumber()) || n.stored(at).ID != ep.GetNumber() {
			t.Errorf("%s: %v, map %d, store %+v", id, ep, n.dp.number(at), n.stored(at))
		}
	}
	n.stub.mu.Lock()
	defer n.stub.mu.Unlock()
	for text := range n.stub.masters {
		if strings.Contains(text, "reserved:") {
			t.Errorf("a reserved label is stored: %s", text)
		}
	}
}

// P-08: endpoints that are put while no operator answers wait with a reason and
// become ready by themselves; sets in use are served meanwhile.
func TestScenario_P08_WaitsAndBecomesReady(t *testing.T) {
	n := newNode(t)
	n.cfg.PutTimeout = 300 * time.Millisecond
	n.start()
	n.put("known", "k8s:app=known")
	n.stub.setDown(true)
	const count = 50
	errs := make(chan error, count)
	for i := range count {
		go func() {
			_, err := n.api.PutEndpoint(context.Background(), &signetv1.PutEndpointRequest{
				Endpoint: &signetv1.Endpoint{Id: fmt.Sprintf("pod-%02d", i), Labels: []string{fmt.Sprintf("k8s:app=a%d", i%5)}}})
			errs <- err
		}()
	}
	for range count {
		err := <-errs
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "will become ready") {
			t.Fatalf("put: %v", err)
		}
	}
	for i := range count / 2 {
		_, err := n.agent.engine.put(shortly(t), Spec{ID: fmt.Sprintf("pod-%02d", i), Labels: set(t, "k8s:app=changed")})
		if err == nil {
			t.Fatal("ready without an operator")
		}
	}
	// What needs no new number has it in the map at once.
	_, err := n.agent.engine.put(shortly(t), Spec{ID: "second", Labels: set(t, "k8s:app=known")})
	if err == nil || n.dp.number(n.get("second").GetAddresses()[0]) != 1001 {
		t.Errorf("a set in use was not served: %v, %v", err, n.get("second"))
	}
	if f := n.finding("OPERATOR-AWAY"); f == nil {
		t.Error("status does not say that no operator answers")
	}
	n.stub.setDown(false)
	n.await("all ready", func() bool {
		for _, ep := range n.list() {
			if ep.GetState() != "ready" {
				return false
			}
		}
		return true
	})
	for _, ep := range n.list() {
		if got := n.dp.number(ep.GetAddresses()[0]); got == 0 || got != n.stub.held(mustParse(t, ep.GetLabels()).Text()) {
			t.Errorf("%s: map %d", ep.GetId(), got)
		}
	}
}

// shortly is a context that has all but ended.
func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// G-10: deletions while the agent restores and no operator answers leave
// exactly the references of what is left.
func TestScenario_G10_DeleteDuringRestore(t *testing.T) {
	n := newNode(t).start()
	for i := range 20 {
		n.put(fmt.Sprintf("pod-%02d", i), fmt.Sprintf("k8s:app=a%d", i/2))
	}
	n.stub.setDown(true)
	n.restart()
	for i := range 8 {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		if deleted, err := n.agent.engine.remove(ctx, fmt.Sprintf("pod-%02d", i)); !deleted || err != nil {
			t.Fatalf("delete: %v %v", deleted, err)
		}
		cancel()
	}
	if _, err := n.api.PutEndpoint(n.ctx(), &signetv1.PutEndpointRequest{Endpoint: &signetv1.Endpoint{Id: "pod-19", Labels: []string{"k8s:app=a9"}}}); err != nil {
		t.Errorf("an endpoint that is as it was needs no operator: %v", err)
	}
	n.restart() // and a crash in the middle of it
	n.stub.setDown(false)
	n.await("only what is used is held", func() bool { return n.stub.holdCount() == 6 })
	n.await("withdrawn and unmapped", func() bool {
		return n.dp.number("10.244.0.1") == 0 && n.stored("10.244.0.1").ID == 0 && n.stored("10.244.0.8").ID == 0
	})
	if eps := n.list(); len(eps) != 12 {
		t.Errorf("%d endpoints", len(eps))
	}
	for _, ep := range n.list() {
		if ep.GetState() != "ready" || n.dp.number(ep.GetAddresses()[0]) != identity.Number(ep.GetNumber()) {
			t.Errorf("%v", ep)
		}
	}
}

// G-12, B-05: over a restart no entry leaves the map, and what nobody wants any
// more goes only once the store is listed.
func TestScenario_B05_G12_NothingLeavesTheMapBeforeSync(t *testing.T) {
	n := newNode(t).start()
	for i := range 30 {
		n.put(fmt.Sprintf("pod-%02d", i), fmt.Sprintf("k8s:app=a%d", i))
	}
	n.stub.mu.Lock()
	n.stub.masters["k8s:app=far;"] = 555
	n.stub.write(map[allocator.Key]allocator.Value{allocator.MasterKey(555): allocator.LabelSet("k8s:app=far;")})
	n.stub.publish("10.245.0.1", "n2", "x", 555)
	n.stub.mu.Unlock()
	n.await("the remote address", func() bool { return n.dp.number("10.245.0.1") == 555 })

	n.kill()
	n.dp = n.dp.restarted()
	stale := hostPrefix(addr("10.245.0.9"))
	n.dp.real[stale] = Realised{Prefix: stale, Number: 9}
	n.store.SetFault(func(call string) fake.Fault {
		if call == "Range" {
			return fake.Fault{Before: errors.New("the store is slow")}
		}
		return fake.Fault{}
	})
	n.stub.setDown(true)
	n.start()
	if n.agentStatus().GetReady() || n.finding("NOT-SYNCED") == nil {
		t.Error("it says that it is ready")
	}
	cache, err := n.api.ListIPCache(n.ctx(), &signetv1.ListIPCacheRequest{})
	if err != nil || cache.GetItems()[0].GetLabels()[0] != "k8s:app=a0" {
		t.Errorf("what is held is not known by name without an operator: %v %v", cache.GetItems()[0], err)
	}
	if got := n.list(); len(got) != 30 || got[0].GetState() != "ready" {
		t.Errorf("restored %d endpoints, the first %v", len(got), got[0])
	}
	if len(n.dp.history) != 0 || n.dp.number("10.245.0.9") != 9 {
		t.Errorf("the map was touched before the store was listed: %q", n.dp.history)
	}
	n.store.SetFault(nil)
	n.await("the stale entry goes", func() bool { return n.dp.number("10.245.0.9") == 0 })
	if len(n.dp.history) != 1 || n.dp.number("10.245.0.1") != 555 {
		t.Errorf("more than the stale entry changed: %q", n.dp.history)
	}
	n.stub.setDown(false)
	n.await("ready", func() bool { return n.agentStatus().GetReady() })
	if len(n.dp.history) != 1 {
		t.Errorf("confirming changed the map: %q", n.dp.history)
	}
}

// B-05: pruning waits for the checkpoint's endpoints, however slow the map is.
func TestScenario_B05_SyncWaitsForTheCheckpoint(t *testing.T) {
	n := newNode(t).start()
	for i := range 10 {
		n.dp.expect = append(n.dp.expect, n.put(fmt.Sprintf("pod-%d", i), "k8s:app=web").GetAddresses()[0])
	}
	expect := n.dp.expect
	n.kill()
	n.dp = n.dp.restarted()
	n.dp.slow, n.dp.expect = 20*time.Millisecond, expect
	n.start()
	n.await("ready", func() bool { return n.agentStatus().GetReady() })
	n.kill()
	if len(n.dp.early) != 0 || len(n.dp.history) != 0 {
		t.Errorf("synced without %v, and then %q", n.dp.early, n.dp.history)
	}
}

// L-01, the agent's part: a revoked lease is replaced within seconds, each time,
// and no reference is touched.
func TestScenario_L01_LostLeaseIsReplaced(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	key := n.stub.key(allocator.PresenceKey("n1"))
	lease := func() int64 {
		r, err := n.store.Range(context.Background(), kvstore.RangeRequest{Key: key})
		if err != nil || len(r.KVs) == 0 {
			return 0
		}
		return r.KVs[0].Lease
	}
	for range 3 {
		n.await("a presence", func() bool { return lease() != 0 })
		old := lease()
		if err := n.store.Revoke(context.Background(), old); err != nil {
			t.Fatal(err)
		}
		n.await("another lease", func() bool { l := lease(); return l != 0 && l != old })
	}
	n.await("status shows the lease", func() bool { return n.agentStatus().GetPresenceLease() == fmt.Sprintf("%x", lease()) })
	if n.stub.held("k8s:app=web;") != 1001 || n.dp.number("10.244.0.1") != 1001 || len(n.stub.releases) != 0 {
		t.Error("the reference or the map entry suffered")
	}
	n.kill()
	if lease() == 0 {
		t.Error("a stop took the presence away")
	}
}

// a node that was cut off for longer than the graces takes over the new
// number; the dead one is denied and never published again.
func TestScenario_A09_PartitionedNodeTakesTheNewNumber(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	n.stub.setDown(true)
	n.stub.mu.Lock()
	n.stub.lineage.Counter++
	n.stub.mu.Unlock()
	if got := n.stub.free("k8s:app=web;"); got != 1001 {
		t.Fatalf("freed %d", got)
	}
	n.await("the dead number is denied", func() bool { r := n.dp.at("10.244.0.1"); return r.Dead && r.Number == 1001 })
	if ep := n.get("a"); ep.GetState() != "waiting-for-identity" || !strings.Contains(ep.GetReason(), "1001 is dead") {
		t.Errorf("%v", ep)
	}
	n.stub.setDown(false)
	n.await("the new number", func() bool { return n.get("a").GetState() == "ready" })
	if ep := n.get("a"); ep.GetNumber() != 1002 || n.dp.at("10.244.0.1").Dead || n.dp.number("10.244.0.1") != 1002 || n.stored("10.244.0.1").ID != 1002 {
		t.Errorf("%v, map %v", ep, n.dp.at("10.244.0.1"))
	}
	if got := n.agent.engine.sample().renumbered; got != 1 {
		t.Errorf("%d renumberings counted", got)
	}
}

// the agent's part: masters that merely vanish change nothing.
func TestScenario_A11_VanishedMasterKeepsEntries(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	n.stub.mu.Lock()
	n.stub.publish("10.245.0.1", "n2", "x", 1001)
	n.stub.mu.Unlock()
	n.await("the remote address", func() bool { return n.dp.number("10.245.0.1") == 1001 })
	before := len(n.dp.history)
	n.stub.mu.Lock()
	rev := n.stub.write(map[allocator.Key]allocator.Value{allocator.MasterKey(1001): nil})
	n.stub.mu.Unlock()
	n.await("the deletion is seen", func() bool { return n.agent.mirror.Applied() >= rev })
	n.store.BreakWatches(errors.New("and the watch breaks"))
	if len(n.dp.history) != before || n.get("a").GetState() != "ready" {
		t.Errorf("the map changed: %q", n.dp.history)
	}
	// A tombstone is another matter: whoever has the number is denied.
	n.stub.free("k8s:app=web;")
	n.await("denied", func() bool { return n.dp.at("10.245.0.1").Dead })
}

func TestMissingAndSurplusReferences(t *testing.T) {
	n := newNode(t)
	n.cfg.SurplusGrace = 700 * time.Millisecond
	n.stub.masters["k8s:app=old;"], n.stub.holds["k8s:app=old;"] = 77, 5
	n.stub.publish("10.244.0.200", "n1", "gone", 77)
	n.start()
	n.put("a", "k8s:app=web")
	n.await("the surplus reference goes", func() bool { return n.stub.held("k8s:app=old;") == 0 })
	n.await("the leftover address goes", func() bool { return n.stored("10.244.0.200").ID == 0 && n.dp.number("10.244.0.200") == 0 })
	n.stub.mu.Lock()
	delete(n.stub.holds, "k8s:app=web;")
	n.stub.mu.Unlock()
	n.stub.tell(&signetv1.SessionResponse{Message: &signetv1.SessionResponse_HelloWanted{HelloWanted: &signetv1.HelloWanted{Reason: "a test"}}})
	n.await("the missing reference is taken again", func() bool { return n.stub.held("k8s:app=web;") == 1001 })
	if got := n.dp.number("10.244.0.1"); got != 1001 {
		t.Errorf("the map says %d", got)
	}
	n.stub.mu.Lock()
	defer n.stub.mu.Unlock()
	last := n.stub.hellos[len(n.stub.hellos)-1]
	if !last.GetComplete() || len(last.GetPairs()) != 1 || last.GetPairs()[0].GetNumber() != 1001 || last.GetInstance() != n.agent.Instance() {
		t.Errorf("hello %v", last)
	}
}

// Asking again for a reference that stands after all does not take it away.
func TestConfirmingTakesNothingAway(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	n.await("ready", func() bool { return n.agentStatus().GetReady() })
	n.stub.mu.Lock()
	n.stub.hide = true
	before := n.stub.calls
	n.stub.write(map[allocator.Key]allocator.Value{allocator.LineageKey(): n.stub.lineage}) // the Welcome is newer than the reference
	n.stub.mu.Unlock()
	n.stub.tell(&signetv1.SessionResponse{Message: &signetv1.SessionResponse_HelloWanted{HelloWanted: &signetv1.HelloWanted{}}})
	n.await("it is asked for again", func() bool {
		n.stub.mu.Lock()
		defer n.stub.mu.Unlock()
		return n.stub.calls > before
	})
	n.await("and answered", func() bool { return len(n.agent.cfg.Client.Pins()) == 1 })
	n.stub.mu.Lock()
	defer n.stub.mu.Unlock()
	if len(n.stub.releases) != 0 || n.stub.holds["k8s:app=web;"] == 0 {
		t.Errorf("released %q", n.stub.releases)
	}
}

func TestPublicationIsHealed(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	n.stub.mu.Lock()
	n.stub.write(map[allocator.Key]allocator.Value{allocator.AddressKey("10.244.0.1"): nil})
	n.stub.mu.Unlock()
	n.await("it is published again", func() bool { return n.stored("10.244.0.1").ID == 1001 })
	// Another node's newer claim is left alone, and told.
	n.stub.mu.Lock()
	n.stub.publish("10.244.0.1", "n2", "b", 1001)
	n.stub.mu.Unlock()
	n.await("the finding", func() bool { return n.finding("ADDRESS-CLAIMED") != nil })
	if a := n.stored("10.244.0.1"); a.Metadata != "signet:default:n2:b" || n.dp.number("10.244.0.1") != 1001 {
		t.Errorf("%+v", a)
	}
	if _, err := n.api.DeleteEndpoint(n.ctx(), &signetv1.DeleteEndpointRequest{Id: "a"}); err != nil {
		t.Error(err)
	}
}

func TestAcknowledgesWhatIsCleared(t *testing.T) {
	n := newNode(t)
	var hold bool
	n.dp.cleared = func(last uint64) uint64 {
		if hold {
			return 0
		}
		return last
	}
	n.start()
	n.put("a", "k8s:app=web")
	acked := func() int64 {
		n.stub.mu.Lock()
		defer n.stub.mu.Unlock()
		if len(n.stub.acks) == 0 {
			return 0
		}
		return n.stub.acks[len(n.stub.acks)-1].GetLineage().GetRevision()
	}
	head := func() (rev int64) {
		n.store.Do(func(m *fake.Model) { rev = m.Revision() })
		return rev
	}
	want := func(rev int64) {
		n.stub.tell(&signetv1.SessionResponse{Message: &signetv1.SessionResponse_AckWanted{AckWanted: &signetv1.AckWanted{Revision: rev}}})
	}
	rev := head()
	want(rev)
	n.await("an acknowledgement", func() bool { return acked() >= rev })
	n.dp.mu.Lock()
	hold = true
	n.dp.mu.Unlock()
	n.put("a", "k8s:app=api")
	rev = head()
	want(rev)
	n.await("the revision is applied", func() bool { return n.agent.mirror.Applied() >= rev })
	n.agent.ticked()
	n.agent.ticked()
	n.agent.engine.mu.Lock()
	early := n.agent.engine.acked >= rev
	n.agent.engine.mu.Unlock()
	if early || acked() >= rev {
		t.Error("acknowledged before the old entry is cleared")
	}
	n.dp.mu.Lock()
	hold = false
	n.dp.mu.Unlock()
	n.await("then it is", func() bool { return acked() >= rev })
}

func TestMapThatTakesNothing(t *testing.T) {
	n := newNode(t)
	n.cfg.PutTimeout = 300 * time.Millisecond
	n.dp.setRefuse("10.244.0.1", errors.New("the map is full"))
	n.start()
	_, err := n.api.PutEndpoint(context.Background(), &signetv1.PutEndpointRequest{Endpoint: &signetv1.Endpoint{Id: "a", Labels: []string{"k8s:app=web"}}})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the map is full") {
		t.Fatal(err)
	}
	if n.stored("10.244.0.1").ID != 0 {
		t.Error("it was published although it is not in the map")
	}
	n.dp.setRefuse("10.244.0.1", nil)
	n.await("ready", func() bool { return n.get("a").GetState() == "ready" })
}

func TestLeave(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	n.stub.setDown(true)
	ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
	defer cancel()
	if _, err := n.api.LeaveNode(ctx, &signetv1.LeaveNodeRequest{}); err == nil {
		t.Fatal("left without an operator")
	}
	n.stub.setDown(false)
	resp, err := n.api.LeaveNode(n.ctx(), &signetv1.LeaveNodeRequest{})
	if err != nil || resp.GetReferences() != 1 {
		t.Fatalf("leave: %v %v", resp, err)
	}
	if !n.dp.destroyed || !n.stub.left {
		t.Error("maps or references are left")
	}
	if err := <-n.done; err != nil {
		t.Errorf("Run: %v", err)
	}
	n.done <- nil
	r, err := n.store.Range(context.Background(), kvstore.RangeRequest{Key: n.stub.key(allocator.PresenceKey("n1"))})
	if err != nil || len(r.KVs) != 0 {
		t.Errorf("the presence is left: %v %v", r.KVs, err)
	}
}

func TestWatchEndpoints(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	stream, err := n.api.WatchEndpoints(n.ctx(), &signetv1.WatchEndpointsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next := func() *signetv1.WatchEndpointsResponse {
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := next(); r.GetKind() != signetv1.WatchEndpointsResponse_KIND_UPSERT || r.GetEndpoint().GetId() != "a" {
		t.Fatal(r)
	}
	if r := next(); r.GetKind() != signetv1.WatchEndpointsResponse_KIND_CURRENT {
		t.Fatal(r)
	}
	n.put("b", "k8s:app=api")
	for r := next(); r.GetEndpoint().GetId() != "b" || r.GetEndpoint().GetState() != "ready"; r = next() {
	}
	if _, err := n.api.DeleteEndpoint(n.ctx(), &signetv1.DeleteEndpointRequest{Id: "a"}); err != nil {
		t.Fatal(err)
	}
	for r := next(); r.GetEndpoint().GetId() != "a" || r.GetKind() != signetv1.WatchEndpointsResponse_KIND_DELETE; r = next() {
	}
}

// A store that was restored while the agent was away is no reason to prune.
func TestRestoreWhileTheAgentIsAway(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	n.stub.mu.Lock()
	n.stub.masters["k8s:app=far;"] = 555
	n.stub.write(map[allocator.Key]allocator.Value{allocator.MasterKey(555): allocator.LabelSet("k8s:app=far;")})
	n.stub.publish("10.245.0.1", "n2", "x", 555)
	n.stub.mu.Unlock()
	n.await("the remote address", func() bool { return n.dp.number("10.245.0.1") == 555 })
	n.put("b", "k8s:app=web") // and the checkpoint knows the lineage
	n.kill()
	n.stub.setDown(true)
	n.store.Replace(fake.NewModel(fake.Limits{}, 2), errors.New("restored"))
	n.stub.mu.Lock()
	n.stub.lineage, n.stub.holds = allocator.Lineage{}, map[string]int64{}
	n.stub.mu.Unlock()
	n.stub.term("second")
	n.cfg.SurplusGrace = 700 * time.Millisecond
	n.dp = n.dp.restarted()
	n.start()
	n.await("the restore is seen", func() bool { return n.finding("STORE-RESTORED") != nil })
	if n.dp.number("10.245.0.1") != 555 || n.dp.number("10.244.0.1") != 1001 || len(n.dp.history) != 0 {
		t.Errorf("the map was pruned: %q", n.dp.history)
	}
	n.stub.setDown(false)
	n.await("once the operator has recovered it is", func() bool { return n.dp.number("10.245.0.1") == 0 })
	n.await("own addresses are published again", func() bool {
		return n.stored("10.244.0.1").ID == 1001 && n.stored("10.244.0.2").ID == 1001
	})
}

// A restored store is recognised: what it does not name stays in the map until
// the operator has recovered.
func TestRestoredStoreIsNoMassDelete(t *testing.T) {
	n := newNode(t)
	n.cfg.SurplusGrace = time.Second
	n.start()
	n.put("a", "k8s:app=web")
	n.stub.mu.Lock()
	n.stub.masters["k8s:app=far;"] = 555
	n.stub.write(map[allocator.Key]allocator.Value{allocator.MasterKey(555): allocator.LabelSet("k8s:app=far;")})
	n.stub.publish("10.245.0.1", "n2", "x", 555)
	n.stub.mu.Unlock()
	n.await("the remote address", func() bool { return n.dp.number("10.245.0.1") == 555 })
	n.stub.setDown(true)
	n.store.Replace(fake.NewModel(fake.Limits{}, 2), errors.New("restored"))
	n.await("the restore is seen", func() bool { return n.finding("STORE-RESTORED") != nil })
	if n.dp.number("10.245.0.1") != 555 || n.dp.number("10.244.0.1") != 1001 || n.dp.at("10.244.0.1").Dead {
		t.Errorf("the map lost entries: %q", n.dp.history)
	}
	n.stub.mu.Lock()
	n.stub.lineage, n.stub.holds = allocator.Lineage{}, map[string]int64{}
	n.stub.mu.Unlock()
	n.stub.term("second")
	n.stub.setDown(false)
	n.await("the reference is back", func() bool { return n.stub.held("k8s:app=web;") == 1001 })
	n.await("what nobody announced goes", func() bool { return n.dp.number("10.245.0.1") == 0 })
	n.await("ready", func() bool { return n.agentStatus().GetReady() })
	if n.dp.number("10.244.0.1") != 1001 {
		t.Error("the own address is gone")
	}
}
