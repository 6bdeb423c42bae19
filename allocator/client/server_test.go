// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/server"
)

// leader is a Backend with one answer for Allocate; other calls are not made.
type leader struct {
	server.Backend
	err error
}

func (l *leader) Leader() (string, bool) { return "", true }
func (l *leader) Space() identity.Space {
	s, _ := identity.NewSpace("shop", 0, 255, false)
	return s
}

func (l *leader) Allocate(_ context.Context, r allocator.AllocateRequest) (allocator.Allocation, error) {
	return allocator.Allocation{Identity: allocator.Identity{Number: 4242, Labels: r.Labels.Text(), State: allocator.Live}, Hold: 3}, l.err
}

// The client reads from the real server, over a unix socket, what it needs.
func TestAgainstTheRealServer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	backend := &leader{}
	s, err := server.New(server.Config{Backend: backend})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	defer func() { s.Stop(long(t)); <-done }()
	c, err := client.Dial(long(t), client.Config{Servers: []string{"unix://" + socket}, Holder: "node-a"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	if a, err := c.Allocate(long(t), set(t, "k8s:app=web")); err != nil || a.Number != 4242 || a.Hold != 3 {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := c.Allocate(long(t), set(t, "reserved:world")); err != nil || a.Number != identity.World {
		t.Errorf("%+v, %v", a, err)
	}
	var e *client.Error
	_, err = c.Allocate(long(t), set(t, "reserved:world", "k8s:app=web"))
	if !errors.As(err, &e) || e.Code != codes.InvalidArgument || e.Reason != "reserved-mixed" || e.Field != "reserved:world" {
		t.Errorf("a mixed set: %#v", err)
	}
	backend.err = &allocator.Error{Code: allocator.Exhausted, Message: "no number is left", Retry: time.Minute, Used: 9, Limit: 9}
	_, err = c.Allocate(long(t), set(t, "k8s:app=db"))
	if !errors.As(err, &e) || e.Code != codes.ResourceExhausted || e.Reason != "exhausted" || e.Retry != time.Minute || e.Message != "no number is left" {
		t.Errorf("a full pool: %#v", err)
	}
	number := uint64(1 << 40)
	_, err = c.Get(long(t), client.GetOptions{Number: &number})
	if !errors.As(err, &e) || e.Code != codes.InvalidArgument || e.Reason != "number-out-of-range" {
		t.Errorf("a number that is none: %#v", err)
	}
}
