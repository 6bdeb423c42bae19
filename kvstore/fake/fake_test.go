// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signet-identity/signet/kvstore"
)

// put writes a key and returns the revision.
func put(t interface{ Fatal(...any) }, m *Model, key, value string, lease int64) int64 {
	r, err := m.Txn(kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: key, Value: []byte(value), Lease: lease}}})
	if err != nil {
		t.Fatal(err)
	}
	return r.Revision
}

// dump is the state at a revision; 0: the head.
func dump(t interface{ Fatal(...any) }, m *Model, rev int64) string {
	r, err := m.Range(kvstore.RangeRequest{Key: "\x00", RangeEnd: "\x00", Revision: rev})
	if err != nil {
		t.Fatal(err)
	}
	s := ""
	for _, kv := range r.KVs {
		s += kv.Key + "=" + string(kv.Value) + " "
	}
	return s
}

func TestPlainRestore(t *testing.T) {
	m := NewModel(Limits{}, 7)
	lease, _ := m.Grant(10*time.Second, 0)
	put(t, m, "a", "1", 0)
	at := put(t, m, "leased", "x", lease)
	put(t, m, "a", "2", 0)
	if err := m.Revoke(lease); err != nil {
		t.Fatal(err)
	}
	put(t, m, "b", "3", 0)
	young, _ := m.Grant(10*time.Second, 0)

	r, err := m.Restore(at, 0, 100*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if r.Revision() != at || dump(t, r, 0) != "a=1 leased=x " || dump(t, m, 0) != "a=2 b=3 " {
		t.Errorf("restored at %d: %q; before: %q", r.Revision(), dump(t, r, 0), dump(t, m, 0))
	}
	// The lease that lived then lives again, with its whole TTL; the younger one never was.
	if ids := r.Leases(); !slices.Equal(ids, []int64{lease}) {
		t.Errorf("leases %v, want %v without %v", ids, lease, young)
	}
	if ids := r.Expire(109 * time.Second); len(ids) != 0 {
		t.Errorf("ended early: %v", ids)
	}
	if ids := r.Expire(110 * time.Second); !slices.Equal(ids, []int64{lease}) || dump(t, r, 0) != "a=1 " {
		t.Errorf("ended: %v; left %q", ids, dump(t, r, 0))
	}
	// A revision means something else now, and new leases have new names.
	put(t, r, "other", "1", 0)
	if events, _ := r.Events(at+1, "other", ""); len(events) != 1 || events[0].KV.ModRevision != at+2 {
		t.Errorf("events of the new history: %+v", events)
	}
	again, _ := r.Grant(10*time.Second, 0)
	if again == young || again == lease {
		t.Errorf("a lease's id is used twice: %x", again)
	}
}

func TestOfficialRestoreLooksLikeCompaction(t *testing.T) {
	m := NewModel(Limits{}, 7)
	at := put(t, m, "a", "1", 0)
	put(t, m, "a", "2", 0)
	r, err := m.Restore(at, 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r.Revision() != at+1000 || r.Compacted() != at+1000 || dump(t, r, 0) != "a=1 " {
		t.Errorf("at %d, compacted %d: %q", r.Revision(), r.Compacted(), dump(t, r, 0))
	}
	if _, compacted := r.Events(at+2, "a", ""); !compacted {
		t.Error("a watch from before the restore goes on")
	}
	if kv, _ := r.Range(kvstore.RangeRequest{Key: "a"}); kv.KVs[0].ModRevision != at {
		t.Errorf("mod revision %d, want %d", kv.KVs[0].ModRevision, at)
	}
	if _, err := m.Restore(m.Revision()+1, 0, 0); !errors.Is(err, kvstore.ErrFutureRevision) {
		t.Errorf("a restore of what is not yet: %v", err)
	}
	if err := m.Compact(m.Revision()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Restore(at, 0, 0); !errors.Is(err, kvstore.ErrCompacted) {
		t.Errorf("a restore of what is compacted: %v", err)
	}
}

// However a store was written and compacted, its history replays to its state,
// a clone does not share anything with it, and leases and keys agree.
func TestHistoryReplaysToState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := NewModel(Limits{}, 1)
		keys := rapid.SampledFrom([]string{"a", "b", "b/c", "d"})
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0:
				_, _ = m.Txn(kvstore.Txn{Then: []kvstore.Action{{Delete: true, Key: keys.Draw(rt, "key")}}})
			case 1:
				if _, err := m.Grant(time.Minute, 0); err != nil {
					rt.Fatal(err)
				}
			case 2:
				if ids := m.Leases(); len(ids) > 0 {
					_ = m.Revoke(rapid.SampledFrom(ids).Draw(rt, "lease"))
				}
			case 3:
				_ = m.Compact(rapid.Int64Range(1, m.Revision()).Draw(rt, "compact"))
			default:
				lease := int64(0)
				if ids := m.Leases(); len(ids) > 0 && rapid.Bool().Draw(rt, "leased") {
					lease = rapid.SampledFrom(ids).Draw(rt, "lease")
				}
				put(rt, m, keys.Draw(rt, "key"), rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "value"), lease)
			}
		}
		from := max(1, m.Compacted())
		state := map[string]string{}
		base, err := m.Range(kvstore.RangeRequest{Key: "\x00", RangeEnd: "\x00", Revision: from})
		if err != nil {
			rt.Fatal(err)
		}
		for _, kv := range base.KVs {
			state[kv.Key] = string(kv.Value)
		}
		events, _ := m.Events(from+1, "\x00", "\x00")
		for _, e := range events {
			if state[e.KV.Key] = string(e.KV.Value); e.Delete {
				delete(state, e.KV.Key)
			}
		}
		head, _ := m.Range(kvstore.RangeRequest{Key: "\x00", RangeEnd: "\x00"})
		if len(head.KVs) != len(state) {
			rt.Fatalf("history makes %v, the state is %q", state, dump(rt, m, 0))
		}
		leased := 0
		for _, kv := range head.KVs {
			if state[kv.Key] != string(kv.Value) {
				rt.Fatalf("history makes %v, the state is %q", state, dump(rt, m, 0))
			}
			if kv.Lease != 0 {
				leased++
				if l := m.leases[kv.Lease]; l == nil || !l.keys[kv.Key] {
					rt.Fatalf("%q hangs on a lease that does not know it", kv.Key)
				}
			}
		}
		for _, l := range m.leases {
			leased -= len(l.keys)
		}
		if leased != 0 {
			rt.Fatal("a lease knows keys that do not hang on it")
		}
		before := dump(rt, m, 0)
		c := m.Clone()
		put(rt, c, "a", "other", 0)
		for _, id := range c.Leases() {
			_ = c.Revoke(id)
		}
		if dump(rt, m, 0) != before || !slices.IsSorted(m.keys) {
			rt.Fatal("a clone shares state with its source")
		}
	})
}

func TestNextExpiry(t *testing.T) {
	m := NewModel(Limits{MinTTL: 2 * time.Second}, 1)
	if _, any := m.NextExpiry(); any {
		t.Error("an empty store has a lease")
	}
	first, _ := m.Grant(time.Second, 0)
	second, _ := m.Grant(5*time.Second, 0)
	if at, any := m.NextExpiry(); !any || at != 2*time.Second {
		t.Errorf("NextExpiry = %v, %v", at, any)
	}
	if ttl, err := m.KeepAlive(second, 4*time.Second); err != nil || ttl != 5*time.Second {
		t.Errorf("KeepAlive = %v, %v", ttl, err)
	}
	if _, err := m.KeepAlive(first, 4*time.Second); !errors.Is(err, kvstore.ErrLeaseNotFound) {
		t.Errorf("KeepAlive of a lease past its time: %v", err)
	}
	if ids := m.Expire(20 * time.Second); !slices.Equal(ids, []int64{first, second}) {
		t.Errorf("Expire = %x, want %x %x", ids, first, second)
	}
}

func TestFaults(t *testing.T) {
	s := NewStore(NewModel(Limits{}, 1), nil)
	defer s.Close()
	lost := errors.New("lost")
	txn := kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: "a", Value: []byte("1")}}}
	for _, c := range []struct {
		fault  Fault
		landed bool
	}{{Fault{Before: lost}, false}, {Fault{After: lost}, true}} {
		s.SetFault(func(call string) Fault {
			if call == "Txn" {
				return c.fault
			}
			return Fault{}
		})
		if _, err := s.Txn(t.Context(), txn); !errors.Is(err, lost) {
			t.Errorf("%+v: %v", c.fault, err)
		}
		r, err := s.Range(t.Context(), kvstore.RangeRequest{Key: "a"})
		if err != nil || (len(r.KVs) == 1) != c.landed {
			t.Errorf("%+v: landed %v, %v", c.fault, r.KVs, err)
		}
	}
}

func TestReplaceEndsWatches(t *testing.T) {
	m := NewModel(Limits{}, 1)
	at := put(t, m, "a", "1", 0)
	put(t, m, "a", "2", 0)
	s := NewStore(m, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	w := s.Watch(ctx, kvstore.WatchRequest{Key: "a"})
	if b := <-w; !b.Created || b.Revision != at+1 {
		t.Fatalf("created: %+v", b)
	}
	restored, err := m.Restore(at, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("connection lost")
	s.Replace(restored, gone)
	if b := <-w; !errors.Is(b.Err, gone) {
		t.Errorf("after the restore: %+v", b)
	}
	if b, open := <-w; open {
		t.Errorf("after the end: %+v", b)
	}
	// A new watch past the head shows in its first batch where the head is.
	w = s.Watch(ctx, kvstore.WatchRequest{Key: "a", Revision: at + 2})
	if b := <-w; !b.Created || b.Revision != at {
		t.Errorf("created: %+v", b)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if b := <-w; !errors.Is(b.Err, ErrClosed) {
		t.Errorf("after Close: %+v", b)
	}
	if _, err := s.Grant(ctx, time.Second); !errors.Is(err, ErrClosed) {
		t.Errorf("Grant after Close: %v", err)
	}
}
