// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const passthrough = "passthrough:///" // the address as it is, without a resolver

// leaderConn is the one kept connection to the present leader.
type leaderConn struct {
	tls    *tls.Config
	dialer func(context.Context, string) (net.Conn, error)

	mu      sync.Mutex
	address string
	conn    *grpc.ClientConn
	closed  bool
}

// to returns the connection to address; one to a former leader is closed,
// which ends the calls on it: their outcome is unknown, and their callers
// repeat them.
func (l *leaderConn) to(address string) (*grpc.ClientConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, unavailable(reasonStopping, "this replica is stopping; ask another")
	}
	if l.conn != nil && l.address == address {
		return l.conn, nil
	}
	conn, err := l.dial(address)
	if err != nil {
		return nil, unavailable(reasonNoLeader, "the leader's address %q cannot be used: %v", address, err)
	}
	if l.conn != nil {
		_ = l.conn.Close()
	}
	l.conn, l.address = conn, address
	return conn, nil
}

func (l *leaderConn) dial(address string) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	target := passthrough + address
	if strings.HasPrefix(address, "unix://") {
		target = address
	} else if l.tls != nil {
		creds = credentials.NewTLS(l.tls)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(4 * MaxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 15 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
	}
	if l.dialer != nil {
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.dialer(ctx, address) }))
	}
	return grpc.NewClient(target, opts...)
}

func (l *leaderConn) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// route says where a call for the leader goes: nil means here. The context
// carries who asks, for the leader.
func (s *Server) route(ctx context.Context) (context.Context, *grpc.ClientConn, error) {
	address, self := s.cfg.Backend.Leader()
	if self {
		return ctx, nil, nil
	}
	c := CallerFrom(ctx)
	if c.Forwarded {
		return nil, nil, unavailable(reasonForwardLoop, "no replica leads at the moment: the last known leader says that it does not; see signet status")
	}
	if address == "" {
		return nil, nil, unavailable(reasonNoLeader, "no leader is known at the moment; try again")
	}
	conn, err := s.leader.to(address)
	if err != nil {
		return nil, nil, err
	}
	return metadata.NewOutgoingContext(ctx, metadata.Pairs(headerForwarded, "1",
		headerCallerName, c.Name, headerCallerRole, string(c.Role))), conn, nil
}

// lead runs a call for the leader: here, or there.
func lead[Req, Resp any](ctx context.Context, s *Server, req Req,
	there func(*grpc.ClientConn) func(context.Context, Req, ...grpc.CallOption) (Resp, error),
	here func(context.Context) (Resp, error),
) (Resp, error) {
	ctx, conn, err := s.route(ctx)
	if err != nil {
		var none Resp
		return none, err
	}
	if conn == nil {
		return here(ctx)
	}
	resp, err := there(conn)(ctx, req)
	return resp, forwardedError(ctx, conn, err)
}

// forwardedError passes the leader's word on, and puts a failure to reach it
// into words: nothing is known of the outcome then.
func forwardedError(ctx context.Context, conn *grpc.ClientConn, err error) error {
	st := status.Convert(err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case len(st.Details()) > 0:
		return err
	case st.Code() == codes.Unavailable, st.Code() == codes.Canceled, st.Code() == codes.Unknown:
		return unavailable(reasonNoLeader, "the leader at %s does not answer: %s; the same call again is safe",
			strings.TrimPrefix(conn.Target(), passthrough), printableMessage(st.Message()))
	}
	return err
}
