// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/kvstore"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// snapshot is what status and metrics show of the loop's state.
type snapshot struct {
	at        time.Time
	listed    bool
	serving   bool
	numbers   allocator.Numbers
	sweep     allocator.SweepState
	sweptAge  time.Duration // -1: no sweep in this term
	stats     allocator.Stats
	commit    commitState
	position  allocator.Position
	waiting   int
	present   int
	gone      []allocator.NodeInfo
	addresses int
	malformed map[string]string
	wentBack  *kvstore.WentBack
	recovery  *allocator.Recovery
	conflicts []allocator.Conflict
	blockers  []allocator.Blocker
}

type commitState struct {
	transactions, ops, barriers, splits, overtaken, stale, unknown uint64
	queued                                                         int
	age                                                            time.Duration // of the last committed transaction; -1: none
	barrier                                                        uint64        // count in force
}

// publishEvery bounds how often the loop counts its state for status.
const publishEvery = 500 * time.Millisecond

// refresh renews the snapshot, unless the last one is young.
func (o *Operator) refresh() {
	if last := o.snap.Load(); time.Since(last.at) >= publishEvery || last.serving != o.core.Serving() {
		o.publish()
	}
}

// publish makes a new snapshot.
func (o *Operator) publish() {
	cs := o.commit.Stats()
	s := &snapshot{
		at: time.Now(), listed: o.isListed, serving: o.core.Serving(), numbers: o.core.Numbers(),
		sweep: o.core.SweepState(), sweptAge: -1, stats: o.core.Stats(), position: o.core.Position(),
		waiting: o.core.Waiting(), addresses: o.core.AddressCount(), malformed: maps.Clone(o.malformed),
		wentBack: o.wentBack, blockers: o.core.Blockers(), recovery: o.core.Recovery(), conflicts: o.core.Conflicts(),
		commit: commitState{transactions: cs.Transactions, ops: cs.Ops, barriers: cs.Barriers, splits: cs.Splits,
			overtaken: cs.Overtaken, stale: cs.StaleWritesRejected, unknown: cs.Unknown, queued: o.commit.Queued(),
			age: -1, barrier: o.commit.Fence().Count},
	}
	if s.sweep.Swept {
		s.sweptAge = o.now() - s.sweep.LastSweep
	}
	if !o.lastWork.IsZero() {
		s.commit.age = time.Since(o.lastWork)
	}
	for _, n := range o.core.Nodes() {
		if n.Presence != nil {
			s.present++
		} else {
			s.gone = append(s.gone, n)
		}
	}
	o.snap.Store(s)
}

// Status is one screen: what runs, what is wrong.
func (o *Operator) Status(ctx context.Context) (*signetv1.StatusResponse, error) {
	if err := o.ask(ctx, o.publish); err != nil {
		return nil, stopped(err)
	}
	s, m, e := o.snap.Load(), o.mirror.Status(), o.election.Status()
	space := o.Space()
	out := &signetv1.StatusResponse{
		Version: o.cfg.Version, Replica: o.cfg.Replica, Ready: o.Ready(),
		Cluster: &signetv1.ClusterInfo{Name: space.ClusterName, Id: space.ClusterID, MaxConnectedClusters: space.MaxConnectedClusters,
			LocalBits: uint32(space.LocalBits()), Min: uint32(space.Min()), Max: uint32(space.Max())},
		Store: &signetv1.StoreStatus{Endpoints: o.cfg.Endpoints, Applied: m.Applied, Head: m.Head,
			Malformed: uint64(len(s.malformed)), Relists: m.Relists},
		Election: &signetv1.ElectionStatus{Role: role(e), Leader: e.Leader.Who, LeaderAddress: e.Leader.Address,
			Epoch: e.Fence.Epoch, Barriers: s.commit.barriers, StaleWritesRejected: s.commit.stale},
		Numbers: &signetv1.NumberStatus{Live: s.numbers.Live, Idle: s.numbers.Idle, Quarantined: s.numbers.Quarantined,
			Free: s.numbers.Free, Capacity: s.numbers.Capacity, References: s.numbers.References},
		Sweep:        o.sweepStatus(s),
		NodesPresent: uint32(s.present), NodesGone: uint32(len(s.gone)), Addresses: uint32(s.addresses),
		Loops: o.loops(s, m, e), Refusals: s.stats.Refusals, Lineage: position(s.position),
	}
	out.Findings = o.findings(s, m, e)
	return out, nil
}

func role(e kvstore.ElectionStatus) string {
	switch {
	case e.Role == kvstore.RoleLeader:
		return "leader"
	case e.Lease != 0:
		return "candidate"
	}
	return "follower"
}

func position(p allocator.Position) *signetv1.Position {
	return &signetv1.Position{Nonce: p.Nonce, Counter: p.Counter, Revision: p.Revision}
}

func (o *Operator) sweepStatus(s *snapshot) *signetv1.SweepStatus {
	return &signetv1.SweepStatus{
		MarkedIdle: s.stats.MarkedIdle, Collected: s.stats.Collected, PurgedReferences: s.stats.PurgedReferences,
		PurgedAddresses: s.stats.PurgedAddresses, NodesMarkedGone: s.stats.MarkedGone,
		IdleWaiting: uint64(s.sweep.IdleWaiting), GoneWaiting: uint64(s.sweep.GoneWaiting),
		LastSuccessMs: millis(s.sweptAge), ServedS: int64(s.sweep.Served / time.Second),
		NodeGraceS: seconds(o.cfg.Core.NodeGrace), IdentityGraceS: seconds(s.sweep.IdentityGrace), QuarantineS: seconds(o.cfg.Core.Quarantine),
	}
}

func millis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// loops are the loops of this replica with the age of their last success.
func (o *Operator) loops(s *snapshot, m kvstore.MirrorStatus, e kvstore.ElectionStatus) []*signetv1.LoopStatus {
	out := []*signetv1.LoopStatus{
		{Name: "watch", LastSuccessMs: millis(m.Age()), Error: text(m.Err)},
		{Name: "election", LastSuccessMs: millis(e.Age)},
	}
	if e.Role == kvstore.RoleLeader {
		out = append(out,
			&signetv1.LoopStatus{Name: "commit", LastSuccessMs: millis(s.commit.age)},
			&signetv1.LoopStatus{Name: "sweep", LastSuccessMs: millis(s.sweptAge)})
	}
	return out
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Limits after which a loop's silence is a finding.
const (
	watchSilence    = 30 * time.Second
	minSweepSilence = 10 * time.Second
	minOverdue      = time.Minute
)

// findings lists what is not as it should be, worst last.
func (o *Operator) findings(s *snapshot, m kvstore.MirrorStatus, e kvstore.ElectionStatus) []*signetv1.Finding {
	var out []*signetv1.Finding
	add := func(sev signetv1.Severity, code, object, text, action string) {
		out = append(out, &signetv1.Finding{Code: code, Severity: sev, Object: object, Text: text, Action: action})
	}
	const info, warning, bad = signetv1.Severity_SEVERITY_INFO, signetv1.Severity_SEVERITY_WARNING, signetv1.Severity_SEVERITY_ERROR
	for _, n := range s.gone {
		add(info, "NODE-GONE", n.Name, fmt.Sprintf("the node's presence vanished at served second %d; it still holds %d references and %d addresses",
			n.GoneSince.ServedS, n.References, n.Addresses), "bring its agent back, or wait: after the node grace what it holds is removed")
	}
	for _, b := range s.blockers {
		action := "see whether its agent reaches an operator: signet node list"
		if b.Gone {
			action = "bring it back, or forget it: signet node forget " + b.Node
		}
		add(warning, "REUSE-BLOCKED", b.Node, fmt.Sprintf("freed numbers wait for this node: it has acknowledged revision %d", b.Acked), action)
	}
	shown, vital := o.malformedKeys(s.malformed)
	for _, key := range shown {
		add(warning, "MALFORMED-KEY", key, s.malformed[key], "find out who wrote it; signet skips it until it is repaired or deleted")
	}
	if rest := len(s.malformed) - len(shown) - len(vital); rest > 0 {
		add(warning, "MALFORMED-KEY", "store", fmt.Sprintf("%d more keys are malformed", rest), "list them all with: signet check")
	}
	if e.OtherTTL > 0 {
		add(warning, "ELECTION-TTL-DIFFERS", o.cfg.Replica, fmt.Sprintf("%d candidates have another election TTL than this one", e.OtherTTL),
			"give every operator the same --election-ttl")
	}
	if used := s.numbers.Capacity - s.numbers.Free; s.numbers.Capacity > 0 && used*100 >= s.numbers.Capacity*80 {
		sev := warning
		if used >= s.numbers.Capacity {
			sev = bad
		}
		add(sev, "NUMBERS-SHORT", o.Space().ClusterName, fmt.Sprintf("%d of %d numbers are in use or in quarantine", used, s.numbers.Capacity),
			"exclude label keys that differ from pod to pod; see which with: signet identity list")
	}
	if e.Age > o.cfg.Core.ElectionTTL {
		add(bad, "STORE-AWAY", "store", fmt.Sprintf("etcd has not answered the election for %s; nothing can be allocated or freed", e.Age.Round(time.Second)),
			"check etcd and the network to it; operators go on by themselves")
	}
	if m.Age() > watchSilence {
		add(bad, "WATCH-SILENT", "watch", fmt.Sprintf("the store has said nothing for %s", m.Age().Round(time.Second)), "check etcd and the network to it")
	}
	if silence := 3 * o.cfg.Core.SweepInterval; s.serving && s.sweptAge > max(silence, minSweepSilence) {
		add(bad, "SWEEP-SILENT", "sweep", fmt.Sprintf("no sweep has come to its end for %s; %d identities and %d nodes wait",
			s.sweptAge.Round(time.Second), s.sweep.IdleWaiting, s.sweep.GoneWaiting), "check that etcd takes writes; unused numbers are not freed meanwhile")
	}
	switch {
	case s.sweep.Paused != nil:
		add(warning, "SWEEP-PAUSED", "sweep", "the collection is "+s.sweep.Brake, "let it go on with: signet gc resume")
	case s.sweep.Brake != "":
		add(bad, "SWEEP-BRAKED", "sweep", "the collection stopped itself: "+s.sweep.Brake,
			"find out why so much went at once (signet gc plan); let it go with: signet gc run --release-brake")
	}
	if s.sweep.Overdue > max(minOverdue, 10*o.cfg.Core.SweepInterval) {
		add(bad, "SWEEP-STUCK", "sweep", fmt.Sprintf("something has been due for %s and is not collected", s.sweep.Overdue), "see why with: signet gc plan")
	}
	for _, key := range vital {
		add(bad, "RECORD-MALFORMED", key, s.malformed[key]+"; no operator can begin a term, or count served time, while it stands",
			"put its value back; if that is lost, delete the key, and a recovery window puts things right")
	}
	switch {
	case e.Stray != "":
		add(bad, "ELECTION-BLOCKED", e.Stray, "no candidate put this key: it has no lease, and nobody can lead while it is the oldest", "delete it: etcdctl del "+e.Stray)
	case e.Leader.Who == "":
		add(bad, "NO-LEADER", o.Space().ClusterName, "no operator leads; nothing can be allocated", "check that an operator runs and reaches etcd")
	}
	for _, k := range s.conflicts {
		add(warning, "RECOVERY-CONFLICT", k.Number.String(), fmt.Sprintf("%s and %s claimed the number; %s keeps it", k.Winner, k.Loser, k.Winner),
			"nothing: the other label set moves to another number, make before break")
	}
	if s.recovery != nil {
		add(bad, "RECOVERY", "store", s.recovery.Reason+"; a recovery window is open: known label sets are served, nothing is collected, new ones wait",
			"wait until the nodes have said what they hold; the window ends by itself")
	}
	if s.wentBack != nil {
		add(bad, "STORE-WENT-BACK", "store", fmt.Sprintf("the store's revision went back from %d to %d: it was restored from an older copy", s.wentBack.Have, s.wentBack.Seen),
			"nothing: it is listed anew, and a recovery window opens")
	}
	return out
}

// maxMalformed bounds the malformed keys that status names one by one.
const maxMalformed = 20

// malformedKeys lists the malformed keys to name, and apart from them those of
// the records that a term stands on.
func (o *Operator) malformedKeys(malformed map[string]string) (shown, vital []string) {
	for _, key := range slices.Sorted(maps.Keys(malformed)) {
		k, err := o.cfg.Layout.Parse(key)
		switch {
		case err == nil && slices.Contains([]allocator.Key{allocator.LineageKey(), allocator.ClusterKey(), allocator.RecoveryKey()}, k):
			vital = append(vital, key)
		case len(shown) < maxMalformed:
			shown = append(shown, key)
		}
	}
	return shown, vital
}
