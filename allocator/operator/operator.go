// SPDX-License-Identifier: Apache-2.0

// Package operator runs the core: it campaigns, follows the store, queues
// requests, commits what the core decides, and answers. One goroutine, the
// loop, owns the core and the committer; everything else hands work to it.
package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

// Config is what an Operator needs. Durations of graces count served time.
type Config struct {
	Core      allocator.Config
	Commit    commit.Config
	Layout    kvstore.Layout
	Store     kvstore.Store // for work and the mirror
	Election  kvstore.Store // for the candidacy alone, so that renewals never wait behind work
	Endpoints []string      // of the store, for status

	Replica       string // this replica's name
	Address       string // its gRPC address, host:port, as others reach it
	Version       string
	CommitTimeout time.Duration // after which a transaction's outcome is unknown
	Logger        *slog.Logger
	Registerer    prometheus.Registerer
}

// Operator is one replica. It satisfies the server's Backend.
type Operator struct {
	cfg      Config
	log      *slog.Logger
	election *kvstore.ElectionDriver
	mirror   *kvstore.MirrorDriver
	started  time.Time

	inbox   chan func()
	stopped chan struct{}
	nextID  atomic.Uint64
	snap    atomic.Pointer[snapshot]

	// Owned by the loop.
	core      *allocator.Core
	commit    *commit.Committer
	waiters   map[uint64]chan allocator.Reply
	term      *term
	hub       hub
	malformed map[string]string // keys found malformed, and why
	acked     map[string]allocator.Position
	wentBack  *kvstore.WentBack
	lastWork  time.Time // of the last committed transaction
	listed    chan struct{}
	isListed  bool
	listedAt  time.Duration // when the first complete list was there
}

// term is the running term as the loop sees it.
type term struct {
	ctx  context.Context
	over chan error // what ended it from this side
}

// New makes a replica; Run starts it.
func New(cfg Config) (*Operator, error) {
	if cfg.Core.MaxWaiting <= 0 {
		cfg.Core.MaxWaiting = 100_000
	}
	if cfg.CommitTimeout <= 0 {
		cfg.CommitTimeout = cfg.Core.ElectionTTL
	}
	o := &Operator{
		cfg: cfg, log: cfg.Logger, started: time.Now(),
		inbox: make(chan func(), 1024), stopped: make(chan struct{}), listed: make(chan struct{}),
		core: allocator.New(cfg.Core), commit: commit.New(cfg.Commit),
		waiters: map[uint64]chan allocator.Reply{}, malformed: map[string]string{}, acked: map[string]allocator.Position{},
		hub: newHub(),
	}
	o.snap.Store(&snapshot{})
	o.election = kvstore.NewElectionDriver(cfg.Election, kvstore.ElectionConfig{
		Prefix: cfg.Layout.Election(), TTL: cfg.Core.ElectionTTL, ProgressLimit: 3 * cfg.Core.ElectionTTL,
		Candidate: allocator.Candidate{Who: cfg.Replica, Address: cfg.Address, Version: cfg.Version},
	}, cfg.Logger)
	var spans []kvstore.Span
	for _, p := range cfg.Layout.LeaderPrefixes() {
		spans = append(spans, kvstore.PrefixSpan(p))
	}
	var err error
	if o.mirror, err = kvstore.NewMirrorDriver(cfg.Store, kvstore.MirrorConfig{Spans: spans}, cfg.Logger); err != nil {
		return nil, err
	}
	if cfg.Registerer != nil {
		err = cfg.Registerer.Register(collector{o})
	}
	return o, err
}

// Run follows the store, campaigns and leads until ctx ends; then it resigns.
// It returns an error when the store belongs to another cluster.
func (o *Operator) Run(ctx context.Context) error {
	loopCtx, stopLoop := context.WithCancel(context.WithoutCancel(ctx))
	var loop sync.WaitGroup
	loop.Go(func() { o.loop(loopCtx) })
	defer loop.Wait()
	defer stopLoop()

	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return o.mirror.Run(gctx, consumer{o}) })
	g.Go(func() error {
		if err := o.awaitList(gctx); err != nil {
			return err
		}
		fatal := make(chan error, 1)
		campaign, stop := context.WithCancel(gctx)
		defer stop()
		o.election.Run(campaign, func(term context.Context, f commit.Fence) error {
			err := o.lead(term, f)
			var refusal *allocator.Error
			if errors.As(err, &refusal) && refusal.Code == allocator.FailedPrecondition {
				fatal <- err
				stop()
			}
			return err
		})
		select {
		case err := <-fatal:
			return err
		default:
			return nil
		}
	})
	return g.Wait()
}

// awaitList waits for the first complete list, and checks that the store is
// this cluster's before anything is written to it.
func (o *Operator) awaitList(ctx context.Context) error {
	select {
	case <-o.listed:
	case <-ctx.Done():
		return nil
	}
	var mismatch *allocator.Error
	if err := o.ask(ctx, func() { mismatch = o.core.CheckCluster() }); err != nil {
		return nil
	}
	if mismatch != nil {
		return mismatch
	}
	return nil
}

// lead is one term: it returns when the term ends, or with the reason why it must.
func (o *Operator) lead(ctx context.Context, f commit.Fence) error {
	t := &term{ctx: ctx, over: make(chan error, 1)}
	if err := o.ask(ctx, func() { o.beginTerm(t, f) }); err != nil {
		return err
	}
	var cause error
	select {
	case <-ctx.Done():
	case cause = <-t.over:
	}
	end := make(chan struct{})
	o.post(func() { o.endTerm(); close(end) })
	select {
	case <-end:
	case <-o.stopped:
	}
	return cause
}

func (o *Operator) beginTerm(t *term, f commit.Fence) {
	o.term = t
	o.commit.BeginTerm(f)
	nonce := fmt.Sprintf("%x-%x", f.Lease, f.Epoch)
	if o.now()-o.listedAt < 2*o.cfg.Core.PresenceTTL {
		o.core.BeginColdTerm(o.now(), nonce)
	} else {
		o.core.BeginTerm(o.now(), nonce)
	}
	o.log.Info("term begins", "epoch", f.Epoch, "lease", kvstore.LeaseName(f.Lease))
}

func (o *Operator) endTerm() {
	if o.term == nil {
		return
	}
	o.term = nil
	o.commit.EndTerm()
	o.core.EndTerm()
	o.log.Info("term ended")
}

// now is the operator's monotonic clock, as the core and committer see it.
func (o *Operator) now() time.Duration { return time.Since(o.started) }

// Space is the cluster's number space.
func (o *Operator) Space() identity.Space { return o.cfg.Core.Space }

// Leader is the leader's gRPC address, "" when none is known, and whether this
// replica is it.
func (o *Operator) Leader() (address string, self bool) {
	s := o.election.Status()
	if self = s.Role == kvstore.RoleLeader; !self && s.Leader.Address == o.cfg.Address {
		return "", false // an own key that has not lapsed yet
	}
	return s.Leader.Address, self
}

// Ready says whether the replica can answer: it has listed the store, and a
// leader is known.
func (o *Operator) Ready() bool {
	s := o.snap.Load()
	address, self := o.Leader()
	return s.listed && (self && s.serving || !self && address != "")
}

// StepDown gives leadership up; another replica, or this one after a pause, takes it.
func (o *Operator) StepDown(context.Context) (string, error) {
	s := o.election.Status()
	if s.Role != kvstore.RoleLeader {
		return "", &allocator.Error{Code: allocator.FailedPrecondition, Field: "leader",
			Message: "this replica does not lead; nothing to step down from"}
	}
	o.election.Abandon("asked to step down")
	return o.cfg.Replica, nil
}
