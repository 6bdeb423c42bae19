// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// How Etcd talks to etcd. gRPC pings an idle connection no more often than
// every 10 s; data that is not acknowledged for 3 s ends one in use.
const (
	pingEvery         = 10 * time.Second
	pingTimeout       = 3 * time.Second
	defaultDialTime   = 5 * time.Second
	backoffBetween    = 50 * time.Millisecond
	backoffJitter     = 0.3
	readyLogEvery     = 5 * time.Second
	readyPause        = 100 * time.Millisecond
	readyAttempt      = 2 * time.Second
	versionsMaxWait   = 3 * time.Second
	maxReceivedLength = math.MaxInt32
)

// EtcdConfig says how to reach etcd.
type EtcdConfig struct {
	// Endpoints are URLs (http, https, unix, unixs) or host:port. Plain text is
	// for loopback addresses and sockets only.
	Endpoints []string
	// TLS is what LoadTLS made; nil: plain text.
	TLS *tls.Config
	// Username and Password are for an etcd with password authentication. With
	// certificates the user is the certificate's common name.
	Username, Password string
	// DialTimeout bounds the log-in that a Username needs; 0: 5 s.
	DialTimeout time.Duration
	// Logger gets warnings; nil: none.
	Logger *slog.Logger
}

// Etcd is the Store over a real etcd.
type Etcd struct {
	client    *clientv3.Client
	endpoints []string
	log       *slog.Logger
	ctx       context.Context // ends with Close
	stop      context.CancelFunc

	mu      sync.Mutex
	watches map[*etcdWatch]struct{}
	running sync.WaitGroup
}

var _ Store = (*Etcd)(nil)

// NewEtcd makes a client. It does not wait for etcd: WaitReady does. ctx is
// the parent of everything that the client does until Close.
func NewEtcd(ctx context.Context, cfg EtcdConfig) (*Etcd, error) {
	if err := CheckEndpoints(cfg.Endpoints, cfg.TLS != nil); err != nil {
		return nil, err
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = defaultDialTime
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(ctx)
	client, err := clientv3.New(clientv3.Config{
		Endpoints:             cfg.Endpoints,
		TLS:                   cfg.TLS,
		Username:              cfg.Username,
		Password:              cfg.Password,
		DialTimeout:           cfg.DialTimeout,
		DialKeepAliveTime:     pingEvery,
		DialKeepAliveTimeout:  pingTimeout,
		BackoffWaitBetween:    backoffBetween,
		BackoffJitterFraction: backoffJitter,
		MaxCallRecvMsgSize:    maxReceivedLength,
		Context:               ctx,
		Logger:                zap.NewNop(),
	})
	if err != nil {
		stop()
		return nil, fmt.Errorf("client of etcd at %v: %w", cfg.Endpoints, err)
	}
	return &Etcd{
		client: client, endpoints: cfg.Endpoints, log: cfg.Logger, ctx: ctx, stop: stop,
		watches: map[*etcdWatch]struct{}{},
	}, nil
}

// Endpoints are the endpoints as configured.
func (e *Etcd) Endpoints() []string { return e.endpoints }

// Client is the client below, for what Store does not offer (maintenance, roles).
func (e *Etcd) Client() *clientv3.Client { return e.client }

// Close ends all calls and watches and waits for the watches to end.
func (e *Etcd) Close() error {
	e.stop()
	err := e.client.Close()
	e.running.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Range implements Store.
func (e *Etcd) Range(ctx context.Context, r RangeRequest) (RangeResult, error) {
	if r.Key == "" {
		return RangeResult{}, ErrEmptyKey
	}
	opts := readOptions(r.RangeEnd, r.Limit, r.KeysOnly)
	if r.Revision > 0 {
		opts = append(opts, clientv3.WithRev(r.Revision))
	}
	if r.Serializable {
		opts = append(opts, clientv3.WithSerializable())
	}
	resp, err := e.client.Get(ctx, r.Key, opts...)
	if err != nil {
		return RangeResult{}, classify(err)
	}
	return RangeResult{KVs: fromPB(resp.Kvs, r.KeysOnly), More: resp.More, Revision: resp.Header.Revision}, nil
}

// Grant implements Store. etcd rounds a TTL up to its own shortest one.
func (e *Etcd) Grant(ctx context.Context, ttl time.Duration) (int64, error) {
	resp, err := e.client.Grant(ctx, seconds(ttl))
	if err != nil {
		return 0, classify(err)
	}
	return int64(resp.ID), nil
}

// KeepAlive implements Store.
func (e *Etcd) KeepAlive(ctx context.Context, lease int64) (time.Duration, error) {
	resp, err := e.client.KeepAliveOnce(ctx, clientv3.LeaseID(lease))
	if err != nil {
		return 0, classify(err)
	}
	return time.Duration(resp.TTL) * time.Second, nil
}

// Revoke implements Store.
func (e *Etcd) Revoke(ctx context.Context, lease int64) error {
	_, err := e.client.Revoke(ctx, clientv3.LeaseID(lease))
	return classify(err)
}

// seconds rounds a TTL up to etcd's unit.
func seconds(ttl time.Duration) int64 {
	return max(1, int64((ttl+time.Second-1)/time.Second))
}
