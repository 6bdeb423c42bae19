// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

// owned is what the table has, for tests of the view alone.
type owned map[netip.Addr]bool

func (o owned) has(a netip.Addr) bool    { _, ok := o[a]; return ok }
func (o owned) states(a netip.Addr) bool { return o[a] }

// feed drives a view with single changes and keeps the entries that it gave out.
type feed struct {
	t       testing.TB
	v       *view
	own     owned
	rev     int64
	state   map[string]kvstore.KV
	entries map[netip.Prefix]remoteEntry
	last    viewChange
}

func newFeed(t testing.TB, at allocator.Position) *feed {
	layout, err := kvstore.NewLayout("", "default")
	if err != nil {
		t.Fatal(err)
	}
	f := &feed{t: t, own: owned{}, state: map[string]kvstore.KV{}, entries: map[netip.Prefix]remoteEntry{}, rev: 1}
	f.v = newView(layout, "n1", at, f.own)
	return f
}

func (f *feed) event(k allocator.Key, v allocator.Value) kvstore.Event {
	key, err := f.v.layout.Key(k)
	if err != nil {
		f.t.Fatal(err)
	}
	if v == nil {
		delete(f.state, key)
		return kvstore.Event{Delete: true, KV: kvstore.KV{Key: key, ModRevision: f.rev}}
	}
	data, err := kvstore.EncodeValue(k, v)
	if err != nil {
		f.t.Fatal(err)
	}
	kv := kvstore.KV{Key: key, Value: data, ModRevision: f.rev, CreateRevision: f.rev}
	f.state[key] = kv
	return kvstore.Event{KV: kv}
}

// step is one revision: keys and values in turn, nil deletes.
func (f *feed) step(kvs ...any) viewChange {
	f.rev++
	b := kvstore.MirrorBatch{Revision: f.rev}
	for i := 0; i < len(kvs); i += 2 {
		v, _ := kvs[i+1].(allocator.Value)
		b.Events = append(b.Events, f.event(kvs[i].(allocator.Key), v))
	}
	return f.apply(b)
}

// list is a reset with the present state.
func (f *feed) list() viewChange {
	f.rev++
	b := kvstore.MirrorBatch{Revision: f.rev, Reset: true}
	for _, kv := range f.state {
		b.Events = append(b.Events, kvstore.Event{KV: kv})
	}
	return f.apply(b)
}

func (f *feed) apply(b kvstore.MirrorBatch) viewChange {
	f.last = f.v.apply(b)
	f.note(f.last.entries)
	return f.last
}

func (f *feed) note(entries []entryChange) {
	for _, e := range entries {
		if f.entries[e.prefix] = e.entry; e.entry.number == 0 {
			delete(f.entries, e.prefix)
		}
	}
}

func pairFor(address string, n identity.Number, owner string) (allocator.Key, allocator.Address) {
	return allocator.AddressKey(address), allocator.Address{IP: address, HostIP: "192.0.2.1", ID: uint32(n), Metadata: owner}
}

func (f *feed) want(what, address string, want remoteEntry) {
	f.t.Helper()
	if got := f.entries[hostPrefix(addr(address))]; got != want {
		f.t.Errorf("%s: %s is %+v, want %+v", what, address, got, want)
	}
}

const web, api = allocator.LabelSet("k8s:app=web;"), allocator.LabelSet("k8s:app=api;")

func tombstone(ls allocator.LabelSet) allocator.Tombstone {
	return allocator.Tombstone{Labels: string(ls), Quarantine: allocator.QuarantinePending}
}

func TestViewNumbersDieAndComeBack(t *testing.T) {
	f := newFeed(t, allocator.Position{})
	k, pair := pairFor("10.245.0.1", 1001, "signet:default:n2:a")
	master, tomb := allocator.MasterKey(1001), allocator.TombstoneKey(1001)
	live, dead := remoteEntry{number: 1001}, remoteEntry{number: 1001, dead: true}
	f.step(master, web, k, pair)
	f.want("published", "10.245.0.1", live)
	f.step(master, nil)
	f.want("the master merely vanished", "10.245.0.1", live)
	f.list()
	f.want("and a list does not name it", "10.245.0.1", live)
	f.step(tomb, tombstone(web))
	f.want("the tombstone stands", "10.245.0.1", dead)
	f.step(tomb, nil)
	f.want("the tombstone went", "10.245.0.1", dead)
	f.step(master, web)
	f.want("the same labels have it back", "10.245.0.1", live)
	f.step(master, nil, tomb, tombstone(web))
	f.step(tomb, nil, master, api)
	f.want("other labels have it", "10.245.0.1", dead)
	f.list()
	f.want("a list says the same", "10.245.0.1", dead)
	f.step(k, pair)
	f.want("it is published anew", "10.245.0.1", live)
	f.step(k, nil)
	f.want("withdrawn", "10.245.0.1", remoteEntry{})
	f.step(master, nil)
	if len(f.v.numbers) != 0 || len(f.v.pairs) != 0 {
		t.Errorf("something is remembered for nothing: %v", f.v.numbers)
	}
}

func TestViewOwnAddresses(t *testing.T) {
	f := newFeed(t, allocator.Position{})
	at := addr("10.244.0.1")
	k, pair := pairFor("10.244.0.1", 1001, "signet:default:n1:a")
	f.step(allocator.MasterKey(1001), web)
	f.own[at] = true
	c := f.step(k, pair)
	f.want("the table states it", "10.244.0.1", remoteEntry{})
	if len(c.own) != 1 || !c.own[0].seen.ours || c.own[0].seen.endpoint != "a" || c.own[0].seen.number != 1001 {
		t.Errorf("news for the table: %+v", c.own)
	}
	// Let go of at a revision that the mirror has not reached: the pair is old news.
	delete(f.own, at)
	f.note(f.v.released([]departure{{addr: at, withdrawnAt: f.rev + 1}}))
	f.want("let go of", "10.244.0.1", remoteEntry{})
	if len(f.v.leftovers()) != 0 {
		t.Error("what was just withdrawn is taken for left over")
	}
	f.step(k, nil)
	if len(f.v.withdrawn) != 0 {
		t.Error("the withdrawal is remembered for ever")
	}
	// Left over from an earlier life: shown until it is withdrawn.
	f.step(k, pair)
	f.want("left over", "10.244.0.1", remoteEntry{number: 1001})
	if got := f.v.leftovers(); len(got) != 1 || got[at] != 1001 {
		t.Errorf("leftovers %v", got)
	}
	f.own[at] = true
	f.note(f.v.claimed(at))
	f.want("claimed", "10.244.0.1", remoteEntry{})
	// The newest claim is another node's, and counts once the table lets go.
	_, theirs := pairFor("10.244.0.1", 1001, "signet:default:n2:b")
	c = f.step(k, theirs)
	if len(c.own) != 1 || c.own[0].seen.ours || c.own[0].seen.owner != "node n2" {
		t.Errorf("news for the table: %+v", c.own)
	}
	delete(f.own, at)
	f.note(f.v.released([]departure{{addr: at, withdrawnAt: f.rev + 5}}))
	f.want("now the other's counts", "10.244.0.1", remoteEntry{number: 1001})
}

func TestViewRestoredStore(t *testing.T) {
	f := newFeed(t, allocator.Position{Nonce: "b", Counter: 9, Revision: 100})
	lineage := func(terms ...allocator.Term) allocator.Lineage {
		return allocator.Lineage{Counter: terms[len(terms)-1].Last, Terms: terms}
	}
	a, b := allocator.Term{Nonce: "a", First: 1, Last: 4}, allocator.Term{Nonce: "b", First: 5, Last: 12}
	k, pair := pairFor("10.245.0.1", 1001, "signet:default:n2:a")
	f.step(allocator.LineageKey(), lineage(a, b), allocator.MasterKey(1001), web, k, pair)
	if f.last.restored || f.v.position.Counter != 12 {
		t.Fatalf("a store that continues: %+v", f.v.position)
	}
	delete(f.state, mustKey(f, k))
	b.Last = 6
	f.event(allocator.LineageKey(), lineage(a, b))
	if c := f.list(); !c.restored {
		t.Fatal("an older counter of the same nonce is a restore")
	}
	f.want("kept", "10.245.0.1", remoteEntry{number: 1001})
	f.list()
	f.want("kept by the next list too", "10.245.0.1", remoteEntry{number: 1001})
	f.note(f.v.settle())
	f.want("until it is settled", "10.245.0.1", remoteEntry{})
	c := allocator.Term{Nonce: "c", First: 7, Last: 7}
	if f.step(allocator.LineageKey(), lineage(c)).restored != true {
		t.Error("a lineage that does not know ours is a restore")
	}
	if f.step(allocator.LineageKey(), lineage(c, allocator.Term{Nonce: "d", First: 8, Last: 8})).restored {
		t.Error("a new term is no restore")
	}
}

func mustKey(f *feed, k allocator.Key) string {
	key, err := f.v.layout.Key(k)
	if err != nil {
		f.t.Fatal(err)
	}
	return key
}

func TestViewSkipsMalformed(t *testing.T) {
	f := newFeed(t, allocator.Position{})
	k, pair := pairFor("10.245.0.1", 1001, "x")
	f.step(k, pair)
	key := mustKey(f, k)
	f.rev++
	f.apply(kvstore.MirrorBatch{Revision: f.rev, Events: []kvstore.Event{
		{KV: kvstore.KV{Key: key, Value: []byte("{"), ModRevision: f.rev}},
		{KV: kvstore.KV{Key: f.v.layout.Masters() + "x", Value: []byte("k8s:a=b;"), ModRevision: f.rev}},
		{KV: kvstore.KV{Key: "somewhere/else", ModRevision: f.rev}},
	}})
	f.want("malformed counts as absent", "10.245.0.1", remoteEntry{})
	if len(f.v.malformed) != 2 {
		t.Errorf("malformed %v", f.v.malformed)
	}
	f.step(k, pair)
	f.want("mended", "10.245.0.1", remoteEntry{number: 1001})
	if len(f.v.malformed) != 1 {
		t.Errorf("malformed %v", f.v.malformed)
	}
	host, hostPair := pairFor("10.245.0.2", identity.Host, "x")
	f.step(host, hostPair)
	f.want("another node's host", "10.245.0.2", remoteEntry{number: identity.RemoteNode})
}

// A view that followed shows the same addresses and numbers as one that has
// just begun, and never a number alive that the new one takes for dead.
func TestViewFollowedEqualsListed(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		f := newFeed(t, allocator.Position{})
		number := rapid.Custom(func(r *rapid.T) identity.Number { return identity.Number(1000 + rapid.IntRange(0, 2).Draw(r, "n")) })
		text := rapid.SampledFrom([]allocator.LabelSet{web, api})
		address := rapid.Custom(func(r *rapid.T) string { return fmt.Sprintf("10.245.0.%d", rapid.IntRange(1, 4).Draw(r, "a")) })
		r.Repeat(map[string]func(*rapid.T){
			"allocate": func(r *rapid.T) {
				n := number.Draw(r, "number")
				f.step(allocator.TombstoneKey(n), nil, allocator.MasterKey(n), text.Draw(r, "text"))
			},
			"free": func(r *rapid.T) {
				n := number.Draw(r, "number")
				f.step(allocator.MasterKey(n), nil, allocator.TombstoneKey(n), tombstone(text.Draw(r, "text")))
			},
			"vanish": func(r *rapid.T) { f.step(allocator.MasterKey(number.Draw(r, "number")), nil) },
			"forget": func(r *rapid.T) { f.step(allocator.TombstoneKey(number.Draw(r, "number")), nil) },
			"publish": func(r *rapid.T) {
				k, pair := pairFor(address.Draw(r, "address"), number.Draw(r, "number"), "signet:default:n2:x")
				f.step(k, pair)
			},
			"withdraw": func(r *rapid.T) { f.step(allocator.AddressKey(address.Draw(r, "address")), nil) },
			"list":     func(r *rapid.T) { f.list() },
			"": func(r *rapid.T) {
				fresh := newFeed(t, allocator.Position{})
				fresh.state, fresh.rev = maps.Clone(f.state), f.rev
				fresh.list()
				if len(fresh.entries) != len(f.entries) {
					r.Fatalf("followed %v, listed %v", f.entries, fresh.entries)
				}
				for p, e := range fresh.entries {
					if got := f.entries[p]; got.number != e.number || e.dead && !got.dead {
						r.Fatalf("%s: followed %+v, listed %+v", p, got, e)
					}
				}
			},
		})
	})
}

// An address that the node has taken back is free at once, though the mirror
// still shows it; one that is published anew, or by others, is not.
func TestTakenBy(t *testing.T) {
	f := newFeed(t, allocator.Position{})
	k, v := pairFor("10.244.0.7", 1001, "signet:default:n1:a")
	f.step(k, v)
	at := addr("10.244.0.7")
	taken := func(what, id, want string) {
		t.Helper()
		if owner, ok := f.v.takenBy(at, id); ok != (want != "") || owner != want {
			t.Errorf("%s: %q, want %q", what, owner, want)
		}
	}
	taken("for its own endpoint", "a", "")
	taken("for another", "b", `endpoint "a" of node n1`)
	f.note(f.v.released([]departure{{addr: at, withdrawnAt: f.rev + 1}}))
	taken("withdrawn, and not yet seen", "b", "")
	f.step(k, nil)
	taken("gone", "b", "")
	k, v = pairFor("10.244.0.7", 1001, "signet:default:n2:a")
	f.step(k, v)
	taken("of another node under the same id", "a", `endpoint "a" of node n2`)
	k, v = pairFor("10.244.0.7", 1001, "")
	f.step(k, v)
	taken("of nobody known", "a", "somebody unnamed")
}
