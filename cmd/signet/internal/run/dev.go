// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/signet-identity/signet/allocator/agent"
	"github.com/signet-identity/signet/allocator/operator"
	"github.com/signet-identity/signet/allocator/source/manifest"
	"github.com/signet-identity/signet/cmd/signet/internal/apply"
	"github.com/signet-identity/signet/cmd/signet/internal/option"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/embedded"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// Dev is everything in one process: an etcd on disk, an operator and, unless
// NoAgent, a node's agent.
type Dev struct {
	Cluster    Cluster
	Graces     Graces
	NewCluster bool
	DataDir    string
	ListenBase uint32
	NoAgent    bool
	NodeName   string
	Prefixes   []netip.Prefix
	Datapath   string
	Apply      []string
	Logs       Logs
	Version    string
	Began      time.Time // when the process began, for the time to ready
}

// The ports of dev mode, counted from ListenBase.
const (
	portEtcd = iota
	portPeer
	portGRPC
	portMetrics
	portAgentMetrics
	portCount
)

// Options are its options. Times are short, so that one can watch things happen.
func (d *Dev) Options() *option.Table {
	t := &option.Table{}
	t.String(&d.DataDir, "data-dir", "./signet-data", "a path", "folder for etcd's data, the agent's state and its socket")
	t.Uint32(&d.ListenBase, "listen-base", 7470, 1, 65535-portCount+1,
		"first of five ports on 127.0.0.1: etcd for clients, etcd for peers, gRPC, the operator's metrics, the agent's metrics")
	t.Bool(&d.NoAgent, "no-agent", false, "start no agent, to run signet agent beside it")
	t.Strings(&d.Apply, "apply", "", "files as signet apply takes them", "workloads to apply once it is ready")
	d.Cluster.AddName(t)
	d.Cluster.AddNumbers(t)
	addNewCluster(t, &d.NewCluster)
	t.String(&d.NodeName, "node-name", "dev", "an RFC 1123 subdomain", "name of the agent's node")
	t.Prefixes(&d.Prefixes, "pod-prefix", agent.DefaultPrefix, "ranges whose addresses the node's endpoints may have")
	t.Choice(&d.Datapath, "datapath", "auto", "where addresses are kept: in eBPF maps, in memory, or in eBPF maps where the kernel allows it", "auto", "ebpf", "memory")
	d.Graces.Add(t)
	for name, short := range map[string]string{"presence-ttl": "5s", "election-ttl": "5s", "node-grace": "10s",
		"identity-grace": "10s", "quarantine": "5s", "sweep-interval": "1s"} {
		t.Default(name, short)
	}
	d.Logs.Add(t, "warn")
	return t
}

// Ready says where everything is, once it is ready.
type Ready struct {
	Version     string `json:"version"`
	Cluster     string `json:"cluster"`
	ClusterID   uint32 `json:"cluster_id"`
	LocalBits   uint32 `json:"local_bits"`
	Min         uint32 `json:"min"`
	Max         uint32 `json:"max"`
	Etcd        string `json:"etcd"`
	GRPC        string `json:"grpc"`
	AgentSocket string `json:"agent_socket"`
	Metrics     string `json:"metrics"`
	// AgentMetrics, AgentSocket, Datapath and what follows are empty without an agent.
	AgentMetrics   string         `json:"agent_metrics"`
	Leader         string         `json:"leader"`
	Node           string         `json:"node"`
	Datapath       string         `json:"datapath"`
	DatapathDetail string         `json:"datapath_detail"`
	PinPath        string         `json:"pin_path"`
	DataDir        string         `json:"data_dir"`
	PID            int            `json:"pid"`
	ReadyMS        int64          `json:"ready_ms"`
	EtcdMS         int64          `json:"etcd_ms"`
	Applied        *apply.Summary `json:"applied,omitempty"`
	// AgentCommand starts the agent that dev mode was told to leave out.
	AgentCommand []string `json:"agent_command,omitempty"`
}

// agentCommand is an agent that fits beside dev mode: on its node, with its
// folders, pins and times.
func (d *Dev) agentCommand(etcd string) []string {
	out := []string{"signet", "agent", "--etcd-endpoints", etcd, "--server", d.address(portGRPC),
		"--node-name", d.NodeName, "--node-address", "127.0.0.1", "--state-dir", d.stateDir(), "--socket", d.agentSocket(),
		"--pin-path", d.pinPath(), "--metrics-listen", d.address(portAgentMetrics), "--presence-ttl", d.Graces.Presence.String()}
	for _, given := range []struct{ name, value, def string }{
		{"cluster-name", d.Cluster.Name, "default"}, {"base-prefix", d.Cluster.BasePrefix, kvstore.DefaultBase},
		{"datapath", d.Datapath, "auto"}, {"pod-prefix", option.Join(d.Prefixes), agent.DefaultPrefix},
	} {
		if given.value != given.def {
			out = append(out, "--"+given.name, given.value)
		}
	}
	return out
}

// Run runs it until ctx ends. ready is called once everything serves.
func (d *Dev) Run(ctx context.Context, log *slog.Logger, ready func(Ready)) error {
	if err := errors.Join(d.Cluster.check(), d.Graces.check()); err != nil {
		return err
	}
	workloads, err := d.readWorkloads()
	if err != nil {
		return err
	}
	ports, err := d.openPorts()
	if err != nil {
		return err
	}
	defer ports.closeUnused()
	ps := newParts(ctx, log)
	defer ps.stop()
	r := Ready{Version: d.Version, GRPC: d.address(portGRPC), PID: os.Getpid(), Metrics: "http://" + d.address(portMetrics) + "/metrics"}
	if err := d.start(ps, ports, &r); err != nil {
		return ps.cause(err)
	}
	r.ReadyMS = time.Since(d.Began).Milliseconds()
	if err := d.apply(ps.ctx, workloads, &r, log); err != nil {
		return ps.cause(err)
	}
	ready(r)
	return ps.wait()
}

// start starts the parts one after the other, each once the one before is
// ready: what belongs to another cluster is found out before anything is touched.
func (d *Dev) start(ps *parts, ports *devPorts, r *Ready) error {
	etcd, took, err := d.startEtcd(ps)
	if err != nil {
		return err
	}
	r.Etcd, r.EtcdMS, r.DataDir = etcd.Endpoint(), took.Milliseconds(), d.DataDir
	replica, err := d.startOperator(ps, etcd, ports)
	if err != nil {
		return err
	}
	if err := d.awaitOperator(ps.ctx, replica, r); err != nil {
		return err
	}
	if d.NoAgent {
		r.AgentCommand = d.agentCommand(r.Etcd)
		return nil
	}
	node, err := d.startAgent(ps, etcd, ports)
	if err != nil {
		return err
	}
	select {
	case <-node.Ready():
		return d.awaitAgent(ps.ctx, r)
	case <-ps.ctx.Done():
		return ps.ctx.Err()
	}
}

func (d *Dev) address(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(d.ListenBase)+port))
}

func (d *Dev) agentSocket() string { return filepath.Join(d.DataDir, "agent.sock") }

func (d *Dev) stateDir() string { return filepath.Join(d.DataDir, "agent") }

func (d *Dev) pinPath() string { return fmt.Sprintf("/sys/fs/bpf/signet-dev-%d", d.ListenBase) }

// devPorts are the ports that are ours from the first moment on; etcd opens its own.
type devPorts struct {
	grpc, metrics, agentMetrics net.Listener
	used                        map[net.Listener]bool
}

func (p *devPorts) take(l net.Listener) net.Listener {
	p.used[l] = true
	return l
}

func (p *devPorts) closeUnused() {
	for _, l := range []net.Listener{p.grpc, p.metrics, p.agentMetrics} {
		if l != nil && !p.used[l] {
			_ = l.Close()
		}
	}
}

// openPorts finds a busy port before anything is started.
func (d *Dev) openPorts() (*devPorts, error) {
	p := &devPorts{used: map[net.Listener]bool{}}
	var etcd, peer net.Listener
	for _, want := range []struct {
		l    *net.Listener
		port int
		use  string
	}{
		{&etcd, portEtcd, "etcd for clients"}, {&peer, portPeer, "etcd for peers"}, {&p.grpc, portGRPC, "gRPC"},
		{&p.metrics, portMetrics, "the operator's metrics"}, {&p.agentMetrics, portAgentMetrics, "the agent's metrics"},
	} {
		if want.port == portAgentMetrics && d.NoAgent {
			continue
		}
		l, err := listen(d.address(want.port), want.use, "listen-base")
		if err != nil {
			p.closeUnused()
			closeAll(etcd, peer)
			return nil, err
		}
		*want.l = l
	}
	closeAll(etcd, peer)
	return p, nil
}

func closeAll(ls ...net.Listener) {
	for _, l := range ls {
		if l != nil {
			_ = l.Close()
		}
	}
}

// startEtcd starts etcd; a data folder that it makes is a new cluster's.
func (d *Dev) startEtcd(ps *parts) (*embedded.Server, time.Duration, error) {
	dir, err := filepath.Abs(d.DataDir)
	if err != nil {
		return nil, 0, err
	}
	d.DataDir = dir
	etcdDir := filepath.Join(dir, "etcd")
	if _, err := os.Stat(filepath.Join(etcdDir, "member")); errors.Is(err, fs.ErrNotExist) {
		d.NewCluster = true
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, 0, fmt.Errorf("data folder: %w; choose another one with --data-dir", err)
	}
	began := time.Now()
	s, err := embedded.Start(ps.ctx, embedded.Config{DataDir: etcdDir,
		ClientURL: "http://" + d.address(portEtcd), PeerURL: "http://" + d.address(portPeer)})
	if err != nil {
		return nil, 0, err
	}
	p := &part{name: "etcd", stop: func(context.Context) { s.Close() }}
	p.failed = s.Failed()
	ps.add(p)
	return s, time.Since(began), nil
}

func (d *Dev) openStores(ps *parts, etcd *embedded.Server) (*stores, error) {
	cfg := Etcd{Endpoints: []string{etcd.Endpoint()}}
	s, err := cfg.open(ps.ctx, ps.log)
	if err == nil {
		ps.add(s.part())
	}
	return s, err
}

func (d *Dev) startOperator(ps *parts, etcd *embedded.Server, ports *devPorts) (*operator.Operator, error) {
	s, err := d.openStores(ps, etcd)
	if err != nil {
		return nil, err
	}
	if err := d.checkFolder(ps.ctx, s.work); err != nil {
		return nil, err
	}
	spec := &operatorSpec{cluster: d.Cluster, graces: d.Graces, newCluster: d.NewCluster, endpoints: []string{etcd.Endpoint()}, stores: s,
		grpc: []net.Listener{ports.take(ports.grpc)}, metrics: ports.take(ports.metrics),
		advertise: d.address(portGRPC), replica: "dev", version: d.Version, log: ps.log}
	return spec.start(ps)
}

func (d *Dev) startAgent(ps *parts, etcd *embedded.Server, ports *devPorts) (*agent.Agent, error) {
	s, err := d.openStores(ps, etcd)
	if err != nil {
		return nil, err
	}
	spec := &agentSpec{cluster: d.Cluster, graces: d.Graces, servers: []string{d.address(portGRPC)}, stores: s,
		metrics: ports.take(ports.agentMetrics), version: d.Version, log: ps.log,
		node: Node{Name: d.NodeName, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Prefixes: d.Prefixes,
			Socket: d.agentSocket(), PinPath: d.pinPath(), Datapath: d.Datapath, StateDir: d.stateDir()}}
	return spec.start(ps)
}

// pollEvery is how often dev mode looks whether its own parts are ready.
const pollEvery = 3 * time.Millisecond

// awaitOperator waits until the operator is ready, and notes what it says.
func (d *Dev) awaitOperator(ctx context.Context, o *operator.Operator, r *Ready) error {
	for {
		s, err := o.Status(ctx)
		if err != nil {
			return err
		}
		if s.GetReady() && s.GetElection().GetRole() == "leader" {
			r.Cluster, r.ClusterID, r.Leader = s.GetCluster().GetName(), s.GetCluster().GetId(), s.GetElection().GetLeader()
			r.LocalBits, r.Min, r.Max = s.GetCluster().GetLocalBits(), s.GetCluster().GetMin(), s.GetCluster().GetMax()
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

func (d *Dev) awaitAgent(ctx context.Context, r *Ready) error {
	c, err := DialAgent(d.agentSocket())
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		s, err := c.AgentStatus(ctx, &signetv1.AgentStatusRequest{})
		if err != nil {
			return err
		}
		if s.GetReady() {
			r.AgentSocket, r.Node, r.Datapath, r.DatapathDetail = d.agentSocket(), s.GetNode(), s.GetDatapath(), s.GetDatapathDetail()
			r.AgentMetrics = "http://" + d.address(portAgentMetrics) + "/metrics"
			if r.Datapath == "ebpf" {
				r.PinPath = r.DatapathDetail
			}
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(pollEvery):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readWorkloads reads the files of --apply before anything is started.
func (d *Dev) readWorkloads() (*manifest.Result, error) {
	if len(d.Apply) == 0 {
		return nil, nil
	}
	if d.NoAgent {
		return nil, &ConfigError{Option: "apply", Reason: "it needs an agent; drop --no-agent"}
	}
	r, err := apply.Read(os.Stdin, d.Apply...)
	return &r, err
}

// apply applies the workloads asked for. What is refused is told and no reason to stop.
func (d *Dev) apply(ctx context.Context, workloads *manifest.Result, r *Ready, log *slog.Logger) error {
	if workloads == nil {
		return nil
	}
	c, err := DialAgent(d.agentSocket())
	if err != nil {
		return err
	}
	defer c.Close()
	sum, err := apply.Workloads(ctx, c, *workloads, d.Cluster.Name, nil)
	if err != nil {
		return err
	}
	for _, refused := range sum.Refused {
		log.Warn("refused", "object", refused.Object, "reason", refused.Reason)
	}
	for _, note := range sum.Notes {
		log.Info("another address", "object", note.Object, "reason", note.Reason)
	}
	r.Applied = &sum
	return nil
}
