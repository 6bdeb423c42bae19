// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/signet-identity/signet/allocator/labels"
)

// runVectors compares f's answer with each vector of the group.
func runVectors[In, Out any](t *testing.T, group string, f func(in In) Out) {
	t.Run(group, func(t *testing.T) {
		data, err := os.ReadFile("../../labels/testdata/cilium-1.20.2.json")
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Vectors []struct {
				ID, Group       string
				Input, Expected json.RawMessage
			}
		}
		if err := json.Unmarshal(data, &file); err != nil {
			t.Fatal(err)
		}
		ran := 0
		for _, v := range file.Vectors {
			if v.Group != group {
				continue
			}
			ran++
			var in In
			var want Out
			if err := json.Unmarshal(v.Input, &in); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(v.Expected, &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, f(in)); diff != "" {
				t.Errorf("%s: input %s (-want +got):\n%s", v.ID, v.Input, diff)
			}
		}
		if ran == 0 {
			t.Errorf("group %q has no vectors", group)
		}
	})
}

func TestVectors(t *testing.T) {
	type strip struct{ Labels map[string]string }
	runVectors(t, "pod-strip", func(in strip) map[string]string {
		kept, _ := StripSystemLabels(in.Labels)
		return kept
	})
	type sanitize struct {
		PodLabels map[string]string
		Namespace struct {
			Name   string
			Labels map[string]string
		}
		ServiceAccount, ClusterName string
	}
	runVectors(t, "pod-sanitize", func(in sanitize) map[string]string {
		p := Pod{Namespace: in.Namespace.Name, ServiceAccount: in.ServiceAccount, Labels: in.PodLabels}
		all, _ := PodLabels(p, in.Namespace.Labels, in.ClusterName)
		return labels.KubernetesMap(all)
	})
	runVectors(t, "named-ports", func(in map[string]string) []string {
		var ports []Port
		for name, text := range in {
			p := Port{Name: name}
			protocol, number, _ := strings.Cut(text, "/")
			p.Protocol = protocol
			fmt.Sscan(number, &p.Number)
			ports = append(ports, p)
		}
		got := []string{}
		for _, l := range NamedPortLabels(ports) {
			got = append(got, l.String())
		}
		return got
	})
}

// Ports packed into labels: the same labels whatever the order of the ports,
// legal characters and lengths.
func TestScenario_K07_NamedPorts(t *testing.T) {
	for _, n := range []int{0, 1, 30} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var ports []Port
			for i := range n {
				ports = append(ports, Port{Name: fmt.Sprintf("port-%d", i), Protocol: []string{"TCP", "UDP", "SCTP"}[i%3], Number: uint16(1000 + i)})
			}
			ports = append(ports, Port{Protocol: "TCP", Number: 80}) // no name, no part of the labels
			want := NamedPortLabels(ports)
			if (n == 0) != (len(want) == 0) {
				t.Fatalf("%d named ports give %d labels", n, len(want))
			}
			rng := rand.New(rand.NewSource(1))
			for range 20 {
				rng.Shuffle(len(ports), func(i, j int) { ports[i], ports[j] = ports[j], ports[i] })
				if diff := cmp.Diff(want, NamedPortLabels(ports)); diff != "" {
					t.Fatalf("another order gives other labels:\n%s", diff)
				}
			}
			checkNamedPorts(t, want, n)
		})
	}
}

func checkNamedPorts(t *testing.T, ls []labels.Label, named int) {
	t.Helper()
	entries := 0
	for i, l := range ls {
		if l.Source != labels.SourceGenerated || !strings.HasPrefix(l.Key, labels.KeyNamedPorts) {
			t.Errorf("label %d = %s", i, l)
		}
		if len(l.Value) > 63 {
			t.Errorf("value %q is longer than 63", l.Value)
		}
		if i := strings.IndexFunc(l.Value, func(r rune) bool {
			return !(r == '-' || r == '_' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
		}); i >= 0 {
			t.Errorf("value %q holds a character that a label cannot have", l.Value)
		}
		entries += strings.Count(l.Value, "_") + 1
	}
	if len(ls) > 0 {
		if _, err := labels.NewSet(ls...); err != nil {
			t.Errorf("the labels make no set: %v", err)
		}
	}
	if entries != named {
		t.Errorf("%d ports are in the labels, want %d", entries, named)
	}
}

func TestNamedPortsTwice(t *testing.T) {
	ports := []Port{{"http", "TCP", 81}, {"http", "TCP", 80}, {"http", "SCTP", 90}}
	got := NamedPortLabels(ports)
	slices.Reverse(ports)
	if diff := cmp.Diff(got, NamedPortLabels(ports)); diff != "" {
		t.Errorf("another order gives other labels:\n%s", diff)
	}
	if len(got) != 1 || got[0].Value != "http.SCTP.90" {
		t.Errorf("labels = %v, want the lowest protocol and number", got)
	}
}

// A tenant who sets labels in the system's name space gains nothing: the
// system's values win, the label set is that of the clean pod, and each attempt
// is reported.
func TestScenario_K10_SystemNameSpace(t *testing.T) {
	r := parseTestdata(t, "spoof.yaml")
	spoof, clean := r.Pods[0], r.Pods[1]
	if got, want := derive(t, r, spoof), derive(t, r, clean); got != want {
		t.Errorf("label set of the spoofing pod\n got %s\nwant %s", got, want)
	}
	relevance := labels.NewRelevance(labels.DefaultFilter())
	d, err := Derive(spoof, r.NamespaceLabels("a"), "default", relevance)
	if err != nil {
		t.Fatal(err)
	}
	var stripped []string
	for _, l := range d.Stripped {
		stripped = append(stripped, l.String())
	}
	want := []string{
		"k8s:io.cilium.k8s.namespace.labels.team=x", "k8s:io.cilium.k8s.policy.cluster=other",
		"k8s:io.cilium.k8s.policy.serviceaccount=admin", "k8s:io.kubernetes.pod.namespace=b", "k8s:reserved:host",
	}
	if diff := cmp.Diff(want, stripped); diff != "" {
		t.Errorf("stripped (-want +got):\n%s", diff)
	}
	if l, _ := d.Set.Get(labels.NamespaceLabelPrefix + "team"); l.Value != "green" {
		t.Errorf("namespace label team = %q, want the namespace's own", l.Value)
	}
	d, err = Derive(clean, r.NamespaceLabels("a"), "default", relevance)
	if err != nil || len(d.Stripped) != 0 {
		t.Errorf("the clean pod reports %v, %v", d.Stripped, err)
	}
}

// The pod's own map is not changed by deriving.
func TestDeriveKeepsPod(t *testing.T) {
	p := Pod{Namespace: "a", Name: "p", ServiceAccount: "s", Labels: map[string]string{"app": "x", labels.KeyCluster: "other", "pod-template-hash": "1"}}
	ns := map[string]string{"team": "t"}
	d, err := Derive(p, ns, "c1", labels.NewRelevance(labels.DefaultFilter()))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Labels) != 3 || len(ns) != 1 {
		t.Errorf("pod labels %v, namespace labels %v: changed", p.Labels, ns)
	}
	if len(d.Dropped) != 1 || d.Dropped[0].Key != "pod-template-hash" {
		t.Errorf("dropped = %v, want pod-template-hash", d.Dropped)
	}
	if l, _ := d.Set.Get(labels.KeyCluster); l.Value != "c1" {
		t.Errorf("cluster = %q, want c1", l.Value)
	}
}

// Jobs: with the default filter each run of a cron job has a label set of its
// own, as with Cilium; two exclusions make them one per template. (Kubernetes
// writes the name of the job under two keys.)
func TestScenario_E02_JobRuns(t *testing.T) {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: report-%d}\nspec: {template: {metadata: {labels: {app: report}}}}\n", i)
	}
	r := parseString(t, b.String())
	count := func(entries ...string) int {
		f, err := labels.NewFilter(entries...)
		if err != nil {
			t.Fatal(err)
		}
		distinct := map[labels.Set]bool{}
		for _, p := range r.Pods {
			d, err := Derive(p, r.NamespaceLabels(p.Namespace), "default", labels.NewRelevance(f))
			if err != nil {
				t.Fatal(err)
			}
			distinct[d.Set] = true
		}
		return len(distinct)
	}
	if got := count(); got != 100 {
		t.Errorf("default filter: %d label sets, want one per run", got)
	}
	if got := count("k8s:!job-name", "k8s:!batch.kubernetes.io/job-name"); got != 1 {
		t.Errorf("job names excluded: %d label sets, want one per template", got)
	}
}
