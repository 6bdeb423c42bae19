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
	served   chan struct{} // closed once the socket is served
	ready    chan struct{} // closed once the node's presence was the agent's own besides

	notes       *presenceNotes
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
	a := &Agent{cfg: cfg, left: make(chan struct{}), served: make(chan struct{}), ready: make(chan struct{}), present: make(chan struct{}), health: health.NewServer()}
	a.notes = &presenceNotes{log: cfg.Logger, node: cfg.Node, ttl: cfg.PresenceTTL, now: cfg.Now}
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
		callTime: a.cfg.CallTimeout, now: a.cfg.Now, saver: a.saver, rehello: func() {}, gate: newGate(), trusted: a.restored != nil,
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
	e.table.taken = e.view.takenBy
	e.table.suspend("the node's presence does not stand in the store yet")
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

// Ready is closed once the socket is served and the node's presence is this
// agent's own. It stays open while another instance has the node's name.
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
	a.work.run("datapath", a.cfg.Datapath.Run)
	a.work.run("map", e.workMap)
	a.work.run("publish", e.workStore)
	for range acquirers {
		a.work.run("allocate", e.workIdentities)
	}
	a.work.run("mirror", func(ctx context.Context) error { return a.mirror.Run(ctx, (*follower)(a)) })
	a.work.run("session", a.converse)
	a.work.run("tick", a.tick)
	a.work.run("checkpoint", a.saver.run)
	main.run("work", func(context.Context) error { return a.work.Wait() })
	main.run("presence", func(ctx context.Context) error { a.presence.Run(ctx, a.presenceChanged); return nil })
	main.run("socket", a.serve)
	main.run("ready", a.announceReady)
	main.run("leave", func(ctx context.Context) error {
		select {
		case <-a.left:
			cancel()
		case <-ctx.Done():
		}
		return nil
	})
	return main.Wait()
}

// announceReady closes ready when its conditions hold.
func (a *Agent) announceReady(ctx context.Context) error {
	for _, done := range []chan struct{}{a.served, a.present} {
		select {
		case <-done:
		case <-ctx.Done():
			return nil
		}
	}
	close(a.ready)
	return nil
}

// errNoPresence is why there is no session while the presence is not the agent's.
var errNoPresence = errors.New("the session waits for the node's presence")

// converse keeps the session open while the presence is the agent's own. A
// refusal for good is tried again too, for an operator of another version or
// another certificate may come.
func (a *Agent) converse(ctx context.Context) error {
	for a.engine.gate.wait(ctx) == nil {
		open, cancel, ok := a.engine.gate.through(ctx)
		if !ok {
			continue
		}
		err := a.session.Run(open)
		closed := open.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case closed:
			a.lost(errNoPresence)
		default:
			a.lost(err)
			a.cfg.Logger.Error("the operator refuses the session", "error", err)
			sleep(ctx, retrySlowFirst)
		}
	}
	return nil
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
	case <-a.served:
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	if err := a.mayLeave(ctx); err != nil {
		return 0, 0, err
	}
	a.engine.stop()
	a.work.cancel()
	if err := a.work.Wait(); err != nil {
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

// mayLeave refuses while another instance has the node's name, and waits for
// a presence that is merely away.
func (a *Agent) mayLeave(ctx context.Context) error {
	if s := a.presence.Status(); errors.Is(s.Err, kvstore.ErrNodeTaken) {
		return refuse(allocator.FailedPrecondition, "node", "%s; what the node holds is the other agent's: just stop this one", absence(s))
	}
	if a.engine.gate.wait(ctx) != nil {
		return refuse(allocator.Unavailable, "node", "nothing was released: %s", absence(a.presence.Status()))
	}
	return nil
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
