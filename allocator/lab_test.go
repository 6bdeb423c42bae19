// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/kvstore"
	"pgregory.net/rapid"
)

// lab is a bench on which transactions, answers and mirror come in any order.
type lab struct {
	*bench
	flying  []*flying
	asked   map[uint64]any
	answers map[uint64]int
	leases  map[string]int64        // of nodes
	holds   map[allocator.Key]int64 // as the core shows them
	over    map[allocator.Key]int64 // the newest hold that the core no longer shows
}

type flying struct {
	tx     commit.Transaction
	landed bool
	result commit.Result
}

func newLab(t *testing.T) *lab {
	return &lab{bench: newBench(t), asked: map[uint64]any{}, answers: map[uint64]int{}, leases: map[string]int64{},
		holds: map[allocator.Key]int64{}, over: map[allocator.Key]int64{}}
}

// forward checks that the picture never goes back: a hold that was over does
// not show again, whatever a mirror that lags behind the answers brings.
func (l *lab) forward(t *rapid.T) {
	now := l.core.Holds()
	for k, hold := range l.holds {
		if now[k] != hold {
			l.over[k] = hold
		}
	}
	for k, hold := range now {
		if hold <= l.over[k] {
			t.Fatalf("hold %d of %v shows again", hold, k)
		}
	}
	l.holds = now
}

// pump carries on without answering anything.
func (l *lab) pump(t *rapid.T) {
	for moved := true; moved; {
		ready := l.core.Ready()
		for _, r := range ready.Replies {
			l.answers[r.ID]++
			if l.asked[r.ID] == nil || l.answers[r.ID] > 1 {
				t.Fatalf("reply %+v to %+v, the %dth", r, l.asked[r.ID], l.answers[r.ID])
			}
			if a, ok := r.Value.(allocator.Allocation); ok {
				if want := l.asked[r.ID].(allocator.AllocateRequest).Labels.Text(); a.Identity.Number == 0 || a.Identity.Labels != want || a.Hold == 0 {
					t.Fatalf("the answer to an Allocate of %s is %+v", want, a)
				}
			}
		}
		for _, op := range ready.Ops {
			l.commit.Submit(op)
		}
		out := l.commit.Ready()
		for _, tx := range out.Send {
			l.flying = append(l.flying, &flying{tx: tx})
		}
		for _, o := range out.Outcomes {
			l.core.Done(o)
		}
		if out.Deposed {
			t.Fatalf("deposed although nobody touched the election")
		}
		moved = len(ready.Replies)+len(ready.Ops)+len(out.Send)+len(out.Outcomes) > 0
	}
}

func (l *lab) ask(t *rapid.T, req any) {
	l.nextID++
	l.asked[l.nextID] = req
	l.core.Request(l.nextID, req)
	l.pump(t)
}

func (l *lab) one(t *rapid.T) *flying {
	if len(l.flying) == 0 {
		t.Skip("nothing is in flight")
	}
	return l.flying[rapid.IntRange(0, len(l.flying)-1).Draw(t, "flight")]
}

func (l *lab) land(f *flying) {
	if !f.landed {
		f.landed, f.result = true, l.apply(f.tx)
	}
}

func (l *lab) answer(t *rapid.T, f *flying, r commit.Result) {
	for i, o := range l.flying {
		if o == f {
			l.flying = append(l.flying[:i:i], l.flying[i+1:]...)
		}
	}
	l.commit.Result(r)
	l.pump(t)
}

// follow lets the mirror deliver up to a revision, one after the other.
func (l *lab) follow(t *rapid.T, to int64) {
	for l.seen < to {
		events, _ := l.model.Events(l.seen+1, "\x00", "\x00")
		n := 0
		for n < len(events) && events[n].KV.ModRevision == l.seen+1 {
			n++
		}
		l.seen++
		batch, _ := kvstore.DecodeBatch(l.layout, kvstore.MirrorBatch{Revision: l.seen, Events: events[:n]})
		l.core.Apply(batch)
		l.pump(t)
	}
}

// relist lets the mirror list everything anew, at a revision that answers may be ahead of.
func (l *lab) relist(t *rapid.T) {
	at := rapid.Int64Range(l.seen, l.model.Revision()).Draw(t, "revision")
	r, err := l.model.Range(kvstore.RangeRequest{Key: "\x00", RangeEnd: "\x00", Revision: at})
	if err != nil {
		t.Fatalf("%v", err)
	}
	b := kvstore.MirrorBatch{Revision: at, Reset: true}
	for _, kv := range r.KVs {
		b.Events = append(b.Events, kvstore.Event{KV: kv})
	}
	batch, _ := kvstore.DecodeBatch(l.layout, b)
	l.seen = at
	l.core.Apply(batch)
	l.pump(t)
}

// settle answers everything and follows, until nothing is left to do.
func (l *lab) settle(t *rapid.T) {
	for round := 0; len(l.flying) > 0 || l.seen < l.model.Revision(); round++ {
		if round > 2000 {
			t.Fatalf("the core does not come to rest")
		}
		if len(l.flying) > 0 {
			f := l.flying[0]
			l.land(f)
			l.answer(t, f, f.result)
		}
		l.follow(t, l.model.Revision())
	}
}

func (l *lab) tick(t *rapid.T, d time.Duration) {
	l.now += d
	l.core.Tick(l.now)
	l.pump(t)
}

// newTerm ends the term and begins another under a new election key; what was
// in flight may still reach the store.
func (l *lab) newTerm(t *rapid.T) {
	l.core.EndTerm()
	l.commit.EndTerm()
	l.pump(t)
	if err := l.model.Revoke(l.lease); err != nil {
		t.Fatalf("%v", err)
	}
	for _, f := range l.flying {
		if f.landed = false; f.tx.Kind == commit.Work {
			if r := l.apply(f.tx); r.Succeeded {
				t.Fatalf("a transaction of an ended term landed: %+v", f.tx)
			}
		}
	}
	l.flying = nil
	lease, err := l.model.Grant(time.Hour, l.now)
	if err != nil {
		t.Fatalf("%v", err)
	}
	l.lease = lease
	r, err := l.model.Txn(kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: l.layout.ElectionKey(lease), Value: []byte(`{"who":"test"}`), Lease: lease}}})
	if err != nil {
		t.Fatalf("%v", err)
	}
	l.commit.BeginTerm(commit.Fence{Lease: lease, Epoch: r.Revision, Mod: r.Revision})
	l.core.BeginTerm(l.now, kvstore.LeaseName(lease))
	l.pump(t)
}

// presence lets a node come or go.
func (l *lab) presence(t *rapid.T, node string) {
	if lease := l.leases[node]; lease != 0 {
		delete(l.leases, node)
		_ = l.model.Revoke(lease)
		return
	}
	lease, err := l.model.Grant(time.Hour, l.now)
	if err != nil {
		t.Fatalf("%v", err)
	}
	l.leases[node] = lease
	value, err := kvstore.EncodeValue(allocator.PresenceKey(node), allocator.Presence{Node: node, TTLS: 1, Instance: node, Prefixes: []string{"10.0.0.0/8"}})
	if err != nil {
		t.Fatalf("%v", err)
	}
	l.put(l.key(allocator.PresenceKey(node)), string(value), lease)
}

// equal compares the core's picture with the store.
func (l *lab) equal(t *rapid.T) {
	r, err := l.model.Range(kvstore.RangeRequest{Key: "\x00", RangeEnd: "\x00"})
	if err != nil {
		t.Fatalf("%v", err)
	}
	want, taken := map[string]bool{}, uint64(0)
	for _, kv := range r.KVs {
		rec, err := l.layout.Decode(kv)
		if err != nil {
			t.Fatalf("%v", err)
		}
		switch v := rec.Value.(type) {
		case allocator.LabelSet:
			want[fmt.Sprintf("%d is %s", rec.Key.Number, v)] = true
			taken++
		case allocator.NumberValue:
			want[fmt.Sprintf("%s holds %s as %v under %d", rec.Key.Name, rec.Key.Labels, v, rec.ModRevision)] = true
		case allocator.Tombstone:
			want[fmt.Sprintf("%d was %s", rec.Key.Number, v.Labels)] = true
			taken++
		case allocator.Address:
			want[fmt.Sprintf("%s is %d since %d", rec.Key.Name, v.ID, rec.ModRevision)] = true
		case allocator.Presence:
			want["present "+rec.Key.Name] = true
		}
		if rec.Key.Kind == allocator.KindIdle || rec.Key.Kind == allocator.KindGone {
			want[rec.Key.String()] = true
		}
	}
	got := l.picture()
	for k := range want {
		if !got[k] {
			t.Fatalf("the store says %q, the core does not", k)
		}
	}
	for k := range got {
		if !want[k] {
			t.Fatalf("the core says %q, the store does not", k)
		}
	}
	if used := l.core.PoolUsed(); used != taken {
		t.Fatalf("the pool counts %d numbers as taken, the store has %d", used, taken)
	}
}

func (l *lab) picture() map[string]bool {
	got := map[string]bool{}
	l.core.Each(0, func(id allocator.Identity) bool {
		if id.State == allocator.Quarantined || id.State == allocator.Free {
			got[fmt.Sprintf("%d was %s", id.Number, id.Labels)] = true
			return true
		}
		got[fmt.Sprintf("%d is %s", id.Number, id.Labels)] = true
		if id.State == allocator.IdleState {
			got[allocator.IdleKey(id.Number).String()] = true
		}
		for _, h := range id.Holders {
			got[fmt.Sprintf("%s holds %s as %d under %d", h.Name, id.Labels, id.Number, h.Hold)] = true
		}
		return true
	})
	for _, n := range l.core.Nodes() {
		if n.Presence != nil {
			got["present "+n.Name] = true
		}
		if n.GoneSince.Revision != 0 {
			got[allocator.GoneKey(n.Name).String()] = true
		}
	}
	for _, a := range l.core.Addresses() {
		got[fmt.Sprintf("%s is %d since %d", a.Key, a.Pair.ID, a.Revision)] = true
	}
	return got
}
