// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/embedded"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// World is a store with the processes around it.
type World struct {
	T      testing.TB
	Dir    string
	Binary string
	// Endpoints are where etcd serves clients.
	Endpoints []string
	Store     *kvstore.Etcd
	Layout    kvstore.Layout
	Recorder  *Recorder

	mu    sync.Mutex
	ports map[string]bool // handed out
}

// Prepare makes a world without a store: use Attach once one runs.
func Prepare(t testing.TB, binary string) *World {
	t.Helper()
	layout, err := kvstore.NewLayout("cilium", "default")
	if err != nil {
		t.Fatal(err)
	}
	return &World{T: t, Dir: t.TempDir(), Binary: binary, Layout: layout, ports: map[string]bool{}}
}

// New makes a world around an etcd of its own, in this process.
func New(t testing.TB, binary string) *World {
	t.Helper()
	w := Prepare(t, binary)
	etcd, err := embedded.Start(context.Background(), embedded.Config{
		DataDir: filepath.Join(w.Dir, "etcd"), ClientURL: "http://" + w.Port(), PeerURL: "http://" + w.Port()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	w.Attach(etcd.Endpoint())
	return w
}

// Attach connects the world to a store, which must be new, and starts the recorder.
func (w *World) Attach(endpoints ...string) {
	w.T.Helper()
	w.Endpoints = endpoints
	var err error
	if w.Store, err = kvstore.NewEtcd(context.Background(), kvstore.EtcdConfig{Endpoints: endpoints}); err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { w.Store.Close() })
	w.Recorder = Record(w.T, w.Store, w.Layout)
}

// Port finds a free loopback address that it has not handed out before.
func (w *World) Port() string {
	w.T.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			w.T.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		if !w.ports[address] {
			w.ports[address] = true
			return address
		}
	}
}

// Operator is a running operator.
type Operator struct {
	*Process
	Address string // of gRPC
	Metrics string // host:port of /metrics
	args    []string
}

// OperatorGraces are the times of a suite: short, so that a life ends in seconds.
func OperatorGraces() []string {
	return []string{"--presence-ttl=2s", "--election-ttl=2s", "--node-grace=3s", "--identity-grace=2s", "--quarantine=1s", "--sweep-interval=200ms"}
}

// Operator starts an operator that speaks to etcd at the endpoints, with these
// options added.
func (w *World) Operator(name string, endpoints []string, options ...string) *Operator {
	w.T.Helper()
	o := &Operator{Address: w.Port(), Metrics: w.Port()}
	o.args = append([]string{"operator", "--etcd-endpoints", strings.Join(endpoints, ","), "--cluster-name=default", "--new-cluster",
		"--replica-name", name, "--listen", o.Address, "--metrics-listen", o.Metrics}, options...)
	o.Process = Start(w.T, name, exec.Command(w.Binary, o.args...))
	return o
}

// RestartOperator starts an operator again that was killed.
func (w *World) RestartOperator(o *Operator) error {
	return restart(&o.Process, w.T, exec.Command(w.Binary, o.args...))
}

// Agent is a running agent.
type Agent struct {
	*Process
	Node, Socket string
	args         []string
}

// Agent starts the agent of a node that speaks to etcd at the endpoints.
func (w *World) Agent(node, prefix string, endpoints, servers []string, options ...string) *Agent {
	w.T.Helper()
	dir := filepath.Join(w.Dir, node)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.T.Fatal(err)
	}
	pins := fmt.Sprintf("/sys/fs/bpf/signet-e2e-%d-%s", os.Getpid(), node)
	a := &Agent{Node: node, Socket: filepath.Join(dir, "agent.sock")}
	a.args = append([]string{"agent", "--etcd-endpoints", strings.Join(endpoints, ","), "--cluster-name=default", "--node-name", node,
		"--server", strings.Join(servers, ","), "--socket", a.Socket, "--state-dir", dir, "--pod-prefix", prefix,
		"--pin-path", pins, "--metrics-listen", w.Port(), "--presence-ttl=2s"}, options...)
	w.T.Cleanup(func() { os.RemoveAll(pins) })
	a.Process = Start(w.T, node, exec.Command(w.Binary, a.args...))
	return a
}

// RestartAgent starts an agent again that was killed.
func (w *World) RestartAgent(a *Agent) error {
	return restart(&a.Process, w.T, exec.Command(w.Binary, a.args...))
}

// restart puts a new process in an old one's place. It may be called from any goroutine.
func restart(p **Process, t testing.TB, cmd *exec.Cmd) error {
	next, err := Launch((*p).Name, cmd)
	if err != nil {
		return err
	}
	*p = next
	t.Cleanup(func() {
		next.Kill()
		if t.Failed() {
			t.Logf("--- %s, started again: %s", next.Name, next.Output())
		}
	})
	return nil
}

// Dial connects to a replica, or with unix:// to an agent's socket.
func (w *World) Dial(target string) *grpc.ClientConn {
	w.T.Helper()
	c, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second,
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}}))
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { c.Close() })
	return c
}

// EndpointsOf is the service on an agent's socket.
func (w *World) EndpointsOf(a *Agent) signetv1.EndpointServiceClient {
	return signetv1.NewEndpointServiceClient(w.Dial("unix://" + a.Socket))
}

// untilLimit bounds what a suite waits for.
const untilLimit = 60 * time.Second

// Until polls what nothing announces, for a minute at most.
func (w *World) Until(what string, ok func(ctx context.Context) bool) {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), untilLimit)
	defer cancel()
	for !ok(ctx) {
		select {
		case <-ctx.Done():
			w.T.Fatalf("timed out: %s", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// StatusOf asks one operator.
func (w *World) StatusOf(ctx context.Context, o *Operator) (*signetv1.StatusResponse, error) {
	c, err := grpc.NewClient(o.Address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return signetv1.NewAdminServiceClient(c).Status(ctx, &signetv1.StatusRequest{})
}

// AwaitReady waits until every operator says that it is ready.
func (w *World) AwaitReady(ops ...*Operator) {
	w.T.Helper()
	for _, o := range ops {
		w.Until(o.Name+" is ready", func(ctx context.Context) bool {
			s, err := w.StatusOf(ctx, o)
			return err == nil && s.GetReady()
		})
	}
}

// AwaitAgent waits until an agent says that it is ready.
func (w *World) AwaitAgent(a *Agent) {
	w.T.Helper()
	eps := w.EndpointsOf(a)
	w.Until(a.Node+" is ready", func(ctx context.Context) bool {
		s, err := eps.AgentStatus(ctx, &signetv1.AgentStatusRequest{})
		return err == nil && s.GetReady()
	})
}

// ErrNoLeader: none of the operators leads at the moment.
var ErrNoLeader = errors.New("no operator leads")

// FindLeader asks each operator once; the one that leads and is ready is returned.
func (w *World) FindLeader(ctx context.Context, ops ...*Operator) (*Operator, error) {
	for _, o := range ops {
		if s, err := w.StatusOf(ctx, o); err == nil && s.GetElection().GetRole() == "leader" && s.GetReady() {
			return o, nil
		}
	}
	return nil, ErrNoLeader
}

// Leader waits for the one that leads.
func (w *World) Leader(ops ...*Operator) *Operator {
	w.T.Helper()
	var found *Operator
	w.Until("one operator leads", func(ctx context.Context) bool {
		var err error
		found, err = w.FindLeader(ctx, ops...)
		return err == nil
	})
	return found
}

// Keys lists the keys under a prefix of the store.
func (w *World) Keys(ctx context.Context, prefix string) []kvstore.KV {
	w.T.Helper()
	r, err := w.Store.Range(ctx, kvstore.RangeRequest{Key: prefix, RangeEnd: kvstore.PrefixEnd(prefix)})
	if err != nil {
		w.T.Fatal(err)
	}
	return r.KVs
}

// Exists says whether a key is in the store.
func (w *World) Exists(ctx context.Context, k allocator.Key) bool {
	w.T.Helper()
	key, err := w.Layout.Key(k)
	if err != nil {
		w.T.Fatal(err)
	}
	r, err := w.Store.Range(ctx, kvstore.RangeRequest{Key: key})
	return err == nil && len(r.KVs) == 1
}

// Run runs a command of signet to its end, and returns its output and exit code.
func (w *World) Run(args ...string) (string, int) {
	w.T.Helper()
	cmd := exec.Command(w.Binary, args...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		w.T.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
