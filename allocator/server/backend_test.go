// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	"github.com/signet-identity/signet/allocator/server"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// memory is a Backend in memory: enough of an operator to serve.
type memory struct {
	gc       string // what the collection was last told
	mu       sync.Mutex
	leader   string
	self     bool
	space    identity.Space
	revision int64
	items    map[string]*allocator.Identity
	calls    map[string]int
	fail     error // answers every call while set
	panics   bool
	acks     chan string
	events   chan allocator.WatchEvent
	remote   []allocator.Identity
	ready    bool
	lastReq  allocator.PublishRequest
}

func newMemory() *memory {
	space, err := identity.NewSpace("shop", 1, 255, false)
	if err != nil {
		panic(err)
	}
	return &memory{self: true, space: space, revision: 10, items: map[string]*allocator.Identity{}, calls: map[string]int{},
		acks: make(chan string, 10), events: make(chan allocator.WatchEvent, 10), ready: true}
}

func (m *memory) enter(ctx context.Context, what string) (func(), error) {
	m.mu.Lock()
	m.calls[what]++
	if m.panics {
		defer m.mu.Unlock()
		panic("the test said so")
	}
	if m.fail != nil {
		defer m.mu.Unlock()
		return nil, m.fail
	}
	if _, ok := ctx.Deadline(); !ok && what != "watch" {
		defer m.mu.Unlock()
		return nil, fmt.Errorf("%s came without a deadline", what)
	}
	return m.mu.Unlock, nil
}

func (m *memory) count(what string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[what]
}

func (m *memory) set(change func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

func (m *memory) at() allocator.Position {
	return allocator.Position{Nonce: "n", Counter: 1, Revision: m.revision}
}

func (m *memory) Allocate(ctx context.Context, r allocator.AllocateRequest) (allocator.Allocation, error) {
	leave, err := m.enter(ctx, "allocate")
	if err != nil {
		return allocator.Allocation{}, err
	}
	defer leave()
	m.revision++
	text := r.Labels.Text()
	i, known := m.items[text]
	if !known {
		i = &allocator.Identity{Number: m.space.Min() + 1 + identity.Number(len(m.items)), Labels: text, State: allocator.Live,
			CreateRevision: m.revision, Revision: m.revision}
		m.items[text] = i
	}
	for n, h := range i.Holders {
		if h.Name != r.Holder {
			continue
		}
		if r.GivenUpHold == h.Hold {
			i.Holders[n].Hold = m.revision
		}
		return allocator.Allocation{Identity: *i, Hold: i.Holders[n].Hold, Position: m.at()}, nil
	}
	i.Holders = append(i.Holders, allocator.Holder{Name: r.Holder, Hold: m.revision})
	return allocator.Allocation{Identity: *i, Hold: m.revision, Created: !known, Position: m.at()}, nil
}

func (m *memory) Release(ctx context.Context, r allocator.ReleaseRequest) (allocator.Released, error) {
	leave, err := m.enter(ctx, "release")
	if err != nil {
		return allocator.Released{}, err
	}
	defer leave()
	i := m.items[r.Labels.Text()]
	if i == nil {
		return allocator.Released{Position: m.at()}, nil
	}
	for n, h := range i.Holders {
		if h.Name == r.Holder {
			if r.Hold != 0 && r.Hold != h.Hold {
				return allocator.Released{}, &allocator.Error{Code: allocator.FailedPrecondition, Message: "another hold"}
			}
			i.Holders = slices.Delete(i.Holders, n, n+1)
			return allocator.Released{Done: true, Position: m.at()}, nil
		}
	}
	return allocator.Released{Position: m.at()}, nil
}

func (m *memory) Publish(ctx context.Context, r allocator.PublishRequest) (allocator.Published, error) {
	leave, err := m.enter(ctx, "publish")
	if err != nil {
		return allocator.Published{}, err
	}
	defer leave()
	m.lastReq = r
	out := allocator.Published{Position: m.at()}
	for _, p := range r.Put {
		res := allocator.PublishResult{Address: p.Address.IP}
		if m.items[p.Labels] == nil {
			res.Err = &allocator.Error{Code: allocator.FailedPrecondition, Message: "no reference"}
		}
		out.Results = append(out.Results, res)
	}
	for _, w := range r.Withdraw {
		out.Results = append(out.Results, allocator.PublishResult{Address: w})
	}
	return out, nil
}

func (m *memory) Leave(ctx context.Context, r allocator.LeaveRequest) (allocator.Left, error) {
	leave, err := m.enter(ctx, "leave")
	if err != nil {
		return allocator.Left{}, err
	}
	defer leave()
	return allocator.Left{References: 2, Addresses: 3}, nil
}

func (m *memory) Forget(ctx context.Context, r allocator.ForgetRequest) error {
	leave, err := m.enter(ctx, "forget")
	if err != nil {
		return err
	}
	defer leave()
	if r.Node == "unknown" {
		return &allocator.Error{Code: allocator.NotFound, Field: r.Node, Message: `node "unknown" is not gone`}
	}
	return nil
}

func (m *memory) Hello(ctx context.Context, r allocator.HelloRequest) (allocator.Welcome, error) {
	leave, err := m.enter(ctx, "hello")
	if err != nil {
		return allocator.Welcome{}, err
	}
	defer leave()
	return allocator.Welcome{Position: m.at(), Holds: r.Pairs}, nil
}

func (m *memory) Acknowledge(ctx context.Context, node, instance string, at allocator.Position) error {
	leave, err := m.enter(ctx, "ack")
	if err != nil {
		return err
	}
	defer leave()
	m.acks <- fmt.Sprintf("%s/%s@%d", node, instance, at.Revision)
	return nil
}

func (m *memory) all() []allocator.Identity {
	out := slices.Clone(m.remote)
	for _, i := range m.items {
		out = append(out, *i)
	}
	slices.SortFunc(out, func(a, b allocator.Identity) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

func (m *memory) Get(ctx context.Context, q allocator.GetQuery) (allocator.Identity, allocator.Position, error) {
	leave, err := m.enter(ctx, "get")
	if err != nil {
		return allocator.Identity{}, allocator.Position{}, err
	}
	defer leave()
	for _, i := range m.all() {
		if q.Number != nil && *q.Number == i.Number || q.Number == nil && q.Labels.Text() == i.Labels {
			return i, m.at(), nil
		}
	}
	return allocator.Identity{}, m.at(), &allocator.Error{Code: allocator.NotFound, Message: "no such identity"}
}

func (m *memory) List(ctx context.Context, q allocator.ListQuery) ([]allocator.Identity, bool, allocator.Position, error) {
	leave, err := m.enter(ctx, "list")
	if err != nil {
		return nil, false, allocator.Position{}, err
	}
	defer leave()
	var out []allocator.Identity
	for _, i := range m.all() {
		set, err := labels.ParseText(i.Labels)
		if i.Number <= q.After || err != nil || !q.Selector.Matches(set) {
			continue
		}
		if len(out) == q.Limit {
			return out, true, m.at(), nil
		}
		out = append(out, i)
	}
	return out, false, m.at(), nil
}

func (m *memory) Watch(ctx context.Context, after *allocator.Position) (<-chan allocator.WatchEvent, error) {
	leave, err := m.enter(ctx, "watch")
	if err != nil {
		return nil, err
	}
	defer leave()
	return m.events, nil
}

func (m *memory) Status(ctx context.Context) (*signetv1.StatusResponse, error) {
	leave, err := m.enter(ctx, "status")
	if err != nil {
		return nil, err
	}
	defer leave()
	return &signetv1.StatusResponse{Ready: m.ready}, nil
}

func (m *memory) Nodes(ctx context.Context) ([]allocator.NodeInfo, error) {
	leave, err := m.enter(ctx, "nodes")
	if err != nil {
		return nil, err
	}
	defer leave()
	return []allocator.NodeInfo{
		{Name: "a", Presence: &allocator.Presence{Node: "a", Addresses: []string{"192.0.2.1"}, Instance: "i"}, References: 1, Acknowledged: allocator.Position{Nonce: "n", Revision: 9}},
		{Name: "b", GoneSince: allocator.Time{Revision: 7, ServedS: 70}},
	}, nil
}

func (m *memory) Plan(context.Context) (allocator.SweepPlan, error) {
	return allocator.SweepPlan{Brake: m.gc, Candidates: []allocator.SweepCandidate{{Kind: "node", Object: "n1", Why: "its node grace runs"}}}, nil
}

func (m *memory) Sweep(_ context.Context, r allocator.SweepRequest) error {
	m.gc = fmt.Sprintf("swept, released: %v", r.ReleaseBrake)
	return nil
}

func (m *memory) Pause(_ context.Context, r allocator.PauseRequest) error {
	m.gc = "paused by " + r.By + ": " + r.Reason
	return nil
}

func (m *memory) Resume(context.Context) error { m.gc = ""; return nil }

func (m *memory) StepDown(ctx context.Context) (string, error) {
	leave, err := m.enter(ctx, "stepdown")
	if err != nil {
		return "", err
	}
	defer leave()
	return "replica-1", nil
}

func (m *memory) Leader() (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leader, m.self
}

func (m *memory) Space() identity.Space { return m.space }

// pipe is a listener in memory that counts as a unix socket.
type pipe struct{ *bufconn.Listener }

func (pipe) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: "/in-memory"} }

// replica is a running server with a client.
type replica struct {
	*memory
	server   *server.Server
	conn     *grpc.ClientConn
	identity signetv1.IdentityServiceClient
	node     signetv1.NodeServiceClient
	admin    signetv1.AdminServiceClient
}

// network connects replicas by name.
type network struct {
	mu    sync.Mutex
	pipes map[string]pipe
}

func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	p, ok := n.pipes[address]
	n.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("no route to %s", address)
	}
	return p.DialContext(ctx)
}

func (n *network) start(t *testing.T, name string) *replica {
	t.Helper()
	return n.startWith(t, name, server.Config{})
}

func (n *network) startWith(t *testing.T, name string, cfg server.Config) *replica {
	t.Helper()
	r := &replica{memory: newMemory()}
	cfg.Backend, cfg.Version, cfg.Timeout, cfg.DialLeader = r.memory, "test", 5*time.Second, n.dial
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.server = s
	p := pipe{bufconn.Listen(1 << 20)}
	n.mu.Lock()
	n.pipes[name] = p
	n.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- s.Serve(p) }()
	r.conn = dialPipe(t, n, name)
	r.identity = signetv1.NewIdentityServiceClient(r.conn)
	r.node = signetv1.NewNodeServiceClient(r.conn)
	r.admin = signetv1.NewAdminServiceClient(r.conn)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = r.conn.Close()
		s.Stop(ctx)
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return r
}

func dialPipe(t *testing.T, n *network, name string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+name, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return n.dial(ctx, name) }))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func newNetwork() *network { return &network{pipes: map[string]pipe{}} }

func start(t *testing.T) *replica {
	t.Helper()
	return newNetwork().start(t, "one")
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func u64(v uint64) *uint64 { return &v }
