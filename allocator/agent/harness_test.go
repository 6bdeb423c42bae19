// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for something that has to happen.
const patience = 15 * time.Second

// board tells waiting tests that something happened somewhere.
type board struct {
	mu      sync.Mutex
	changed chan struct{}
}

func newBoard() *board { return &board{changed: make(chan struct{})} }

func (b *board) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.changed)
	b.changed = make(chan struct{})
}

// await waits until ok holds; it looks whenever the board rings, and now and
// then for what rings nothing.
func (b *board) await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	late := time.After(patience)
	for {
		b.mu.Lock()
		changed := b.changed
		b.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-time.After(10 * time.Millisecond):
		case <-late:
			t.Fatalf("waited %v for: %s", patience, what)
		}
	}
}

// memoryMap is a Datapath: a map of its own, with faults on demand.
type memoryMap struct {
	board *board

	mu        sync.Mutex
	stated    map[netip.Prefix]map[Source]Entry
	real      map[netip.Prefix]Realised
	synced    bool
	destroyed bool
	refuse    map[netip.Prefix]error
	seq       uint64
	cleared   func(last uint64) uint64
	history   []string // what the map came to hold, in order
	slow      time.Duration
	early     []string // endpoints' addresses that were not stated when Synced came
	expect    []string // those that have to be
}

func newMemoryMap(b *board) *memoryMap {
	return &memoryMap{board: b, stated: map[netip.Prefix]map[Source]Entry{}, real: map[netip.Prefix]Realised{},
		refuse: map[netip.Prefix]error{}, cleared: func(last uint64) uint64 { return last }}
}

// restarted is the same map as a new agent opens it: what it holds is kept.
func (m *memoryMap) restarted() *memoryMap {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := newMemoryMap(m.board)
	n.real = m.real
	return n
}

func (m *memoryMap) Upsert(e Entry) error {
	if e.Source == SourceEndpoint && m.slow > 0 {
		time.Sleep(m.slow) // a slow kernel
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stated[e.Prefix] == nil {
		m.stated[e.Prefix] = map[Source]Entry{}
	}
	m.stated[e.Prefix][e.Source] = e
	m.seq++
	m.apply(e.Prefix)
	return nil
}

func (m *memoryMap) Delete(p netip.Prefix, s Source) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.stated[p], s)
	m.seq++
	m.apply(p)
	return nil
}

// apply realises one prefix. The lock is held.
func (m *memoryMap) apply(p netip.Prefix) {
	if m.refuse[p] != nil {
		return
	}
	e, ok := m.stated[p][SourceEndpoint]
	if !ok {
		e, ok = m.stated[p][SourceRemote]
	}
	old, was := m.real[p]
	switch now := (Realised{Prefix: p, Row: uint32(e.Number), Number: e.Number, Dead: e.Dead}); {
	case ok && now != old:
		m.real[p] = now
		m.history = append(m.history, fmt.Sprintf("%s=%d dead=%v", p.Addr(), e.Number, e.Dead))
	case !ok && was && (m.synced || m.stated[p] != nil):
		delete(m.real, p)
		m.history = append(m.history, fmt.Sprintf("%s gone", p.Addr()))
	}
	m.board.ring()
}

func (m *memoryMap) Synced() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.synced = true
	for _, s := range m.expect {
		if _, ok := m.stated[hostPrefix(netip.MustParseAddr(s))][SourceEndpoint]; !ok {
			m.early = append(m.early, s)
		}
	}
	for p := range m.real {
		m.apply(p)
	}
}

func (m *memoryMap) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (m *memoryMap) Reconcile(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.stated {
		m.apply(p)
	}
	if len(m.refuse) > 0 {
		return errors.New("something failed")
	}
	return nil
}

func (m *memoryMap) Failing() map[netip.Prefix]error {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[netip.Prefix]error{}
	for p, err := range m.refuse {
		out[p] = err
	}
	return out
}

func (m *memoryMap) List() ([]Realised, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Realised
	for _, r := range m.real {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Realised) int { return a.Prefix.Addr().Compare(b.Prefix.Addr()) })
	return out, nil
}

func (m *memoryMap) Progress() Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Progress{Last: m.seq, Cleared: m.cleared(m.seq)}
}

func (m *memoryMap) Status() DatapathStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return DatapathStatus{Kind: "memory", Detail: "a test", Entries: len(m.real), Wanted: len(m.stated), Capacity: 100,
		Failing: len(m.refuse), LastSuccess: time.Now()}
}

func (m *memoryMap) Destroy() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.destroyed = true
	m.real = map[netip.Prefix]Realised{}
	return nil
}

func (m *memoryMap) at(s string) Realised {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.real[hostPrefix(netip.MustParseAddr(s))]
}

func (m *memoryMap) number(s string) identity.Number { return m.at(s).Number }

func (m *memoryMap) setRefuse(s string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse[hostPrefix(netip.MustParseAddr(s))] = err
	if err == nil {
		delete(m.refuse, hostPrefix(netip.MustParseAddr(s)))
	}
}

// stub is an operator reduced to what an agent sees of it. It writes what it
// decides into the store.
type stub struct {
	signetv1.UnimplementedIdentityServiceServer
	signetv1.UnimplementedNodeServiceServer
	t      testing.TB
	board  *board
	layout kvstore.Layout
	store  *fake.Store

	mu       sync.Mutex
	down     bool
	refuse   map[string]error // by label set text
	next     identity.Number
	masters  map[string]identity.Number
	holds    map[string]int64
	releases []string
	hellos   []*signetv1.Hello
	acks     []*signetv1.Ack
	left     bool
	hide     bool // Welcomes list nothing
	calls    int  // of Allocate

	publishes int // calls of PublishEndpoints
	lineage   allocator.Lineage
	streams   map[chan *signetv1.SessionResponse]bool
	stop      chan struct{}
}

func (s *stub) key(k allocator.Key) string {
	key, err := s.layout.Key(k)
	if err != nil {
		s.t.Fatal(err)
	}
	return key
}

// write puts values, deletes keys whose value is nil, and returns the revision.
func (s *stub) write(kvs map[allocator.Key]allocator.Value) int64 {
	var txn kvstore.Txn
	for k, v := range kvs {
		a := kvstore.Action{Key: s.key(k), Delete: v == nil, Put: v != nil}
		if v != nil {
			data, err := kvstore.EncodeValue(k, v)
			if err != nil {
				s.t.Error(err)
			}
			a.Value = data
		}
		txn.Then = append(txn.Then, a)
	}
	r, err := s.store.Txn(context.Background(), txn)
	if err != nil {
		s.t.Error(err)
	}
	s.board.ring()
	return r.Revision
}

// term begins a term: a new lineage nonce.
func (s *stub) term(nonce string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lineage.Counter++
	s.lineage.Terms = append(s.lineage.Terms, allocator.Term{Nonce: nonce, First: s.lineage.Counter, Last: s.lineage.Counter})
	s.write(map[allocator.Key]allocator.Value{allocator.LineageKey(): s.lineage})
}

func (s *stub) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
	if down {
		close(s.stop)
		s.stop = make(chan struct{})
	}
}

var errDown = status.Error(codes.Unavailable, "no operator leads")

func (s *stub) Allocate(_ context.Context, req *signetv1.AllocateRequest) (*signetv1.AllocateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDown
	}
	s.calls++
	ls, err := labels.ParseSet(req.GetLabels()...)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	text := ls.Text()
	if err := s.refuse[text]; err != nil {
		return nil, err
	}
	n, known := s.masters[text]
	if !known {
		s.next++
		n = s.next
		s.masters[text] = n
		s.write(map[allocator.Key]allocator.Value{allocator.MasterKey(n): allocator.LabelSet(text), allocator.TombstoneKey(n): nil})
	}
	if s.holds[text] == 0 {
		s.holds[text] = s.write(map[allocator.Key]allocator.Value{allocator.ReferenceKey(text, req.GetHolder()): allocator.NumberValue(n)})
	}
	return &signetv1.AllocateResponse{Created: !known, Hold: s.holds[text], Identity: &signetv1.Identity{Number: uint32(n),
		Labels: ls.Strings(), Text: text, State: signetv1.State_STATE_LIVE, Lineage: &signetv1.Position{Revision: s.holds[text]}}}, nil
}

func (s *stub) Release(_ context.Context, req *signetv1.ReleaseRequest) (*signetv1.ReleaseResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDown
	}
	text := mustParse(s.t, req.GetLabels()).Text()
	held := s.holds[text]
	if held != 0 && held != req.GetHold() {
		return nil, status.Error(codes.FailedPrecondition, "another hold")
	}
	if held != 0 {
		delete(s.holds, text)
		s.releases = append(s.releases, text)
		s.write(map[allocator.Key]allocator.Value{allocator.ReferenceKey(text, req.GetHolder()): nil})
	}
	return &signetv1.ReleaseResponse{Released: held != 0}, nil
}

func mustParse(t testing.TB, ss []string) labels.Set {
	ls, err := labels.ParseSet(ss...)
	if err != nil {
		t.Error(err)
	}
	return ls
}

// free collects an identity: its reference, master and number go, a tombstone stays.
func (s *stub) free(text string) identity.Number {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.masters[text]
	delete(s.masters, text)
	delete(s.holds, text)
	s.write(map[allocator.Key]allocator.Value{allocator.MasterKey(n): nil, allocator.ReferenceKey(text, "n1"): nil,
		allocator.TombstoneKey(n): allocator.Tombstone{Labels: text, Quarantine: allocator.QuarantinePending}})
	return n
}

func (s *stub) GetIdentity(_ context.Context, req *signetv1.GetIdentityRequest) (*signetv1.GetIdentityResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for text, n := range s.masters {
		if !s.down && uint64(n) == req.GetNumber() {
			return &signetv1.GetIdentityResponse{Identity: &signetv1.Identity{Number: uint32(n), Text: text, State: signetv1.State_STATE_LIVE}}, nil
		}
	}
	if s.down {
		return nil, errDown
	}
	return nil, status.Error(codes.NotFound, "no such number")
}

func (s *stub) PublishEndpoints(_ context.Context, req *signetv1.PublishEndpointsRequest) (*signetv1.PublishEndpointsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDown
	}
	s.publishes++
	resp := &signetv1.PublishEndpointsResponse{Lineage: &signetv1.Position{}}
	for _, p := range req.GetPut() {
		r := &signetv1.PublishResult{Address: p.GetAddress()}
		if s.holds[p.GetText()] == 0 || uint32(s.masters[p.GetText()]) != p.GetNumber() {
			r.Code, r.Message = uint32(codes.FailedPrecondition), "the node holds no reference"
		} else {
			resp.Lineage.Revision = s.publish(p.GetAddress(), req.GetNode(), p.GetEndpointId(), identity.Number(p.GetNumber()))
		}
		resp.Results = append(resp.Results, r)
	}
	for _, w := range req.GetWithdraw() {
		resp.Lineage.Revision = s.write(map[allocator.Key]allocator.Value{allocator.AddressKey(w): nil})
		resp.Results = append(resp.Results, &signetv1.PublishResult{Address: w})
	}
	return resp, nil
}

func (s *stub) publish(address, node, id string, n identity.Number) int64 {
	return s.write(map[allocator.Key]allocator.Value{allocator.AddressKey(address): allocator.Address{IP: address, HostIP: "192.0.2.1",
		ID: uint32(n), Metadata: "signet:default:" + node + ":" + id}})
}

func (s *stub) Leave(context.Context, *signetv1.LeaveRequest) (*signetv1.LeaveResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDown
	}
	s.left = true
	n := len(s.holds)
	clear(s.holds)
	return &signetv1.LeaveResponse{References: uint32(n)}, nil
}

func (s *stub) Session(stream grpc.BidiStreamingServer[signetv1.SessionRequest, signetv1.SessionResponse]) error {
	s.mu.Lock()
	down, stop := s.down, s.stop
	out := make(chan *signetv1.SessionResponse, 16)
	s.streams[out] = true
	s.mu.Unlock()
	defer func() { s.mu.Lock(); delete(s.streams, out); s.mu.Unlock() }()
	if down {
		return errDown
	}
	in := make(chan *signetv1.SessionRequest)
	go func() {
		defer close(in)
		for {
			f, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case in <- f:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		select {
		case f, ok := <-in:
			if !ok {
				return nil
			}
			if err := s.hear(stream, f); err != nil {
				return err
			}
		case m := <-out:
			if err := stream.Send(m); err != nil {
				return err
			}
		case <-stop:
			return errDown
		}
	}
}

func (s *stub) hear(stream grpc.BidiStreamingServer[signetv1.SessionRequest, signetv1.SessionResponse], f *signetv1.SessionRequest) error {
	defer s.board.ring()
	s.mu.Lock()
	if ack := f.GetAck(); ack != nil {
		s.acks = append(s.acks, ack)
		s.mu.Unlock()
		return nil
	}
	s.hellos = append(s.hellos, f.GetHello())
	var head int64
	s.store.Do(func(m *fake.Model) { head = m.Revision() })
	w := &signetv1.Welcome{Lineage: &signetv1.Position{Revision: head}}
	for text, hold := range s.holds {
		if s.hide {
			continue
		}
		w.Holds = append(w.Holds, &signetv1.HeldPair{Text: text, Number: uint32(s.masters[text]), Hold: hold})
	}
	s.mu.Unlock()
	return stream.Send(&signetv1.SessionResponse{Message: &signetv1.SessionResponse_Welcome{Welcome: w}})
}

// tell sends a message on every open session.
func (s *stub) tell(m *signetv1.SessionResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for out := range s.streams {
		out <- m
	}
}

func (s *stub) held(text string) identity.Number {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds[text] == 0 {
		return 0
	}
	return s.masters[text]
}

func (s *stub) holdCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.holds)
}

// node is an agent under test with everything around it.
type node struct {
	t     testing.TB
	board *board
	store *fake.Store
	stub  *stub
	dp    *memoryMap
	dir   string
	cfg   Config

	agent  *Agent
	client *client.Client
	conn   *grpc.ClientConn
	api    signetv1.EndpointServiceClient
	cancel context.CancelFunc
	done   chan error
	dial   func(context.Context, string) (net.Conn, error)
}

// newNode makes the surroundings; start starts the agent.
func newNode(t testing.TB) *node {
	layout, err := kvstore.NewLayout("", "default")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "signet")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	began := time.Now()
	b := newBoard()
	n := &node{t: t, board: b, dir: dir, store: fake.NewStore(fake.NewModel(fake.Limits{}, 1), func() time.Duration { return time.Since(began) })}
	n.stub = &stub{t: t, board: b, layout: layout, store: n.store, refuse: map[string]error{}, next: 1000, masters: map[string]identity.Number{},
		holds: map[string]int64{}, streams: map[chan *signetv1.SessionResponse]bool{}, stop: make(chan struct{})}
	n.dp = newMemoryMap(b)
	n.cfg = Config{Node: "n1", Layout: layout, Store: n.store, StateDir: filepath.Join(dir, "state"), Socket: filepath.Join(dir, "agent.sock"),
		Addresses: []netip.Addr{addr("192.0.2.1")}, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")},
		PresenceTTL: 2 * time.Second, CallTimeout: 500 * time.Millisecond, Version: "test", Logger: testLogger()}
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	signetv1.RegisterIdentityServiceServer(server, n.stub)
	signetv1.RegisterNodeServiceServer(server, n.stub)
	served := make(chan struct{})
	go func() { defer close(served); server.Serve(listener) }()
	t.Cleanup(func() { n.kill(); server.Stop(); <-served })
	n.dial = func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }
	n.stub.term("first")
	return n
}

func testLogger() *slog.Logger {
	if os.Getenv("SIGNET_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}

// start starts the agent and waits until its socket answers.
func (n *node) start() *node {
	n.t.Helper()
	var err error
	if n.client, err = client.Dial(context.Background(), client.Config{Servers: []string{"operator"}, Holder: "n1", Dialer: n.dial}); err != nil {
		n.t.Fatal(err)
	}
	n.cfg.Client, n.cfg.Datapath, n.cfg.Registerer = n.client, n.dp, prometheus.NewRegistry()
	if n.agent, err = New(n.cfg); err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.done = cancel, make(chan error, 1)
	go func() { n.done <- n.agent.Run(ctx) }()
	<-n.agent.served
	if n.conn, err = grpc.NewClient("unix://"+n.cfg.Socket, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		n.t.Fatal(err)
	}
	n.api = signetv1.NewEndpointServiceClient(n.conn)
	return n
}

// kill stops the agent, if it runs, and checks that it ends well.
func (n *node) kill() {
	n.t.Helper()
	if n.cancel == nil {
		return
	}
	n.conn.Close()
	n.cancel()
	select {
	case err := <-n.done:
		if err != nil {
			n.t.Errorf("Run: %v", err)
		}
	case <-time.After(patience):
		n.t.Fatal("Run does not end")
	}
	n.client.Close()
	n.cancel = nil
}

// restart starts a new agent on the same state and map.
func (n *node) restart() {
	n.t.Helper()
	n.kill()
	n.dp = n.dp.restarted()
	n.start()
}

func (n *node) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	n.t.Cleanup(cancel)
	return ctx
}

func (n *node) put(id string, ls ...string) *signetv1.Endpoint {
	n.t.Helper()
	resp, err := n.api.PutEndpoint(n.ctx(), &signetv1.PutEndpointRequest{Endpoint: &signetv1.Endpoint{Id: id, Labels: ls}})
	if err != nil {
		n.t.Fatalf("put %s: %v", id, err)
	}
	return resp.GetEndpoint()
}

func (n *node) get(id string) *signetv1.Endpoint {
	resp, err := n.api.GetEndpoint(n.ctx(), &signetv1.GetEndpointRequest{Id: id})
	if err != nil {
		return nil
	}
	return resp.GetEndpoint()
}

func (n *node) list() []*signetv1.Endpoint {
	n.t.Helper()
	resp, err := n.api.ListEndpoints(n.ctx(), &signetv1.ListEndpointsRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.GetItems()
}

func (n *node) agentStatus() *signetv1.AgentStatusResponse {
	n.t.Helper()
	resp, err := n.api.AgentStatus(n.ctx(), &signetv1.AgentStatusRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp
}

func (n *node) finding(code string) *signetv1.Finding {
	for _, f := range n.agentStatus().GetFindings() {
		if f.GetCode() == code {
			return f
		}
	}
	return nil
}

// stored reads an address key; zero when it is absent.
func (n *node) stored(address string) allocator.Address {
	n.t.Helper()
	r, err := n.store.Range(context.Background(), kvstore.RangeRequest{Key: n.stub.key(allocator.AddressKey(address))})
	if err != nil {
		n.t.Fatal(err)
	}
	if len(r.KVs) == 0 {
		return allocator.Address{}
	}
	rec, err := n.cfg.Layout.Decode(r.KVs[0])
	if err != nil {
		n.t.Fatal(err)
	}
	return rec.Value.(allocator.Address)
}

func (n *node) await(what string, ok func() bool) {
	n.t.Helper()
	n.board.await(n.t, what, ok)
}

// putTxn is a plain put under a lease.
func putTxn(key string, value []byte, lease int64) kvstore.Txn {
	return kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: key, Value: value, Lease: lease}}}
}
