// SPDX-License-Identifier: Apache-2.0

package kvstore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/signet-identity/signet/kvstore"
	"pgregory.net/rapid"
)

var mirrorSpans = []kvstore.Span{kvstore.PrefixSpan("id/"), kvstore.PrefixSpan("tomb/"), kvstore.PrefixSpan("idle/")}

// failer is what testing.T and rapid.T have in common.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// view is a Mirror in a world and the state that its batches add up to. After
// each batch the state must be the store's at that revision.
type view struct {
	*peer
	*kvstore.Mirror
	t       failer
	state   map[string]string
	index   kvstore.MirrorIndex
	applied int64
	batches []kvstore.MirrorBatch
	back    *kvstore.WentBack
	blind   bool // the store is faulty: do not compare
}

func (v *view) status() kvstore.MirrorStatus { return v.Status(v.clock()) }

func (v *view) Step(now time.Duration, a kvstore.Answer) { v.Mirror.Step(now, a) }

func (w *world) view(t failer, cfg kvstore.MirrorConfig) *view {
	if cfg.Spans == nil {
		cfg.Spans = mirrorSpans
	}
	m, err := kvstore.NewMirror(cfg, rand.New(rand.NewPCG(uint64(len(w.peers)), 3)))
	if err != nil {
		t.Fatal(err)
	}
	v := &view{Mirror: m, t: t, state: map[string]string{}, index: kvstore.MirrorIndex{}}
	v.peer = w.add(m, func() ([]kvstore.Call, time.Duration) {
		r := m.Ready()
		for _, b := range r.Batches {
			v.apply(b)
		}
		if r.WentBack != nil {
			v.back = r.WentBack
		}
		return r.Calls, r.Wake
	})
	return v
}

func (v *view) apply(b kvstore.MirrorBatch) {
	if b.Revision < v.applied {
		v.t.Fatalf("batch of revision %d after %d", b.Revision, v.applied)
	}
	v.applied = b.Revision
	v.batches = append(v.batches, b)
	for _, ev := range v.index.Apply(b) {
		if ev.Delete {
			delete(v.state, ev.KV.Key)
		} else {
			v.state[ev.KV.Key] = string(ev.KV.Value)
		}
	}
	if v.blind || b.Revision < v.w.model.Compacted() || b.Revision > v.w.model.Revision() {
		return
	}
	if diff := cmp.Diff(v.w.state(b.Revision), v.state); diff != "" {
		v.t.Fatalf("at revision %d the view is not the store (-store +view):\n%s", b.Revision, diff)
	}
}

// state is the store's at a revision, over the mirrored spans.
func (w *world) state(revision int64) map[string]string {
	out := map[string]string{}
	for _, s := range mirrorSpans {
		r, err := w.model.Range(kvstore.RangeRequest{Key: s.Key, RangeEnd: s.End, Revision: revision})
		if err != nil {
			panic(err)
		}
		for _, kv := range r.KVs {
			out[kv.Key] = string(kv.Value)
		}
	}
	return out
}

// write changes several keys in one transaction; an empty value deletes.
func (w *world) write(pairs ...string) int64 {
	var txn kvstore.Txn
	for i := 0; i < len(pairs); i += 2 {
		txn.Then = append(txn.Then, kvstore.Action{Key: pairs[i], Put: pairs[i+1] != "", Delete: pairs[i+1] == "", Value: []byte(pairs[i+1])})
	}
	r, err := w.model.Txn(txn)
	if err != nil {
		panic(err)
	}
	w.tell()
	return r.Revision
}

// settle waits until the view has applied the store's head.
func (v *view) settle(within time.Duration) {
	v.t.Helper()
	head := v.w.model.Revision()
	v.do(func(now time.Duration) { v.Want(now, head) })
	if !v.w.runUntil(v.w.now+within, func() bool { return v.applied >= head }) {
		v.t.Fatalf("applied %d of %d: %+v", v.applied, head, v.status())
	}
	if !v.blind && v.applied == v.w.model.Revision() {
		if diff := cmp.Diff(v.w.state(0), v.state); diff != "" {
			v.t.Fatalf("the view is not the store (-store +view):\n%s", diff)
		}
	}
}

func TestMirror_oneRevisionIsOneBatch(t *testing.T) {
	w := newWorld(1)
	w.write("id/1", "a", "tomb/9", "x")
	v := w.view(t, kvstore.MirrorConfig{})
	v.settle(time.Second)
	if len(v.batches) != 1 || !v.batches[0].Reset || len(v.batches[0].Events) != 2 {
		t.Fatalf("first batch: %+v", v.batches)
	}
	r := w.write("id/2", "b", "idle/2", "c", "tomb/9", "")
	v.settle(time.Second)
	if last := v.batches[len(v.batches)-1]; len(v.batches) != 2 || len(last.Events) != 3 || last.Revision != r || last.Reset {
		t.Fatalf("batches after one transaction over three spans: %+v", v.batches[1:])
	}
}

func TestMirror_idleSpansDoNotHoldEventsBack(t *testing.T) {
	w := newWorld(2)
	v := w.view(t, kvstore.MirrorConfig{})
	v.settle(time.Second)
	r := w.write("id/1", "a") // nothing happens in the other two spans
	if !w.runUntil(w.now+100*time.Millisecond, func() bool { return v.applied >= r }) {
		t.Fatalf("held back: %+v", v.status())
	}
}

func TestMirror_wantReachesRevisionsOfOthers(t *testing.T) {
	w := newWorld(3)
	v := w.view(t, kvstore.MirrorConfig{})
	v.settle(time.Second)
	r := w.write("elsewhere", "a")
	w.run(w.now + time.Second)
	if v.applied >= r {
		t.Fatal("the test shows nothing: applied without asking")
	}
	v.do(func(now time.Duration) { v.Want(now, r) })
	if !w.runUntil(w.now+100*time.Millisecond, func() bool { return v.applied >= r }) {
		t.Fatalf("not reached: %+v", v.status())
	}
	before := len(v.sent)
	w.run(w.now + time.Second)
	if len(v.sent) != before {
		t.Errorf("asks on although nobody waits: %v", v.sent[before:])
	}
}

// W-12: an empty span that has history is followed from its list on, without replay.
func TestScenario_W12_noReplayOnEmptySpan(t *testing.T) {
	w := newWorld(12)
	for range 50 {
		w.write("id/1", "a")
		w.write("id/1", "")
	}
	v := w.view(t, kvstore.MirrorConfig{})
	v.settle(time.Second)
	if len(v.batches) != 1 || len(v.batches[0].Events) != 0 || v.batches[0].Revision != w.model.Revision() {
		t.Errorf("batches: %+v", v.batches)
	}
}

// W-12: streams that break at any moment lose nothing, split no revision, repeat nothing.
func TestScenario_W12_brokenStreams(t *testing.T) {
	w := newWorld(120)
	v := w.view(t, kvstore.MirrorConfig{MaxBackoff: 100 * time.Millisecond})
	v.settle(time.Second)
	v.delay = func() time.Duration { return time.Duration(w.random.Int64N(int64(20 * time.Millisecond))) }
	for i := range 500 {
		n := fmt.Sprint(i % 7)
		w.write("id/"+n, fmt.Sprint(i), "idle/"+n, fmt.Sprint(i), "idle/x"+n, fmt.Sprint(i), "tomb/"+n, fmt.Sprint(i))
		v.breakWatches()
		w.run(w.now + time.Duration(w.random.Int64N(int64(30*time.Millisecond))))
	}
	v.settle(5 * time.Second)
	for _, b := range v.batches[1:] {
		if b.Reset || len(b.Events) != 4 && len(b.Events) != 0 {
			t.Fatalf("not a whole revision: %+v", b)
		}
	}
	if s := v.status(); s.Relists != 0 || s.Rewatches < 100 || s.Err != nil {
		t.Errorf("status %+v", s)
	}
}

// W-02: changes between the pages of a list, in what was read and in what was not.
func TestScenario_W02_changesBetweenPages(t *testing.T) {
	w := newWorld(20)
	for i := range 1000 {
		w.write(fmt.Sprintf("id/%04d", i), "old")
	}
	v := w.view(t, kvstore.MirrorConfig{PageSize: 50})
	v.delay = func() time.Duration { return 25 * time.Millisecond }
	for i := range 200 {
		w.in(time.Duration(i)*5*time.Millisecond, func() {
			w.write(fmt.Sprintf("id/%04d", i*5), "")
			w.write(fmt.Sprintf("id/%04d-new", (i*7919)%1000), "new")
		})
	}
	v.settle(10 * time.Second)
	w.run(2 * time.Second)
	v.settle(5 * time.Second)
	first := v.batches[0]
	pages := 0
	for _, c := range v.sent {
		if c.Kind == kvstore.CallRange {
			pages++
			if c.Range.Revision != 0 && c.Range.Revision != first.Revision {
				t.Errorf("a page at revision %d, the list's is %d", c.Range.Revision, first.Revision)
			}
		}
		if c.Kind == kvstore.CallWatch && c.Watch.Revision != first.Revision+1 {
			t.Errorf("a watch from %d", c.Watch.Revision)
		}
	}
	if pages < 20 || len(v.state) != 1000 {
		t.Errorf("%d pages, %d keys", pages, len(v.state))
	}
}

// W-02: compaction in the midst of a list begins it anew.
func TestMirror_compactedWhileListing(t *testing.T) {
	w := newWorld(21)
	for i := range 50 {
		w.write(fmt.Sprintf("id/%04d", i), "old")
	}
	v := w.view(t, kvstore.MirrorConfig{PageSize: 10})
	w.in(3*time.Millisecond, func() {
		w.write("id/0001", "")
		_ = w.model.Compact(w.model.Revision())
	})
	w.run(time.Second)
	v.settle(5 * time.Second)
	if len(v.batches) != 1 || len(v.state) != 49 {
		t.Errorf("%d batches, %d keys", len(v.batches), len(v.state))
	}
}

// W-03, W-04: compaction overtakes a watch that was cut off: a new list, whose
// difference includes the deletion at the compacted revision.
func TestScenario_W04_deletionAtCompactedRevision(t *testing.T) {
	w := newWorld(4)
	v := w.view(t, kvstore.MirrorConfig{})
	v.settle(time.Second)
	for i := range 100 {
		key := fmt.Sprint("id/", i)
		w.write(key, "a", "idle/k", "kept")
		v.settle(time.Second)
		cut := true
		v.loseReq = func(kvstore.Call) bool { return cut }
		v.deaf = true
		v.breakWatches()
		w.write("tomb/1", "x")
		r := w.write(key, "")
		_ = w.model.Compact(r)
		w.run(w.now + 300*time.Millisecond)
		cut, v.deaf = false, false
		v.breakWatches()
		v.settle(20 * time.Second)
		if _, there := v.state[key]; there {
			t.Fatalf("%s is still there", key)
		}
	}
	if s := v.status(); s.Relists < 50 {
		t.Errorf("%d lists; the test shows nothing", s.Relists)
	}
}

// W-05: a watch that is silently dead is found by its silence and opened anew,
// without a list and without loss.
func TestScenario_W05_silentWatch(t *testing.T) {
	w := newWorld(5)
	v := w.view(t, kvstore.MirrorConfig{Heartbeat: 5 * time.Second})
	v.settle(time.Second)
	w.run(20 * time.Second)
	if age := v.status().Age(); age > 6*time.Second {
		t.Errorf("idle, alive, and no sign of life for %v", age)
	}
	v.deaf = true
	began := w.now
	w.run(w.now + 4*time.Second)
	for i := range 20 {
		w.write(fmt.Sprint("id/", i), "a")
	}
	before := v.status().Rewatches
	if !w.runUntil(began+16*time.Second, func() bool { return v.status().Rewatches > before }) {
		t.Fatalf("not noticed within three heartbeats: %+v", v.status())
	}
	if v.status().Age() < 10*time.Second || v.status().Err == nil {
		t.Errorf("the silence does not show: %+v", v.status())
	}
	v.deaf = false
	v.settle(20 * time.Second)
	if v.status().Relists != 0 {
		t.Errorf("listed anew")
	}
}

// A watch that lags while another runs ahead: what is held back is bounded.
func TestMirror_boundedHeldEvents(t *testing.T) {
	w := newWorld(6)
	v := w.view(t, kvstore.MirrorConfig{MaxHeld: 100})
	v.settle(time.Second)
	mute := true
	v.muteWatch = func(r kvstore.WatchRequest) bool { return mute && r.Key == "tomb/" }
	most := 0
	w.after = func() { most = max(most, v.status().Held) }
	for i := range 2000 {
		w.write("id/1", fmt.Sprint(i))
		w.run(w.now + 5*time.Millisecond)
	}
	mute = false
	if most > 101 {
		t.Errorf("%d events were held", most)
	}
	v.breakWatches()
	v.settle(20 * time.Second)
	if v.status().Relists != 0 {
		t.Errorf("listed anew")
	}
}

// I7: a restored store is told once, and nothing of it is applied until it is accepted.
func TestMirror_restoredStore(t *testing.T) {
	for _, how := range []string{"watches break", "connections live on"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(7)
			w.write("id/1", "a")
			v := w.view(t, kvstore.MirrorConfig{})
			v.settle(time.Second)
			backup := w.model.Revision()
			for i := range 10 {
				w.write("id/2", fmt.Sprint(i))
			}
			v.settle(time.Second)
			have, state := v.applied, maps.Clone(v.state)
			restored, err := w.model.Restore(backup, 0, w.now)
			if err != nil {
				t.Fatal(err)
			}
			w.model = restored
			if how == "watches break" {
				v.breakWatches()
			}
			if !w.runUntil(w.now+20*time.Second, func() bool { return v.back != nil }) {
				t.Fatalf("not noticed: %+v", v.status())
			}
			if *v.back != (kvstore.WentBack{Have: have, Seen: backup}) {
				t.Errorf("told %+v, applied was %d", *v.back, have)
			}
			v.back = nil
			for range 20 {
				w.write("id/3", "later")
			}
			w.run(w.now + time.Minute)
			if v.back != nil || v.applied != have || !maps.Equal(v.state, state) || v.status().State != "went-back" {
				t.Fatalf("went on: %+v", v.status())
			}
			v.applied = 0
			v.do(v.Accept)
			v.settle(5 * time.Second)
		})
	}
}

// A list that finds a lower revision is one of a restored store.
func TestMirror_restoredStoreSeenByList(t *testing.T) {
	w := newWorld(71)
	w.write("id/1", "a")
	v := w.view(t, kvstore.MirrorConfig{Audit: time.Minute})
	v.settle(time.Second)
	backup := w.model.Revision()
	w.write("id/2", "b")
	v.settle(time.Second)
	v.muteWatch = func(kvstore.WatchRequest) bool { return true }
	w.run(55 * time.Second)
	w.model, _ = w.model.Restore(backup, 0, w.now)
	if !w.runUntil(w.now+20*time.Second, func() bool { return v.back != nil }) || v.applied <= backup {
		t.Fatalf("not noticed: %+v", v.status())
	}
}

// W-07: a member that lags shows a lower revision than the one applied. A
// linearizable read says that it is no restore.
func TestScenario_W07_laggingMember(t *testing.T) {
	w := newWorld(70)
	v := w.view(t, kvstore.MirrorConfig{})
	v.settle(time.Second)
	w.write("id/1", "a")
	v.settle(time.Second)
	v.skew = 1
	v.breakWatches()
	w.run(w.now + 10*time.Second)
	v.skew = 0
	w.write("id/2", "b")
	v.settle(10 * time.Second)
	if v.back != nil || v.status().Relists != 0 {
		t.Errorf("taken for a restore: %+v", v.status())
	}
}

// A server that leaves an event out of a watch is found out by the audit.
func TestMirror_auditFindsLostEvents(t *testing.T) {
	w := newWorld(8)
	v := w.view(t, kvstore.MirrorConfig{Audit: 30 * time.Second})
	v.blind = true
	v.settle(time.Second)
	v.forgetful = true
	w.write("id/1", "a")
	v.forgetful = false
	w.write("id/2", "b")
	w.run(20 * time.Second)
	if _, there := v.state["id/1"]; there || v.state["id/2"] != "b" {
		t.Fatalf("the test shows nothing: %v", v.state)
	}
	w.run(35 * time.Second)
	if v.state["id/1"] != "a" {
		t.Errorf("not found: %v", v.state)
	}
}

func TestMirror_badSpans(t *testing.T) {
	for name, spans := range map[string][]kvstore.Span{
		"none": nil, "same": {{"a", "b"}, {"a", "b"}}, "inside": {{"a", "c"}, {"b", "bb"}}, "to the end": {{"a", "\x00"}, {"x", "y"}},
	} {
		if _, err := kvstore.NewMirror(kvstore.MirrorConfig{Spans: spans}, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := kvstore.NewMirror(kvstore.MirrorConfig{Spans: []kvstore.Span{{"a", "b"}, {"b", "c"}}}, nil); err != nil {
		t.Errorf("neighbours: %v", err)
	}
}

// Whatever breaks, each batch leads to exactly the store's state at its
// revision, revisions never go back, and in the end everything is there.
func TestMirror_followsThroughEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"))
		lossy := rapid.Float64Range(0, 0.5).Draw(t, "loss")
		slowest := rapid.Int64Range(1, 2000).Draw(t, "delay ms")
		faulty := true
		v := w.view(t, kvstore.MirrorConfig{
			PageSize: rapid.Int64Range(1, 20).Draw(t, "page"), MaxHeld: rapid.IntRange(1, 50).Draw(t, "held")})
		v.delay = func() time.Duration { return time.Duration(w.random.Int64N(slowest)+1) * time.Millisecond }
		v.loseReq = func(kvstore.Call) bool { return faulty && w.random.Float64() < lossy }
		v.loseAns = v.loseReq
		for i := range 200 {
			switch w.random.IntN(12) {
			case 0:
				v.breakWatches()
			case 1:
				v.deaf = true
				v.breakWatches()
			case 2:
				v.deaf = false
				v.breakWatches()
			case 3:
				_ = w.model.Compact(w.model.Compacted() + w.random.Int64N(w.model.Revision()-w.model.Compacted()+1))
			case 4:
				v.paused = max(v.paused, w.now) + time.Duration(w.random.Int64N(int64(10*time.Second)))
			case 5:
				v.do(func(now time.Duration) { v.Want(now, w.model.Revision()) })
			default:
				k, value := w.random.IntN(10), fmt.Sprint(i)
				if w.random.IntN(3) == 0 {
					value = ""
				}
				w.write(fmt.Sprint("id/", k), value, fmt.Sprint("tomb/", w.random.IntN(10)), value, fmt.Sprint("idle/", k), fmt.Sprint(i))
			}
			w.run(w.now + time.Duration(w.random.Int64N(int64(2*time.Second))))
		}
		w.wakeAll()
		faulty, v.deaf = false, false
		v.delay = func() time.Duration { return time.Millisecond }
		v.breakWatches()
		w.run(w.now + 30*time.Second)
		v.settle(30 * time.Second)
		if v.back != nil {
			t.Fatalf("taken for a restore: %+v", v.back)
		}
	})
}

func TestMirrorIndex(t *testing.T) {
	kv := func(key string, mod int64) kvstore.Event {
		return kvstore.Event{KV: kvstore.KV{Key: key, ModRevision: mod}}
	}
	gone := func(key string, mod int64) kvstore.Event {
		return kvstore.Event{Delete: true, KV: kvstore.KV{Key: key, ModRevision: mod}}
	}
	x := kvstore.MirrorIndex{}
	for i, step := range []struct{ batch, want []kvstore.Event }{
		{[]kvstore.Event{kv("a", 1), kv("b", 2), kv("c", 3)}, []kvstore.Event{kv("a", 1), kv("b", 2), kv("c", 3)}},
		{[]kvstore.Event{kv("a", 1), kv("c", 5), kv("d", 6)}, []kvstore.Event{gone("b", 102), kv("c", 5), kv("d", 6)}},
		{[]kvstore.Event{kv("a", 1), kv("c", 4), kv("d", 6)}, []kvstore.Event{kv("c", 4)}}, // a restored store's
		{nil, []kvstore.Event{gone("a", 104), gone("c", 104), gone("d", 104)}},
	} {
		got := x.Apply(kvstore.MirrorBatch{Reset: true, Revision: int64(101 + i), Events: step.batch})
		if !cmp.Equal(step.want, got) {
			t.Errorf("step %d: %s", i, cmp.Diff(step.want, got))
		}
	}
	x.Apply(kvstore.MirrorBatch{Revision: 110, Events: []kvstore.Event{kv("a", 110)}})
	if got := x.Apply(kvstore.MirrorBatch{Revision: 111, Events: []kvstore.Event{kv("a", 110), gone("b", 111), kv("a", 109)}}); len(got) != 0 {
		t.Errorf("repeats and unknown deletions are changes: %v", got)
	}
}
