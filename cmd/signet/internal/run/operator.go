// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/operator"
	"github.com/signet-identity/signet/allocator/server"
	"github.com/signet-identity/signet/cmd/signet/internal/option"
	"github.com/signet-identity/signet/kvstore"
)

// Operator is one operator replica as a process.
type Operator struct {
	Cluster       Cluster
	Etcd          Etcd
	Graces        Graces
	TLS           TLS
	NewCluster    bool
	Listen        []string
	Advertise     string
	Replica       string
	MetricsListen string
	Logs          Logs
	Version       string
}

// Options are its options.
func (o *Operator) Options() *option.Table {
	t := &option.Table{}
	o.Etcd.Add(t)
	o.Cluster.AddName(t)
	o.Cluster.AddNumbers(t)
	addNewCluster(t, &o.NewCluster)
	t.Strings(&o.Listen, "listen", "127.0.0.1:7472", "host:port or unix:///path; plain text on loopback and sockets only",
		"where gRPC is served")
	t.String(&o.Advertise, "advertise", "", "host:port or unix:///path", "where other operators reach this one; empty: the first of --listen")
	t.String(&o.Replica, "replica-name", "", "any text", "name of this operator in status and logs; empty: --advertise")
	t.String(&o.MetricsListen, "metrics-listen", "127.0.0.1:7473", "host:port", "where /metrics and /healthz are served")
	o.TLS.Add(t)
	o.Graces.Add(t)
	o.Logs.Add(t, "info")
	return t
}

func addNewCluster(t *option.Table, p *bool) {
	t.Bool(p, "new-cluster", false, "make the store this cluster's if it has no record of one; without it an empty store is taken for a lost one")
}

// Run runs the operator until ctx ends. ready is called once it serves.
func (o *Operator) Run(ctx context.Context, log *slog.Logger, ready func()) error {
	if err := errors.Join(o.Cluster.check(), o.Graces.check()); err != nil {
		return err
	}
	withTLS, err := o.serverTLS()
	if err != nil {
		return err
	}
	ps := newParts(ctx, log)
	defer ps.stop()
	spec, err := o.listen(withTLS, log)
	if err != nil {
		return err
	}
	if spec.stores, err = o.Etcd.open(ctx, log); err != nil {
		spec.closeListeners()
		return err
	}
	ps.add(spec.stores.part())
	replica, err := spec.start(ps)
	if err != nil {
		return err
	}
	go func() {
		if _, _, _, err := replica.List(ctx, allocator.ListQuery{Limit: 1}); err == nil {
			ready()
		}
	}()
	return ps.wait()
}

func (o *Operator) serverTLS() (*tls.Config, error) {
	given, err := o.TLS.Given()
	if err != nil || !given {
		return nil, err
	}
	return server.ServerCredentials(o.TLS.CA, o.TLS.Cert, o.TLS.Key)
}

// listen opens all ports, before anything else is begun.
func (o *Operator) listen(cfg *tls.Config, log *slog.Logger) (*operatorSpec, error) {
	spec := &operatorSpec{cluster: o.Cluster, graces: o.Graces, newCluster: o.NewCluster, endpoints: o.Etcd.Endpoints,
		tls: cfg, advertise: o.Advertise, replica: o.Replica, version: o.Version, log: log}
	if len(o.Listen) == 0 {
		return nil, &ConfigError{Option: "listen", Reason: "it names no address; give host:port or unix:///path"}
	}
	for _, address := range o.Listen {
		l, err := listen(address, "gRPC", "listen")
		if err == nil && cfg == nil && !private(l.Addr()) {
			err = errors.Join(&server.PlainTextError{Address: address}, l.Close())
		}
		if err != nil {
			spec.closeListeners()
			return nil, err
		}
		spec.grpc = append(spec.grpc, l)
	}
	var err error
	if spec.metrics, err = listen(o.MetricsListen, "metrics", "metrics-listen"); err != nil {
		spec.closeListeners()
		return nil, err
	}
	if spec.advertise == "" {
		spec.advertise = advertised(spec.grpc[0].Addr())
	}
	if spec.replica == "" {
		spec.replica = spec.advertise
	}
	return spec, nil
}

// advertised is an address that others can dial.
func advertised(a net.Addr) string {
	switch a := a.(type) {
	case *net.UnixAddr:
		return unixPrefix + a.Name
	case *net.TCPAddr:
		if a.IP.IsUnspecified() {
			return net.JoinHostPort(hostname(), fmt.Sprint(a.Port))
		}
	}
	return a.String()
}

// private reports whether only this machine reaches the address.
func private(a net.Addr) bool {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.IP.IsLoopback()
	}
	_, ok := a.(*net.UnixAddr)
	return ok
}

// operatorSpec is what an operator replica is made of.
type operatorSpec struct {
	cluster            Cluster
	graces             Graces
	newCluster         bool
	endpoints          []string
	stores             *stores
	grpc               []net.Listener
	metrics            net.Listener
	tls                *tls.Config
	advertise, replica string
	version            string
	log                *slog.Logger
}

func (s *operatorSpec) closeListeners() {
	for _, l := range append(s.grpc, s.metrics) {
		if l != nil {
			_ = l.Close()
		}
	}
}

// start starts the replica, its gRPC server and its metrics. It is stopped in
// reverse: calls in flight end while the replica still works, then it resigns.
func (s *operatorSpec) start(ps *parts) (*operator.Operator, error) {
	registry := newRegistry()
	cfg, err := s.config()
	if err != nil {
		s.closeListeners()
		return nil, err
	}
	cfg.Registerer = registry
	replica, err := operator.New(cfg)
	if err != nil {
		s.closeListeners()
		return nil, err
	}
	srv, err := server.New(server.Config{Backend: replica, Registerer: registry, Logger: s.log, Version: s.version, TLS: s.tls})
	if err != nil {
		s.closeListeners()
		return nil, err
	}
	ps.add(background("operator", replica.Run))
	ps.add(serveMetrics(s.metrics, registry, func(context.Context) error { return ready(replica) }, s.log))
	serving := background("gRPC server", func(context.Context) error { return srv.Serve(s.grpc...) })
	serving.stop = func(ctx context.Context) {
		limit, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		srv.Stop(limit)
	}
	ps.add(serving)
	return replica, nil
}

func ready(o *operator.Operator) error {
	if o.Ready() {
		return nil
	}
	return errors.New("not ready: the store is not listed yet, or no leader is known")
}

func (s *operatorSpec) config() (operator.Config, error) {
	space, err := identity.NewSpace(s.cluster.Name, s.cluster.ID, s.cluster.MaxConnectedClusters, s.cluster.Wide)
	if err != nil {
		return operator.Config{}, err
	}
	layout, err := kvstore.NewLayout(s.cluster.BasePrefix, s.cluster.Name)
	if err != nil {
		return operator.Config{}, err
	}
	g := s.graces
	return operator.Config{
		Core: allocator.Config{
			Space: space, NewCluster: s.newCluster, NodeGrace: g.Node, IdentityGrace: g.Identity, Quarantine: g.Quarantine, ForgetAfter: g.Forget,
			SweepInterval: g.SweepPeriod, PresenceTTL: g.Presence, ElectionTTL: g.Election,
			LineageEvery: lineageEvery(g),
		},
		Commit: commit.DefaultConfig(), Layout: layout, Store: s.stores.work, Election: s.stores.vital, Endpoints: s.endpoints,
		Replica: s.replica, Address: s.advertise, Version: s.version, Logger: s.log,
	}, nil
}

// lineageEvery is how often served time is stored: often enough for the
// shortest grace, and seldom enough that nobody notices.
func lineageEvery(g Graces) time.Duration {
	return min(5*time.Second, max(time.Second, g.Election/5))
}
