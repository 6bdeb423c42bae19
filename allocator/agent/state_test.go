// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/client"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

func TestStateDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	d, err := openStateDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(dir); info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v", info.Mode())
	}
	if _, err := openStateDir(dir); !errors.Is(err, ErrSecondAgent) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second agent: %v", err)
	}
	instance := d.instance
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	if d, err = openStateDir(dir); err != nil || d.instance != instance {
		t.Errorf("instance %q became %q, %v", instance, d.instance, err)
	}
	d.close()
	if err := os.WriteFile(filepath.Join(dir, instanceFile), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	var bad *StateDirError
	if _, err := openStateDir(dir); !errors.As(err, &bad) || !strings.Contains(err.Error(), "no UUID") {
		t.Errorf("a malformed instance: %v", err)
	}
	file := filepath.Join(dir, "file")
	os.WriteFile(file, nil, 0o600)
	if _, err := openStateDir(file); !errors.As(err, &bad) {
		t.Errorf("a file for a folder: %v", err)
	}
}

func TestListen(t *testing.T) {
	dir, err := os.MkdirTemp("", "signet")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "run", "agent.sock")
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o660 {
		t.Errorf("mode %v", info.Mode())
	}
	if _, err := listen(path); !errors.Is(err, ErrSocketInUse) || !strings.Contains(err.Error(), path) {
		t.Errorf("a socket in use: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if l, err = listen(path); err != nil {
		t.Errorf("a stale socket: %v", err)
	} else {
		l.Close()
	}
	plain := filepath.Join(dir, "plain")
	os.WriteFile(plain, []byte("x"), 0o600)
	var bad *SocketError
	if _, err := listen(plain); !errors.As(err, &bad) || !errors.Is(err, fs.ErrExist) {
		t.Errorf("a plain file: %v", err)
	}
	if data, _ := os.ReadFile(plain); string(data) != "x" {
		t.Error("the plain file suffered")
	}
	if _, err := listen(filepath.Join(dir, strings.Repeat("x", 120))); !errors.As(err, &bad) || !strings.Contains(err.Error(), "107") {
		t.Errorf("a long path: %v", err)
	}
	if _, err := listen(filepath.Join(plain, "agent.sock")); !errors.As(err, &bad) {
		t.Errorf("a file for a folder: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	n := newNode(t)
	c, err := client.Dial(context.Background(), client.Config{Servers: []string{"operator"}, Holder: "n1", Dialer: n.dial})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n.cfg.Client, n.cfg.Datapath = c, n.dp
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"node name":    {func(c *Config) { c.Node = "pin-x" }, "node name"},
		"other holder": {func(c *Config) { c.Node = "n2" }, `holder "n1"`},
		"no store":     {func(c *Config) { c.Store = nil }, "needs"},
		"bent prefix":  {func(c *Config) { c.Prefixes = prefixes("10.244.0.1/16") }, "canonical"},
		"overlap":      {func(c *Config) { c.Prefixes = prefixes("10.244.0.0/16 10.244.7.0/24") }, "overlap"},
		"bad checkpoint": {func(c *Config) {
			os.MkdirAll(c.StateDir, 0o700)
			writeFile(filepath.Join(c.StateDir, checkpointFile), []byte("{"))
		}, "checkpoint.json.bad"},
	} {
		cfg := n.cfg
		cfg.Prefixes = append([]netip.Prefix(nil), cfg.Prefixes...)
		c.change(&cfg)
		a, err := New(cfg)
		if err == nil {
			a.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	a, err := New(n.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(n.cfg); !errors.Is(err, ErrSecondAgent) {
		t.Errorf("a second agent: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestNodeTaken(t *testing.T) {
	n := newNode(t)
	lease, err := n.store.Grant(context.Background(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	n.start()
	n.await("a presence", func() bool { return n.agentStatus().GetPresenceLease() != "" })
	n.kill()
	data := []byte(`{"node":"n1","addresses":[],"prefixes":[],"version":"","ttl_s":3600,"instance":"another"}`)
	if _, err := n.store.Txn(context.Background(), putTxn(n.stub.key(allocator.PresenceKey("n1")), data, lease)); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.await("the finding", func() bool { return n.finding("NODE-TAKEN") != nil })
	if n.agentStatus().GetReady() {
		t.Error("ready without a presence")
	}
	if err := n.store.Revoke(context.Background(), lease); err != nil {
		t.Fatal(err)
	}
	n.await("then the node is its own again", func() bool { return n.finding("NODE-TAKEN") == nil && n.agentStatus().GetReady() })
}

func TestCheckpointThatCannotBeWritten(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	// A folder in its place cannot be replaced by a file.
	file := n.agent.saver.file
	os.Remove(file)
	if err := os.MkdirAll(filepath.Join(file, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := n.api.PutEndpoint(n.ctx(), &signetv1.PutEndpointRequest{Endpoint: &signetv1.Endpoint{Id: "b", Labels: []string{"k8s:app=web"}}})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "not on disk") {
		t.Errorf("put: %v", err)
	}
	if n.finding("CHECKPOINT-FAILING") == nil {
		t.Error("status does not say it")
	}
	os.RemoveAll(file)
	n.await("it is written after all", func() bool { return n.finding("CHECKPOINT-FAILING") == nil })
	n.restart()
	if len(n.list()) != 2 {
		t.Errorf("endpoints %v", n.list())
	}
}

func TestHealthAndMetrics(t *testing.T) {
	n := newNode(t).start()
	n.put("a", "k8s:app=web")
	h, err := healthv1.NewHealthClient(n.conn).Check(n.ctx(), &healthv1.HealthCheckRequest{})
	if err != nil || h.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health %v %v", h, err)
	}
	families, err := n.cfg.Registerer.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{"signet_agent_endpoints ready": 1, "signet_agent_endpoints failed": 0,
		"signet_agent_ipcache_entries realised": 1, "signet_agent_endpoint_ready_seconds": 1, "signet_agent_presence_lease_grants_total": 1} {
		if got, ok := values[name]; !ok || got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	if _, ok := values["signet_agent_loop_last_success_age_seconds watch"]; !ok {
		t.Errorf("no loop ages in %v", values)
	}
}

func TestPause(t *testing.T) {
	for attempts := 1; attempts < 40; attempts++ {
		if d := pause(effect{attempts: attempts}); d < retryFirst/2 || d > retryMost {
			t.Errorf("after %d attempts: %v", attempts, d)
		}
		if d := pause(effect{attempts: attempts, slow: true}); d < retrySlowFirst/2 || d > retrySlowMost {
			t.Errorf("after %d refusals: %v", attempts, d)
		}
	}
	if d := pause(effect{attempts: 1, after: time.Hour}); d != time.Hour {
		t.Errorf("the hint is ignored: %v", d)
	}
}

func TestQueue(t *testing.T) {
	q := newQueue[int]()
	for i := range 5 {
		q.push(i)
	}
	if got := q.take(2); len(got) != 2 || got[1] != 1 {
		t.Errorf("took %v", got)
	}
	if i, ok := q.pop(context.Background()); !ok || i != 2 {
		t.Errorf("popped %d", i)
	}
	if got, ok := q.popAll(context.Background(), 0); !ok || len(got) != 2 {
		t.Errorf("took %v", got)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, ok := q.pop(ctx); ok {
		t.Error("popped out of nothing")
	}
}
