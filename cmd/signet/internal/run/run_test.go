// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signet-identity/signet/allocator/agent"
	"github.com/signet-identity/signet/cmd/signet/internal/option"
	"github.com/signet-identity/signet/datapath/ipcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// recorder notes the order in which parts stop.
type recorder struct {
	mu    sync.Mutex
	names []string
}

func (r *recorder) part(name string) (*part, chan error) {
	failed := make(chan error, 1)
	return &part{name: name, failed: failed, stop: func(context.Context) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.names = append(r.names, name)
	}}, failed
}

func TestPartsStopInReverse(t *testing.T) {
	r := &recorder{}
	ctx, cancel := context.WithCancel(t.Context())
	ps := newParts(ctx, quiet())
	for _, name := range []string{"etcd", "operator", "agent"} {
		p, _ := r.part(name)
		ps.add(p)
	}
	cancel()
	if err := ps.wait(); err != nil {
		t.Errorf("a stop that was asked for is no error: %v", err)
	}
	ps.stop()
	if want := []string{"agent", "operator", "etcd"}; !slices.Equal(r.names, want) {
		t.Errorf("%v, want %v", r.names, want)
	}
}

func TestOneFailureEndsTheWhole(t *testing.T) {
	r := &recorder{}
	ps := newParts(t.Context(), quiet())
	defer ps.stop()
	p, failed := r.part("operator")
	ps.add(p)
	q, _ := r.part("agent")
	ps.add(q)
	broken := errors.New("it broke")
	failed <- broken
	if err := ps.wait(); !errors.Is(err, broken) || err.Error() != "operator: it broke" {
		t.Errorf("%v", err)
	}
	if err := ps.cause(errors.New("met by another")); !errors.Is(err, broken) {
		t.Errorf("the cause is %v", err)
	}
}

func TestPartThatLeavesInPeaceEndsTheWhole(t *testing.T) {
	ps := newParts(t.Context(), quiet())
	defer ps.stop()
	ps.add(background("agent", func(context.Context) error { return nil }))
	if err := ps.wait(); err != nil {
		t.Error(err)
	}
}

func TestMetricsAndHealth(t *testing.T) {
	l, err := listen("127.0.0.1:0", "metrics", "metrics-listen")
	if err != nil {
		t.Fatal(err)
	}
	var health error
	p := serveMetrics(l, newRegistry(), func(context.Context) error { return health }, quiet())
	defer p.stop(t.Context())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (int, string) {
		resp, err := client.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	if code, body := get("/metrics"); code != 200 || !strings.Contains(body, "go_goroutines") {
		t.Errorf("%d %.100s", code, body)
	}
	if code, body := get("/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("%d %q", code, body)
	}
	health = errors.New("no leader")
	if code, body := get("/healthz"); code != 503 || body != "no leader\n" {
		t.Errorf("%d %q", code, body)
	}
}

func TestListenErrorsNameAddressAndWayOut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for address, part := range map[string]string{
		l.Addr().String():       "is in use by another process",
		"nonsense":              "cannot listen on nonsense",
		"unix:///none/such/dir": "no such file",
	} {
		_, err := listen(address, "gRPC", "listen")
		var typed *ListenError
		if !errors.As(err, &typed) || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), "--listen") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestDevFindsABusyPortFirst(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := filepath.Join(t.TempDir(), "data")
	for port := range portCount {
		d := &Dev{DataDir: dir}
		d.Options()
		d.DataDir, d.ListenBase = dir, uint32(l.Addr().(*net.TCPAddr).Port-port)
		err := d.Run(t.Context(), quiet(), func(Ready) { t.Error("ready") })
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "--listen-base") {
			t.Errorf("port %d: %v", port, err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal("the data folder was made all the same")
		}
	}
}

func TestAdvertised(t *testing.T) {
	for _, tt := range []struct {
		a    net.Addr
		want string
	}{
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 7472}, "10.0.0.7:7472"},
		{&net.TCPAddr{IP: net.IPv6zero, Port: 7472}, hostname() + ":7472"},
		{&net.UnixAddr{Name: "/run/op.sock"}, "unix:///run/op.sock"},
	} {
		if have := advertised(tt.a); have != tt.want {
			t.Errorf("%v: %s, want %s", tt.a, have, tt.want)
		}
	}
}

func TestPlainTextStaysHere(t *testing.T) {
	for server, ok := range map[string]bool{
		"127.0.0.1:7472": true, "[::1]:7472": true, "localhost:7472": true, "unix:///run/op.sock": true,
		"10.0.0.7:7472": false, "op.example:7472": false,
	} {
		if err := CheckServers([]string{server}, false); (err == nil) != ok {
			t.Errorf("%s: %v", server, err)
		}
		if err := CheckServers([]string{server}, true); err != nil {
			t.Errorf("%s with TLS: %v", server, err)
		}
	}
}

// The adapter brings entries into the map and out again, with the agent's words.
func TestDatapathInMemory(t *testing.T) {
	d, err := openDatapath("memory", "", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	host, dead := netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.2/32")
	for _, e := range []agent.Entry{
		{Prefix: host, Number: 300, Source: agent.SourceRemote}, {Prefix: host, Number: 301, Source: agent.SourceEndpoint},
		{Prefix: dead, Source: agent.SourceRemote, Dead: true},
	} {
		if err := d.Upsert(e); err != nil {
			t.Fatal(err)
		}
	}
	d.Synced()
	if err := d.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func(want ...agent.Realised) {
		t.Helper()
		have, err := d.List()
		if err != nil {
			t.Fatal(err)
		}
		for i := range have {
			have[i].Row = 0
		}
		if !slices.Equal(have, want) {
			t.Errorf("%+v, want %+v", have, want)
		}
	}
	check(agent.Realised{Prefix: host, Number: 301}, agent.Realised{Prefix: dead, Dead: true})
	if err := d.Delete(host, agent.SourceEndpoint); err != nil {
		t.Fatal(err)
	}
	if err := d.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(agent.Realised{Prefix: host, Number: 300}, agent.Realised{Prefix: dead, Dead: true})
	s := d.Status()
	if s.Kind != "memory" || !strings.Contains(s.Detail, "--datapath memory") || s.Entries != 2 || s.Wanted != 2 || s.Capacity == 0 {
		t.Errorf("%+v", s)
	}
	if p := d.Progress(); p.Last < 4 {
		t.Errorf("%+v", p)
	}
	if f := d.Failing(); len(f) != 0 {
		t.Errorf("%v", f)
	}
}

func TestFailingEntriesSayWhy(t *testing.T) {
	inner, err := ipcache.NewMemory(ipcache.Config{Addresses: 1}, "a test")
	if err != nil {
		t.Fatal(err)
	}
	d := &datapath{inner}
	defer d.Close()
	for _, p := range []string{"10.0.0.1/32", "10.0.0.2/32"} {
		if err := d.Upsert(agent.Entry{Prefix: netip.MustParsePrefix(p), Number: 300, Source: agent.SourceEndpoint}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Reconcile(t.Context()); err == nil {
		t.Fatal("two entries fit into a map of one")
	}
	failing := d.Failing()
	if len(failing) != 1 {
		t.Fatalf("%v", failing)
	}
	for _, err := range failing {
		if err == nil || !strings.Contains(err.Error(), "full") {
			t.Errorf("%v", err)
		}
	}
}

func TestAgentSocketErrors(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for path, part := range map[string]string{filepath.Join(dir, "none.sock"): "there is none; start signet dev", stale: "no agent answers"} {
		_, err := DialAgent(path)
		var typed *AgentSocketError
		if !errors.As(err, &typed) || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if text := (&AgentSocketError{Path: "p", Err: fs.ErrPermission}).Error(); !strings.Contains(text, "run as its owner") {
		t.Error(text)
	}
}

func TestGracesThatContradict(t *testing.T) {
	g := Graces{Forget: time.Hour, TombstoneRetention: time.Minute}
	var typed *ConfigError
	if err := g.check(); !errors.As(err, &typed) || typed.Option != "tombstone-retention" {
		t.Errorf("%v", err)
	}
}

func TestServedTimeIsStoredOften(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{time.Second: time.Second, 15 * time.Second: 3 * time.Second, time.Hour: 5 * time.Second} {
		if have := lineageEvery(Graces{Election: ttl}); have != want {
			t.Errorf("%s: %s, want %s", ttl, have, want)
		}
	}
}

// The example configurations that are shipped name options that exist.
func TestShippedConfigurations(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	for name, table := range map[string]*option.Table{"operator": (&Operator{}).Options(), "agent": (&Agent{}).Options()} {
		if err := table.Resolve(none, option.File{Path: "../../../../deploy/systemd/" + name + ".yaml"}); err != nil {
			t.Error(err)
		}
		if !table.Given("etcd-endpoints") {
			t.Errorf("%s.yaml was not read", name)
		}
	}
}
