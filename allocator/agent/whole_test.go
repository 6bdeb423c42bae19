// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/operator"
	"github.com/signet-identity/signet/allocator/server"
	"github.com/signet-identity/signet/kvstore"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// whole is a node whose operator is the real one, on the same modelled store.
func whole(t *testing.T) *node {
	n := newNode(t)
	// The stub's lineage is not the operator's.
	if _, err := n.store.Txn(context.Background(), kvstore.Txn{Then: []kvstore.Action{{Delete: true, Key: n.stub.key(allocator.LineageKey())}}}); err != nil {
		t.Fatal(err)
	}
	space, err := identity.NewSpace("default", 0, 255, false)
	if err != nil {
		t.Fatal(err)
	}
	o, err := operator.New(operator.Config{
		Core: allocator.Config{Space: space, NewCluster: true, NodeGrace: time.Second, IdentityGrace: time.Second, ForgetAfter: time.Hour,
			SweepInterval: 100 * time.Millisecond, PresenceTTL: 2 * time.Second, ElectionTTL: 2 * time.Second, LineageEvery: 200 * time.Millisecond},
		Commit: commit.DefaultConfig(), Layout: n.cfg.Layout, Store: n.store, Election: n.store, Replica: "r1", Address: "127.0.0.1:1",
		Version: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(server.Config{Backend: o})
	if err != nil {
		t.Fatal(err)
	}
	l := bufconn.Listen(1 << 16)
	ctx, cancel := context.WithCancel(context.Background())
	ran, served := make(chan error, 1), make(chan struct{})
	go func() { ran <- o.Run(ctx) }()
	go func() { defer close(served); s.Serve(local{l}) }()
	t.Cleanup(func() {
		n.kill()
		s.Stop(context.Background())
		<-served
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("operator: %v", err)
		}
	})
	n.dial = func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
	return n
}

// local makes a listener look like one on loopback, as plain text asks for.
type local struct{ net.Listener }

func (local) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// keys lists the store's keys under a prefix.
func (n *node) keys(prefix string) []string {
	n.t.Helper()
	r, err := n.store.Range(context.Background(), kvstore.RangeRequest{Key: prefix, RangeEnd: kvstore.PrefixEnd(prefix)})
	if err != nil {
		n.t.Fatal(err)
	}
	var out []string
	for _, kv := range r.KVs {
		out = append(out, strings.TrimPrefix(kv.Key, prefix))
	}
	return out
}

// The agent's life with the real operator: put, restart, labels change, a stop
// longer than all graces, leave.
func TestWholeLife(t *testing.T) {
	n := whole(t).start()
	for i := range 6 {
		n.put(fmt.Sprintf("pod-%d", i), fmt.Sprintf("k8s:app=a%d", i/2))
	}
	if refs := n.keys(n.cfg.Layout.References()); len(refs) != 3 || !strings.HasSuffix(refs[0], "/n1") {
		t.Errorf("references %q", refs)
	}
	n.await("ready", func() bool { return n.agentStatus().GetReady() })
	before := n.list()

	n.restart()
	n.await("ready again", func() bool { return n.agentStatus().GetReady() })
	if len(n.dp.history) != 0 {
		t.Errorf("a restart changed the map: %q", n.dp.history)
	}
	for i, ep := range n.list() {
		if ep.GetNumber() != before[i].GetNumber() || ep.GetState() != "ready" {
			t.Errorf("%v became %v", before[i], ep)
		}
	}

	old := before[0].GetNumber()
	n.put("pod-1", "k8s:app=a1")
	if ep := n.put("pod-0", "k8s:app=a1"); ep.GetNumber() != before[2].GetNumber() || n.stored(ep.GetAddresses()[0]).ID != ep.GetNumber() {
		t.Errorf("after a change of labels: %v", ep)
	}
	n.await("the old identity is collected", func() bool {
		return len(n.keys(n.cfg.Layout.Tombstones())) == 1 && len(n.keys(n.cfg.Layout.Masters())) == 2
	})
	if got := n.keys(n.cfg.Layout.Tombstones())[0]; got != fmt.Sprint(old) {
		t.Errorf("tombstone of %s, want %d", got, old)
	}

	// A stop for longer than all graces: everything is collected, and comes back.
	n.kill()
	n.await("all is collected", func() bool {
		n.store.Tick()
		return len(n.keys(n.cfg.Layout.Masters())) == 0 && len(n.keys(n.cfg.Layout.Addresses())) == 0
	})
	n.dp = n.dp.restarted()
	n.start()
	n.await("all is back", func() bool {
		for _, ep := range n.list() {
			if ep.GetState() != "ready" {
				return false
			}
		}
		return len(n.keys(n.cfg.Layout.Addresses())) == 6
	})
	for _, ep := range n.list() {
		if at := n.dp.at(ep.GetAddresses()[0]); at.Dead || uint32(at.Number) != ep.GetNumber() {
			t.Errorf("%v: map %+v", ep, at)
		}
	}

	resp, err := n.api.LeaveNode(n.ctx(), &signetv1.LeaveNodeRequest{})
	if err != nil || resp.GetReferences() != 2 || resp.GetAddresses() != 6 {
		t.Errorf("leave: %v %v", resp, err)
	}
	if err := <-n.done; err != nil {
		t.Error(err)
	}
	n.done <- nil
	if left := append(n.keys(n.cfg.Layout.References()), n.keys(n.cfg.Layout.Addresses())...); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}
