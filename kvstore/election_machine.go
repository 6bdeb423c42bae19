// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/signet-identity/signet/allocator/commit"
)

// Step takes the answer to a call at time now.
func (e *Election) Step(now time.Duration, a Answer) {
	if e.state == electionStopped {
		return
	}
	e.check(now) // a deadline that has passed counts before news that came late
	if a.Err == nil && a.Batch.Err == nil {
		e.heard = now
	}
	e.answer(now, a)
	e.drive(now)
}

// Tick lets time act. It is due at the Wake of the last Ready, and harmless at any time.
func (e *Election) Tick(now time.Duration) {
	e.check(now)
	e.drive(now)
}

// Progress says that the owner, as leader, got something done.
func (e *Election) Progress(now time.Duration) { e.progress = now }

// Abandon ends the candidacy: the owner found itself deposed, its key foreign,
// or wants another to lead. The lease is given back at once; a new candidacy
// with a new lease follows after the pause.
func (e *Election) Abandon(now time.Duration, reason string) {
	switch e.state {
	case electionJoining, electionWaiting, electionLeading:
		e.drop(now, reason, e.pause())
		e.drive(now)
	}
}

// Resign ends the candidacy for good, and hands over at once: the lease is
// revoked, which deletes the own key. If that fails for ResignLimit, the lease
// is left to lapse.
func (e *Election) Resign(now time.Duration) {
	if e.state == electionResigning || e.state == electionStopped {
		return
	}
	e.drop(now, "resigned", 0)
	e.state, e.at = electionResigning, now+e.cfg.ResignLimit
	e.drive(now)
}

// Ready takes what is to be done since the last Ready.
func (e *Election) Ready() ElectionReady {
	r := ElectionReady{Changes: e.changes, Calls: e.take(), Wake: e.wake(), Stopped: e.state == electionStopped}
	e.changes = nil
	return r
}

func (e *Election) wake() time.Duration {
	wake := min(e.request.wake(), e.revokes.wake())
	switch e.state {
	case electionStopped:
		return Never
	case electionResigning:
		return min(wake, e.at)
	case electionPaused:
		return min(wake, e.view.wake(), e.grantAt())
	case electionLeading:
		wake = min(wake, e.leadsUntil())
		if e.cfg.ProgressLimit > 0 {
			wake = min(wake, e.progress+e.cfg.ProgressLimit)
		}
	case electionJoining:
		if e.request.id == 0 {
			wake = min(wake, e.at)
		}
		fallthrough
	case electionWaiting:
		wake = min(wake, e.lease.end())
	}
	return min(wake, e.view.wake(), e.lease.wake())
}

func (e *Election) leadsUntil() time.Duration { return e.lease.end() - e.cfg.Margin }

func (e *Election) grantAt() time.Duration {
	if !e.granted {
		return e.at
	}
	return max(e.at, e.lastGrant+grantEvery)
}

func (e *Election) pause() time.Duration {
	return e.cfg.Pause + time.Duration(e.rand.Float64()*float64(e.cfg.Pause)/4)
}

// check applies the deadlines.
func (e *Election) check(now time.Duration) {
	if e.request.silent(now) {
		e.failed(now, errSilent)
	}
	switch e.state {
	case electionLeading:
		if now >= e.leadsUntil() {
			e.drop(now, fmt.Sprintf("the lease was not renewed for %v of its %v", (now-e.lease.renewed).Round(time.Millisecond), e.cfg.TTL), e.pause())
		} else if limit := e.cfg.ProgressLimit; limit > 0 && now >= e.progress+limit {
			e.drop(now, fmt.Sprintf("no progress for %v", (now-e.progress).Round(time.Millisecond)), e.pause())
		}
	case electionJoining, electionWaiting:
		if now >= e.lease.end() {
			e.drop(now, fmt.Sprintf("the lease was not renewed within its TTL of %v", e.cfg.TTL), 0)
		}
	case electionResigning:
		if now >= e.at || e.request.id == 0 && e.revokes.idle() {
			e.state = electionStopped
		}
	}
}

// drive sends what is due in the present state.
func (e *Election) drive(now time.Duration) {
	e.revokes.drive(now, &e.calls)
	switch e.state {
	case electionStopped:
		return
	case electionResigning:
		if e.request.id == 0 && e.revokes.idle() {
			e.state = electionStopped
		}
		return
	case electionPaused:
		if now >= e.grantAt() {
			e.state, e.lastGrant, e.granted = electionGranting, now, true
			e.request = e.ask(now, Call{Kind: CallGrant, TTL: e.cfg.TTL, Timeout: e.cfg.TTL / 3})
		}
	case electionJoining:
		if e.request.id == 0 && now >= e.at {
			e.request = e.ask(now, e.join())
		}
	}
	e.lease.drive(now, &e.calls)
	e.view.drive(now, &e.calls)
}

// join puts the own key, create-only: sent twice it changes nothing.
func (e *Election) join() Call {
	return Call{Kind: CallTxn, Timeout: e.cfg.TTL / 3, Txn: Txn{
		If:   []Compare{{Key: e.key, Target: CompareCreate, Op: '='}},
		Then: []Action{{Put: true, Key: e.key, Value: e.value, Lease: e.lease.id}},
		Else: []Action{{Key: e.key}},
	}}
}

func (e *Election) answer(now time.Duration, a Answer) {
	if mine, gone := e.lease.answer(now, a); mine {
		if gone {
			e.drop(now, "the store does not know the lease any more", e.lossPause())
		}
		return
	}
	if e.revokes.answer(now, a) {
		return
	}
	if news := e.view.answer(now, a, &e.calls); news.mine {
		e.judge(now, news)
		return
	}
	if a.ID != e.request.id || a.ID == 0 {
		if a.Lease != 0 { // granted after we had stopped waiting for it
			e.revokes.add(now, a.Lease, e.cfg.TTL)
		}
		return
	}
	if a.Err != nil {
		e.failed(now, a.Err)
		return
	}
	sent := e.request.sent
	e.request = pending{}
	switch e.state {
	case electionGranting:
		e.hasLease(now, a.Lease, sent)
	case electionJoining:
		e.joined(now, a.Txn)
	case electionResigning: // the grant that was in flight
		e.revokes.add(now, a.Lease, e.cfg.TTL)
	}
}

// failed takes the failure of the grant or of the put. A put may have landed all
// the same, or land later; it is create-only and its key names the lease, so it
// is repeated as it is.
func (e *Election) failed(now time.Duration, err error) {
	e.request = pending{}
	e.at = now + max(e.cfg.TTL/10, 100*time.Millisecond)
	switch {
	case e.state == electionGranting:
		e.state = electionPaused
	case e.state == electionJoining && errors.Is(err, ErrLeaseNotFound):
		e.drop(now, "the lease ended before the own key was put", 0)
	}
}

func (e *Election) hasLease(now time.Duration, lease int64, sent time.Duration) {
	value, err := marshal(e.cfg.Candidate)
	if err != nil { // strings and numbers always marshal
		panic(err)
	}
	e.state, e.at = electionJoining, now
	e.lease = hold(lease, e.cfg.TTL, sent)
	e.key = e.cfg.Prefix + LeaseName(lease)
	e.value, e.create, e.mod = value, 0, 0
}

func (e *Election) joined(now time.Duration, r TxnResult) {
	switch own := onlyKV(r); {
	case r.Succeeded:
		e.create, e.mod = r.Revision, r.Revision
	case own != nil && own.Lease == e.lease.id && string(own.Value) == string(e.value):
		e.create, e.mod = own.CreateRevision, own.ModRevision
	default:
		e.drop(now, "the own key held something that was never put there", e.pause())
		return
	}
	e.state = electionWaiting
	e.view.want()
}

// onlyKV is the one key that a transaction's branch read, or nil.
func onlyKV(r TxnResult) *KV {
	for _, read := range r.Reads {
		if len(read) > 0 {
			return &read[0]
		}
	}
	return nil
}

// judge compares the view with what the own candidacy rests on.
func (e *Election) judge(now time.Duration, news viewNews) {
	if e.state != electionWaiting && e.state != electionLeading {
		return
	}
	if news.wentBack {
		e.drop(now, "the store's revision went back: it was restored", e.pause())
		return
	}
	if !news.changed || e.view.revision < e.create {
		return // of a time before the own key
	}
	own, there := e.view.keys[e.key]
	oldest, _ := e.view.oldest()
	switch {
	case !there:
		e.drop(now, "the own key is gone", e.lossPause())
	case own.CreateRevision != e.create || own.Lease != e.lease.id || own.ModRevision < e.mod:
		e.drop(now, "the own key is not the one that was put", e.lossPause())
	case e.state == electionLeading && oldest.Key != e.key:
		e.drop(now, "an older candidate's key is there: "+oldest.Key, e.lossPause())
	case e.state == electionWaiting && oldest.Key == e.key && news.listed:
		e.mod = own.ModRevision
		e.win(now, own)
	case e.state == electionWaiting && oldest.Key == e.key:
		e.mod = own.ModRevision
		e.view.want()
	default:
		e.mod = own.ModRevision
	}
}

// win begins a term on the evidence of a linearizable list, unless the lease is in doubt.
func (e *Election) win(now time.Duration, own KV) {
	if now >= e.leadsUntil() {
		return // the next list decides, once a renewal was answered
	}
	e.state, e.progress = electionLeading, now
	e.won++
	e.fence = commit.Fence{Lease: e.lease.id, Epoch: own.CreateRevision, Mod: own.ModRevision, Count: candidateOf(own).Barrier}
	e.changes = append(e.changes, RoleChange{Role: RoleLeader, Fence: e.fence})
}

// lossPause is the pause after a loss: none for a candidate that only waited.
func (e *Election) lossPause() time.Duration {
	if e.state == electionLeading {
		return e.pause()
	}
	return 0
}

// drop ends the candidacy: out of the role, the lease given back, no key.
func (e *Election) drop(now time.Duration, reason string, pause time.Duration) {
	if e.state == electionLeading {
		e.changes = append(e.changes, RoleChange{Role: RoleFollower, Fence: e.fence, Reason: reason})
	}
	if e.lease.id != 0 {
		e.lost++
		e.reason = reason
		e.revokes.add(now, e.lease.id, e.cfg.TTL)
	}
	if e.state != electionGranting { // Resign lets a grant in flight come in, to revoke it
		e.request = pending{}
	}
	e.lease, e.key, e.value, e.create, e.mod, e.fence = keeper{}, "", nil, 0, 0, commit.Fence{}
	e.state, e.at = electionPaused, now+pause
}
