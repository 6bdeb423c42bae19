// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

func sample() *signetv1.Identity {
	return &signetv1.Identity{Number: 4242, Labels: []string{"k8s:app=web"}, Text: "k8s:app=web;", Cluster: "default",
		Scope: signetv1.Scope_SCOPE_CLUSTER, State: signetv1.State_STATE_LIVE, CreateRevision: 1 << 60, Revision: 9,
		Holders: []*signetv1.Holder{{Holder: "pin-b", Hold: 1<<60 + 1}, {Holder: "n1", Hold: 3}, {Holder: "n2", Hold: 4}},
		Lineage: &signetv1.Position{Nonce: "abc", Counter: 7, Revision: 1<<60 + 2}}
}

// The JSON that scripts rely on, letter by letter: 64-bit numbers are numbers,
// enumerations are words, holders are sorted.
func TestIdentityJSON(t *testing.T) {
	var b bytes.Buffer
	if err := Line(&b, FormatJSON, NewIdentity(sample())); err != nil {
		t.Fatal(err)
	}
	const want = `{"number":4242,"labels":["k8s:app=web"],"text":"k8s:app=web;","cluster":"default","scope":"cluster","state":"live",` +
		`"holders":[{"holder":"n1","hold":3},{"holder":"n2","hold":4},{"holder":"pin-b","hold":1152921504606846977}],` +
		`"create_revision":1152921504606846976,"revision":9,"lineage":{"nonce":"abc","counter":7,"revision":1152921504606846978}}` + "\n"
	if b.String() != want {
		t.Errorf("have %swant %s", b.String(), want)
	}
}

func TestYAMLKeepsLargeNumbers(t *testing.T) {
	var b bytes.Buffer
	if err := Print(&b, FormatYAML, NewIdentity(sample()), nil); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"number: 4242\n", "create_revision: 1152921504606846976\n", "- hold: 3\n  holder: n1\n", "state: live\n"} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("%q is not in\n%s", line, b.String())
		}
	}
}

// Field names, and nothing null that scripts iterate over.
func TestFieldsOfEmptyThings(t *testing.T) {
	for name, tt := range map[string]struct {
		v    any
		want string
	}{
		"identity": {NewIdentity(&signetv1.Identity{}), `{"number":0,"labels":[],"text":"","cluster":"","scope":"","state":"","holders":[],"create_revision":0,"revision":0,"lineage":{"nonce":"","counter":0,"revision":0}}`},
		"endpoint": {NewEndpoint(&signetv1.Endpoint{}), `{"id":"","addresses":[],"labels":[],"number":0,"node":"","state":""}`},
		"ipcache":  {NewIPCacheEntry(&signetv1.IPCacheEntry{}), `{"address":"","row":0,"number":0,"labels":[],"dead":false}`},
		"finding":  {NewFinding(&signetv1.Finding{}), `{"code":"","severity":"","object":"","text":"","action":""}`},
		"list":     {NewList([]*signetv1.Node(nil), NewNode), `{"items":[]}`},
		"event":    {NewEvent(&signetv1.WatchIdentitiesResponse{Kind: signetv1.WatchIdentitiesResponse_KIND_CURRENT}), `{"event":"current","at":{"nonce":"","counter":0,"revision":0}}`},
	} {
		data, err := json.Marshal(tt.v)
		if err != nil || string(data) != tt.want {
			t.Errorf("%s:\nhave %s\nwant %s (%v)", name, data, tt.want, err)
		}
	}
}

// Every value of the wire's enumerations has a word of its own.
func TestEnumerations(t *testing.T) {
	seen := map[string]bool{}
	for i := range signetv1.State_name {
		seen[NewIdentity(&signetv1.Identity{State: signetv1.State(i)}).State] = true
	}
	if want := map[string]bool{"": true, "live": true, "idle": true, "quarantined": true, "free": true}; !reflect.DeepEqual(seen, want) {
		t.Errorf("states: %v", seen)
	}
	clear(seen)
	for i := range signetv1.Scope_name {
		seen[NewIdentity(&signetv1.Identity{Scope: signetv1.Scope(i)}).Scope] = true
	}
	if want := map[string]bool{"": true, "cluster": true, "reserved": true, "remote": true, "node": true}; !reflect.DeepEqual(seen, want) {
		t.Errorf("scopes: %v", seen)
	}
	clear(seen)
	for i := range signetv1.WatchIdentitiesResponse_Kind_name {
		seen[NewEvent(&signetv1.WatchIdentitiesResponse{Kind: signetv1.WatchIdentitiesResponse_Kind(i)}).Event] = true
	}
	if want := map[string]bool{"": true, "reset": true, "upsert": true, "delete": true, "current": true}; !reflect.DeepEqual(seen, want) {
		t.Errorf("events: %v", seen)
	}
}

func TestFindingsAreWorstLast(t *testing.T) {
	fs := NewFindings([]*signetv1.Finding{
		{Code: "A", Severity: signetv1.Severity_SEVERITY_ERROR}, {Code: "B", Severity: signetv1.Severity_SEVERITY_INFO},
		{Code: "C", Severity: signetv1.Severity_SEVERITY_WARNING}})
	if fs[0].Severity != "info" || fs[1].Severity != "warning" || fs[2].Severity != "error" {
		t.Errorf("%+v", fs)
	}
}

func text(t *testing.T, table Table) string {
	t.Helper()
	var b bytes.Buffer
	if err := Print(&b, FormatTable, nil, func() Table { return table }); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTables(t *testing.T) {
	i := NewIdentity(sample())
	for name, tt := range map[string]struct {
		table Table
		want  string
	}{
		"identities": {IdentityTable(i), "NUMBER  STATE  SCOPE    HOLDERS    LABELS\n4242    live   cluster  n1 n2 +1   k8s:app=web\n"},
		"none":       {IdentityTable(), "no identities\n"},
		"allocation": {Allocation{Identity: i, Holder: "pin-b", Hold: 5, Created: true}.Table(), "NUMBER  NEW  HOLDER  HOLD  LABELS\n4242    yes  pin-b   5     k8s:app=web\n"},
		"endpoints":  {EndpointTable(Endpoint{ID: "a", State: "failed", Reason: "why"}), "ID  NUMBER  ADDRESSES  STATE         LABELS\na   -       -          failed (why)  -\n"},
		"ipcache":    {IPCacheTable(false, IPCacheEntry{Address: "10.0.0.1", Row: 2, Number: 3, Labels: []string{"x:y="}}), "ADDRESS   ROW  NUMBER  DEAD  LABELS\n10.0.0.1  2    3       no    x:y=\n"},
		"raw":        {IPCacheTable(true, IPCacheEntry{Address: "10.0.0.1", Row: 2, Number: 3}), "ADDRESS   ROW  NUMBER  DEAD\n10.0.0.1  2    3       no\n"},
		"nodes": {NodeTable(0, Node{Name: "n", State: "gone", GoneSince: &Time{ServedS: 9}}),
			"NAME  STATE  GONE SINCE       REFERENCES  PUBLISHED  VERSION  ADDRESSES\nn     gone   served second 9  0           0                   -\n"},
		"nodes, with the time": {NodeTable(129, Node{Name: "n", State: "gone", GoneSince: &Time{ServedS: 9}}),
			"NAME  STATE  GONE SINCE        REFERENCES  PUBLISHED  VERSION  ADDRESSES\nn     gone   2m0s ago (served)  0           0                   -\n"},
		"story": {Explanation{Identity: i, Story: []string{"One.", "Two."}}.Table(),
			"number   4242\nstate    live\nscope    cluster\nholders  n1 n2 +1\nlabels   k8s:app=web\nstory    One.\n         Two.\n"},
	} {
		have := strings.ReplaceAll(text(t, tt.table), "+1   ", "+1   ")
		if squeeze(have) != squeeze(tt.want) {
			t.Errorf("%s:\n%swant:\n%s", name, have, tt.want)
		}
	}
}

// A table for a screen shortens label sets after a whole label; wide, JSON and
// the rows themselves keep them.
func TestLongLabelSets(t *testing.T) {
	set := []string{"k8s:app=web", "k8s:io.kubernetes.pod.namespace=shop", "k8s:team=payments-and-billing"}
	long := Identity{Number: 1, Labels: set}
	for _, tt := range []struct{ format, want string }{
		{FormatTable, "k8s:app=web k8s:io.kubernetes.pod.namespace=shop …\n"},
		{FormatWide, strings.Join(set, " ") + "\n"},
		{FormatJSON, `"k8s:team=payments-and-billing"`},
		{FormatYAML, "k8s:team=payments-and-billing\n"},
	} {
		var b bytes.Buffer
		if err := Print(&b, tt.format, long, func() Table { return IdentityTable(long) }); err != nil || !strings.Contains(b.String(), tt.want) {
			t.Errorf("%s, %v:\n%s", tt.format, err, b.String())
		}
	}
	for _, tt := range []struct{ in, want string }{
		{strings.Repeat("x", shortWidth), strings.Repeat("x", shortWidth)},
		{strings.Repeat("ä", shortWidth+1), strings.Repeat("ä", shortWidth-1) + "…"},
		{strings.Repeat("x", shortWidth-2) + " yy", strings.Repeat("x", shortWidth-2) + " …"},
	} {
		if have := Short(tt.in); have != tt.want {
			t.Errorf("%q, want %q", have, tt.want)
		}
	}
}

// squeeze makes the width of columns not count.
func squeeze(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "\n")
}

func TestStatusIsWorstLast(t *testing.T) {
	s := Status{State: "degraded", Operator: NewOperator(&signetv1.StatusResponse{Ready: true}), Agent: NewAgent(&signetv1.AgentStatusResponse{}),
		Findings: []Finding{{Code: "A", Severity: "info"}, {Code: "B", Severity: "error", Action: "do"}}}
	lines := strings.Split(strings.TrimSpace(text(t, s.Table())), "\n")
	if n := len(lines); !strings.HasPrefix(lines[n-1], "state") || !strings.Contains(lines[n-2], "error B") || !strings.Contains(lines[n-3], "info A") {
		t.Errorf("%s", strings.Join(lines, "\n"))
	}
	if none := text(t, Status{State: "unavailable"}.Table()); !strings.Contains(none, "none answers") {
		t.Error(none)
	}
}
