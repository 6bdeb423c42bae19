// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/allocator/labels"
	"github.com/signet-identity/signet/kvstore"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// Agent is the service of one node.
type Agent struct {
	cfg      Config
	dir      *stateDir
	restored *checkpoint // nil: there was none
	listener net.Listener
	metrics  *collector

	engine   *engine
	saver    *saver
	mirror   *kvstore.MirrorDriver
	presence *kvstore.PresenceDriver
	session  *client.Session
	sessions sessionState
	health   *health.Server
	server   *grpc.Server

	work     group      // what ends with a leave
	leave    sync.Mutex // one leave at a time
	unmapped bool       // a leave has removed the maps
	left     chan struct{}
	ready    chan struct{} // closed once the socket is served

	present     chan struct{} // closed by the first presence
	presentOnce sync.Once
}

// New opens the state folder and the socket, and reads the checkpoint. Errors:
// *StateDirError (ErrSecondAgent among them), *CheckpointError, *SocketError,
// or what is wrong with the configuration. Close undoes it if Run is not called.
func New(cfg Config) (*Agent, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, left: make(chan struct{}), ready: make(chan struct{}), present: make(chan struct{}), health: health.NewServer()}
	if a.dir, err = openStateDir(cfg.StateDir); err != nil {
		return nil, err
	}
	if err := a.open(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *Agent) open() (err error) {
	cfg := a.cfg
	if a.restored, err = loadCheckpoint(cfg.StateDir, cfg.Layout.Cluster(), cfg.Node); err != nil {
		return err
	}
	a.saver = newSaver(filepath.Join(cfg.StateDir, checkpointFile), a.writeCheckpoint, cfg.Now, cfg.Logger)
	a.engine = a.newEngine()
	a.session = cfg.Client.NewSession(client.SessionConfig{
		Hello: a.hello, Welcome: a.welcome, AckWanted: func(r int64) { a.mirror.Want(r) }, Lost: a.lost})
	a.engine.rehello = a.session.Hello
	if a.mirror, err = kvstore.NewMirrorDriver(cfg.Store, kvstore.MirrorConfig{Spans: spans(cfg.Layout)}, cfg.Logger); err != nil {
		return err
	}
	key, err := cfg.Layout.Key(allocator.PresenceKey(cfg.Node))
	if err != nil {
		return err
	}
	a.presence = kvstore.NewPresenceDriver(cfg.PresenceStore,
		kvstore.PresenceConfig{Key: key, Value: cfg.presence(a.dir.instance), TTL: cfg.PresenceTTL}, cfg.Logger)
	if a.listener, err = listen(cfg.Socket); err != nil {
		return err
	}
	a.server = a.newServer()
	return a.register()
}

func (a *Agent) newEngine() *engine {
	e := &engine{
		node: a.cfg.Node, log: a.cfg.Logger, dp: a.cfg.Datapath, client: a.cfg.Client,
		callTime: a.cfg.CallTimeout, now: a.cfg.Now, saver: a.saver, rehello: func() {},
		ids: newQueue[effect](), maps: newQueue[effect](), store: newQueue[effect](),
		table: newTable(a.cfg.Prefixes), timers: make(map[timerKey]*time.Timer),
		waits: make(map[string]chan struct{}), watchers: make(map[*watcher]bool), since: make(map[string]time.Time),
		surplus: make(map[string]surplus), leftovers: make(map[netip.Addr]time.Time),
		stats: counters{refusals: make(map[string]uint64)}, readySeconds: newReadySeconds(),
	}
	if len(a.cfg.Addresses) > 0 {
		e.hostIP = a.cfg.Addresses[0].String()
	}
	at := allocator.Position{}
	if a.restored != nil {
		at = a.restored.Position
	}
	e.view = newView(a.cfg.Layout, a.cfg.Node, at, e.table)
	return e
}

// spans are the tables that the agent mirrors, and the lineage record.
func spans(l kvstore.Layout) []kvstore.Span {
	var out []kvstore.Span
	for _, prefix := range l.AgentPrefixes() {
		out = append(out, kvstore.PrefixSpan(prefix))
	}
	lineage, err := l.Key(allocator.LineageKey())
	if err != nil {
		panic(err) // the key has no variable part
	}
	return append(out, kvstore.Span{Key: lineage, End: lineage + "\x00"})
}

// Close gives back what New took, for an agent that is not run.
func (a *Agent) Close() error {
	var errs []error
	if a.metrics != nil {
		a.cfg.Registerer.Unregister(a.metrics)
	}
	if a.listener != nil {
		errs = append(errs, closed(a.listener.Close()))
	}
	return errors.Join(append(errs, a.dir.close())...)
}

// closed forgives what was closed before.
func closed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Ready is closed once the socket is served.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Instance is the UUID that tells this agent from another one of the node's name.
func (a *Agent) Instance() string { return a.dir.instance }

// Run works until ctx ends or the node has left, and returns nil then. It is
// called once. It keeps the maps and the presence as they are: a stop is not a leave.
func (a *Agent) Run(ctx context.Context) error {
	defer a.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := a.engine
	defer e.stop()
	if a.restored != nil {
		e.adoptAll(a.restored)
		e.update(func() { e.table.restore(a.restored) })
		// What the checkpoint names is stated before anything else happens.
		e.realise(ctx, e.maps.take(0))
		a.cfg.Logger.Info("the checkpoint is restored", "endpoints", len(a.restored.Endpoints), "label_sets", len(a.restored.Sets))
	}
	main := newGroup(ctx)
	a.work = newGroup(main.ctx)
	a.work.add("datapath", a.cfg.Datapath.Run)
	a.work.add("map", e.workMap)
	a.work.add("publish", e.workStore)
	for range acquirers {
		a.work.add("allocate", e.workIdentities)
	}
	a.work.add("mirror", func(ctx context.Context) error { return a.mirror.Run(ctx, (*follower)(a)) })
	a.work.add("session", a.converse)
	a.work.add("tick", a.tick)
	a.work.add("checkpoint", a.saver.run)
	a.work.start()
	main.add("work", func(context.Context) error { return a.work.wait() })
	main.add("presence", func(ctx context.Context) error { a.presence.Run(ctx, a.presenceChanged); return nil })
	main.add("socket", a.serve)
	main.add("leave", func(ctx context.Context) error {
		select {
		case <-a.left:
			cancel()
		case <-ctx.Done():
		}
		return nil
	})
	main.start()
	return main.wait()
}

// presenceChanged tries anew what an operator refused for want of a presence.
func (a *Agent) presenceChanged(s kvstore.PresenceStatus) {
	if !s.Present {
		return
	}
	a.presentOnce.Do(func() { close(a.present) })
	a.engine.update(a.engine.table.kick)
}

// converse keeps the session open once there is a presence, which an operator
// asks for. A refusal for good is tried again too, for an operator of another
// version or another certificate may come.
func (a *Agent) converse(ctx context.Context) error {
	select {
	case <-a.present:
	case <-ctx.Done():
		return nil
	}
	for {
		err := a.session.Run(ctx)
		if ctx.Err() != nil {
			return nil
		}
		a.lost(err)
		a.cfg.Logger.Error("the operator refuses the session", "error", err)
		sleep(ctx, retrySlowFirst)
	}
}

// Leave takes the node out for good: the maps are removed, then everything it
// holds is released, then presence and checkpoint go. Run returns afterwards.
// If it fails, it can be called again; the agent does no other work meanwhile.
func (a *Agent) Leave(ctx context.Context) (references, addresses uint32, err error) {
	a.leave.Lock()
	defer a.leave.Unlock()
	if err := refuseLeft(a.left); err != nil {
		return 0, 0, err
	}
	select {
	case <-a.ready:
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	a.engine.stop()
	a.work.cancel()
	if err := a.work.wait(); err != nil {
		a.cfg.Logger.Warn("work had failed before the leave", "error", err)
	}
	if !a.unmapped {
		if err := a.cfg.Datapath.Destroy(); err != nil {
			return 0, 0, fmt.Errorf("the maps cannot be removed, so nothing was released: %w", err)
		}
		a.unmapped = true
	}
	resp, err := a.cfg.Client.Leave(ctx, a.cfg.Node, a.dir.instance)
	if err != nil {
		return 0, 0, err
	}
	if err := a.presence.Leave(ctx); err != nil {
		a.cfg.Logger.Warn("the presence is left to lapse", "error", err)
	}
	err = os.Remove(filepath.Join(a.cfg.StateDir, checkpointFile))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	close(a.left)
	return resp.GetReferences(), resp.GetAddresses(), err
}

func refuseLeft(left <-chan struct{}) error {
	select {
	case <-left:
		return refuse(allocator.FailedPrecondition, "node", "the node has left")
	default:
		return nil
	}
}

func (a *Agent) writeCheckpoint() error {
	e := a.engine
	e.mu.Lock()
	cp := e.table.checkpoint()
	cp.Position = e.view.position
	e.mu.Unlock()
	cp.Cluster, cp.Node, cp.Instance = a.cfg.Layout.Cluster(), a.cfg.Node, a.dir.instance
	data, err := json.Marshal(cp)
	if err != nil {
		return err
	}
	return writeFile(a.saver.file, data)
}

// adoptAll pins what the checkpoint says is held.
func (e *engine) adoptAll(cp *checkpoint) {
	for _, s := range cp.Sets {
		e.client.Adopt(mustSet(s.Text), s.Number, s.Hold)
	}
}

func parseText(text string) (labels.Set, error) { return labels.ParseText(text) }

// position is where the view stands, as it goes over the wire.
func (e *engine) position() *signetv1.Position {
	e.mu.Lock()
	defer e.mu.Unlock()
	return positionOut(e.view.position)
}

func positionOut(p allocator.Position) *signetv1.Position {
	return &signetv1.Position{Nonce: p.Nonce, Counter: p.Counter, Revision: p.Revision}
}
