// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

// brief is a finding as the tables below write it.
func brief(fs []Finding) []string {
	out := []string{}
	for _, f := range fs {
		out = append(out, string(f.Code)+" "+f.Object)
	}
	return out
}

func TestSoundStoreHasNoFindings(t *testing.T) {
	c := sound()
	for name, space := range map[string]identity.Space{"configured": newSpace(t, "default", 0), "from the store": {}} {
		r := Store(c.list(), c.rev, Options{Layout: newLayout(t), Space: space})
		want := Report{Revision: c.rev, Keys: 17, Identities: 3, References: 3, Nodes: 1, Addresses: 1, Findings: []Finding{}}
		if !reflect.DeepEqual(r, want) || r.Worst() != 0 {
			t.Errorf("%s: %+v; want %+v", name, r, want)
		}
	}
	if r := Store(nil, 1, Options{Layout: newLayout(t)}); len(r.Findings) != 0 || r.Keys != 0 {
		t.Errorf("the empty store: %+v", r)
	}
}

// storeCase breaks the sound store.
type storeCase struct {
	name  string
	edit  func(*content)
	space identity.Space // zero: id 0
	want  []string       // code and object, in the report's order
}

func grammarCases() []storeCase {
	return []storeCase{
		{name: "a table of later versions", edit: func(c *content) { c.put(own+"later/x", "1") }, want: []string{"KEY-UNKNOWN " + own + "later/x"}},
		{name: "a mirror's candidate that is none", edit: func(c *content) { c.put(own+"mirrors/peer/election/", "1") },
			want: []string{"KEY-UNKNOWN " + own + "mirrors/peer/election/"}},
		{name: "a master without a number", edit: func(c *content) { c.put(ids+"x", web) }, want: []string{"KEY-MALFORMED " + ids + "x"}},
		{name: "a reference with a run of slashes", edit: func(c *content) { c.put(refs+"k8s:a=x//y;/n1", "300") },
			want: []string{"KEY-MALFORMED " + refs + "k8s:a=x//y;/n1"}},
		{name: "a reference with words", edit: func(c *content) { c.put(refs+web+"/pin-x", "three hundred") },
			want: []string{"VALUE-MALFORMED " + refs + web + "/pin-x"}},
		{name: "a tombstone that is no JSON", edit: func(c *content) { c.put(own+"tombstones/304", "{") }, want: []string{"VALUE-MALFORMED " + own + "tombstones/304"}},
		{name: "the presence of another node", edit: func(c *content) { c.lease(own+"nodes/n9", presence("n8"), 9) }, want: []string{"VALUE-MALFORMED " + own + "nodes/n9"}},
		{name: "a pair of another address", edit: func(c *content) { c.put(addresses+"10.0.0.9", address("10.0.0.8", 300, "")) },
			want: []string{"VALUE-MALFORMED " + addresses + "10.0.0.9"}},
		{name: "a master that is no label set", edit: func(c *content) { c.put(ids+"310", "\xff") }, want: []string{"LABELS-MALFORMED " + ids + "310"}},
		{name: "a reference to what is no label set", edit: func(c *content) { c.put(refs+"app=x;/n1", "300") }, want: []string{"LABELS-MALFORMED " + refs + "app=x;/n1"}},
		{name: "a master that is not sorted", edit: func(c *content) { c.put(ids+"310", "k8s:b=1;k8s:a=1;") }, want: []string{"LABELS-NOT-CANONICAL " + ids + "310"}},
		{name: "a master of a reserved set", edit: func(c *content) {
			c.put(ids+"310", "reserved:host=;")
			c.put(refs+"reserved:host=;/pin-x", "310")
		}, want: []string{"LABELS-RESERVED " + ids + "310"}},
		{name: "a reference of a set that nodes number", edit: func(c *content) { c.put(refs+"cidr:10.0.0.0/8=;/pin-x", "310") },
			want: []string{"LABELS-RESERVED " + refs + "cidr:10.0.0.0/8=;/pin-x", "REFERENCE-WITHOUT-MASTER " + refs + "cidr:10.0.0.0/8=;/pin-x"}},
		{name: "leases where none belong", edit: func(c *content) {
			for _, key := range []string{ids + "300", addresses + "10.0.0.1", own + "idle/302", own + "tombstones/303", own + "cluster", own + "lineage", "signet/v1/ids/0"} {
				c.lease(key, string(c.kvs[key].Value), 5)
			}
			c.lease(own+"gone/n7", mark(3, 3), 5)
		}, want: []string{"NODE-GONE " + own + "gone/n7", "LEASE-UNEXPECTED " + ids + "300", "LEASE-UNEXPECTED " + addresses + "10.0.0.1",
			"LEASE-UNEXPECTED " + own + "cluster", "LEASE-UNEXPECTED " + own + "gone/n7", "LEASE-UNEXPECTED " + own + "idle/302",
			"LEASE-UNEXPECTED " + own + "lineage", "LEASE-UNEXPECTED " + own + "tombstones/303", "LEASE-UNEXPECTED signet/v1/ids/0"}},
		{name: "an idle mark of a later revision", edit: func(c *content) { c.put(own+"idle/302", mark(900, 20)) }, want: []string{"TIME-AHEAD " + own + "idle/302"}},
		{name: "a tombstone of later served time", edit: func(c *content) {
			c.put(own+"tombstones/303", strings.Replace(tombstone(old, "done", 9), `"served_s":5`, `"served_s":31`, 1))
		}, want: []string{"TIME-AHEAD " + own + "tombstones/303"}},
	}
}

func identityCases() []storeCase {
	return []storeCase{
		{name: "a second number: the older one that is referenced counts", edit: func(c *content) { c.put(ids+"310", web) },
			want: []string{"DUPLICATE-IDENTITY " + ids + "310"}},
		{name: "a second number: the referenced one counts", edit: func(c *content) {
			c.put(ids+"310", web)
			c.put(refs+web+"/n1", "310")
			c.put(refs+web+"/k8s.n2", "310")
			c.put(addresses+"10.0.0.1", address("10.0.0.1", 310, "signet:default:n1:ep:1"))
		}, want: []string{"DUPLICATE-IDENTITY " + ids + "300"}},
		{name: "a second number: the one in the range counts", edit: func(c *content) { c.put(ids+"70000", db); c.put(refs+db+"/pin-me", "70000") },
			want: []string{"DUPLICATE-IDENTITY " + ids + "70000", "NUMBER-OUT-OF-RANGE " + ids + "70000"}},
		{name: "a second number: of two without a reference the older one counts", edit: func(c *content) { c.put(ids+"299", old) },
			want: []string{"IDLE-MARK-MISSING " + ids + "299", "DUPLICATE-IDENTITY " + ids + "299"}},
		{name: "two sets that name one number", edit: func(c *content) { c.put(refs+db+"/pin-me", "300"); c.put(own+"idle/301", mark(9, 9)) },
			want: []string{"IDLE-REFERENCED " + own + "idle/301", "NUMBER-SHARED " + refs + db + "/pin-me", "REFERENCE-MISMATCH " + refs + db + "/pin-me"}},
		{name: "a cluster that shares the store", edit: func(c *content) {
			c.put("signet/v1/ids/2", "two")
			c.put(ids+"131077", "k8s:app=x;")
			c.put(refs+"k8s:app=x;/n9", "131077")
			c.put(refs+web+"/pin-two", "131078")
			c.put(addresses+"10.9.0.9", address("10.9.0.9", 131077, "signet:two:n9:ep:1"))
		}, want: []string{"OTHER-CLUSTER two"}},
		{name: "numbers of another cluster", edit: func(c *content) {
			c.put(ids+"70000", "k8s:app=x;")
			c.put(own+"tombstones/70001", tombstone("k8s:app=y;", "done", 9))
			c.put(own+"idle/70002", mark(9, 9))
			c.put(refs+"k8s:app=z;/pin-x", "70003")
		}, want: []string{"IDLE-WITHOUT-MASTER " + own + "idle/70002", "NUMBER-OUT-OF-RANGE " + ids + "70000", "NUMBER-OUT-OF-RANGE " + refs + "k8s:app=z;/pin-x",
			"NUMBER-OUT-OF-RANGE " + own + "idle/70002", "NUMBER-OUT-OF-RANGE " + own + "tombstones/70001", "REFERENCE-WITHOUT-MASTER " + refs + "k8s:app=z;/pin-x"}},
		{name: "reserved numbers", edit: func(c *content) {
			c.put(ids+"4", "k8s:app=x;")
			c.put(ids+"130", "\xff")
			c.put(own+"tombstones/130", tombstone(old, "done", 9)) // one finding for one number
		},
			want: []string{"LABELS-MALFORMED " + ids + "130", "NUMBER-RESERVED " + ids + "130", "NUMBER-RESERVED " + ids + "4"}},
		{name: "no reference and no idle mark", edit: func(c *content) { c.del(own + "idle/302") }, want: []string{"IDLE-MARK-MISSING " + ids + "302"}},
		{name: "an idle mark and a reference", edit: func(c *content) { c.put(own+"idle/300", mark(9, 9)) }, want: []string{"IDLE-REFERENCED " + own + "idle/300"}},
		{name: "an idle mark of nothing", edit: func(c *content) { c.put(own+"idle/310", mark(9, 9)) }, want: []string{"IDLE-WITHOUT-MASTER " + own + "idle/310"}},
		{name: "an idle mark of a master that cannot be read", edit: func(c *content) { c.put(ids+"302", "x") },
			want: []string{"IDLE-WITHOUT-MASTER " + own + "idle/302", "LABELS-MALFORMED " + ids + "302"}},
		{name: "a tombstone of a live number", edit: func(c *content) { c.put(own+"tombstones/300", tombstone(web, "done", 9)) },
			want: []string{"TOMBSTONE-BESIDE-MASTER " + own + "tombstones/300"}},
		{name: "a tombstone of other labels", edit: func(c *content) { c.put(own+"tombstones/300", tombstone(old, "pending", 9)) },
			want: []string{"TOMBSTONE-LABELS-DIFFER " + own + "tombstones/300"}},
	}
}

func referenceCases() []storeCase {
	return []storeCase{
		{name: "another allocator's references", edit: func(c *content) {
			c.lease(refs+web+"/10.1.1.1", "300", 5)
			c.lease(refs+db+"/10.1.1.1", "301", 5)
		}, want: []string{"REFERENCE-FOREIGN 10.1.1.1"}},
		{name: "a reference to another number", edit: func(c *content) { c.put(refs+db+"/pin-x", "302") },
			want: []string{"REFERENCE-MISMATCH " + refs + db + "/pin-x"}},
		{name: "a master deleted by hand", edit: func(c *content) { c.del(ids + "301") }, want: []string{"REFERENCE-WITHOUT-MASTER " + refs + db + "/pin-me"}},
		{name: "a master collected under a reference", edit: func(c *content) { c.del(ids + "301"); c.put(own+"tombstones/301", tombstone(db, "pending", 9)) },
			want: []string{"REFERENCE-WITHOUT-MASTER " + refs + db + "/pin-me"}},
		{name: "a master overwritten by hand", edit: func(c *content) { c.put(ids+"301", "") },
			want: []string{"LABELS-MALFORMED " + ids + "301", "REFERENCE-WITHOUT-MASTER " + refs + db + "/pin-me"}},
		{name: "a holder of no kind", edit: func(c *content) { c.put(refs+web+"/Node_1", "300") }, want: []string{"HOLDER-UNKNOWN " + refs + web + "/Node_1"}},
		{name: "locks under leases", edit: func(c *content) { c.lease(locks+web+"/5", "", 5); c.lease(locks+"id/300/5", "", 5) },
			want: []string{"LOCK-HELD " + locks + "id/300/5", "LOCK-HELD " + locks + web + "/5"}},
		{name: "locks that do not end", edit: func(c *content) { c.put(locks+web+"/5", ""); c.lease(locks+"id/300/5", "", 6) },
			want: []string{"LOCK-WITHOUT-LEASE " + locks + "id/300/5", "LOCK-WITHOUT-LEASE " + locks + web + "/5"}},
	}
}

func nodeCases() []storeCase {
	return []storeCase{
		{name: "names of no node", edit: func(c *content) { c.lease(own+"nodes/N1", presence("N1"), 5); c.put(own+"gone/pin-x", mark(9, 9)) },
			want: []string{"NODE-GONE " + own + "gone/pin-x", "NODE-NAME-INVALID " + own + "gone/pin-x", "NODE-NAME-INVALID " + own + "nodes/N1"}},
		{name: "a node that is away", edit: func(c *content) { c.del(own + "nodes/n1") }, want: []string{"NODE-ABSENT n1"}},
		{name: "a node that is back", edit: func(c *content) { c.put(own+"gone/n1", mark(9, 9)) }, want: []string{"NODE-BACK " + own + "gone/n1"}},
		{name: "a node that is gone", edit: func(c *content) { c.del(own + "nodes/n1"); c.put(own+"gone/n1", mark(9, 9)) }, want: []string{"NODE-GONE " + own + "gone/n1"}},
		{name: "a gone node whose references went first", edit: func(c *content) {
			c.del(own + "nodes/n1")
			c.put(own+"gone/n1", mark(9, 9))
			c.del(refs + web + "/n1")
		}, want: []string{"NODE-GONE " + own + "gone/n1"}},
		{name: "a presence without a lease", edit: func(c *content) { c.put(own+"nodes/n1", presence("n1")) },
			want: []string{"NODE-ABSENT n1", "PRESENCE-WITHOUT-LEASE " + own + "nodes/n1"}},
		{name: "others' addresses", edit: func(c *content) {
			c.lease(addresses+"10.0.0.8", address("10.0.0.8", 300, ""), 5)
			c.lease(addresses+"10.0.0.9", address("10.0.0.9", 4, "cilium-global"), 5)
		}, want: []string{"ADDRESS-FOREIGN " + addresses}},
		{name: "an address of a dead number", edit: func(c *content) { c.put(addresses+"10.0.0.1", address("10.0.0.1", 303, "signet:default:n1:ep")) },
			want: []string{"ADDRESS-NUMBER-DEAD " + addresses + "10.0.0.1"}},
		{name: "our address with a reserved number", edit: func(c *content) { c.put(addresses+"10.0.0.1", address("10.0.0.1", 4, "signet:default:n1:ep")) },
			want: []string{"ADDRESS-NUMBER-DEAD " + addresses + "10.0.0.1"}},
		{name: "owners that are none", edit: func(c *content) {
			c.put(addresses+"10.0.0.2", address("10.0.0.2", 300, "signet:"))
			c.put(addresses+"10.0.0.3", address("10.0.0.3", 300, "signet:other:n1:ep"))
			c.put(addresses+"10.0.0.4", address("10.0.0.4", 300, "signet:default:N1:ep"))
		}, want: []string{"ADDRESS-OWNER-UNKNOWN " + addresses + "10.0.0.2", "ADDRESS-OWNER-UNKNOWN " + addresses + "10.0.0.3", "ADDRESS-OWNER-UNKNOWN " + addresses + "10.0.0.4"}},
		{name: "an address of an unknown node", edit: func(c *content) { c.put(addresses+"10.0.0.2", address("10.0.0.2", 300, "signet:default:n5:ep")) },
			want: []string{"ADDRESS-UNREFERENCED " + addresses + "10.0.0.2", "NODE-ABSENT n5"}},
		{name: "an address without a reference", edit: func(c *content) { c.put(addresses+"10.0.0.2", address("10.0.0.2", 301, "signet:default:n1:ep")) },
			want: []string{"ADDRESS-UNREFERENCED " + addresses + "10.0.0.2"}},
	}
}

func recordCases(t *testing.T) []storeCase {
	three := newSpace(t, "three", 3)
	lineage := func(value string) func(*content) { return func(c *content) { c.put(own+"lineage", value) } }
	broken := []string{"LINEAGE-BROKEN " + own + "lineage"}
	return []storeCase{
		{name: "a candidate without a lease", edit: func(c *content) { c.put(own+"election/2f", `{"who":"op-2"}`) }, want: []string{"CANDIDATE-LEASE " + own + "election/2f"}},
		{name: "a candidate on another lease", edit: func(c *content) { c.lease(own+"election/2f", `{"who":"op-2"}`, 0x3f) }, want: []string{"CANDIDATE-LEASE " + own + "election/2f"}},
		{name: "an id that is not bound", edit: func(c *content) { c.del("signet/v1/ids/0") }, want: []string{"CLUSTER-ID-FREE signet/v1/ids/0"}},
		{name: "an id of another cluster", edit: func(c *content) { c.put("signet/v1/ids/0", "other") }, want: []string{"CLUSTER-ID-TAKEN signet/v1/ids/0"}},
		{name: "a second id", edit: func(c *content) { c.put("signet/v1/ids/9", "default") }, want: []string{"CLUSTER-ID-TWICE signet/v1/ids/9"}},
		{name: "the configuration of another cluster", space: three, edit: func(*content) {},
			want: []string{"CLUSTER-ID-FREE signet/v1/ids/3", "CLUSTER-ID-TWICE signet/v1/ids/0", "CLUSTER-MISMATCH " + own + "cluster",
				"NUMBER-OUT-OF-RANGE " + ids + "300", "NUMBER-OUT-OF-RANGE " + ids + "301", "NUMBER-OUT-OF-RANGE " + ids + "302", "NUMBER-OUT-OF-RANGE " + own + "tombstones/303"}},
		{name: "no cluster record", edit: func(c *content) { c.del(own + "cluster") }, want: []string{"CLUSTER-MISSING " + own + "cluster"}},
		{name: "no lineage", edit: func(c *content) { c.del(own + "lineage") }, want: []string{"LINEAGE-MISSING " + own + "lineage"}},
		{name: "a lineage without terms", edit: lineage(`{"counter":7,"served_s":30}`), want: broken},
		{name: "a counter past its term", edit: lineage(`{"counter":8,"served_s":30,"terms":[{"nonce":"b","first":5,"last":7}]}`), want: broken},
		{name: "a nonce twice", edit: lineage(`{"counter":7,"served_s":30,"terms":[{"nonce":"b","first":1,"last":4},{"nonce":"b","first":5,"last":7}]}`), want: broken},
		{name: "no nonce", edit: lineage(`{"counter":7,"served_s":30,"terms":[{"nonce":"","first":5,"last":7}]}`), want: broken},
		{name: "terms that overlap", edit: lineage(`{"counter":7,"served_s":30,"terms":[{"nonce":"a","first":1,"last":5},{"nonce":"b","first":5,"last":7}]}`), want: broken},
		{name: "too many terms", edit: func(c *content) {
			var terms []string
			for i := range 65 {
				terms = append(terms, fmt.Sprintf(`{"nonce":"%d","first":%d,"last":%d}`, i, i+1, i+1))
			}
			c.put(own+"lineage", `{"counter":65,"served_s":30,"terms":[`+strings.Join(terms, ",")+`]}`)
		}, want: broken},
		{name: "a recovery window", edit: func(c *content) { c.put(own+"recovery", `{"since":{"revision":3,"served_s":3},"reason":"restored"}`) },
			want: []string{"RECOVERY-OPEN " + own + "recovery"}},
	}
}

func TestEachCode(t *testing.T) {
	cases := slices.Concat(grammarCases(), identityCases(), referenceCases(), nodeCases(), recordCases(t))
	shown := map[string]bool{}
	for _, tc := range cases {
		c := sound()
		tc.edit(c)
		if tc.space == (identity.Space{}) {
			tc.space = newSpace(t, "default", 0)
		}
		r := Store(c.list(), c.rev, Options{Layout: newLayout(t), Space: tc.space})
		if got := brief(r.Findings); !slices.Equal(got, tc.want) {
			t.Errorf("%s:\n got %q\nwant %q", tc.name, got, tc.want)
		}
		for _, f := range r.Findings {
			shown[string(f.Code)] = true
			if f.Text == "" || f.Text[len(f.Text)-1] != '.' || f.Action == "" || f.Severity == 0 || strings.Contains(f.Text, "%!") {
				t.Errorf("%s: a finding lacks something: %+v", tc.name, f)
			}
		}
	}
	for _, info := range Codes() {
		if !shown[string(info.Code)] {
			t.Errorf("no case shows %s", info.Code)
		}
	}
}

// Without a configuration the store's record decides, if it can be one.
func TestSpaceOfTheStore(t *testing.T) {
	c := sound()
	c.put(own+"cluster", `{"name":"default","id":0,"max_connected_clusters":255,"local_bits":24,"format":1}`)
	c.put(ids+"70000", "k8s:app=x;")
	c.put(refs+"k8s:app=x;/pin-x", "70000")
	if r := Store(c.list(), c.rev, Options{Layout: newLayout(t)}); len(r.Findings) != 0 {
		t.Errorf("a wide cluster: %v", brief(r.Findings))
	}
	for _, record := range []string{
		`{"name":"default","id":0,"max_connected_clusters":255,"local_bits":15,"format":1}`,
		`{"name":"default","id":300,"max_connected_clusters":255,"local_bits":16,"format":1}`,
		`{"name":"default","id":0,"max_connected_clusters":255,"local_bits":16,"format":2}`,
		`{"name":"other","id":0,"max_connected_clusters":255,"local_bits":16,"format":1}`,
	} {
		c.put(own+"cluster", record)
		r := Store(c.list(), c.rev, Options{Layout: newLayout(t)})
		if got := brief(r.Findings); !slices.Equal(got, []string{"CLUSTER-MISMATCH " + own + "cluster"}) {
			t.Errorf("%s: %v", record, got)
		}
	}
	c.del(own + "cluster")
	r := Store(c.list(), c.rev, Options{Layout: newLayout(t)})
	if got := brief(r.Findings); !slices.Equal(got, []string{"CLUSTER-MISSING " + own + "cluster", "NUMBER-OUT-OF-RANGE " + ids + "70000"}) {
		t.Errorf("no record: %v", got)
	}
}

func TestReportCountsAndOrders(t *testing.T) {
	c := sound()
	c.put(own+"later/x", "1")
	c.put(ids+"310", web)
	c.put(own+"idle/311", mark(9, 9))
	c.put(ids+"309", web)
	r := Store(c.list(), c.rev, Options{Layout: newLayout(t)})
	want := []string{"KEY-UNKNOWN " + own + "later/x", "IDLE-WITHOUT-MASTER " + own + "idle/311", "DUPLICATE-IDENTITY " + ids + "309", "DUPLICATE-IDENTITY " + ids + "310"}
	if got := brief(r.Findings); !slices.Equal(got, want) {
		t.Errorf("findings %q, want %q", got, want)
	}
	if r.Worst() != Error || r.Count(Error) != 2 || r.Count(Warning) != 1 || r.Count(Info) != 1 {
		t.Errorf("worst %v, counts %d, %d, %d", r.Worst(), r.Count(Error), r.Count(Warning), r.Count(Info))
	}
	data, err := json.Marshal(r.Findings[3])
	wantJSON := `{"code":"DUPLICATE-IDENTITY","severity":"error","invariant":"I1","object":"cilium/state/identities/v1/id/310","text":`
	if err != nil || !strings.HasPrefix(string(data), wantJSON) {
		t.Errorf("JSON %s, %v", data, err)
	}
	var back Finding
	if err := json.Unmarshal(data, &back); err != nil || back != r.Findings[3] {
		t.Errorf("back from JSON: %+v, %v", back, err)
	}
	if err := new(Severity).UnmarshalText([]byte("fatal")); err == nil {
		t.Error("an unknown severity is taken")
	}
}

// The order of the keys does not matter.
func TestOrderOfKeysDoesNotMatter(t *testing.T) {
	c := sound()
	for _, tc := range slices.Concat(grammarCases(), identityCases(), referenceCases(), nodeCases()) {
		tc.edit(c)
	}
	o := Options{Layout: newLayout(t)}
	want := Store(c.list(), c.rev, o)
	rapid.Check(t, func(t *rapid.T) {
		kvs := rapid.Permutation(c.list()).Draw(t, "keys")
		if got := Store(kvs, c.rev, o); !reflect.DeepEqual(got, want) {
			t.Fatalf("findings %v, want %v", brief(got.Findings), brief(want.Findings))
		}
	})
}

// Store takes anything: every key is counted, nothing panics, equal content
// gives an equal report.
func FuzzStore(f *testing.F) {
	for _, kv := range sound().list() {
		f.Add(kv.Key, kv.Value, kv.Key, []byte("x"), kv.Lease, int64(7))
	}
	f.Add(ids+"300", []byte(db), refs+db+"/n1", []byte("300"), int64(-1), int64(-9))
	f.Add(own+"tombstones/300", []byte(tombstone(db, "done", 9)), own+"idle/4294967295", []byte(mark(1, 1)), int64(1), int64(1))
	l := newLayout(f)
	f.Fuzz(func(t *testing.T, key1 string, value1 []byte, key2 string, value2 []byte, lease, rev int64) {
		kvs := append(sound().list(),
			kvstore.KV{Key: key1, Value: value1, Lease: lease, ModRevision: rev, CreateRevision: rev},
			kvstore.KV{Key: key2, Value: value2, Lease: rev, ModRevision: lease})
		for _, o := range []Options{{Layout: l}, {Layout: l, Space: identity.Space{ClusterName: "default", MaxConnectedClusters: 255}}} {
			r := Store(kvs, rev, o)
			if again := Store(kvs, rev, o); !reflect.DeepEqual(r, again) {
				t.Fatalf("two reports on one content: %+v, %+v", r, again)
			}
			for _, finding := range r.Findings {
				if finding.Severity == 0 || finding.Action == "" || finding.Object == "" {
					t.Fatalf("a finding lacks something: %+v", finding)
				}
			}
		}
	})
}
