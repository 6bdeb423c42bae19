// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// maxMessage bounds one answer, in bytes. Servers cut pages far below it; one
// identity with very many holders may be large.
const maxMessage = 16 << 20

// Client is a connection to the operators, with pins and a cache. It is safe
// for concurrent use.
type Client struct {
	cfg   Config
	conns []*conn
	at    atomic.Uint32 // index of the server in use, modulo len(conns)

	life context.Context // ends with Close
	stop context.CancelFunc
	work sync.WaitGroup

	pins  *pins
	cache *cache
}

// conn is one server.
type conn struct {
	server   string
	cc       *grpc.ClientConn
	identity signetv1.IdentityServiceClient
	node     signetv1.NodeServiceClient
	admin    signetv1.AdminServiceClient
}

// Dial makes a client. It does not wait for a server: the first call does. The
// error is an *Error about the configuration, or that of ctx.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, ended(ctx, "dial", nil)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, pins: newPins(), cache: newCache(cfg.CacheSize, cfg.CacheTTL, time.Now)}
	c.life, c.stop = context.WithCancel(context.Background())
	for _, s := range cfg.Servers {
		conn, err := dial(cfg, s)
		if err != nil {
			return nil, errors.Join(asError(err), c.Close())
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

// Close ends calls in flight and the connections. Pins are not released: the
// references stay with the holder (Release or Leave gives them back).
func (c *Client) Close() error {
	c.pins.mu.Lock() // behind it nothing new is started
	c.stop()
	c.pins.mu.Unlock()
	c.work.Wait()
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.cc.Close())
	}
	return errors.Join(errs...)
}

// Holder is the holder that Allocate takes references for.
func (c *Client) Holder() string { return c.cfg.Holder }

func dial(cfg Config, server string) (*conn, error) {
	creds := insecure.NewCredentials()
	target := "dns:///" + server
	if strings.HasPrefix(server, unixPrefix) {
		target = server
	} else if cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(), // ours knows the deadline, the hints and the other servers
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 15 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
	}
	if cfg.Dialer != nil {
		target = "passthrough:///" + server
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return cfg.Dialer(ctx, server)
		}))
	}
	cc, err := grpc.NewClient(target, opts...)
	if err != nil {
		return nil, err
	}
	return &conn{server: server, cc: cc, identity: signetv1.NewIdentityServiceClient(cc),
		node: signetv1.NewNodeServiceClient(cc), admin: signetv1.NewAdminServiceClient(cc)}, nil
}

// Identity is a number with its label set.
type Identity struct {
	Number identity.Number
	Labels labels.Set
}
