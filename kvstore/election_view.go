// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"encoding/json"
	"time"

	"github.com/signet-identity/signet/allocator"
)

// electionView follows the keys under the election prefix. A linearizable list
// every third of the TTL is what it trusts; the watch only makes it quick, so a
// watch that is silently dead delays a hand-over and falsifies nothing.
type electionView struct {
	prefix string
	every  time.Duration

	keys     map[string]KV
	revision int64 // of keys; 0: nothing listed yet
	head     int64 // highest header revision seen

	list     pending
	headThen int64         // head when the list in flight was sent
	next     time.Duration // when the next list is due
	again    bool          // a list is wanted that begins after now
	watch    uint64
	stale    bool // the watch ended: list before watching again
}

// viewNews says what an answer changed in the view.
type viewNews struct {
	mine     bool // the answer was the view's
	changed  bool
	listed   bool // a linearizable list came in
	wentBack bool // the store's revision is lower than one seen before
}

// want asks for a fresh list, begun from now on.
func (v *electionView) want() { v.again = true }

func (v *electionView) drive(now time.Duration, c *calls) {
	if v.list.silent(now) {
		v.list = pending{}
		v.next = min(v.next, now+v.every/5)
	}
	if v.list.id == 0 && (v.again || now >= v.next) {
		v.list = c.ask(now, Call{Kind: CallRange, Timeout: v.every,
			Range: RangeRequest{Key: v.prefix, RangeEnd: PrefixEnd(v.prefix)}})
		v.headThen, v.again, v.next = v.head, false, now+v.every
	}
	if v.watch == 0 && v.revision > 0 && !v.stale {
		v.watch = c.send(Call{Kind: CallWatch,
			Watch: WatchRequest{Key: v.prefix, RangeEnd: PrefixEnd(v.prefix), Revision: v.revision + 1}})
	}
}

func (v *electionView) answer(now time.Duration, a Answer, c *calls) viewNews {
	switch {
	case a.ID == v.list.id && a.ID != 0:
		v.list = pending{}
		if a.Err != nil {
			v.next = min(v.next, now+v.every/5)
			return viewNews{mine: true}
		}
		return v.listed(a.Range, c)
	case a.ID == v.watch && a.ID != 0:
		return v.watched(now, a.Batch)
	}
	return viewNews{}
}

func (v *electionView) listed(r RangeResult, c *calls) viewNews {
	news := viewNews{mine: true, changed: true, listed: true, wentBack: r.Revision < v.headThen}
	if news.wentBack {
		v.head = r.Revision
		c.cancel(v.watch)
		v.watch = 0
	} else if r.Revision < v.revision {
		v.again = true // the watch is ahead of this list
		return viewNews{mine: true}
	}
	v.head = max(v.head, r.Revision)
	v.revision, v.stale = r.Revision, false
	v.keys = make(map[string]KV, len(r.KVs))
	for _, kv := range r.KVs {
		v.keys[kv.Key] = kv
	}
	return news
}

func (v *electionView) watched(now time.Duration, b WatchBatch) viewNews {
	news := viewNews{mine: true}
	if b.Err != nil {
		v.watch, v.list, v.stale = 0, pending{}, true
		v.next = min(v.next, now+v.every/5)
		return news
	}
	if b.Revision < v.revision {
		v.again = true // a lagging member or a restored store: the list will tell
	}
	for _, ev := range b.Events {
		if ev.KV.ModRevision <= v.revision {
			continue
		}
		news.changed = true
		if ev.Delete {
			delete(v.keys, ev.KV.Key)
		} else {
			v.keys[ev.KV.Key] = ev.KV
		}
	}
	if n := len(b.Events); n > 0 {
		v.revision = max(v.revision, b.Events[n-1].KV.ModRevision)
		v.head = max(v.head, v.revision)
	}
	return news
}

func (v *electionView) oldest() (KV, bool) {
	var oldest KV
	found := false
	for _, kv := range v.keys {
		if !found || kv.CreateRevision < oldest.CreateRevision ||
			kv.CreateRevision == oldest.CreateRevision && kv.Key < oldest.Key {
			oldest, found = kv, true
		}
	}
	return oldest, found
}

func (v *electionView) wake() time.Duration {
	if v.list.id != 0 {
		return v.list.deadline
	}
	return v.next
}

// candidateOf reads a candidate's key. A value that is none yields the zero
// Candidate: its key counts all the same.
func candidateOf(kv KV) allocator.Candidate {
	var c allocator.Candidate
	if json.Unmarshal(kv.Value, &c) != nil {
		return allocator.Candidate{}
	}
	return c
}
