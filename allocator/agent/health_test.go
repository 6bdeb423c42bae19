// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signet-identity/signet/allocator"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// gauge reads one metric of the agent; what is the value of its only label.
func (n *node) gauge(name, what string) float64 {
	n.t.Helper()
	families, err := n.cfg.Registerer.(*prometheus.Registry).Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == what {
				return m.GetGauge().GetValue()
			}
		}
	}
	n.t.Fatalf("there is no metric %s with %s", name, what)
	return 0
}

// An address that is denied since its number is dead is an error that status,
// findings and metrics show, and it is over with the new number.
func TestDeadNumbersAreVisible(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	n.put("b", "k8s:app=web")
	n.stub.mu.Lock()
	n.stub.publish("10.245.0.1", "n2", "x", 1001)
	n.stub.mu.Unlock()
	n.await("the remote address", func() bool { return n.dp.number("10.245.0.1") == 1001 })
	if n.finding("ENDPOINT-NUMBER-DEAD") != nil || n.finding("REMOTE-NUMBERS-DEAD") != nil || n.gauge("signet_agent_ipcache_entries", "dead") != 0 {
		t.Error("it tells of dead numbers, and there are none")
	}
	n.stub.setDown(true)
	n.stub.free("k8s:app=web;")
	n.await("all are denied", func() bool {
		return n.dp.at("10.244.0.1").Dead && n.dp.at("10.244.0.2").Dead && n.dp.at("10.245.0.1").Dead
	})
	n.await("the findings", func() bool {
		local, remote := n.finding("ENDPOINT-NUMBER-DEAD"), n.finding("REMOTE-NUMBERS-DEAD")
		return local.GetSeverity() == failed && local.GetObject() == "a" && strings.HasPrefix(local.GetText(), "2 addresses") &&
			strings.Contains(local.GetText(), "10.244.0.1 of endpoint a, number 1001") &&
			remote.GetSeverity() == info && strings.HasPrefix(remote.GetText(), "1 addresses")
	})
	if got := n.gauge("signet_agent_ipcache_entries", "dead"); got != 3 {
		t.Errorf("%v dead entries counted", got)
	}
	n.stub.setDown(false)
	n.await("the new number", func() bool { return n.get("a").GetState() == "ready" && n.get("b").GetState() == "ready" })
	n.await("nothing local is dead", func() bool {
		return n.finding("ENDPOINT-NUMBER-DEAD") == nil && n.gauge("signet_agent_ipcache_entries", "dead") == 1
	})
	n.stub.mu.Lock()
	n.stub.write(map[allocator.Key]allocator.Value{allocator.AddressKey("10.245.0.1"): nil})
	n.stub.mu.Unlock()
	n.await("nothing is dead", func() bool {
		return n.finding("REMOTE-NUMBERS-DEAD") == nil && n.gauge("signet_agent_ipcache_entries", "dead") == 0
	})
}

// A dead number is replaced without waiting for anything: in far less time than
// a retry of what was refused takes.
func TestDeadNumberIsReplacedAtOnce(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	n.await("ready", func() bool { return n.agentStatus().GetReady() })
	n.stub.free("k8s:app=web;")
	began := time.Now()
	n.await("the new number", func() bool { return n.dp.number("10.244.0.1") == 1002 && n.stored("10.244.0.1").ID == 1002 })
	if took := time.Since(began); took > retrySlowFirst/2 {
		t.Errorf("it took %v", took)
	}
	if ep := n.get("a"); ep.GetState() != "ready" || ep.GetNumber() != 1002 || n.dp.at("10.244.0.1").Dead {
		t.Errorf("%v", ep)
	}
}

// The number was freed and forgotten, tombstone included, while the agent was
// away: only the Welcome can tell, and it does.
func TestWelcomeReplacesANumberThatNobodyRemembers(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	n.kill()
	old := n.stub.free("k8s:app=web;")
	n.stub.mu.Lock()
	n.stub.write(map[allocator.Key]allocator.Value{allocator.TombstoneKey(old): nil})
	n.stub.mu.Unlock()
	n.dp = n.dp.restarted()
	n.start()
	n.await("the new number", func() bool { return n.dp.number("10.244.0.1") == 1002 && n.stored("10.244.0.1").ID == 1002 })
	if n.stub.held("k8s:app=web;") != 1002 {
		t.Error("it holds no reference")
	}
}

// clock is a time that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// The session's age is the time since its last sign of life: it starts small
// after a loss, however old the session was, and grows from there.
func TestSessionAge(t *testing.T) {
	n := newNode(t)
	c := &clock{at: time.Unix(1_000_000, 0)}
	n.cfg.Now = c.now
	n.start()
	age := func() int64 {
		for _, l := range n.agentStatus().GetLoops() {
			if l.GetName() == "session" {
				return l.GetLastSuccessMs()
			}
		}
		return -2
	}
	connected := func() bool {
		n.agent.sessions.mu.Lock()
		defer n.agent.sessions.mu.Unlock()
		return n.agent.sessions.connected
	}
	n.await("a session", connected)
	c.pass(time.Hour)
	n.agent.ticked()
	if got := age(); got != 0 {
		t.Errorf("%d ms after a sign of life", got)
	}
	n.stub.setDown(true)
	n.await("the loss", func() bool { return !connected() })
	for i := range int64(3) {
		if got := age(); got != 7000*i {
			t.Errorf("%d ms, %d s after the last sign of life", got, 7*i)
		}
		c.pass(7 * time.Second)
		n.agent.ticked()
	}
	n.stub.setDown(false)
	n.await("a session again", func() bool { return connected() && age() == 0 })
}

// What only waits for its publication says so, in whatever way it is held up.
func TestWaitsToPublish(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	n.stub.setDown(true)
	_, err := n.tryPut(&signetv1.Endpoint{Id: "b", Labels: []string{"k8s:app=web"}}, 300*time.Millisecond)
	if ep := n.get("b"); err == nil || ep.GetState() != "waiting-to-publish" || !strings.Contains(ep.GetReason(), "10.244.0.2 is not yet published") || ep.GetNumber() != 1001 {
		t.Errorf("a set in use: %v, %v", ep, err)
	}
	_, err = n.tryPut(&signetv1.Endpoint{Id: "c", Labels: []string{"k8s:app=new"}}, 300*time.Millisecond)
	if ep := n.get("c"); err == nil || ep.GetState() != "waiting-for-identity" || ep.GetNumber() != 0 {
		t.Errorf("a new set: %v, %v", ep, err)
	}
	if got := n.gauge("signet_agent_endpoints", "waiting-to-publish"); got != 1 {
		t.Errorf("%v endpoints counted", got)
	}
	n.stub.setDown(false)
	n.await("both ready", func() bool { return n.get("b").GetState() == "ready" && n.get("c").GetState() == "ready" })
}
