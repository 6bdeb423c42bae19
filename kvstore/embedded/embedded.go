// SPDX-License-Identifier: Apache-2.0

// Package embedded runs a real etcd inside this process, on disk and with
// fsync: for dev mode and for tests.
package embedded

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/signet-identity/signet/kvstore"
)

// LogName is the file in the data folder that etcd's own log goes to.
const LogName = "etcd.log"

// What a member is called, and its cluster's token, when nobody says.
const (
	defaultName  = "signet"
	clusterToken = "signet"
)

// Config says how to run the member.
type Config struct {
	// DataDir is made if it is not there. One process at a time uses it.
	DataDir string
	// Name is the member's name; "" is "signet".
	Name string
	// ClientURL and PeerURL are where the member listens, http on loopback:
	// "http://127.0.0.1:7470". Port 0 picks a free one (a single member only).
	ClientURL, PeerURL string
	// InitialCluster lists the members of a cluster of several, as
	// "a=http://127.0.0.1:7001,b=…", each with its PeerURL. "": this one alone.
	InitialCluster string
	// LogLevel is etcd's: debug, info, warn (the default) or error.
	LogLevel string
	// History is how long revisions are kept before they are compacted; 0: one hour.
	History time.Duration
	// MaxTxnOps is etcd's limit on the ops of a transaction; 0: etcd's own, 128.
	MaxTxnOps uint
}

// Server is a running member.
type Server struct {
	etcd     *embed.Etcd
	lock     *os.File
	endpoint string
	dir      string
}

// Start starts the member. A single one is ready when Start returns; one of
// several waits for its peers, so Start them all and then wait for Ready.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	single := cfg.InitialCluster == ""
	conf, err := configure(cfg, single)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	lock, err := lockFolder(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	s := &Server{lock: lock, dir: cfg.DataDir}
	if err := s.start(ctx, conf, single); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, conf *embed.Config, single bool) error {
	for _, u := range []url.URL{conf.ListenClientUrls[0], conf.ListenPeerUrls[0]} {
		if err := checkPort(u); err != nil {
			return err
		}
	}
	etcd, err := embed.StartEtcd(conf)
	if err != nil {
		return startError(err)
	}
	s.etcd = etcd
	s.endpoint = "http://" + etcd.Clients[0].Addr().String()
	if single {
		return s.Ready(ctx)
	}
	return nil
}

// Ready waits until the member has joined and serves.
func (s *Server) Ready(ctx context.Context) error {
	select {
	case <-s.etcd.Server.ReadyNotify():
		return nil
	case err := <-s.etcd.Err():
		return fmt.Errorf("embedded etcd failed: %w", err)
	case <-ctx.Done():
		return fmt.Errorf("embedded etcd in %s is not ready (its log: %s): %w", s.dir, s.LogFile(), ctx.Err())
	}
}

// Failed delivers an error if the member fails while it runs.
func (s *Server) Failed() <-chan error { return s.etcd.Err() }

// Endpoint is the URL for clients.
func (s *Server) Endpoint() string { return s.endpoint }

// LogFile is the file with etcd's own log.
func (s *Server) LogFile() string { return filepath.Join(s.dir, LogName) }

// Etcd is the running member, for tests that look at raft.
func (s *Server) Etcd() *embed.Etcd { return s.etcd }

// Client is a new client of etcd's own kind; the caller closes it.
func (s *Server) Client() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{s.endpoint}, Logger: zap.NewNop()})
}

// Store is a new kvstore.Store; the caller closes it.
func (s *Server) Store(ctx context.Context) (*kvstore.Etcd, error) {
	return kvstore.NewEtcd(ctx, kvstore.EtcdConfig{Endpoints: []string{s.endpoint}})
}

// Close stops the member and frees the data folder. Close clients first: the
// member waits some seconds for streams that are still open. A second call does nothing.
func (s *Server) Close() {
	if s.etcd != nil {
		s.etcd.Close()
		s.etcd = nil
	}
	s.lock.Close()
}

// A lone member has nobody to wait for: short ticks let it elect itself within
// some 100 ms. Members of a cluster keep etcd's own times.
const (
	singleTickMs     = 10
	singleElectionMs = 100
	defaultHistory   = time.Hour
)

func configure(cfg Config, single bool) (*embed.Config, error) {
	client, err := listenURL("client", cfg.ClientURL)
	if err != nil {
		return nil, err
	}
	peer, err := listenURL("peer", cfg.PeerURL)
	if err != nil {
		return nil, err
	}
	if cfg.Name == "" {
		cfg.Name = defaultName
	}
	if cfg.LogLevel == "" {
		cfg.LogLevel = "warn"
	}
	if cfg.History == 0 {
		cfg.History = defaultHistory
	}
	c := embed.NewConfig()
	c.Name = cfg.Name
	c.Dir = cfg.DataDir
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = cfg.InitialCluster
	c.InitialClusterToken = clusterToken
	c.LogLevel = cfg.LogLevel
	c.LogOutputs = []string{filepath.Join(cfg.DataDir, LogName)}
	c.AutoCompactionMode = embed.CompactorModePeriodic
	c.AutoCompactionRetention = cfg.History.String()
	c.EnableGRPCGateway = false
	if cfg.MaxTxnOps > 0 {
		c.MaxTxnOps = cfg.MaxTxnOps
	}
	if single {
		c.InitialCluster = cfg.Name + "=" + peer.String()
		c.TickMs, c.ElectionMs = singleTickMs, singleElectionMs
	}
	return c, nil
}

// listenURL reads a URL to listen on. The member speaks plain text, so it
// listens on loopback only.
func listenURL(what, text string) (url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Port() == "" {
		return url.URL{}, fmt.Errorf("the %s URL %q of the embedded etcd is not of the form http://127.0.0.1:PORT", what, text)
	}
	if ip := net.ParseIP(u.Hostname()); !ip.IsLoopback() {
		return url.URL{}, fmt.Errorf("the %s URL %q of the embedded etcd is no loopback address; it speaks plain text", what, text)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return *u, nil
}
