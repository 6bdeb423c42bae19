// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// lines is a log that tests can search.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(parts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
lines:
	for _, line := range strings.Split(l.buf.String(), "\n") {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		n++
	}
	return n
}

// other puts the presence of another instance of the node and keeps it until
// the returned function lets it lapse.
func (n *node) other(instance string) (lapse func()) {
	n.t.Helper()
	lease, err := n.store.Grant(context.Background(), time.Hour)
	if err != nil {
		n.t.Fatal(err)
	}
	key := allocator.PresenceKey("n1")
	value, err := kvstore.EncodeValue(key, allocator.Presence{Node: "n1", Instance: instance, TTLS: 3600, Addresses: []string{}, Prefixes: []string{}})
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.store.Txn(context.Background(), putTxn(n.stub.key(key), value, lease)); err != nil {
		n.t.Fatal(err)
	}
	return func() {
		if err := n.store.Revoke(context.Background(), lease); err != nil {
			n.t.Fatal(err)
		}
		n.board.ring()
	}
}

// asked is how often the operator was asked for anything: hellos and calls.
func (s *stub) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls + s.publishes + len(s.hellos) + len(s.releases)
}

func (n *node) tryPut(ep *signetv1.Endpoint, limit time.Duration) (*signetv1.Endpoint, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	resp, err := n.api.PutEndpoint(ctx, &signetv1.PutEndpointRequest{Endpoint: ep})
	return resp.GetEndpoint(), err
}

func isReady(a *Agent) bool {
	select {
	case <-a.Ready():
		return true
	default:
		return false
	}
}

// An agent whose node name another instance has does nothing in that one's
// name, and says so; once the other is gone it takes over.
func TestRefusedAgentDoesNothingInTheOthersName(t *testing.T) {
	n := newNode(t)
	var log lines
	n.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	lapse := n.other("the-other-one")
	n.stub.masters["k8s:app=live;"], n.stub.holds["k8s:app=live;"] = 77, 5
	n.stub.publish("10.244.0.1", "n1", "live", 77)
	n.start()
	n.await("the finding", func() bool { return n.finding(codeTaken) != nil })
	want := &signetv1.Endpoint{Id: "a", Labels: []string{"k8s:app=web"}}
	_, err := n.tryPut(want, time.Second)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), codeTaken) || !strings.Contains(err.Error(), "the-other-one") {
		t.Errorf("put: %v", err)
	}
	if _, err := n.api.LeaveNode(n.ctx(), &signetv1.LeaveNodeRequest{}); status.Code(err) != codes.FailedPrecondition || n.dp.destroyed {
		t.Errorf("leave: %v", err)
	}
	if isReady(n.agent) || n.agentStatus().GetReady() || len(n.list()) != 0 {
		t.Error("it calls itself ready, or took the endpoint in")
	}
	n.agent.ticked()
	if got := n.stub.asked(); got != 0 || n.stub.left {
		t.Errorf("an operator was asked %d times", got)
	}
	lapse()
	<-n.agent.Ready()
	ep, err := n.tryPut(want, patience)
	if err != nil || ep.GetAddresses()[0] != "10.244.0.2" || n.stored("10.244.0.1").Metadata != "signet:default:n1:live" {
		t.Errorf("after the takeover: %v, %v; the other's address: %+v", ep, err, n.stored("10.244.0.1"))
	}
	if log.count("level=WARN", "another agent has this node's name", "the-other-one") != 1 || log.count("level=WARN", "presence is back") != 1 {
		t.Errorf("the log:\n%s", log.buf.String())
	}
}

// What is published under another endpoint is not given out, except to the
// endpoint of that name on this node.
func TestPublishedAddressesAreTaken(t *testing.T) {
	n := newNode(t)
	n.stub.masters["k8s:app=old;"], n.stub.holds["k8s:app=old;"] = 77, 5
	n.stub.publish("10.244.0.1", "n1", "old", 77)
	n.stub.publish("10.244.0.2", "n2", "x", 77)
	n.stub.write(map[allocator.Key]allocator.Value{allocator.AddressKey("10.244.0.3"): allocator.Address{IP: "10.244.0.3", ID: 77}})
	n.start()
	if ep := n.put("a", "k8s:app=web"); ep.GetAddresses()[0] != "10.244.0.4" {
		t.Errorf("took %v", ep)
	}
	for address, owner := range map[string]string{"10.244.0.1": "endpoint old of node n1", "10.244.0.2": "endpoint x of node n2", "10.244.0.3": "somebody"} {
		_, err := n.tryPut(&signetv1.Endpoint{Id: "b", Labels: []string{"k8s:app=web"}, Addresses: []string{address}}, patience)
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(strings.ReplaceAll(err.Error(), `"`, ""), owner) {
			t.Errorf("%s: %v", address, err)
		}
	}
	ep, err := n.tryPut(&signetv1.Endpoint{Id: "old", Labels: []string{"k8s:app=web"}, Addresses: []string{"10.244.0.1"}}, patience)
	if err != nil || n.stored("10.244.0.1").ID != ep.GetNumber() {
		t.Errorf("the same endpoint: %v, %v", ep, err)
	}
	// An address that this agent has just taken back is free at once.
	if _, err := n.api.DeleteEndpoint(n.ctx(), &signetv1.DeleteEndpointRequest{Id: "a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.tryPut(&signetv1.Endpoint{Id: "c", Labels: []string{"k8s:app=web"}, Addresses: []string{"10.244.0.4"}}, patience); err != nil {
		t.Error(err)
	}
}

// A fresh agent chooses no address before the mirror has shown it what the
// node has in the store, however early its presence stands.
func TestFreshAgentChoosesNothingUnseen(t *testing.T) {
	n := newNode(t)
	n.stub.publish("10.244.0.1", "n1", "old", 77)
	n.cfg.PresenceStore = n.store
	slow := &slowLists{Store: n.store, release: make(chan struct{})}
	n.cfg.Store = slow
	n.start()
	<-n.agent.Ready()
	_, err := n.tryPut(&signetv1.Endpoint{Id: "a", Labels: []string{"k8s:app=web"}}, 300*time.Millisecond)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "listed") || len(n.list()) != 0 {
		t.Errorf("put: %v", err)
	}
	close(slow.release)
	if ep := n.put("a", "k8s:app=web"); ep.GetAddresses()[0] != "10.244.0.2" {
		t.Errorf("took %v", ep)
	}
}

// slowLists is a store whose reads wait.
type slowLists struct {
	kvstore.Store
	release chan struct{}
}

func (s *slowLists) Range(ctx context.Context, r kvstore.RangeRequest) (kvstore.RangeResult, error) {
	select {
	case <-s.release:
		return s.Store.Range(ctx, r)
	case <-ctx.Done():
		return kvstore.RangeResult{}, ctx.Err()
	}
}

// While the presence is lost and not back, nothing is published, and the
// endpoint says for what it waits. Its number is in force already.
func TestLostPresencePublishesNothing(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	n.await("ready", func() bool { return n.agentStatus().GetReady() })
	n.store.SetFault(func(call string) fake.Fault {
		if call == "Grant" {
			return fake.Fault{Before: errors.New("the store grants nothing")}
		}
		return fake.Fault{}
	})
	if err := n.store.Revoke(context.Background(), n.agent.presence.Status().Lease); err != nil {
		t.Fatal(err)
	}
	n.await("the loss", func() bool { return !n.agent.presence.Status().Present })
	n.await("the session ends", func() bool {
		n.agent.sessions.mu.Lock()
		defer n.agent.sessions.mu.Unlock()
		return !n.agent.sessions.connected
	})
	before := n.stub.asked()
	_, err := n.tryPut(&signetv1.Endpoint{Id: "b", Labels: []string{"k8s:app=web"}}, 400*time.Millisecond)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "presence") {
		t.Errorf("put: %v", err)
	}
	if ep := n.get("b"); ep.GetState() != "waiting-to-publish" || !strings.Contains(ep.GetReason(), "not yet published") || ep.GetNumber() != 1001 || n.dp.number("10.244.0.2") != 1001 {
		t.Errorf("a set in use: %v", ep)
	}
	if _, err := n.api.DeleteEndpoint(n.ctx(), &signetv1.DeleteEndpointRequest{Id: "a"}); err != nil {
		t.Error(err)
	}
	if got := n.stub.asked(); got != before || n.stored("10.244.0.2").ID != 0 || n.stored("10.244.0.1").ID == 0 {
		t.Errorf("an operator was asked %d times", got-before)
	}
	n.store.SetFault(nil)
	n.await("ready by itself", func() bool { return n.get("b").GetState() == "ready" && n.stored("10.244.0.2").ID == 1001 })
	n.await("withdrawn", func() bool { return n.stored("10.244.0.1").ID == 0 })
}

// Another instance that takes the presence of a working agent shuts it up.
func TestPresenceTakenFromAWorkingAgent(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	lapse := n.other("the-usurper")
	n.await("the finding", func() bool { return n.finding(codeTaken) != nil })
	_, err := n.tryPut(&signetv1.Endpoint{Id: "a", Labels: []string{"k8s:app=web"}}, 300*time.Millisecond)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the-usurper") {
		t.Errorf("put: %v", err)
	}
	if n.dp.number("10.244.0.1") != 1001 || n.agentStatus().GetReady() {
		t.Error("the map suffered, or it is ready")
	}
	lapse()
	n.put("b", "k8s:app=web")
	n.await("ready", func() bool { return n.agentStatus().GetReady() })
}

func TestGate(t *testing.T) {
	g := newGate()
	if _, _, ok := g.through(context.Background()); ok {
		t.Fatal("open from the start")
	}
	if err := g.wait(shortly(t)); err == nil {
		t.Fatal("waited for nothing")
	}
	for range 2 {
		g.set(true)
		g.set(true)
		if err := g.wait(context.Background()); err != nil {
			t.Fatal(err)
		}
		ctx, leave, ok := g.through(context.Background())
		if !ok || ctx.Err() != nil {
			t.Fatal("closed")
		}
		g.set(false)
		g.set(false)
		<-ctx.Done()
		leave()
	}
}

func TestPresenceNotes(t *testing.T) {
	const lost, back, taken = "presence is lost", "presence is back", "another agent"
	missing := func(age time.Duration) kvstore.PresenceStatus {
		return kvstore.PresenceStatus{State: "reading", Age: age, Err: errors.New("silent")}
	}
	refused := kvstore.PresenceStatus{State: "refused", Err: &kvstore.NodeTaken{Node: "n1", Instance: "i2"}}
	present := kvstore.PresenceStatus{State: "present", Present: true, Lease: 0xabc}
	for name, c := range map[string]struct {
		seen []kvstore.PresenceStatus
		want string
	}{
		"all is well":    {[]kvstore.PresenceStatus{present, present}, ""},
		"a short loss":   {[]kvstore.PresenceStatus{present, missing(3 * time.Second), present}, ""},
		"a long one":     {[]kvstore.PresenceStatus{missing(3 * time.Second), missing(5 * time.Second), missing(9 * time.Second), present, present}, "lost back"},
		"two":            {[]kvstore.PresenceStatus{missing(5 * time.Second), present, missing(5 * time.Second)}, "lost back lost"},
		"taken":          {[]kvstore.PresenceStatus{refused, refused, missing(9 * time.Second), refused, present}, "taken back"},
		"lost and taken": {[]kvstore.PresenceStatus{missing(9 * time.Second), refused, present}, "lost taken back"},
	} {
		var log lines
		n := presenceNotes{log: slog.New(slog.NewTextHandler(&log, nil)), node: "n1", ttl: 2 * time.Second, now: time.Now}
		for _, s := range c.seen {
			n.look(s)
		}
		var got []string
		for _, line := range strings.Split(log.buf.String(), "\n") {
			for word, part := range map[string]string{"lost": lost, "back": back, "taken": taken} {
				if strings.Contains(line, part) && strings.Contains(line, "level=WARN") {
					got = append(got, word)
				}
			}
		}
		if strings.Join(got, " ") != c.want || strings.Contains(log.buf.String(), "error=<nil>") {
			t.Errorf("%s: %q, want %q\n%s", name, got, c.want, log.buf.String())
		}
	}
}
