// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signet-identity/signet/allocator/client"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

func TestListReadsEveryPage(t *testing.T) {
	c, o, _ := start(t)
	n := uint32(0)
	for i, err := range c.List(long(t), client.ListOptions{}) {
		if err != nil || i.GetNumber() != n {
			t.Fatalf("item %d: %v, %v", n, i, err)
		}
		n++
	}
	if n != 5 || o.count("list") != 3 {
		t.Errorf("%d items from %d pages", n, o.count("list"))
	}
	for range c.List(long(t), client.ListOptions{}) {
		break
	}
	o.hook(always(status.Error(codes.InvalidArgument, "bad selector")), nil)
	for _, err := range c.List(long(t), client.ListOptions{Selector: "("}) {
		if client.CodeOf(err) != codes.InvalidArgument {
			t.Errorf("%v", err)
		}
	}
}

func watchFrame(kind signetv1.WatchIdentitiesResponse_Kind, revision int64) *signetv1.WatchIdentitiesResponse {
	return &signetv1.WatchIdentitiesResponse{Kind: kind, Lineage: &signetv1.Position{Revision: revision}}
}

func TestWatchResumesBehindTheLastCurrent(t *testing.T) {
	const reset, upsert, current = signetv1.WatchIdentitiesResponse_KIND_RESET, signetv1.WatchIdentitiesResponse_KIND_UPSERT,
		signetv1.WatchIdentitiesResponse_KIND_CURRENT
	c, o, _ := start(t)
	ctx, cancel := context.WithCancel(long(t))
	got := make(chan *signetv1.WatchIdentitiesResponse)
	end := make(chan error, 1)
	go func() {
		for ev, err := range c.Watch(ctx, client.WatchOptions{Selector: "app"}) {
			if err != nil {
				end <- err
				return
			}
			got <- ev
		}
	}()
	steps := []struct {
		after int64 // what the stream has to ask for
		send  []*signetv1.WatchIdentitiesResponse
	}{
		{0, []*signetv1.WatchIdentitiesResponse{watchFrame(reset, 5), watchFrame(upsert, 5)}},                           // breaks within the snapshot
		{0, []*signetv1.WatchIdentitiesResponse{watchFrame(reset, 6), watchFrame(current, 6), watchFrame(upsert, 7)}},   // breaks within a batch
		{6, []*signetv1.WatchIdentitiesResponse{watchFrame(upsert, 7), watchFrame(upsert, 8), watchFrame(current, 8)}},  // breaks behind it
		{8, []*signetv1.WatchIdentitiesResponse{watchFrame(reset, 20), watchFrame(upsert, 20), watchFrame(upsert, 20)}}, // too old: a snapshot, which breaks
		{0, nil},
	}
	for i, s := range steps {
		w := <-o.watches
		if w.req.GetAfter().GetRevision() != s.after || w.req.GetSelector() != "app" {
			t.Errorf("stream %d asks for %v, want after %d", i, w.req, s.after)
		}
		for _, f := range s.send {
			if err := w.send.Send(f); err != nil {
				t.Fatal(err)
			}
			if ev := <-got; ev.GetKind() != f.GetKind() || ev.GetLineage().GetRevision() != f.GetLineage().GetRevision() {
				t.Errorf("got %v, want %v", ev, f)
			}
		}
		if s.send != nil {
			w.end <- status.Error(codes.Unavailable, "the reader is slow")
		}
	}
	cancel()
	if err := <-end; client.CodeOf(err) != codes.Canceled {
		t.Errorf("ended with %v", err)
	}
}

func TestWatchEndsWithARefusalAndWithoutServers(t *testing.T) {
	c, o, n := start(t, func(cfg *client.Config) { cfg.Timeout = 50 * time.Millisecond })
	first := func() (err error) {
		for _, err = range c.Watch(long(t), client.WatchOptions{}) {
			break
		}
		return err
	}
	o.hook(always(status.Error(codes.InvalidArgument, "bad")), nil)
	if err := first(); client.CodeOf(err) != codes.InvalidArgument {
		t.Errorf("a refusal: %v", err)
	}
	n.cut("one")
	if err := first(); client.CodeOf(err) != codes.Unavailable {
		t.Errorf("no server: %v", err)
	}
}

func TestSessionSurvivesItsServers(t *testing.T) {
	n, one, two := newNetwork(t), newOperator(), newOperator()
	n.serve("one", one)
	n.serve("two", two)
	c := dial(t, n, func(cfg *client.Config) { cfg.Servers = []string{"one", "two"} })
	welcomes, wanted, lost := make(chan *signetv1.Welcome, 10), make(chan int64, 10), make(chan error, 10)
	hellos := 0
	s := c.NewSession(client.SessionConfig{
		Hello: func() *signetv1.Hello {
			hellos++
			return &signetv1.Hello{Node: "node-a", Instance: "uuid", Pairs: []*signetv1.HeldPair{{Text: "k8s:a=b;", Number: 9, Hold: int64(hellos)}}}
		},
		Welcome:   func(w *signetv1.Welcome) { welcomes <- w },
		AckWanted: func(r int64) { wanted <- r },
		Lost:      func(err error) { lost <- err },
	})
	s.Ack(&signetv1.Position{Revision: 5})
	ctx, cancel := context.WithCancel(long(t))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()

	if w := <-welcomes; w.GetHolds()[0].GetHold() != 1 {
		t.Errorf("welcome: %v", w)
	}
	until(t, "the acknowledgement of before", func() bool { return acked(one) == 5 })
	s.Ack(&signetv1.Position{Revision: 7})
	until(t, "the newer one", func() bool { return acked(one) == 7 })
	s.Hello()
	if w := <-welcomes; w.GetHolds()[0].GetHold() != 2 {
		t.Errorf("a second hello: %v", w)
	}
	stream := <-one.sessions
	<-one.sessions
	if err := stream.Send(&signetv1.SessionResponse{Message: &signetv1.SessionResponse_AckWanted{AckWanted: &signetv1.AckWanted{Revision: 8}}}); err != nil {
		t.Fatal(err)
	}
	if r := <-wanted; r != 8 {
		t.Errorf("wanted %d", r)
	}
	if err := stream.Send(&signetv1.SessionResponse{Message: &signetv1.SessionResponse_HelloWanted{HelloWanted: &signetv1.HelloWanted{Reason: "new leader"}}}); err != nil {
		t.Fatal(err)
	}
	if w := <-welcomes; w.GetHolds()[0].GetHold() != 3 {
		t.Errorf("a hello that was asked for: %v", w)
	}
	n.cut("one")
	if w := <-welcomes; w.GetHolds()[0].GetHold() != 4 {
		t.Errorf("at the next server: %v", w)
	}
	if err := <-lost; client.CodeOf(err) != codes.Unavailable {
		t.Errorf("lost with %v", err)
	}
	until(t, "the last acknowledgement again", func() bool { return acked(two) == 7 })
	cancel()
	if err := <-done; client.CodeOf(err) != codes.Canceled {
		t.Errorf("ended with %v", err)
	}
}

func acked(o *operator) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := len(o.requests) - 1; i >= 0; i-- {
		if f, ok := o.requests[i].(*signetv1.SessionRequest); ok && f.GetAck() != nil {
			return f.GetAck().GetLineage().GetRevision()
		}
	}
	return 0
}

func TestSessionEndsWhenRefusedForGood(t *testing.T) {
	c, o, _ := start(t)
	o.hook(always(status.Error(codes.PermissionDenied, "not you"), "frame"), nil)
	s := c.NewSession(client.SessionConfig{Hello: func() *signetv1.Hello { return &signetv1.Hello{} }, Welcome: func(*signetv1.Welcome) {}})
	if err := s.Run(long(t)); client.CodeOf(err) != codes.PermissionDenied {
		t.Errorf("%v", err)
	}
}

func TestThinCalls(t *testing.T) {
	c, o, _ := start(t)
	web := set(t, "k8s:app=web")
	if _, err := c.Allocate(long(t), web); err != nil {
		t.Fatal(err)
	}
	if st, err := c.Status(long(t)); err != nil || !st.GetReady() {
		t.Errorf("status: %v, %v", st, err)
	}
	if st, err := c.StatusOf(long(t), 0); err != nil || !st.GetReady() {
		t.Errorf("status of one: %v, %v", st, err)
	}
	if nodes, err := c.Nodes(long(t)); err != nil || len(nodes) != 1 {
		t.Errorf("nodes: %v, %v", nodes, err)
	}
	if r, err := c.Publish(long(t), &signetv1.PublishEndpointsRequest{}); err != nil || len(r.GetResults()) != 1 {
		t.Errorf("publish: %v, %v", r, err)
	}
	if err := c.ForgetNode(long(t), "b"); err != nil {
		t.Error(err)
	}
	if was, err := c.StepDown(long(t)); err != nil || was != "x" {
		t.Errorf("step down: %v, %v", was, err)
	}
	if l, err := c.Leave(long(t), "node-a", "uuid"); err != nil || l.GetReferences() != 1 || len(c.Pins()) != 0 {
		t.Errorf("leave: %v, %v, pins %v", l, err, c.Pins())
	}
	o.hook(always(errDown, "stepdown"), nil)
	if _, err := c.StepDown(long(t)); client.CodeOf(err) != codes.Unavailable || o.count("stepdown") != 2 {
		t.Errorf("a step down without an answer is not repeated: %v, %d calls", err, o.count("stepdown"))
	}
}
