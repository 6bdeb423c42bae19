// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
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
	"google.golang.org/grpc/credentials/insecure"

	"github.com/signet-identity/signet/allocator/check"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/embedded"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "signet-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "signet")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/signet").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building signet: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// world is one etcd with the processes around it.
type world struct {
	t      *testing.T
	dir    string
	etcd   *embedded.Server
	store  *kvstore.Etcd
	layout kvstore.Layout
	rec    *recorder
	ports  map[string]bool // handed out
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), ports: map[string]bool{}}
	var err error
	w.etcd, err = embedded.Start(context.Background(), embedded.Config{
		DataDir: filepath.Join(w.dir, "etcd"), ClientURL: "http://" + w.port(), PeerURL: "http://" + w.port()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.etcd.Close)
	if w.store, err = w.etcd.Store(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.store.Close() })
	if w.layout, err = kvstore.NewLayout("cilium", "default"); err != nil {
		t.Fatal(err)
	}
	w.rec = record(t, w.store, w.layout)
	return w
}

// port finds a free loopback address that it has not handed out before.
func (w *world) port() string {
	w.t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			w.t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		if !w.ports[address] {
			w.ports[address] = true
			return address
		}
	}
}

// process is a running signet.
type process struct {
	name string
	cmd  *exec.Cmd
	out  *lockedBuffer
	done chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (w *world) start(name string, args ...string) *process {
	w.t.Helper()
	p := &process{name: name, cmd: exec.Command(binary, args...), out: &lockedBuffer{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() { p.cmd.Wait(); close(p.done) }()
	w.t.Cleanup(func() {
		p.kill()
		if w.t.Failed() {
			w.t.Logf("--- %s: %s\n%s", name, strings.Join(args, " "), p.out)
		}
	})
	return p
}

// kill is kill -9.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// Times of the suite: short, so that a life ends in seconds.
var graces = []string{"--presence-ttl=2s", "--election-ttl=2s"}

type operatorProcess struct {
	*process
	address string
}

func (w *world) operator(name string) *operatorProcess {
	w.t.Helper()
	o := &operatorProcess{address: w.port()}
	args := append([]string{"operator", "--etcd-endpoints", w.etcd.Endpoint(), "--cluster-name=default", "--new-cluster",
		"--listen", o.address, "--metrics-listen", w.port(), "--node-grace=3s", "--identity-grace=2s", "--quarantine=1s",
		"--sweep-interval=200ms"}, graces...)
	o.process = w.start(name, args...)
	return o
}

type agentProcess struct {
	*process
	node, socket string
	args         []string
}

func (w *world) agent(node, prefix string, servers ...string) *agentProcess {
	w.t.Helper()
	dir := filepath.Join(w.dir, node)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	a := &agentProcess{node: node, socket: filepath.Join(dir, "agent.sock")}
	a.args = []string{"agent", "--etcd-endpoints", w.etcd.Endpoint(), "--cluster-name=default", "--node-name", node,
		"--server", strings.Join(servers, ","), "--socket", a.socket, "--state-dir", dir, "--pod-prefix", prefix,
		"--pin-path", fmt.Sprintf("/sys/fs/bpf/signet-e2e-%d-%s", os.Getpid(), node),
		"--metrics-listen", w.port(), "--presence-ttl=2s"}
	a.process = w.start(node, a.args...)
	w.t.Cleanup(func() { os.RemoveAll(fmt.Sprintf("/sys/fs/bpf/signet-e2e-%d-%s", os.Getpid(), node)) })
	return a
}

func (w *world) restart(a *agentProcess) {
	w.t.Helper()
	a.process = w.start(a.node, a.args...)
}

// dial connects to a replica or to an agent's socket.
func (w *world) dial(target string) *grpc.ClientConn {
	w.t.Helper()
	c, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

func (w *world) endpoints(a *agentProcess) signetv1.EndpointServiceClient {
	return signetv1.NewEndpointServiceClient(w.dial("unix://" + a.socket))
}

// until polls what nothing announces.
func (w *world) until(what string, ok func(ctx context.Context) bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for !ok(ctx) {
		select {
		case <-ctx.Done():
			w.t.Fatalf("timed out: %s", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// awaitReady waits until every address answers that it is ready.
func (w *world) awaitReady(ops ...*operatorProcess) {
	w.t.Helper()
	for _, o := range ops {
		admin := signetv1.NewAdminServiceClient(w.dial(o.address))
		w.until(o.name+" is ready", func(ctx context.Context) bool {
			s, err := admin.Status(ctx, &signetv1.StatusRequest{})
			return err == nil && s.GetReady()
		})
	}
}

// leader finds the one that leads.
func (w *world) leader(ops ...*operatorProcess) *operatorProcess {
	w.t.Helper()
	var found *operatorProcess
	w.until("one operator leads", func(ctx context.Context) bool {
		for _, o := range ops {
			s, err := signetv1.NewAdminServiceClient(w.dial(o.address)).Status(ctx, &signetv1.StatusRequest{})
			if err == nil && s.GetElection().GetRole() == "leader" && s.GetReady() {
				found = o
				return true
			}
		}
		return false
	})
	return found
}

// keys lists the keys under a prefix of the store.
func (w *world) keys(ctx context.Context, prefix string) []kvstore.KV {
	w.t.Helper()
	r, err := w.store.Range(ctx, kvstore.RangeRequest{Key: prefix, RangeEnd: kvstore.PrefixEnd(prefix)})
	if err != nil {
		w.t.Fatal(err)
	}
	return r.KVs
}

// run runs a command of signet to its end.
func (w *world) run(args ...string) (string, int) {
	w.t.Helper()
	cmd := exec.Command(binary, args...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		w.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// recorder watches the store from revision 1 and judges each revision.
type recorder struct {
	t       *testing.T
	history *check.History
	store   kvstore.Store
	stop    context.CancelFunc
	done    chan error
}

func record(t *testing.T, store kvstore.Store, layout kvstore.Layout) *recorder {
	ctx, cancel := context.WithCancel(context.Background())
	r := &recorder{t: t, history: check.NewHistory(check.Options{Layout: layout}), store: store, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- r.history.Follow(ctx, store, 0) }()
	t.Cleanup(cancel)
	return r
}

// judge waits until everything that was written so far is judged.
func (r *recorder) judge(w *world) {
	r.t.Helper()
	head, err := r.store.Range(context.Background(), kvstore.RangeRequest{Key: "x"})
	if err != nil {
		r.t.Fatal(err)
	}
	w.until("the recorder has seen everything", func(ctx context.Context) bool {
		r.store.RequestProgress(ctx)
		return r.history.Revision() >= head.Revision
	})
	for _, v := range r.history.Violations() {
		r.t.Errorf("violation: %s", v)
	}
	r.t.Logf("history: %d revisions, %d events, %d violations", r.history.Revision(), r.history.Events(), len(r.history.Violations()))
}
