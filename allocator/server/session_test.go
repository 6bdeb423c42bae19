// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

func helloFrame(node string, pairs ...*signetv1.HeldPair) *signetv1.SessionRequest {
	return &signetv1.SessionRequest{Message: &signetv1.SessionRequest_Hello{Hello: &signetv1.Hello{
		Node: node, Instance: "uuid", Pairs: pairs, Complete: true, Lineage: &signetv1.Position{Revision: 3}}}}
}

func ackFrame(node string, revision int64) *signetv1.SessionRequest {
	return &signetv1.SessionRequest{Message: &signetv1.SessionRequest_Ack{Ack: &signetv1.Ack{
		Node: node, Instance: "uuid", Lineage: &signetv1.Position{Revision: revision}}}}
}

func TestSessionAtLeaderAndThroughAFollower(t *testing.T) {
	leader, follower := pair(t)
	for _, r := range []*replica{leader, follower} {
		s, err := r.node.Session(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		held := &signetv1.HeldPair{Text: "k8s:app=web;", Number: 65537, Hold: 9}
		for range 2 { // a second hello on the same session is fine
			if err := s.Send(helloFrame("node-a", held)); err != nil {
				t.Fatal(err)
			}
			w, err := s.Recv()
			if err != nil || len(w.GetWelcome().GetHolds()) != 1 || w.GetWelcome().GetHolds()[0].GetHold() != 9 {
				t.Fatalf("welcome: %v, %v", w, err)
			}
		}
		if err := s.Send(ackFrame("node-a", 12)); err != nil {
			t.Fatal(err)
		}
		if got := <-leader.acks; got != "node-a/uuid@12" {
			t.Errorf("acknowledged %s", got)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("a session that its agent ended: %v", err)
		}
	}
	if follower.count("hello") != 0 {
		t.Error("the follower answered a hello itself")
	}
}

func TestSessionRefusals(t *testing.T) {
	r := start(t)
	cases := map[string][]*signetv1.SessionRequest{
		"ack before hello":   {ackFrame("node-a", 1)},
		"ack of another":     {helloFrame("node-a"), ackFrame("node-b", 1)},
		"hello of another":   {helloFrame("node-a"), helloFrame("node-b")},
		"empty frame":        {{}},
		"bad node":           {helloFrame("pin-a")},
		"malformed pair":     {helloFrame("node-a", &signetv1.HeldPair{Text: "k8s:app=web", Number: 1})},
		"pair with number 0": {helloFrame("node-a", &signetv1.HeldPair{Text: "k8s:app=web;"})},
		"no instance": {{Message: &signetv1.SessionRequest_Hello{Hello: &signetv1.Hello{
			Node: "node-a"}}}},
	}
	for name, frames := range cases {
		s, err := r.node.Session(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range frames {
			_ = s.Send(f)
		}
		for err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSessionEndsWhenLeadershipDoes(t *testing.T) {
	leader, follower := pair(t)
	for _, r := range []*replica{leader, follower} {
		s, err := r.node.Session(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(helloFrame("node-a")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		leader.set(func(m *memory) { m.self = false })
		if _, err := s.Recv(); read(err).code != codes.Unavailable || read(err).reason != "NO_LEADER" {
			t.Errorf("the session ended with %v", err)
		}
		leader.set(func(m *memory) { m.self = true })
	}
}

func TestStopEndsStreams(t *testing.T) {
	r := start(t)
	s, err := r.node.Session(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(helloFrame("node-a")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	w, err := r.identity.WatchIdentities(testContext(t), &signetv1.WatchIdentitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r.events <- watchEvents(webIdentity, webIdentity)[0]
	if _, err := w.Recv(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r.server.Stop(ctx)
	if ctx.Err() != nil {
		t.Error("open streams held the stop up")
	}
	if _, err := s.Recv(); read(err).reason != "STOPPING" {
		t.Errorf("session: %v", err)
	}
	if _, err := w.Recv(); read(err).reason != "STOPPING" {
		t.Errorf("watch: %v", err)
	}
}
