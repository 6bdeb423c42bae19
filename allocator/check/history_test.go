// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
)

// story is a history in lines: each is one revision, from 10 on, and holds
// changes parted by " | ": "key=value" puts, "-key" deletes.
func story(lines ...string) []kvstore.Event {
	var out []kvstore.Event
	for i, line := range lines {
		rev := int64(10 + i)
		for _, text := range strings.Split(line, " | ") {
			if key, ok := strings.CutPrefix(text, "-"); ok {
				out = append(out, kvstore.Event{Delete: true, KV: kvstore.KV{Key: key, ModRevision: rev}})
				continue
			}
			key, value, _ := strings.Cut(text, " := ")
			out = append(out, kvstore.Event{KV: kvstore.KV{Key: key, Value: []byte(value), CreateRevision: rev, ModRevision: rev, Version: 1}})
		}
	}
	return out
}

func TestHistoryFindsWhatOnlyASequenceShows(t *testing.T) {
	const (
		birth   = ids + "300 := " + web + " | " + refs + web + "/n1 := 300"
		release = "-" + refs + web + "/n1"
		tombs   = own + "tombstones/300"
		lineage = own + "lineage := "
		cluster = own + `cluster := {"name":"default","id":0,"max_connected_clusters":255,"local_bits":`
	)
	idle := own + "idle/300 := " + mark(9, 9)
	collect := "-" + ids + "300 | -" + own + "idle/300 | " + tombs + " := " + tombstone(web, "pending", 9)
	done := tombs + " := " + tombstone(web, "done", 9)
	toDB := ids + "300 := " + db + " | " + refs + db + "/n1 := 300"
	for name, tc := range map[string]struct {
		lines []string
		want  []string // "revision invariant object"
	}{
		"a life, its reuse by itself, and by others in time": {lines: []string{
			birth, release, idle, collect, "-" + tombs + " | " + birth, release, idle, collect, done, "-" + tombs + " | " + toDB}},
		"the tombstone is dropped after its quarantine": {lines: []string{birth, release, idle, collect, done, "-" + tombs, toDB}},
		"keys elsewhere":                                      {lines: []string{"elsewhere := \xff", "-elsewhere", own + "later/x := \xff", "-" + ids + "x"}},
		"a second number":                                     {lines: []string{birth, ids + "301 := " + web}, want: []string{"11 I1 " + ids + "301"}},
		"a reference to another set's number":                 {lines: []string{birth, refs + db + "/n1 := 300"}, want: []string{"11 I2 " + refs + db + "/n1"}},
		"a reference to no number":                            {lines: []string{refs + db + "/n1 := 300"}, want: []string{"10 I5 " + refs + db + "/n1"}},
		"a reference to a freed number":                       {lines: []string{birth, release, idle, collect, refs + web + "/n1 := 300"}, want: []string{"14 I5 " + refs + web + "/n1"}},
		"new labels in life":                                  {lines: []string{birth, ids + "300 := " + db}, want: []string{"11 I3 " + ids + "300"}},
		"a tombstone of other labels":                         {lines: []string{birth, release, idle, strings.ReplaceAll(collect, web, db)}, want: []string{"13 I3 " + tombs}},
		"a tombstone in life":                                 {lines: []string{birth, done}, want: []string{"11 I3 " + tombs}},
		"taken beside the tombstone":                          {lines: []string{birth, release, idle, collect, birth}, want: []string{"14 I3 " + ids + "300"}},
		"taken by others in quarantine":                       {lines: []string{birth, release, idle, collect, "-" + tombs + " | " + toDB}, want: []string{"14 I4 " + ids + "300"}},
		"forgotten in quarantine, then taken":                 {lines: []string{birth, release, idle, collect, "-" + tombs, toDB}, want: []string{"15 I4 " + ids + "300"}},
		"taken by others with no tombstone ever":              {lines: []string{birth, release, "-" + ids + "300", toDB}, want: []string{"13 I4 " + ids + "300"}},
		"an old quarantine counts once":                       {lines: []string{birth, release, idle, collect, done, "-" + tombs + " | " + birth, release, idle, collect, "-" + tombs + " | " + toDB}, want: []string{"19 I4 " + ids + "300"}},
		"freed without quarantine":                            {lines: []string{birth, release, idle, strings.Replace(collect, "pending", "done", 1)}, want: []string{"13 I4 " + tombs}},
		"deleted under a reference":                           {lines: []string{birth, "-" + ids + "300"}, want: []string{"11 I5 " + ids + "300"}},
		"collected under a reference":                         {lines: []string{birth, release, idle, refs + web + "/n2 := 300", collect}, want: []string{"14 I5 " + ids + "300"}},
		"collected without an idle mark":                      {lines: []string{birth, release, collect}, want: []string{"12 I5 " + ids + "300"}},
		"marked idle under a reference":                       {lines: []string{birth, idle}, want: []string{"11 I5 " + own + "idle/300"}},
		"a duplicate without references is taken away":        {lines: []string{birth, ids + "301 := " + web, "-" + ids + "301"}, want: []string{"11 I1 " + ids + "301"}},
		"a number that is not the cluster's":                  {lines: []string{ids + "70000 := " + web}, want: []string{"10 I9 " + ids + "70000"}},
		"a set that is never stored":                          {lines: []string{ids + "300 := reserved:host=;"}, want: []string{"10 I9 " + ids + "300"}},
		"a key and a value that cannot be read":               {lines: []string{ids + "x := " + web, refs + web + "/n1 := x"}, want: []string{"10 I9 " + ids + "x", "11 I9 " + refs + web + "/n1"}},
		"a master that becomes unreadable, and is put right":  {lines: []string{birth, ids + "300 := \xff", ids + "300 := " + web}, want: []string{"11 I9 " + ids + "300"}},
		"a master that becomes unreadable, then another's":    {lines: []string{birth, ids + "300 := \xff", release, toDB}, want: []string{"11 I9 " + ids + "300", "13 I4 " + ids + "300"}},
		"a lineage that goes on":                              {lines: []string{lineage + `{"counter":1,"served_s":0,"terms":[{"nonce":"a","first":1,"last":1}]}`, lineage + `{"counter":2,"served_s":0,"terms":[{"nonce":"a","first":1,"last":2}]}`}},
		"a lineage that goes back":                            {lines: []string{lineage + `{"counter":2,"served_s":5,"terms":[{"nonce":"a","first":1,"last":2}]}`, lineage + `{"counter":2,"served_s":4,"terms":[{"nonce":"a","first":1,"last":2}]}`}, want: []string{"11 I7 " + own + "lineage", "11 I7 " + own + "lineage"}},
		"a lineage that contradicts itself, and one deletion": {lines: []string{lineage + `{"counter":2,"served_s":5}`, "-" + own + "lineage"}, want: []string{"10 I7 " + own + "lineage", "11 I7 " + own + "lineage"}},
		"a cluster record that changes": {lines: []string{cluster + `16,"format":1}`, cluster + `16,"format":1}`, cluster + `24,"format":1}`, "-" + own + "cluster"},
			want: []string{"12 I9 " + own + "cluster", "13 I9 " + own + "cluster"}},
	} {
		h := NewHistory(Options{Layout: newLayout(t), Space: newSpace(t, "default", 0)})
		if err := h.Add(story(tc.lines...)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for _, v := range h.Violations() {
			text := v.String()
			got = append(got, strings.Join([]string{strings.Fields(text)[1][:2], string(v.Invariant), v.Object}, " "))
			if v.Text == "" || strings.Contains(text, "%!") {
				t.Errorf("%s: a violation lacks something: %s", name, text)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, tc.want)
		}
	}
}

// Without a configuration the range is that of the cluster record, from its birth on.
func TestHistoryTakesTheSpaceOfTheStore(t *testing.T) {
	h := NewHistory(Options{Layout: newLayout(t)})
	record := own + `cluster := {"name":"three","id":3,"max_connected_clusters":255,"local_bits":16,"format":1}`
	if err := h.Add(story(ids+"300 := "+web, ids+"4 := "+old, record, ids+"301 := "+db)); err != nil {
		t.Fatal(err)
	}
	got := h.Violations()
	if len(got) != 2 || got[0].Object != ids+"4" || got[1].Object != ids+"301" || got[1].Revision != 13 {
		t.Errorf("violations %v", got)
	}
}

func TestHistoryRefusesDisorder(t *testing.T) {
	h := NewHistory(Options{Layout: newLayout(t)})
	events := story("elsewhere := 1 | else := 2", "elsewhere := 3")
	if err := h.Add(events[:2]); err != nil {
		t.Fatal(err)
	}
	var order *OrderError
	for _, bad := range [][]kvstore.Event{events[:1], events, {events[2], events[1]}} {
		if err := h.Add(bad); !errors.As(err, &order) || order.Error() == "" {
			t.Errorf("Add of %v: %v", bad, err)
		}
	}
	if err := h.Add(events[2:]); err != nil || h.Revision() != 11 {
		t.Errorf("revision %d, %v", h.Revision(), err)
	}
}

func TestFollow(t *testing.T) {
	l := live(t)
	s := fake.NewStore(l.model, nil)
	h := NewHistory(Options{Layout: l.layout})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := h.Follow(ctx, s, l.model.Revision()); err != nil || len(h.Violations()) != 0 || h.Events() == 0 {
		t.Fatalf("%v, %v, %d events", err, h.Violations(), h.Events())
	}

	// It goes on where it was: a break loses nothing and repeats nothing.
	judged := h.Events()
	var broken error
	done := make(chan struct{})
	go func() { defer close(done); broken = h.Follow(ctx, s, 0) }()
	put := func(key, value string) {
		if _, err := s.Txn(ctx, kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: key, Value: []byte(value)}}}); err != nil {
			t.Error(err)
		}
	}
	put(ids+"9999", web)
	for h.Events() == judged && ctx.Err() == nil {
		runtime.Gosched()
	}
	s.BreakWatches(errors.ErrUnsupported)
	<-done
	if !errors.Is(broken, errors.ErrUnsupported) {
		t.Errorf("the watch broke: %v", broken)
	}
	put(ids+"9998", web)
	var head int64
	s.Do(func(m *fake.Model) { head = m.Revision() })
	if err := h.Follow(ctx, s, head); err != nil {
		t.Fatal(err)
	}
	if got := h.Violations(); h.Events() != judged+2 || len(got) != 2 || got[1].Object != ids+"9998" {
		t.Errorf("%d events, %v", h.Events()-judged, got)
	}

	s.Do(func(m *fake.Model) {
		if _, err := m.Txn(kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: "x"}}}); err != nil {
			t.Error(err)
		}
		if _, err := m.Txn(kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: "x"}}}); err != nil {
			t.Error(err)
		}
		if err := m.Compact(m.Revision()); err != nil {
			t.Error(err)
		}
	})
	if err := h.Follow(ctx, s, head+2); !errors.Is(err, kvstore.ErrCompacted) {
		t.Errorf("compaction overtook: %v", err)
	}
	cancel()
	if err := h.Follow(ctx, s, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
}

// A history takes any events in order.
func FuzzHistory(f *testing.F) {
	for _, kv := range sound().list() {
		f.Add(kv.Key, kv.Value, kv.Key, kv.Value)
	}
	f.Add(own+"tombstones/300", []byte(tombstone(web, "done", 9)), ids+"300", []byte(db))
	l := newLayout(f)
	f.Fuzz(func(t *testing.T, key1 string, value1 []byte, key2 string, value2 []byte) {
		h := NewHistory(Options{Layout: l})
		put := func(rev int64, key string, value []byte) kvstore.Event {
			return kvstore.Event{KV: kvstore.KV{Key: key, Value: value, ModRevision: rev, CreateRevision: rev}}
		}
		events := []kvstore.Event{
			put(2, key1, value1), put(2, key2, value2), put(3, ids+"300", []byte(web)),
			put(4, key2, value1), {Delete: true, KV: kvstore.KV{Key: key1, ModRevision: 5}}, put(6, key1, value2),
		}
		if err := h.Add(events); err != nil {
			t.Fatal(err)
		}
		for _, v := range h.Violations() {
			if v.Object == "" || v.Text == "" || v.Revision < 2 {
				t.Fatalf("a violation lacks something: %+v", v)
			}
		}
	})
}
