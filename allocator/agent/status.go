// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/signet-identity/signet/kvstore"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// silence is from when a loop without a success is a finding.
const silence = 30 * time.Second

// loop is one loop of the agent with the age of its last success; -1: none yet.
type loop struct {
	name string
	age  time.Duration
	err  error
}

// loops are all loops, sorted by name.
func (a *Agent) loops() []loop {
	now := a.cfg.Now()
	since := func(t time.Time) time.Duration {
		if t.IsZero() {
			return -1
		}
		return max(0, now.Sub(t))
	}
	m, p, d := a.mirror.Status(), a.presence.Status(), a.cfg.Datapath.Status()
	watch := loop{name: "watch", age: m.Age(), err: m.Err}
	if m.Applied == 0 {
		watch.age = -1
	}
	presence := loop{name: "presence", age: p.Age, err: p.Err}
	if p.Grants == 0 {
		presence.age = -1
	}
	saved, saveErr := a.saver.status()
	a.sessions.mu.Lock()
	defer a.sessions.mu.Unlock()
	session := loop{name: "session", age: since(a.sessions.alive), err: a.sessions.err}
	reconcile := loop{name: "reconcile", age: since(d.LastSuccess)}
	if d.LastError != "" && d.Failing > 0 {
		reconcile.err = errors.New(d.LastError)
	}
	return []loop{{name: "checkpoint", age: since(saved), err: saveErr}, presence, reconcile, session, watch}
}

// AgentStatus implements signetv1.EndpointServiceServer.
func (s *endpointService) AgentStatus(context.Context, *signetv1.AgentStatusRequest) (*signetv1.AgentStatusResponse, error) {
	return s.a.status(), nil
}

func (a *Agent) status() *signetv1.AgentStatusResponse {
	d, p := a.cfg.Datapath.Status(), a.presence.Status()
	resp := &signetv1.AgentStatusResponse{
		Version: a.cfg.Version, Node: a.cfg.Node, Instance: a.dir.instance,
		Datapath: d.Kind, DatapathDetail: d.Detail, IpcacheEntries: uint32(d.Entries), IpcacheWanted: uint32(d.Wanted),
		IpcacheCapacity: uint32(d.Capacity), IpcachePending: uint32(d.Pending), Lineage: a.engine.position(),
	}
	if p.Lease != 0 {
		resp.PresenceLease = strconv.FormatInt(p.Lease, 16)
	}
	for _, l := range a.loops() {
		out := &signetv1.LoopStatus{Name: l.name, LastSuccessMs: -1}
		if l.age >= 0 {
			out.LastSuccessMs = l.age.Milliseconds()
		}
		if l.err != nil {
			out.Error = l.err.Error()
		}
		resp.Loops = append(resp.Loops, out)
	}
	e := a.engine
	e.mu.Lock()
	resp.Endpoints = uint32(len(e.table.endpoints))
	resp.Refusals = maps.Clone(e.stats.refusals)
	synced := e.synced
	e.mu.Unlock()
	resp.Findings = a.findings(p, d)
	a.sessions.mu.Lock()
	resp.Ready = synced && p.Present && a.sessions.connected
	a.sessions.mu.Unlock()
	return resp
}

// findings lists what is not as it should be, worst last.
func (a *Agent) findings(p kvstore.PresenceStatus, d DatapathStatus) []*signetv1.Finding {
	var out []*signetv1.Finding
	add := func(code string, severity signetv1.Severity, object, action, text string, args ...any) {
		out = append(out, &signetv1.Finding{Code: code, Severity: severity, Object: object, Action: action, Text: fmt.Sprintf(text, args...)})
	}
	a.nodeFindings(p, d, add)
	a.storeFindings(add)
	a.endpointFindings(add)
	slices.SortStableFunc(out, func(x, y *signetv1.Finding) int { return int(x.Severity) - int(y.Severity) })
	return out
}

const (
	info    = signetv1.Severity_SEVERITY_INFO
	warning = signetv1.Severity_SEVERITY_WARNING
	failed  = signetv1.Severity_SEVERITY_ERROR
)

type addFinding func(code string, severity signetv1.Severity, object, action, text string, args ...any)

func (a *Agent) nodeFindings(p kvstore.PresenceStatus, d DatapathStatus, add addFinding) {
	switch {
	case errors.Is(p.Err, kvstore.ErrNodeTaken):
		add(codeTaken, failed, a.cfg.Node, "stop the other agent, or wait until its presence has lapsed", "%v", p.Err)
	case !p.Present:
		add("PRESENCE-MISSING", warning, a.cfg.Node, "see whether the store answers; the presence comes back by itself",
			"the node's presence does not stand (%s): %v", p.State, p.Err)
	}
	a.sessions.mu.Lock()
	connected, err, recovery := a.sessions.connected, a.sessions.err, a.sessions.recovery
	a.sessions.mu.Unlock()
	if !connected && p.Present {
		add("OPERATOR-AWAY", warning, "session", "see whether an operator leads; what this node holds stays in force",
			"no operator answers: %v", err)
	} else if connected && recovery {
		add("RECOVERY", warning, a.cfg.Layout.Cluster(), "wait until the operator has ended its recovery window", "the cluster recovers from a restore")
	}
	if _, err := a.saver.status(); err != nil {
		add("CHECKPOINT-FAILING", failed, a.saver.file, "free space or mend the file system; a restart would lose endpoints",
			"the checkpoint cannot be written: %v", err)
	}
	if d.Failing > 0 {
		add("MAP-FAILING", failed, d.Kind, "make the map larger or remove endpoints; the entries are tried again by themselves",
			"%d of %d entries are not in the address map: %s", d.Failing, d.Wanted, d.LastError)
	}
}

func (a *Agent) storeFindings(add addFinding) {
	m := a.mirror.Status()
	if m.Applied > 0 && m.Age() > silence {
		add("STORE-SILENT", warning, "watch", "see whether the store answers; entries stay as they are", "the store was not heard of for %v: %v", m.Age().Round(time.Second), m.Err)
	}
	e := a.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.synced {
		add("NOT-SYNCED", info, "watch", "wait; nothing is removed from the map until then", "the store has not been listed yet")
	}
	if e.view.restored {
		add("STORE-RESTORED", warning, a.cfg.Layout.Cluster(), "wait until the operator has recovered", "the store was restored; addresses that it does not name are kept for now")
	}
	if n := len(e.view.malformed); n > 0 {
		key := slices.Min(slices.Collect(maps.Keys(e.view.malformed)))
		add("STORE-MALFORMED", warning, key, "repair or delete the key", "%d keys are malformed and skipped; the first: %s", n, e.view.malformed[key])
	}
	if n := e.view.dead; n > 0 {
		add("REMOTE-NUMBERS-DEAD", info, "ipcache", "nothing here; the nodes that publish them take new numbers by themselves",
			"%d addresses of other nodes have dead numbers and are denied", n)
	}
	if n := e.stats.dpErrors; n > 0 {
		add("MAP-REFUSED", warning, "ipcache", "see the agent's log for the addresses", "the datapath refused %d entries of the store", n)
	}
}

func (a *Agent) endpointFindings(add addFinding) {
	e := a.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(e.since)) {
		ep := e.table.endpoints[id]
		if ep == nil || ep.view == nil {
			continue
		}
		waited := e.now().Sub(e.since[id]).Round(time.Second)
		switch {
		case ep.view.State == StateFailed:
			add("ENDPOINT-FAILED", failed, id, "put it right and put the endpoint again", "%s", ep.view.Reason)
		case waited >= a.cfg.WaitLimit:
			add("ENDPOINT-WAITING", warning, id, "see the reason; it goes on by itself", "it has waited for %v: %s", waited, ep.view.Reason)
		}
	}
	if dead := e.table.deadAddresses(); len(dead) > 0 {
		a := e.table.addresses[dead[0]]
		add("ENDPOINT-NUMBER-DEAD", failed, a.owner.id, "see why the operator gives no new number; it is asked by itself",
			"%d addresses of this node's endpoints are denied because their number is dead; the first: %s of endpoint %s, number %d",
			len(dead), dead[0], a.owner.id, a.mapped.number)
	}
	for _, at := range slices.SortedFunc(maps.Keys(e.table.addresses), netip.Addr.Compare) {
		if addr := e.table.addresses[at]; addr.rival != "" && addr.owner != nil {
			add("ADDRESS-CLAIMED", warning, at.String(), "delete the endpoint here, or the other one",
				"endpoint %s has the address, and %s has claimed it since", addr.owner.id, addr.rival)
		}
	}
}
