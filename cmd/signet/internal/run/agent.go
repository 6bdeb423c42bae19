// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"github.com/signet-identity/signet/allocator/agent"
	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/cmd/signet/internal/option"
	"github.com/signet-identity/signet/kvstore"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// Agent is one node's agent as a process.
type Agent struct {
	Cluster       Cluster
	Etcd          Etcd
	Graces        Graces // of which the presence TTL counts
	TLS           TLS
	Node          Node
	Servers       []string
	MetricsListen string
	Logs          Logs
	Version       string
}

// Options are its options.
func (a *Agent) Options() *option.Table {
	t := &option.Table{}
	a.Node.Add(t)
	t.Strings(&a.Servers, "server", "127.0.0.1:7472", "host:port or unix:///path", "operators to talk to; one is enough, others are tried when it is away")
	a.TLS.Add(t)
	a.Etcd.Add(t)
	a.Cluster.AddName(t)
	a.Graces.AddPresence(t)
	t.String(&a.MetricsListen, "metrics-listen", "127.0.0.1:7474", "host:port", "where /metrics and /healthz are served")
	a.Logs.Add(t, "info")
	return t
}

// Run runs the agent until ctx ends or the node has left. ready is called once
// the socket is served.
func (a *Agent) Run(ctx context.Context, log *slog.Logger, ready func()) error {
	given, err := a.TLS.Given()
	if err != nil {
		return err
	}
	spec := &agentSpec{cluster: a.Cluster, graces: a.Graces, node: a.Node, servers: a.Servers, version: a.Version, log: log}
	if given {
		if spec.tls, err = client.LoadTLS(a.TLS.CA, a.TLS.Cert, a.TLS.Key); err != nil {
			return err
		}
	}
	if err := CheckServers(a.Servers, given); err != nil {
		return err
	}
	ps := newParts(ctx, log)
	defer ps.stop()
	if spec.metrics, err = listen(a.MetricsListen, "metrics", "metrics-listen"); err != nil {
		return err
	}
	if spec.stores, err = a.Etcd.open(ctx, log); err != nil {
		return errors.Join(err, spec.metrics.Close())
	}
	ps.add(spec.stores.part())
	node, err := spec.start(ps)
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-node.Ready():
			ready()
		case <-ctx.Done():
		}
	}()
	return ps.wait()
}

// CheckServers refuses, with *ConfigError, plain text beyond this machine.
func CheckServers(servers []string, withTLS bool) error {
	for _, s := range servers {
		host, _, err := net.SplitHostPort(s)
		if err != nil || withTLS || strings.HasPrefix(s, unixPrefix) {
			continue // what is malformed is refused when it is dialled
		}
		if addr, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !addr.IsLoopback()) {
			return &ConfigError{Option: "server", Reason: fmt.Sprintf(
				"%s is beyond this machine, and plain text is for loopback and unix sockets only; give --tls-ca, --tls-cert and --tls-key", s)}
		}
	}
	return nil
}

// agentSpec is what a node's agent is made of.
type agentSpec struct {
	cluster Cluster
	graces  Graces
	node    Node
	servers []string
	tls     *tls.Config
	stores  *stores
	metrics net.Listener
	version string
	log     *slog.Logger
}

// start opens the datapath, starts the agent and its metrics.
func (s *agentSpec) start(ps *parts) (*agent.Agent, error) {
	node, err := s.open(ps)
	if err != nil {
		return nil, errors.Join(err, s.metrics.Close())
	}
	return node, nil
}

func (s *agentSpec) open(ps *parts) (*agent.Agent, error) {
	if s.node.Name == "" {
		s.node.Name = hostname()
	}
	if len(s.node.Addresses) == 0 {
		s.node.Addresses = interfaceAddresses()
	}
	layout, err := kvstore.NewLayout(s.cluster.BasePrefix, s.cluster.Name)
	if err != nil {
		return nil, err
	}
	c, err := client.Dial(context.Background(), client.Config{Servers: s.servers, TLS: s.tls, Holder: s.node.Name, Logger: s.log})
	if err != nil {
		return nil, err
	}
	ps.add(&part{name: "client", failed: make(chan error), stop: func(context.Context) { _ = c.Close() }})
	dp, err := openDatapath(s.node.Datapath, s.node.PinPath, s.log)
	if err != nil {
		return nil, err
	}
	ps.add(dp.part(s.log))
	registry := newRegistry()
	node, err := agent.New(agent.Config{
		Node: s.node.Name, Layout: layout, Store: s.stores.work, PresenceStore: s.stores.vital, Client: c, Datapath: dp,
		StateDir: s.node.StateDir, Socket: s.node.Socket, Addresses: s.node.Addresses, Prefixes: s.node.Prefixes,
		PresenceTTL: s.graces.Presence, Version: s.version, Logger: s.log, Registerer: registry,
	})
	if err != nil {
		return nil, err
	}
	ps.add(background("agent", node.Run))
	ps.add(serveMetrics(s.metrics, registry, func(ctx context.Context) error { return agentReady(ctx, s.node.Socket) }, s.log))
	return node, nil
}

// interfaceAddresses are the machine's own addresses that others may reach, or
// loopback when there is none.
func interfaceAddresses() []netip.Addr {
	var out []netip.Addr
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Addr().IsGlobalUnicast() {
			out = append(out, p.Addr())
		}
	}
	if len(out) == 0 {
		out = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	}
	return out
}

// agentReady asks an agent over its socket whether it is ready.
func agentReady(ctx context.Context, socket string) error {
	c, err := DialAgent(socket)
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.AgentStatus(ctx, &signetv1.AgentStatusRequest{})
	if err != nil {
		return err
	}
	if !s.GetReady() {
		return errors.New("not ready: the store is not listed yet, or presence or operator are missing")
	}
	return nil
}
