// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
)

// storeOf is a modelled store that holds a content, with its leases.
func storeOf(t testing.TB, c *content) *fake.Store {
	t.Helper()
	m := fake.NewModel(fake.Limits{}, 1)
	leases := map[int64]int64{}
	for _, kv := range c.list() {
		if kv.Lease != 0 && leases[kv.Lease] == 0 {
			id, err := m.Grant(time.Hour, 0)
			if err != nil {
				t.Fatal(err)
			}
			leases[kv.Lease] = id
		}
		key := kv.Key
		// The name of a candidate or lock is its lease.
		if name := kvstore.LeaseName(kv.Lease); kv.Lease != 0 && strings.HasSuffix(key, "/"+name) {
			key = strings.TrimSuffix(key, name) + kvstore.LeaseName(leases[kv.Lease])
		}
		// Each key has a revision of its own, high enough for the marks' times.
		for m.Revision() < kv.ModRevision-1 {
			put(t, m, "filler", strconv.FormatInt(m.Revision(), 10), 0)
		}
		put(t, m, key, string(kv.Value), leases[kv.Lease])
	}
	return fake.NewStore(m, nil)
}

func put(t testing.TB, m *fake.Model, key, value string, lease int64) {
	t.Helper()
	if _, err := m.Txn(kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: key, Value: []byte(value), Lease: lease}}}); err != nil {
		t.Fatalf("%s: %v", key, err)
	}
}

func planOf(t testing.TB, s kvstore.Store, codes ...Code) Plan {
	t.Helper()
	kvs, rev, err := Read(context.Background(), s, newLayout(t))
	if err != nil {
		t.Fatal(err)
	}
	return NewPlan(kvs, rev, Options{Layout: newLayout(t)}, codes...)
}

func findingsOf(t testing.TB, s kvstore.Store) []Finding {
	t.Helper()
	kvs, rev, err := Read(context.Background(), s, newLayout(t))
	if err != nil {
		t.Fatal(err)
	}
	return Store(kvs, rev, Options{Layout: newLayout(t)}).Findings
}

func countOf(fs []Finding, code Code) (n int) {
	for _, f := range fs {
		if f.Code == code {
			n++
		}
	}
	return n
}

// repaired breaks the sound store so that a code's repair is possible, and
// says what the store holds afterwards ("": the key is gone).
type repaired struct {
	code   Code
	name   string
	byName bool
	edit   func(*content)
	want   map[string]string
}

func repairedCases() []repaired {
	leased := func(key string) func(*content) {
		return func(c *content) { c.lease(key, string(c.kvs[key].Value), 5) }
	}
	nobodyLeads := func(c *content) { c.del(own + "election/1f") }
	return []repaired{
		{KeyMalformed, "a master without a number", false, func(c *content) { c.put(ids+"x", web) }, map[string]string{ids + "x": ""}},
		{ValueMalformed, "an idle mark", false, func(c *content) { c.put(own+"idle/302", "{") }, map[string]string{own + "idle/302": ""}},
		{ValueMalformed, "a gone mark is not forgotten", false, func(c *content) { c.put(own+"gone/n7", "{") }, map[string]string{own + "gone/n7": `"served_s":30`}},
		{ValueMalformed, "a tombstone", false, func(c *content) { c.put(own+"tombstones/303", "x") },
			map[string]string{own + "tombstones/303": `"signet:unreadable=303;"`}},
		{ValueMalformed, "a tombstone of a live number", false, func(c *content) { c.put(own+"tombstones/300", "x") },
			map[string]string{own + "tombstones/300": "", ids + "300": web}},
		{ValueMalformed, "a tombstone that still names its labels", false, func(c *content) {
			c.put(own+"tombstones/303", strings.Replace(tombstone(old, "over", 9), `"over"`, `"over and out"`, 1))
		}, map[string]string{own + "tombstones/303": `"` + old + `"`}},
		{ValueMalformed, "a reference", false, func(c *content) { c.put(refs+web+"/n1", "three hundred") }, map[string]string{refs + web + "/n1": "300"}},
		{ValueMalformed, "a reference of nothing", false, func(c *content) { c.put(refs+"k8s:app=x;/pin-x", "?") }, map[string]string{refs + "k8s:app=x;/pin-x": ""}},
		{ValueMalformed, "an address", true, func(c *content) { c.put(addresses+"10.0.0.9", "{") }, map[string]string{addresses + "10.0.0.9": ""}},
		{LabelsMalformed, "a master that references name", false, func(c *content) { nobodyLeads(c); c.put(ids+"301", "\xff") }, map[string]string{ids + "301": db}},
		{LabelsMalformed, "a master that nobody names", false, func(c *content) { c.put(ids+"302", "\xff") },
			map[string]string{ids + "302": "", own + "idle/302": "", own + "tombstones/302": `"pending"`}},
		{LabelsMalformed, "a master of another cluster", false, func(c *content) { c.put(ids+"70000", "\xff") },
			map[string]string{ids + "70000": "", own + "tombstones/70000": ""}},
		{LabelsMalformed, "a reference", false, func(c *content) { c.put(refs+"app=x;/n1", "300") }, map[string]string{refs + "app=x;/n1": ""}},
		{LabelsNotCanonical, "a master", false, func(c *content) { c.put(ids+"310", "k8s:b=1;k8s:a=1;") },
			map[string]string{ids + "310": "", own + "tombstones/310": "signet:unreadable=310;"}},
		{LeaseUnexpected, "a master", false, leased(ids + "300"), map[string]string{ids + "300": web}},
		{LeaseUnexpected, "a tombstone", false, leased(own + "tombstones/303"), map[string]string{own + "tombstones/303": "older"}},
		{TimeAhead, "an idle mark", false, func(c *content) { c.put(own+"idle/302", mark(900, 900)) }, map[string]string{own + "idle/302": `"served_s":30`}},
		{TimeAhead, "a tombstone", false, func(c *content) { c.put(own+"tombstones/303", tombstone(old, "pending", 900)) },
			map[string]string{own + "tombstones/303": `"served_s":5`}},
		{IdleWithoutMaster, "a mark", false, func(c *content) { c.put(own+"idle/310", mark(9, 9)) }, map[string]string{own + "idle/310": ""}},
		{TombstoneBesideMaster, "a tombstone", false, func(c *content) { c.put(own+"tombstones/300", tombstone(web, "done", 9)) },
			map[string]string{own + "tombstones/300": "", ids + "300": web}},
		{ReferenceMismatch, "a reference", false, func(c *content) { c.put(refs+db+"/pin-x", "302") }, map[string]string{refs + db + "/pin-x": "301"}},
		{ReferenceWithoutMaster, "another number counts", false, func(c *content) { c.put(refs+db+"/pin-x", "777") }, map[string]string{refs + db + "/pin-x": "301"}},
		{ReferenceWithoutMaster, "nobody leads", false, func(c *content) { nobodyLeads(c); c.del(ids + "300") }, map[string]string{ids + "300": web}},
		{ReferenceWithoutMaster, "nobody leads, and it was freed", false, func(c *content) {
			nobodyLeads(c)
			c.del(ids + "301")
			c.put(own+"tombstones/301", tombstone(db, "pending", 9))
		}, map[string]string{ids + "301": db, own + "tombstones/301": ""}},
		{HolderUnknown, "a reference", true, func(c *content) { c.put(refs+web+"/Node_1", "300") }, map[string]string{refs + web + "/Node_1": ""}},
		{LockWithoutLease, "a lock", false, func(c *content) { c.put(locks+web+"/5", "") }, map[string]string{locks + web + "/5": ""}},
		{NodeNameInvalid, "a gone mark", true, func(c *content) { c.put(own+"gone/pin-x", mark(9, 9)) }, map[string]string{own + "gone/pin-x": ""}},
		{PresenceWithoutLease, "a presence", true, func(c *content) { c.put(own+"nodes/n9", presence("n9")) }, map[string]string{own + "nodes/n9": ""}},
		{AddressNumberDead, "an address", true, func(c *content) { c.put(addresses+"10.0.0.1", address("10.0.0.1", 303, "signet:default:n1:ep")) },
			map[string]string{addresses + "10.0.0.1": ""}},
		{AddressOwnerUnknown, "an address", true, func(c *content) { c.put(addresses+"10.0.0.2", address("10.0.0.2", 300, "signet:")) },
			map[string]string{addresses + "10.0.0.2": ""}},
		{AddressUnreferenced, "an address", true, func(c *content) { c.put(addresses+"10.0.0.2", address("10.0.0.2", 301, "signet:default:n1:ep")) },
			map[string]string{addresses + "10.0.0.2": ""}},
		{CandidateLease, "a candidate", false, func(c *content) { c.put(own+"election/2f", `{"who":"op-2"}`) }, map[string]string{own + "election/2f": ""}},
		{ClusterIDFree, "an id", false, func(c *content) { c.del("signet/v1/ids/0") }, map[string]string{"signet/v1/ids/0": "default"}},
		{ClusterIDTwice, "an id", true, func(c *content) { c.put("signet/v1/ids/9", "default") }, map[string]string{"signet/v1/ids/9": ""}},
	}
}

// Each repair removes its finding, brings no worse one, and writes what is
// meant; one that can take something away is done by name only; and the plan
// alone writes nothing.
func TestEachRepair(t *testing.T) {
	shown := map[Code]bool{}
	for _, tc := range repairedCases() {
		shown[tc.code] = true
		t.Run(string(tc.code)+" "+tc.name, func(t *testing.T) {
			c := sound()
			tc.edit(c)
			s := storeOf(t, c)
			before := findingsOf(t, s)
			if countOf(before, tc.code) == 0 {
				t.Fatalf("the store is not broken: %v", brief(before))
			}
			plan := planOf(t, s)
			if tc.byName {
				if len(plan.Steps) > 0 || !slices.ContainsFunc(plan.Left, func(l Left) bool { return l.Code == tc.code && strings.Contains(l.Why, "only when the code is named") }) {
					t.Errorf("without the name: steps %+v, left %+v", plan.Steps, plan.Left)
				}
				plan = planOf(t, s, tc.code)
			}
			s.Do(func(m *fake.Model) {
				if again := m.Revision(); again != plan.Position.Revision {
					t.Errorf("planning wrote: revision %d, then %d", plan.Position.Revision, again)
				}
			})
			results, err := Apply(context.Background(), s, newLayout(t), plan)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				if r.Fate != Done || r.Revision == 0 || r.Why == "" {
					t.Errorf("%+v", r)
				}
			}
			after := findingsOf(t, s)
			if countOf(after, tc.code) != 0 {
				t.Errorf("still there: %v", brief(after))
			}
			for _, f := range after {
				if f.Severity > Info && countOf(before, f.Code) == 0 {
					t.Errorf("the repair brought %s %s: %s", f.Code, f.Object, f.Text)
				}
			}
			compareWith(t, s, tc.want)
		})
	}
	for _, r := range Repairs() {
		if (r.Mode != Never) != shown[r.Code] {
			t.Errorf("%s is repaired %q, and shown: %v", r.Code, r.Mode, shown[r.Code])
		}
	}
}

func compareWith(t *testing.T, s kvstore.Store, want map[string]string) {
	t.Helper()
	for key, part := range want {
		got, err := s.Range(context.Background(), kvstore.RangeRequest{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case part == "" && len(got.KVs) > 0:
			t.Errorf("%s is still there: %s", key, got.KVs[0].Value)
		case part != "" && (len(got.KVs) == 0 || !strings.Contains(string(got.KVs[0].Value), part) || got.KVs[0].Lease != 0):
			t.Errorf("%s: %+v, want %s", key, got.KVs, part)
		}
	}
}

// What is left says why, and nothing is planned for it.
func TestWhatIsLeft(t *testing.T) {
	for _, tc := range []struct {
		name, why string
		code      Code
		edit      func(*content)
	}{
		{"a candidate writes masters back", "writes the master back within seconds", ReferenceWithoutMaster, func(c *content) { c.del(ids + "301") }},
		{"a number that others had", "was freed from", ReferenceWithoutMaster, func(c *content) {
			c.del(own + "election/1f")
			c.put(refs+"k8s:app=z;/pin-x", "303")
		}},
		{"a number of two sets", "several label sets", ReferenceWithoutMaster, func(c *content) {
			c.del(own + "election/1f")
			c.put(refs+"k8s:app=z;/pin-x", "777")
			c.put(refs+"k8s:app=y;/pin-x", "777")
		}},
		{"another cluster's number", "in this cluster", ReferenceWithoutMaster, func(c *content) {
			c.del(own + "election/1f")
			c.put(refs+"k8s:app=z;/pin-x", "70003")
		}},
		{"a leased reference", "another allocator", ReferenceMismatch, func(c *content) { c.lease(refs+db+"/10.1.1.1", "302", 5) }},
		{"a reference whose set has none", "allocates again", ReferenceMismatch, func(c *content) { c.put(refs+"k8s:app=z;/pin-x", "300") }},
		{"a leased key", "hangs on the lease", KeyMalformed, func(c *content) { c.lease(ids+"x", web, 5) }},
		{"a leased presence", "hangs on the lease", ValueMalformed, func(c *content) { c.lease(own+"nodes/n9", presence("n8"), 9) }},
		{"a lock on another lease", "hangs on the lease", LockWithoutLease, func(c *content) { c.lease(locks+web+"/7", "", 6) }},
		{"a cluster record", "Restore a snapshot", ValueMalformed, func(c *content) { c.put(own+"cluster", "{") }},
		{"no lineage", "start an operator", TimeAhead, func(c *content) { c.put(own+"idle/302", mark(900, 9)); c.del(own + "lineage") }},
		{"an unreadable master of two sets", "several label sets", LabelsMalformed, func(c *content) {
			c.put(ids+"777", "\xff")
			c.put(refs+"k8s:app=z;/pin-x", "777")
			c.put(refs+"k8s:app=y;/pin-x", "777")
		}},
		{"masters are the leader's", "stop the operators", LabelsMalformed, func(c *content) { c.put(ids+"301", "\xff") }},
		{"a leased address", "hangs on the lease", AddressOwnerUnknown, func(c *content) { c.lease(addresses+"10.0.0.2", address("10.0.0.2", 300, "signet:"), 5) }},
		{"the leader's records", "leader rewrites it", LeaseUnexpected, func(c *content) { c.lease(own+"lineage", string(c.kvs[own+"lineage"].Value), 5) }},
		{"others' addresses", "Another program", AddressNumberDead, func(c *content) { c.put(addresses+"10.0.0.8", address("10.0.0.8", 999, "")) }},
	} {
		c := sound()
		tc.edit(c)
		plan := planOf(t, storeOf(t, c), tc.code)
		if len(plan.Steps) > 0 || len(plan.Left) == 0 || plan.Left[0].Code != tc.code || !strings.Contains(plan.Left[0].Why, tc.why) {
			t.Errorf("%s: steps %+v, left %+v", tc.name, plan.Steps, plan.Left)
		}
	}
}

// Where one step waits for another, the next plan has it.
func TestStepsThatWait(t *testing.T) {
	c := sound()
	c.put(ids+"301", "\xff")       // unreadable, and
	c.put(ids+"311", db)           // its set has another master,
	c.put(refs+db+"/pin-b", "301") // which both references should name
	c.lease(own+"tombstones/303", tombstone(old, "pending", 900), 5)
	s := storeOf(t, c)
	rounds := 0
	for ; rounds < 5; rounds++ {
		plan := planOf(t, s)
		if len(plan.Steps) == 0 {
			break
		}
		results, err := Apply(context.Background(), s, newLayout(t), plan)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Fate != Done {
				t.Errorf("round %d: %+v", rounds, r)
			}
		}
	}
	if after := findingsOf(t, s); rounds != 2 || len(after) != 0 {
		t.Errorf("%d rounds, findings %v", rounds, brief(after))
	}
	compareWith(t, s, map[string]string{ids + "301": "", own + "tombstones/301": "unreadable", refs + db + "/pin-me": "311", refs + db + "/pin-b": "311"})
}

// A step whose ground changed does nothing, whatever changed: each guard of
// each repair is tried.
func TestChangedMeanwhile(t *testing.T) {
	for _, tc := range repairedCases() {
		c := sound()
		tc.edit(c)
		plan := planOf(t, storeOf(t, c), tc.code)
		for si, step := range plan.Steps {
			for _, g := range step.Guards {
				s := storeOf(t, c)
				key := string(g.Key)
				if g.Prefix {
					key += "99"
				}
				var changed string
				s.Do(func(m *fake.Model) {
					put(t, m, key, "changed", 0)
					changed = contentOf(t, m)
				})
				one := plan
				one.Steps = plan.Steps[si : si+1]
				one.Position = allocator.Position{} // the store of the same content, made anew
				results, err := Apply(context.Background(), s, newLayout(t), one)
				if key == own+"lineage" || err != nil {
					t.Fatalf("%s %s: %v", tc.code, key, err)
				}
				if len(results) != 1 || results[0].Fate != Changed || !strings.Contains(results[0].Detail, strconv.Quote(key)) {
					t.Errorf("%s %s: %+v", tc.code, key, results)
				}
				s.Do(func(m *fake.Model) {
					if after := contentOf(t, m); after != changed {
						t.Errorf("%s %s: it wrote nevertheless", tc.code, key)
					}
				})
			}
		}
	}
}

func contentOf(t testing.TB, m *fake.Model) string {
	t.Helper()
	r, err := m.Range(kvstore.RangeRequest{Key: "\x00", RangeEnd: "\x00"})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %v", r.Revision, r.KVs)
}

// A plan survives the way through a file, whatever bytes the store holds.
func TestPlanRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := sound()
		for _, tc := range rapid.SliceOfN(rapid.SampledFrom(repairedCases()), 0, 8).Draw(rt, "broken") {
			tc.edit(c)
		}
		c.put(ids+"x"+string(rapid.SliceOf(rapid.Byte()).Draw(rt, "key")), string(rapid.SliceOf(rapid.Byte()).Draw(rt, "value")))
		plan := NewPlan(c.list(), c.rev, Options{Layout: newLayout(t)})
		data, err := json.Marshal(plan)
		if err != nil {
			rt.Fatal(err)
		}
		var back Plan
		if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, plan) {
			rt.Fatalf("%v\n%+v\n%+v", err, back, plan)
		}
		if err := back.Check(newLayout(t)); err != nil {
			rt.Fatal(err)
		}
	})
}

func FuzzBytes(f *testing.F) {
	for _, s := range []string{"", "plain", "base64:", "\xff", "base64:!!"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, err := Bytes(s).MarshalText()
		var back Bytes
		if err != nil || back.UnmarshalText(text) != nil || string(back) != s {
			t.Fatalf("%q is %q, and back %q", s, text, back)
		}
		_ = back.UnmarshalText([]byte(s)) // anything may come out of a file
	})
}

// Plans that are not for this store, or that are no repairs, are refused.
func TestPlansThatAreRefused(t *testing.T) {
	c := sound()
	c.put(own+"idle/310", mark(9, 9))
	s := storeOf(t, c)
	good := planOf(t, s)
	value := Bytes("x")
	for name, edit := range map[string]func(*Plan){
		"format":                           func(p *Plan) { p.Format = 2 },
		"for cluster":                      func(p *Plan) { p.Cluster = "other" },
		"no repair touches":                func(p *Plan) { p.Steps[0].Writes[0].Key = "elsewhere" },
		"lineage\", which no repair":       func(p *Plan) { p.Steps[0].Writes[0].Key = own + "lineage" },
		"without comparing":                func(p *Plan) { p.Steps[0].Guards = nil },
		"writes nothing":                   func(p *Plan) { p.Steps[0].Writes = nil },
		"without comparing how it":         func(p *Plan) { p.Steps[0].Writes = append(p.Steps[0].Writes, Write{Key: ids + "300", Value: &value}) },
		"another store, or before this":    func(p *Plan) { p.Position.Nonce = "c" },
		"or before this one was restored;": func(p *Plan) { p.Position.Counter = 99 },
	} {
		p := planOf(t, s)
		edit(&p)
		var refused *PlanError
		if results, err := Apply(context.Background(), s, newLayout(t), p); !errors.As(err, &refused) || !strings.Contains(err.Error(), name) || results != nil {
			t.Errorf("%s: %+v, %v", name, results, err)
		}
	}
	if results, err := Apply(context.Background(), s, newLayout(t), good); err != nil || results[0].Fate != Done {
		t.Errorf("the good one: %+v, %v", results, err)
	}
}

// A lost answer is settled by sending the same again: done once, never twice.
func TestLostAnswers(t *testing.T) {
	lost := fmt.Errorf("cut: %w", kvstore.ErrUnknownOutcome)
	for name, tc := range map[string]struct {
		fault func(n int) fake.Fault
		want  Fate
	}{
		"it landed":         {func(n int) fake.Fault { return fake.Fault{After: map[int]error{1: lost}[n]} }, Done},
		"it did not":        {func(n int) fake.Fault { return fake.Fault{Before: map[int]error{1: lost}[n]} }, Done},
		"nobody answers":    {func(int) fake.Fault { return fake.Fault{Before: lost} }, Unknown},
		"it is refused":     {func(int) fake.Fault { return fake.Fault{Before: kvstore.ErrTooLarge} }, Failed},
		"lost, then refuse": {func(n int) fake.Fault { return fake.Fault{Before: map[int]error{1: lost, 2: kvstore.ErrTooLarge}[n]} }, Unknown},
	} {
		c := sound()
		c.put(own+"idle/310", mark(9, 9))
		s := storeOf(t, c)
		plan := planOf(t, s)
		n := 0
		s.SetFault(func(call string) fake.Fault {
			if call != "Txn" {
				return fake.Fault{}
			}
			n++
			return tc.fault(n)
		})
		results, err := Apply(context.Background(), s, newLayout(t), plan)
		if err != nil || len(results) != 1 || results[0].Fate != tc.want {
			t.Errorf("%s: %+v, %v", name, results, err)
		}
	}
}

// Every code has a repair, or says why there is none.
func TestEveryCodeHasARepair(t *testing.T) {
	var codes, repairs []Code
	for _, c := range Codes() {
		codes = append(codes, c.Code)
	}
	for _, r := range Repairs() {
		repairs = append(repairs, r.Code)
		if r.Text == "" || !strings.HasSuffix(r.Text, ".") || (r.Mode == Never) != (r.plan == nil) || strings.Contains(r.Text, "|") {
			t.Errorf("%+v lacks something", r)
		}
	}
	if !slices.Equal(codes, repairs) {
		t.Errorf("the repairs are those of %v, want %v", repairs, codes)
	}
}

// Planning takes anything, and equal content gives equal plans.
func TestPlanOfAnything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := sound()
		keys := slices.Sorted(maps.Keys(c.kvs))
		for i := range rapid.IntRange(0, 6).Draw(rt, "edits") {
			key := rapid.SampledFrom(keys).Draw(rt, "key")
			switch rapid.IntRange(0, 2).Draw(rt, "how") {
			case 0:
				c.del(key)
			case 1:
				c.lease(key, string(c.kvs[key].Value), int64(rapid.IntRange(0, 9).Draw(rt, "lease")))
			case 2:
				c.put(key, string(c.kvs[rapid.SampledFrom(keys).Draw(rt, "other")].Value)+strconv.Itoa(i))
			}
		}
		plan := NewPlan(c.list(), c.rev, Options{Layout: newLayout(t)})
		if again := NewPlan(c.list(), c.rev, Options{Layout: newLayout(t)}); !reflect.DeepEqual(plan, again) {
			rt.Fatalf("%+v\n%+v", plan, again)
		}
		written := map[Bytes]bool{}
		for _, s := range plan.Steps {
			for _, w := range s.Writes {
				if written[w.Key] {
					rt.Fatalf("%q is written twice: %+v", w.Key, plan.Steps)
				}
				written[w.Key] = true
			}
		}
		if err := plan.Check(newLayout(t)); err != nil {
			rt.Fatal(err)
		}
	})
}
