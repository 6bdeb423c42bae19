// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/signet-identity/signet/allocator/check"
	"github.com/signet-identity/signet/kvstore"
)

const (
	prodIDs  = "cilium/state/identities/v1/id/"
	prodRefs = "cilium/state/identities/v1/value/"
)

// brokenStore starts an etcd with several things wrong at once, where some
// repairs have to wait for others.
func brokenStore(t *testing.T) (kvstore.Store, kvstore.Layout) {
	t.Helper()
	keys := maps.Clone(soundStore)
	for key, value := range map[string]string{
		prodIDs + "301":                         "\xff\xfe",
		prodIDs + "302":                         "k8s:app=db;",
		prodRefs + "k8s:app=db;/pin-a":          "301",
		prodRefs + "k8s:app=web;/pin-b":         "302",
		prodRefs + "k8s:app=web;/Node_1":        "300",
		prodRefs + "k8s:app=lost;/pin-a":        "305",
		"signet/v1/prod/idle/300/no/such/table": "?",
		"signet/v1/prod/idle/777":               `{"since":{"revision":1,"served_s":0}}`,
		"signet/v1/prod/gone/n7":                "damaged",
		"signet/v1/prod/tombstones/300":         `{"labels":"k8s:app=web;","freed":{"revision":1,"served_s":1},"quarantine":"done"}`,
	} {
		keys[key] = value
	}
	_, store := startStore(t, keys)
	layout, err := kvstore.NewLayout("", "prod")
	if err != nil {
		t.Fatal(err)
	}
	return store, layout
}

// On a real etcd: everything that needs no name is repaired in one call, what
// is left says so, and naming it repairs that too.
func TestRepairOfARealStore(t *testing.T) {
	store, layout := brokenStore(t)
	r, err := ApplyRepair(t.Context(), store, layout, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) < 7 || r.Complete() || r.After.Count(check.Error) != 0 || len(r.Left) == 0 {
		t.Errorf("%d results, left %+v, findings %+v", len(r.Results), r.Left, r.After.Findings)
	}
	for _, x := range r.Results {
		if x.Fate != check.Done {
			t.Errorf("%+v", x)
		}
	}
	for key, want := range map[string]string{
		prodIDs + "305":                 "k8s:app=lost;",
		prodRefs + "k8s:app=db;/pin-a":  "302",
		prodRefs + "k8s:app=web;/pin-b": "300",
		"signet/v1/prod/gone/n7":        `{"since":{"revision":`,
		"signet/v1/prod/tombstones/301": `{"labels":"signet:unreadable=301;"`,
	} {
		got, err := store.Range(t.Context(), kvstore.RangeRequest{Key: key})
		if err != nil || len(got.KVs) != 1 || !strings.HasPrefix(string(got.KVs[0].Value), want) {
			t.Errorf("%s: %+v, %v", key, got.KVs, err)
		}
	}
	r, err = ApplyRepair(t.Context(), store, layout, []check.Code{check.HolderUnknown})
	if err != nil || !r.Complete() || len(r.Results) != 1 || r.After.Worst() >= check.Warning {
		t.Errorf("%+v, %v", r, err)
	}
}

// A saved plan is applied as it was reviewed, from JSON and from YAML.
func TestSavedPlan(t *testing.T) {
	store, layout := brokenStore(t)
	plan, err := PlanRepair(t.Context(), store, layout, nil)
	if err != nil || len(plan.Steps) == 0 {
		t.Fatalf("%+v, %v", plan, err)
	}
	asJSON, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{asJSON, asYAML} {
		path := filepath.Join(t.TempDir(), "plan")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if back, err := ReadPlan(path); err != nil || !reflect.DeepEqual(back, plan) {
			t.Errorf("%v\n%+v\n%+v", err, back, plan)
		}
	}
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte(`{"format":1,"guard":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPlan(bad); err == nil || !strings.Contains(err.Error(), "guard") {
		t.Errorf("a field that no plan has: %v", err)
	}
	// One key changes after the review: its step alone is not done.
	write(t, store, kvstore.Action{Put: true, Key: "signet/v1/prod/idle/777", Value: []byte("{}")})
	r, err := ApplyPlan(t.Context(), store, layout, plan)
	if err != nil || r.Complete() || len(r.Results) != len(plan.Steps) {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, x := range r.Results {
		changed := slices.ContainsFunc(x.Guards, func(g check.Guard) bool { return strings.HasSuffix(string(g.Key), "idle/777") })
		if (x.Fate == check.Changed) != changed || x.Fate != check.Done && !changed {
			t.Errorf("%+v", x)
		}
	}
}
