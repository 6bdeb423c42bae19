// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// operator is a server that does what it should, unless a hook says otherwise.
type operator struct {
	signetv1.UnimplementedIdentityServiceServer
	signetv1.UnimplementedNodeServiceServer
	signetv1.UnimplementedAdminServiceServer

	mu       sync.Mutex
	revision int64
	numbers  map[string]uint32
	holds    map[string]int64 // label set text + holder
	calls    map[string]int
	requests []any
	// before may refuse a call; after may lose its answer. Both get the method.
	before, after func(ctx context.Context, method string) error
	sessions      chan signetv1.NodeService_SessionServer
	watches       chan watchCall
}

type watchCall struct {
	req  *signetv1.WatchIdentitiesRequest
	send grpc.ServerStreamingServer[signetv1.WatchIdentitiesResponse]
	end  chan error
}

func newOperator() *operator {
	return &operator{revision: 100, numbers: map[string]uint32{}, holds: map[string]int64{}, calls: map[string]int{},
		sessions: make(chan signetv1.NodeService_SessionServer, 10), watches: make(chan watchCall, 10)}
}

func (o *operator) hook(before, after func(context.Context, string) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.before, o.after = before, after
}

func (o *operator) count(method string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.calls[method]
}

func (o *operator) references() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.holds)
}

// do runs one call between its hooks; run has the lock.
func (o *operator) do(ctx context.Context, method string, req any, run func() error) error {
	o.mu.Lock()
	o.calls[method]++
	o.requests = append(o.requests, req)
	before, after := o.before, o.after
	o.mu.Unlock()
	if before != nil {
		if err := before(ctx, method); err != nil {
			return err
		}
	}
	o.mu.Lock()
	err := run()
	o.mu.Unlock()
	if err == nil && after != nil {
		err = after(ctx, method)
	}
	return err
}

func text(ls []string) string { set, _ := labels.ParseSet(ls...); return set.Text() }

func (o *operator) number(text string) uint32 {
	if o.numbers[text] == 0 {
		o.numbers[text] = 1000 + uint32(len(o.numbers))
	}
	return o.numbers[text]
}

func (o *operator) Allocate(ctx context.Context, req *signetv1.AllocateRequest) (resp *signetv1.AllocateResponse, err error) {
	err = o.do(ctx, "allocate", req, func() error {
		t := text(req.GetLabels())
		created := o.numbers[t] == 0
		key := t + req.GetHolder()
		if o.holds[key] == 0 || o.holds[key] == req.GetGivenUpHold() {
			o.revision++
			o.holds[key] = o.revision
		}
		resp = &signetv1.AllocateResponse{Hold: o.holds[key], Created: created,
			Identity: &signetv1.Identity{Number: o.number(t), Labels: req.GetLabels(), Text: t, State: signetv1.State_STATE_LIVE}}
		return nil
	})
	return resp, err
}

func (o *operator) Release(ctx context.Context, req *signetv1.ReleaseRequest) (resp *signetv1.ReleaseResponse, err error) {
	err = o.do(ctx, "release", req, func() error {
		key := text(req.GetLabels()) + req.GetHolder()
		have, ok := o.holds[key]
		if ok && req.GetHold() != 0 && req.GetHold() != have {
			return status.Error(codes.FailedPrecondition, "another hold")
		}
		delete(o.holds, key)
		resp = &signetv1.ReleaseResponse{Released: ok}
		return nil
	})
	return resp, err
}

func (o *operator) GetIdentity(ctx context.Context, req *signetv1.GetIdentityRequest) (resp *signetv1.GetIdentityResponse, err error) {
	err = o.do(ctx, "get", req, func() error {
		for t, n := range o.numbers {
			if req.Number != nil && uint64(n) == req.GetNumber() || req.Number == nil && t == text(req.GetLabels()) {
				resp = &signetv1.GetIdentityResponse{Identity: &signetv1.Identity{Number: n, Text: t, State: signetv1.State_STATE_LIVE}}
				if strings.Contains(t, "freed") {
					resp.Identity.State = signetv1.State_STATE_QUARANTINED
				}
				return nil
			}
		}
		return status.Error(codes.NotFound, "no such identity")
	})
	return resp, err
}

func (o *operator) ListIdentities(ctx context.Context, req *signetv1.ListIdentitiesRequest) (*signetv1.ListIdentitiesResponse, error) {
	resp := &signetv1.ListIdentitiesResponse{}
	err := o.do(ctx, "list", req, func() error {
		from := 0
		_, _ = fmt.Sscanf(req.GetPageToken(), "%d", &from)
		for n := from; n < min(from+2, 5); n++ {
			resp.Items = append(resp.Items, &signetv1.Identity{Number: uint32(n)})
		}
		if from+2 < 5 {
			resp.NextPageToken = fmt.Sprint(from + 2)
		}
		return nil
	})
	return resp, err
}

func (o *operator) WatchIdentities(req *signetv1.WatchIdentitiesRequest, out grpc.ServerStreamingServer[signetv1.WatchIdentitiesResponse]) error {
	if err := o.do(out.Context(), "watch", req, func() error { return nil }); err != nil {
		return err
	}
	w := watchCall{req: req, send: out, end: make(chan error, 1)}
	o.watches <- w
	select {
	case err := <-w.end:
		return err
	case <-out.Context().Done():
		return nil
	}
}

func (o *operator) Session(s signetv1.NodeService_SessionServer) error {
	if err := o.do(s.Context(), "session", nil, func() error { return nil }); err != nil {
		return err
	}
	for {
		f, err := s.Recv()
		if err != nil {
			return nil
		}
		if err := o.do(s.Context(), "frame", f, func() error { return nil }); err != nil {
			return err
		}
		if f.GetHello() != nil {
			w := &signetv1.Welcome{Holds: f.GetHello().GetPairs()}
			if err := s.Send(&signetv1.SessionResponse{Message: &signetv1.SessionResponse_Welcome{Welcome: w}}); err != nil {
				return err
			}
			o.sessions <- s
		}
	}
}

func (o *operator) Status(ctx context.Context, req *signetv1.StatusRequest) (*signetv1.StatusResponse, error) {
	return &signetv1.StatusResponse{Ready: true}, o.do(ctx, "status", req, func() error { return nil })
}

func (o *operator) StepDown(ctx context.Context, req *signetv1.StepDownRequest) (*signetv1.StepDownResponse, error) {
	return &signetv1.StepDownResponse{WasLeader: "x"}, o.do(ctx, "stepdown", req, func() error { return nil })
}

func (o *operator) ListNodes(ctx context.Context, req *signetv1.ListNodesRequest) (*signetv1.ListNodesResponse, error) {
	return &signetv1.ListNodesResponse{Items: []*signetv1.Node{{Name: "n"}}}, o.do(ctx, "nodes", req, func() error { return nil })
}

func (o *operator) Leave(ctx context.Context, req *signetv1.LeaveRequest) (*signetv1.LeaveResponse, error) {
	return &signetv1.LeaveResponse{References: 1}, o.do(ctx, "leave", req, func() error { return nil })
}

func (o *operator) Forget(ctx context.Context, req *signetv1.ForgetRequest) (*signetv1.ForgetResponse, error) {
	return &signetv1.ForgetResponse{}, o.do(ctx, "forget", req, func() error { return nil })
}

func (o *operator) PublishEndpoints(ctx context.Context, req *signetv1.PublishEndpointsRequest) (*signetv1.PublishEndpointsResponse, error) {
	return &signetv1.PublishEndpointsResponse{Results: []*signetv1.PublishResult{{}}}, o.do(ctx, "publish", req, func() error { return nil })
}

// network holds servers by name; an absent one is unreachable.
type network struct {
	mu    sync.Mutex
	pipes map[string]*bufconn.Listener
	stops map[string]func()
}

func newNetwork(t *testing.T) *network {
	n := &network{pipes: map[string]*bufconn.Listener{}, stops: map[string]func(){}}
	t.Cleanup(func() {
		for name := range n.stops {
			n.cut(name)
		}
	})
	return n
}

func (n *network) dial(ctx context.Context, server string) (net.Conn, error) {
	n.mu.Lock()
	p := n.pipes[server]
	n.mu.Unlock()
	if p == nil {
		return nil, errors.New("unreachable")
	}
	return p.DialContext(ctx)
}

// serve puts an operator on the network.
func (n *network) serve(name string, o *operator) {
	s := grpc.NewServer()
	signetv1.RegisterIdentityServiceServer(s, o)
	signetv1.RegisterNodeServiceServer(s, o)
	signetv1.RegisterAdminServiceServer(s, o)
	n.run(name, s)
}

func (n *network) run(name string, s *grpc.Server) {
	p := bufconn.Listen(1 << 20)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(p) }()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pipes[name], n.stops[name] = p, func() { s.Stop(); <-done }
}

// cut takes a server off the network, connections and all.
func (n *network) cut(name string) {
	n.mu.Lock()
	stop := n.stops[name]
	delete(n.pipes, name)
	delete(n.stops, name)
	n.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// start makes a client of one operator.
func start(t *testing.T, change ...func(*client.Config)) (*client.Client, *operator, *network) {
	t.Helper()
	n, o := newNetwork(t), newOperator()
	n.serve("one", o)
	return dial(t, n, change...), o, n
}

func dial(t *testing.T, n *network, change ...func(*client.Config)) *client.Client {
	t.Helper()
	cfg := client.Config{Servers: []string{"one"}, Holder: "node-a", Dialer: n.dial}
	for _, f := range change {
		f(&cfg)
	}
	c, err := client.Dial(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func set(t testing.TB, ls ...string) labels.Set {
	t.Helper()
	s, err := labels.ParseSet(ls...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func long(t testing.TB) context.Context { return within(t, 10*time.Second) }

// always refuses every call of the methods, or of all if none is named.
func always(err error, methods ...string) func(context.Context, string) error {
	return func(_ context.Context, method string) error {
		if len(methods) == 0 || slices.Contains(methods, method) {
			return err
		}
		return nil
	}
}

// until waits for a condition that another goroutine brings about.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("waited too long for: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

var errDown = status.Error(codes.Unavailable, "down")

func number(n uint32) identity.Number { return identity.Number(n) }
