// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

// Defaults of Config.
const (
	DefaultCacheSize      = 8192
	DefaultCacheTTL       = 30 * time.Second
	DefaultTimeout        = 10 * time.Second
	DefaultAttemptTimeout = 5 * time.Second
)

// Config says whom to talk to and as whom.
type Config struct {
	// Servers are operators: host:port, or unix:///path. One is enough; each
	// forwards to the leader.
	Servers []string
	// TLS is for host:port servers; nil means plain text, which operators
	// accept on loopback only. See LoadTLS.
	TLS *tls.Config
	// Holder is who holds what Allocate takes: a node's name, k8s.<node> or
	// pin-<name>. It may be empty in a client that only reads.
	Holder string
	// CacheSize bounds the identities that are not pinned; 0: DefaultCacheSize.
	CacheSize int
	// CacheTTL is how long a server's answer counts in the cache; 0:
	// DefaultCacheTTL. Keep it below a minute, the shortest quarantine.
	CacheTTL time.Duration
	// Timeout is for calls whose context has no deadline; 0: DefaultTimeout.
	Timeout time.Duration
	// AttemptTimeout bounds one try at one server; 0: DefaultAttemptTimeout.
	AttemptTimeout time.Duration
	// Store, if set, answers look-ups before the cache: a mirror of the store.
	Store StoreReader
	// Logger gets what is worth knowing and is no error; nil: nothing is logged.
	Logger *slog.Logger
	// Dialer replaces the network, for tests and in-process servers. It gets
	// the server as it stands in Servers; TLS is not used then unless set.
	Dialer func(ctx context.Context, server string) (net.Conn, error)
}

// StoreReader answers from a local copy of the store. Both methods must not block.
type StoreReader interface {
	ByNumber(identity.Number) (labels.Set, bool)
	ByLabels(labels.Set) (identity.Number, bool)
}

func (cfg Config) withDefaults() (Config, error) {
	if len(cfg.Servers) == 0 {
		return cfg, &Error{Code: codes.InvalidArgument, Field: "servers", Message: "no server is named; give at least one host:port or unix:///path"}
	}
	for _, s := range cfg.Servers {
		if cfg.Dialer != nil {
			continue
		}
		if err := checkServer(s); err != nil {
			return cfg, err
		}
	}
	if cfg.CacheSize <= 0 {
		cfg.CacheSize = DefaultCacheSize
	}
	if cfg.CacheTTL <= 0 {
		cfg.CacheTTL = DefaultCacheTTL
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.AttemptTimeout <= 0 {
		cfg.AttemptTimeout = DefaultAttemptTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg, nil
}

const unixPrefix = "unix://"

func checkServer(s string) error {
	bad := func(why string) error {
		return &Error{Code: codes.InvalidArgument, Field: "servers",
			Message: fmt.Sprintf("server %q: %s; write host:port or unix:///path", s, why)}
	}
	if path, ok := strings.CutPrefix(s, unixPrefix); ok {
		if !strings.HasPrefix(path, "/") {
			return bad("the socket's path is not absolute")
		}
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || port == "" || strings.Contains(s, "/") {
		return bad("it is no address")
	}
	return nil
}

// LoadTLS reads a mutual TLS 1.3 configuration from PEM files: the authority
// that signed the servers' certificates, and the caller's certificate and key.
func LoadTLS(ca, cert, key string) (*tls.Config, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read the certificate authority: %s holds no PEM certificate", ca)
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("read the certificate and key: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		RootCAs:    pool,
		// Read again on each handshake, so that a renewed certificate is used.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		},
	}, nil
}
