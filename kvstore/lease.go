// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"errors"
	"time"
)

// keeper is the part of Election and Presence that keeps one lease alive.
//
// What counts is when the last renewal that was *answered* had been *sent*:
// the store's countdown began after that moment, so the lease lives at least
// until sent + ttl by a clock that runs as fast as the store's.
type keeper struct {
	id      int64 // 0: no lease
	ttl     time.Duration
	renewed time.Duration            // when the last answered renewal was sent
	next    time.Duration            // when the next renewal is due
	flying  map[uint64]time.Duration // renewals in flight and when they were sent
}

// hold begins to keep lease id, granted by a call sent at sent.
func hold(id int64, ttl, sent time.Duration) keeper {
	return keeper{id: id, ttl: ttl, renewed: sent, next: sent + ttl/3, flying: map[uint64]time.Duration{}}
}

// end is the moment from which the lease may be over.
func (k *keeper) end() time.Duration { return k.renewed + k.ttl }

// drive sends a renewal when one is due: every ttl/3, whatever became of the one before.
func (k *keeper) drive(now time.Duration, c *calls) {
	if k.id == 0 || now < k.next {
		return
	}
	id := c.send(Call{Kind: CallKeepAlive, Lease: k.id, Timeout: k.ttl / 3})
	k.flying[id] = now
	k.next = now + k.ttl/3
	for id, sent := range k.flying {
		if now-sent > k.ttl {
			delete(k.flying, id)
		}
	}
}

// answer takes a renewal's answer. mine says that it was one, gone that the
// store does not know the lease. An error is no loss: it is tried again soon.
func (k *keeper) answer(now time.Duration, a Answer) (mine, gone bool) {
	sent, mine := k.flying[a.ID]
	if !mine {
		return false, false
	}
	delete(k.flying, a.ID)
	switch {
	case errors.Is(a.Err, ErrLeaseNotFound), a.Err == nil && a.TTL <= 0:
		return true, true
	case a.Err != nil:
		k.next = min(k.next, now+k.ttl/10)
	case sent > k.renewed:
		k.renewed = sent
		k.ttl = min(k.ttl, a.TTL)
	}
	return true, false
}

func (k *keeper) wake() time.Duration {
	if k.id == 0 {
		return Never
	}
	return k.next
}

// revoker gives leases back: each revocation is repeated until it is answered,
// or until the lease has lapsed by itself.
type revoker struct {
	leaving []leaving
}

type leaving struct {
	lease int64
	until time.Duration // the lease has lapsed by then
	next  time.Duration // when to try (again)
	every time.Duration
	call  uint64
}

func (r *revoker) add(now time.Duration, lease int64, ttl time.Duration) {
	r.leaving = append(r.leaving, leaving{lease: lease, until: now + ttl, next: now, every: max(ttl/10, 100*time.Millisecond)})
}

func (r *revoker) drive(now time.Duration, c *calls) {
	keep := r.leaving[:0]
	for _, l := range r.leaving {
		if now >= l.until {
			continue
		}
		if now >= l.next {
			l.call = c.send(Call{Kind: CallRevoke, Lease: l.lease, Timeout: l.every})
			l.next = now + 2*l.every // in case no answer comes at all
		}
		keep = append(keep, l)
	}
	r.leaving = keep
}

func (r *revoker) answer(now time.Duration, a Answer) (mine bool) {
	for i := range r.leaving {
		l := &r.leaving[i]
		if l.call != a.ID {
			continue
		}
		if a.Err == nil || errors.Is(a.Err, ErrLeaseNotFound) {
			r.leaving = append(r.leaving[:i], r.leaving[i+1:]...)
		} else {
			l.call, l.next = 0, now+l.every
		}
		return true
	}
	return false
}

func (r *revoker) idle() bool { return len(r.leaving) == 0 }

func (r *revoker) wake() time.Duration {
	wake := Never
	for _, l := range r.leaving {
		wake = min(wake, l.next, l.until)
	}
	return wake
}
