// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/signet-identity/signet/allocator"
)

// leaveLimit bounds how long a Leave tries to give the lease back.
const leaveLimit = 5 * time.Second

// Step takes the answer to a call at time now.
func (p *Presence) Step(now time.Duration, a Answer) {
	if p.state == presenceLeft {
		return
	}
	p.check(now)
	p.answer(now, a)
	p.drive(now)
}

// Tick lets time act.
func (p *Presence) Tick(now time.Duration) {
	p.check(now)
	p.drive(now)
}

// Update changes what the key says; the instance stays as it was.
func (p *Presence) Update(now time.Duration, v allocator.Presence) {
	v.Instance = p.cfg.Value.Instance
	p.setValue(v)
	switch p.state {
	case presencePresent:
		p.seen = p.mod
		p.enter(presencePutting, now, p.err)
	case presencePutting: // a put in flight has the old value: read what became of it
		p.request = pending{}
		p.enter(presenceReading, now, p.err)
	}
	p.drive(now)
}

// Leave removes the key for good by revoking its lease. If that fails for 5 s,
// the lease is left to lapse.
func (p *Presence) Leave(now time.Duration) {
	if p.state == presenceLeaving || p.state == presenceLeft {
		return
	}
	granting := p.state == presenceGranting
	if !granting {
		p.request = pending{}
	}
	p.release(now)
	p.enter(presenceLeaving, now+leaveLimit, nil)
	p.drive(now)
}

// Ready takes what is to be done since the last Ready.
func (p *Presence) Ready() PresenceReady {
	r := PresenceReady{Calls: p.take(), Changed: p.changed, Wake: p.wake(), Stopped: p.state == presenceLeft}
	p.changed = false
	return r
}

func (p *Presence) wake() time.Duration {
	wake := min(p.request.wake(), p.revokes.wake(), p.audit.wake())
	switch p.state {
	case presenceLeft:
		return Never
	case presenceLeaving:
		return min(wake, p.at)
	case presencePresent:
		if p.audit.id == 0 {
			wake = min(wake, p.next)
		}
	case presenceGranting:
		if p.request.id == 0 {
			wake = min(wake, p.grantAt())
		}
	default:
		if p.request.id == 0 {
			wake = min(wake, p.at)
		}
	}
	if p.lease.id != 0 {
		wake = min(wake, p.lease.wake(), p.lease.end())
	}
	return wake
}

func (p *Presence) grantAt() time.Duration {
	if !p.granted {
		return p.at
	}
	return max(p.at, p.lastGrant+grantEvery)
}

func (p *Presence) enter(s presenceState, at time.Duration, err error) {
	p.changed = p.changed || s != p.state || (err == nil) != (p.err == nil)
	p.state, p.at, p.err = s, at, err
}

// check applies the deadlines.
func (p *Presence) check(now time.Duration) {
	if p.request.silent(now) {
		p.failed(now, errSilent)
	}
	if p.audit.silent(now) {
		p.audit, p.next = pending{}, now+p.cfg.Retry
	}
	if p.lease.id != 0 && now >= p.lease.end() {
		p.lose(now, fmt.Sprintf("the lease was not renewed within its TTL of %v", p.cfg.TTL))
	}
	if p.state == presenceLeaving && now >= p.at {
		p.enter(presenceLeft, now, nil)
	}
}

// drive sends what is due in the present state.
func (p *Presence) drive(now time.Duration) {
	p.revokes.drive(now, &p.calls)
	p.lease.drive(now, &p.calls)
	free := p.request.id == 0
	switch p.state {
	case presenceReading, presenceRefused:
		if free && now >= p.at {
			p.request = p.ask(now, p.read())
		}
	case presenceGranting:
		if free && now >= p.grantAt() {
			p.lastGrant, p.granted = now, true
			p.request = p.ask(now, Call{Kind: CallGrant, TTL: p.cfg.TTL, Timeout: p.cfg.TTL / 3})
		}
	case presencePutting:
		if free && now >= p.at {
			p.request = p.ask(now, p.put())
		}
	case presencePresent:
		if p.audit.id == 0 && now >= p.next {
			p.audit = p.ask(now, p.read())
		}
		if p.watch == 0 {
			p.watch = p.send(Call{Kind: CallWatch, Watch: WatchRequest{Key: p.cfg.Key, Revision: p.mod + 1}})
		}
	case presenceLeaving:
		if free && p.revokes.idle() {
			p.enter(presenceLeft, now, nil)
		}
	}
}

func (p *Presence) read() Call {
	return Call{Kind: CallRange, Timeout: p.cfg.TTL / 3, Range: RangeRequest{Key: p.cfg.Key}}
}

func (p *Presence) put() Call {
	return Call{Kind: CallTxn, Timeout: p.cfg.TTL / 3, Txn: Txn{
		If:   []Compare{{Key: p.cfg.Key, Target: CompareMod, Op: '=', Revision: p.seen}},
		Then: []Action{{Put: true, Key: p.cfg.Key, Value: p.value, Lease: p.lease.id}},
		Else: []Action{{Key: p.cfg.Key}},
	}}
}

func (p *Presence) answer(now time.Duration, a Answer) {
	if mine, gone := p.lease.answer(now, a); mine {
		if gone {
			p.lose(now, "the store does not know the lease any more")
		} else if a.Err == nil {
			p.heard = p.lease.renewed
		}
		return
	}
	switch {
	case p.revokes.answer(now, a), a.ID == 0:
	case a.ID == p.watch:
		p.watched(now, a.Batch)
	case a.ID == p.audit.id:
		p.audit, p.next = pending{}, now+p.cfg.Audit
		if a.Err == nil {
			p.audited(now, a.Range)
		}
	case a.ID == p.request.id && a.Err != nil:
		p.failed(now, a.Err)
	case a.ID == p.request.id:
		sent := p.request.sent
		p.request = pending{}
		p.answered(now, a, sent)
	case a.Lease != 0: // granted after we had stopped waiting for it
		p.revokes.add(now, a.Lease, p.cfg.TTL)
	}
}

func (p *Presence) answered(now time.Duration, a Answer, sent time.Duration) {
	switch p.state {
	case presenceReading, presenceRefused:
		p.found(now, firstKV(a.Range.KVs))
	case presenceGranting:
		p.grants++
		p.lease = hold(a.Lease, p.cfg.TTL, sent)
		p.heard = sent
		p.enter(presencePutting, now, p.err)
	case presencePutting:
		if a.Txn.Succeeded {
			p.present(now, a.Txn.Revision)
		} else {
			p.found(now, onlyKV(a.Txn))
		}
	case presenceLeaving: // the grant that was in flight
		p.revokes.add(now, a.Lease, p.cfg.TTL)
	}
}

// failed takes the failure of a read, grant or put. A put may have landed all
// the same: what stands there is read before the next.
func (p *Presence) failed(now time.Duration, err error) {
	p.request = pending{}
	switch {
	case p.state == presenceLeaving:
	case errors.Is(err, ErrLeaseNotFound):
		p.lose(now, "the lease ended before the key was put")
	case p.state == presencePutting:
		p.enter(presenceReading, now+p.cfg.Retry, err)
	default:
		p.enter(p.state, now+p.cfg.Retry, err)
	}
}

// found decides by how the key stands what comes next.
func (p *Presence) found(now time.Duration, kv *KV) {
	switch v, ok := valueOf(kv); {
	case kv == nil:
		p.seen = 0
	case p.lease.id != 0 && kv.Lease == p.lease.id && string(kv.Value) == string(p.value):
		p.present(now, kv.ModRevision)
		return
	case kv.Lease != 0 && (!ok || v.Instance != p.cfg.Value.Instance):
		p.mod = 0
		p.release(now)
		p.enter(presenceRefused, now+p.cfg.Retry, &NodeTaken{Node: p.cfg.Value.Node, Instance: v.Instance})
		return
	default:
		p.seen = kv.ModRevision
	}
	if p.lease.id == 0 {
		p.enter(presenceGranting, now, p.err)
	} else {
		p.enter(presencePutting, now, p.err)
	}
}

func valueOf(kv *KV) (allocator.Presence, bool) {
	if kv == nil {
		return allocator.Presence{}, false
	}
	return presenceOf(*kv)
}

func firstKV(kvs []KV) *KV {
	if len(kvs) == 0 {
		return nil
	}
	return &kvs[0]
}

func (p *Presence) present(now time.Duration, mod int64) {
	p.cancel(p.watch) // the next one begins behind the own put
	p.mod, p.watch, p.audit, p.next = mod, 0, pending{}, now+p.cfg.Audit
	p.enter(presencePresent, now, nil)
}

// watched follows the own key. The end of the watch is no news of the key: a
// read tells, and the watch begins anew.
func (p *Presence) watched(now time.Duration, b WatchBatch) {
	if b.Err != nil {
		p.watch = 0
		if p.state == presencePresent {
			p.enter(presenceReading, now+p.cfg.Retry/10, nil)
		}
		return
	}
	if p.state != presencePresent {
		return
	}
	for _, ev := range b.Events {
		if ev.KV.ModRevision > p.mod {
			p.changedByOthers(now, ev)
			return
		}
	}
}

func (p *Presence) changedByOthers(now time.Duration, ev Event) {
	if ev.Delete {
		p.lose(now, "the key was deleted")
		return
	}
	p.lost++
	p.mod = 0
	p.found(now, &ev.KV)
}

// audited compares a read with what ought to stand there.
func (p *Presence) audited(now time.Duration, r RangeResult) {
	if p.state != presencePresent {
		return
	}
	switch kv := firstKV(r.KVs); {
	case kv == nil:
		p.lose(now, "the key is gone")
	case kv.ModRevision != p.mod:
		p.changedByOthers(now, Event{KV: *kv})
	}
}

// lose begins again after the key or its lease was lost.
func (p *Presence) lose(now time.Duration, reason string) {
	p.lost++
	p.release(now)
	if p.state == presenceLeaving || p.state == presenceLeft {
		return
	}
	p.request = pending{}
	p.enter(presenceReading, now, errors.New(reason))
}

// release gives the lease back, and with it what it keeps.
func (p *Presence) release(now time.Duration) {
	if p.lease.id != 0 {
		p.revokes.add(now, p.lease.id, p.cfg.TTL)
		p.changed = true
	}
	p.cancel(p.watch)
	p.lease, p.mod, p.watch, p.audit = keeper{}, 0, 0, pending{}
}
