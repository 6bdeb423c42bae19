// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// Limits of the wire.
const (
	// MaxMessage is the largest request in bytes.
	MaxMessage = 4 << 20
	// MaxBatch is the most items of one BatchAllocate or PublishEndpoints.
	MaxBatch = 1024
	// DefaultTimeout is the deadline of a call that brings none.
	DefaultTimeout = 10 * time.Second
	// maxStreams bounds the calls in flight of one connection.
	maxStreams = 1024
	// pollInterval is how often long streams look whether this replica still
	// leads or is ready.
	pollInterval = time.Second
)

// Config is what a Server needs.
type Config struct {
	Backend Backend
	// Registerer takes the metrics; nil: they are kept but not exported.
	Registerer prometheus.Registerer
	Logger     *slog.Logger // nil: nothing is logged
	// Version goes into Status when the Backend leaves it empty.
	Version string
	// TLS is for TCP listeners and toward the leader, mutual (ServerCredentials).
	// Without it only loopback and unix sockets are served.
	TLS *tls.Config
	// Timeout is the deadline of unary calls that bring none; 0: DefaultTimeout.
	Timeout time.Duration
	// DialLeader replaces the network toward the leader, for tests.
	DialLeader func(ctx context.Context, address string) (net.Conn, error)
}

// Server serves one replica.
type Server struct {
	cfg     Config
	log     *slog.Logger
	grpc    *grpc.Server
	metrics *metrics
	leader  *leaderConn

	stop     sync.Once
	stopping chan struct{} // closed by Stop: long streams end
}

// PlainTextError refuses a listener that strangers can reach without TLS.
type PlainTextError struct{ Address string }

// Error names the address and the way out.
func (e *PlainTextError) Error() string {
	return fmt.Sprintf("listen on %s in plain text: only loopback and unix sockets are allowed; give a certificate, key and authority, or listen on 127.0.0.1", e.Address)
}

// New makes a Server and registers its metrics.
func New(cfg Config) (*Server, error) {
	if cfg.Backend == nil {
		return nil, errors.New("server: a Backend is needed")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Logger, metrics: m, stopping: make(chan struct{})}
	s.leader = &leaderConn{tls: cfg.TLS, dialer: cfg.DialLeader}
	s.grpc = grpc.NewServer(
		grpc.Creds(newCredentials(cfg.TLS)),
		grpc.StatsHandler(otelgrpc.NewServerHandler()),
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.ChainUnaryInterceptor(s.unary),
		grpc.ChainStreamInterceptor(s.stream),
	)
	signetv1.RegisterIdentityServiceServer(s.grpc, &identityService{Server: s})
	signetv1.RegisterNodeServiceServer(s.grpc, &nodeService{Server: s})
	signetv1.RegisterAdminServiceServer(s.grpc, &adminService{Server: s})
	healthv1.RegisterHealthServer(s.grpc, &healthService{Server: s})
	reflection.Register(s.grpc)
	return s, nil
}

// Serve serves the listeners until Stop, which makes it return nil, or until
// one of them fails. It refuses, with *PlainTextError and before it accepts
// anything, a TCP listener beyond loopback when there is no TLS.
func (s *Server) Serve(listeners ...net.Listener) error {
	for _, l := range listeners {
		if s.cfg.TLS == nil && !private(l.Addr()) {
			return &PlainTextError{Address: l.Addr().String()}
		}
	}
	errs := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { errs <- s.grpc.Serve(l) }()
	}
	var first error
	for range listeners {
		if err := <-errs; err != nil && !errors.Is(err, grpc.ErrServerStopped) && first == nil {
			first = err
			s.grpc.Stop()
		}
	}
	return first
}

// Stop ends watches and sessions, lets calls in flight finish until ctx ends,
// then cuts them off.
func (s *Server) Stop(ctx context.Context) {
	s.stop.Do(func() { close(s.stopping) })
	done := make(chan struct{})
	go func() { defer close(done); s.grpc.GracefulStop() }()
	select {
	case <-done:
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
	}
	s.leader.close()
}

// Refusals counts refused calls since the start, by reason: for Status.
func (s *Server) Refusals() map[string]uint64 { return s.metrics.refusals() }

// private reports whether only this machine reaches the address.
func private(a net.Addr) bool {
	switch a := a.(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	}
	return false
}
