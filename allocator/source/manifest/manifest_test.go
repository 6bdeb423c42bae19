// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/signet-identity/signet/allocator/labels"
)

// parseTestdata reads files of testdata as one input.
func parseTestdata(t *testing.T, names ...string) Result {
	t.Helper()
	files := make([]File, len(names))
	for i, name := range names {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = File{Name: name, Data: data}
	}
	r, err := ParseFiles(files...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func parseString(t *testing.T, text string) Result {
	t.Helper()
	r, err := Parse(strings.NewReader(text), "in.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// derive returns the text of a pod's label set in cluster "default" with the default filter.
func derive(t *testing.T, r Result, p Pod) string {
	t.Helper()
	d, err := Derive(p, r.NamespaceLabels(p.Namespace), "default", labels.NewRelevance(labels.DefaultFilter()))
	if err != nil {
		t.Fatal(err)
	}
	return d.Set.Text()
}

func TestParseKinds(t *testing.T) {
	r := parseTestdata(t, "shop.yaml")
	if len(r.Skipped) != 0 {
		t.Errorf("skipped: %v", r.Skipped)
	}
	if r.Workloads != 7 {
		t.Errorf("workloads = %d, want 7", r.Workloads)
	}
	var got []string
	for _, p := range r.Pods {
		got = append(got, fmt.Sprintf("%s/%s %s/%s %s", p.Namespace, p.Name, p.Owner.Kind, p.Owner.Name, p.ServiceAccount))
	}
	want := []string{
		"shop/web-0 Deployment/web web", "shop/web-1 Deployment/web web", "shop/web-2 Deployment/web web",
		"shop/db-5 StatefulSet/db default", "shop/db-6 StatefulSet/db default",
		"shop/logs-0 DaemonSet/logs default",
		"shop/cache-0 ReplicaSet/cache cache",
		"shop/migrate-0 Job/migrate default", "shop/migrate-1 Job/migrate default",
		"shop/report-0-0 CronJob/report default",
		"default/debug Pod/debug default",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	wantPorts := []Port{{"http", "TCP", 8080}, {"metrics", "TCP", 9090}, {"", "UDP", 53}}
	if diff := cmp.Diff(wantPorts, r.Pods[0].Ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if got := r.Pods[10].Origin; got != (Origin{File: "shop.yaml", Document: 9}) {
		t.Errorf("origin of the bare pod = %v; an empty document counts", got)
	}
}

// What controllers add is there before the filter and gone behind it, except
// for the name of a job.
func TestControllerLabels(t *testing.T) {
	r := parseTestdata(t, "shop.yaml")
	const ns = "k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=shop;k8s:io.cilium.k8s.namespace.labels.team=storefront;" +
		"k8s:io.cilium.k8s.policy.cluster=default;k8s:io.cilium.k8s.policy.serviceaccount=%s;k8s:io.kubernetes.pod.namespace=shop;"
	tests := []struct {
		pod   int
		added []string
		want  string
	}{
		{0, []string{"pod-template-hash"}, "k8s:app=web;k8s:app.kubernetes.io/name=web;" + fmt.Sprintf(ns, "web")},
		{3, []string{"controller-revision-hash", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"}, "k8s:app=db;" + fmt.Sprintf(ns, "default")},
		{5, []string{"controller-revision-hash", "pod-template-generation"}, "k8s:app=logs;" + fmt.Sprintf(ns, "default")},
		{6, nil, "k8s:app=cache;" + fmt.Sprintf(ns, "cache")},
		{8, []string{"batch.kubernetes.io/controller-uid", "controller-uid", "batch.kubernetes.io/job-completion-index"},
			"k8s:app=migrate;k8s:batch.kubernetes.io/job-name=migrate;" + fmt.Sprintf(ns, "default") + "k8s:job-name=migrate;"},
		{9, []string{"controller-uid"}, "k8s:app=report;k8s:batch.kubernetes.io/job-name=report-0;" + fmt.Sprintf(ns, "default") + "k8s:job-name=report-0;"},
	}
	for _, tt := range tests {
		p := r.Pods[tt.pod]
		t.Run(p.Name, func(t *testing.T) {
			for _, key := range tt.added {
				if p.Labels[key] == "" {
					t.Errorf("label %s is missing", key)
				}
			}
			if got := derive(t, r, p); got != tt.want {
				t.Errorf("label set\n got %s\nwant %s", got, tt.want)
			}
		})
	}
	if got, want := r.Pods[4].Labels["statefulset.kubernetes.io/pod-name"], r.Pods[4].Name; got != want {
		t.Errorf("pod-name = %q, want %q", got, want)
	}
}

func TestSkipped(t *testing.T) {
	r := parseTestdata(t, "skipped.yaml")
	if len(r.Pods) != 0 {
		t.Errorf("pods = %v, want none", r.Pods)
	}
	want := []struct{ start, holds string }{
		{"skipped.yaml, document 1: Service shop/web skipped: ", "kind Service is none of those that are read"},
		{"skipped.yaml, document 2: DaemonSet kube-system/proxy skipped: ", "host's network"},
		{"skipped.yaml, document 3: Deployment shop/asleep skipped: ", "0 replicas"},
		{"skipped.yaml, document 4: Deployment shop/numbers skipped: ", "wrong type"},
		{"skipped.yaml, document 5: Job shop/other skipped: ", `group "batch.volcano.sh"`},
		{"skipped.yaml, document 6: CronJob shop/paused skipped: ", "suspended"},
		{"skipped.yaml, document 7: Pod without a name, in namespace shop skipped: ", "no name"},
		{"skipped.yaml, document 8: object without a name skipped: ", "no kind"},
		{"skipped.yaml, document 9: Pod shop/badport skipped: ", "port 70000"},
		{"skipped.yaml, document 10: CronJob shop/hollow skipped: ", "jobTemplate"},
	}
	if len(r.Skipped) != len(want) {
		t.Fatalf("skipped %d, want %d: %v", len(r.Skipped), len(want), r.Skipped)
	}
	for i, w := range want {
		if got := r.Skipped[i].String(); !strings.HasPrefix(got, w.start) || !strings.Contains(got, w.holds) {
			t.Errorf("skip %d = %q, want %q… with %q", i, got, w.start, w.holds)
		}
	}
}

func TestListsAndConcatenatedJSON(t *testing.T) {
	r := parseTestdata(t, "list.json")
	var names []string
	for _, p := range r.Pods {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	if diff := cmp.Diff([]string{"tools/a", "tools/b-0"}, names); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if len(r.Skipped) != 1 || r.Skipped[0].Origin != (Origin{File: "list.json", Document: 1, Item: 3}) {
		t.Errorf("skipped = %v, want the ConfigMap, item 3", r.Skipped)
	}
	if got := r.NamespaceLabels("tools"); got["team"] != "platform" || got[KeyNamespaceName] != "tools" {
		t.Errorf("namespace labels = %v", got)
	}
}

// A namespace may stand in another file, before or after the pods.
func TestNamespacesOverFiles(t *testing.T) {
	pod := File{Name: "pod.yaml", Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ns, labels: {a: b}}\n")}
	ns := File{Name: "ns.yaml", Data: []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: ns, labels: {team: t}}\n")}
	var texts []string
	for _, files := range [][]File{{pod, ns}, {ns, pod}} {
		r, err := ParseFiles(files...)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, derive(t, r, r.Pods[0]))
	}
	want := "k8s:a=b;k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=ns;k8s:io.cilium.k8s.namespace.labels.team=t;" +
		"k8s:io.cilium.k8s.policy.cluster=default;k8s:io.cilium.k8s.policy.serviceaccount=default;k8s:io.kubernetes.pod.namespace=ns;"
	if texts[0] != want || texts[1] != want {
		t.Errorf("label sets\n got %q\nwant %q", texts, want)
	}
}

func TestSameObjectTwice(t *testing.T) {
	r := parseString(t, `
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {a: old}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {a: new}}
`)
	if len(r.Pods) != 1 || r.Pods[0].Labels["a"] != "new" {
		t.Errorf("pods = %v, want the later one", r.Pods)
	}
	if len(r.Skipped) != 1 || !strings.Contains(r.Skipped[0].Reason, "document 2") {
		t.Errorf("skipped = %v, want the earlier one", r.Skipped)
	}
}

func TestPodNamesAreUnique(t *testing.T) {
	r := parseString(t, `
apiVersion: v1
kind: Pod
metadata: {name: a-0}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec: {replicas: 2}
---
apiVersion: v1
kind: Pod
metadata: {generateName: gen-}
---
apiVersion: v1
kind: Pod
metadata: {generateName: gen-}
`)
	var names []string
	for _, p := range r.Pods {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff([]string{"a-0", "a-0-2", "a-1", "gen-2", "gen-3"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestNotAManifest(t *testing.T) {
	tests := []struct{ name, text, document, reason string }{
		{"prose", "hello, world\n", "document 1", "not a Kubernetes object"},
		{"tabs", "a:\n\t- b\n", "document 1", "neither YAML nor JSON"},
		{"second document", "kind: Pod\n---\na: [1, 2\n", "document 2", "neither YAML nor JSON"},
		{"template", "metadata:\n  name: {{ .Release.Name }}-x\n", "document 1", "render it first"},
		{"broken JSON", `{"kind": "Pod",`, "document 1", "neither YAML nor JSON"},
		{"binary", "\x00\x01\x02", "document 1", "neither YAML nor JSON"},
		{"sequence", "- a\n- b\n", "document 1", "not a Kubernetes object"},
		{"workloads that are none", `{"workloads": "x"}`, "document 1", "wrong type"},
		{"too many pods", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 2000000000}\n", "document 1", "100000 pods"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Parse(strings.NewReader(tt.text), "in.yaml")
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("error = %v (result %v), want *Error", err, r)
			}
			for _, part := range []string{"in.yaml", tt.document, tt.reason} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not name %q", err, part)
				}
			}
		})
	}
}

func TestNothing(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing\n", "---\n---\n", "null\n"} {
		if r := parseString(t, text); len(r.Pods)+len(r.Skipped) != 0 {
			t.Errorf("Parse(%q) = %v", text, r)
		}
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestReaderFails(t *testing.T) {
	if _, err := Parse(failingReader{}, "in.yaml"); err == nil || !strings.Contains(err.Error(), "in.yaml") {
		t.Errorf("error = %v, want one that names the file", err)
	}
}

func TestTemplateList(t *testing.T) {
	r := parseString(t, `{"workloads": [
	  {"namespace": "$(ns)", "kind": "Deployment", "name": "x", "labels": {"a": "b"}, "ports": ["TCP/80", "UDP/53"], "replicas": 2},
	  {"namespace": "$(ns)", "kind": "Deployment", "name": "x", "labels": {"a": "c"}, "replicas": 0},
	  {"kind": "Service", "name": "s"},
	  {"kind": "Pod"},
	  {"kind": "Pod", "name": "p", "ports": ["80"]},
	  {"kind": "Pod", "name": "q", "labels": {"a": 1}}
	], "namespaces": {"$(ns)": {"team": "t"}}}`)
	var got []string
	for _, p := range r.Pods {
		got = append(got, p.Name+" "+derive(t, r, p))
	}
	const rest = "k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=$(ns);k8s:io.cilium.k8s.namespace.labels.team=t;" +
		"k8s:io.cilium.k8s.policy.cluster=default;k8s:io.cilium.k8s.policy.serviceaccount=default;k8s:io.kubernetes.pod.namespace=$(ns);"
	want := []string{"x-0 k8s:a=b;" + rest, "x-1 k8s:a=b;" + rest, "x-0-2 k8s:a=c;" + rest}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Port{{"", "TCP", 80}, {"", "UDP", 53}}, r.Pods[0].Ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if len(r.Skipped) != 4 {
		t.Errorf("skipped = %v, want 4", r.Skipped)
	}
}

// Labels that Kubernetes would refuse and that cannot be stored fail for that pod alone.
func TestDeriveError(t *testing.T) {
	r := parseString(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {a: \"b;c\"}}\n")
	_, err := Derive(r.Pods[0], nil, "default", labels.NewRelevance(labels.DefaultFilter()))
	var e *DeriveError
	var le *labels.Error
	if !errors.As(err, &e) || !errors.As(err, &le) || le.Code != labels.CodeSemicolon {
		t.Fatalf("error = %v, want a DeriveError with code semicolon", err)
	}
	for _, part := range []string{"in.yaml, document 1", "Pod p", "k8s:a=b;c"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not name %q", err, part)
		}
	}
}

// Reading is deterministic, and every pod gets a name of its own.
func TestParseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		for range rapid.IntRange(1, 8).Draw(t, "objects") {
			kind := rapid.SampledFrom([]string{"Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"}).Draw(t, "kind")
			api := "apps/v1"
			if kind == "Pod" {
				api = "v1"
			}
			name := rapid.SampledFrom([]string{"a", "a-0", "a-0-2", "b"}).Draw(t, "name")
			fmt.Fprintf(&b, "---\napiVersion: %s\nkind: %s\nmetadata: {name: %s}\nspec: {replicas: %d}\n",
				api, kind, name, rapid.IntRange(0, 4).Draw(t, "replicas"))
		}
		first, err := ParseFiles(File{Name: "f", Data: []byte(b.String())})
		if err != nil {
			t.Fatal(err)
		}
		again, _ := ParseFiles(File{Name: "f", Data: []byte(b.String())})
		if diff := cmp.Diff(first, again); diff != "" {
			t.Fatalf("two readings differ:\n%s", diff)
		}
		seen := map[string]bool{}
		for _, p := range first.Pods {
			if seen[p.Name] {
				t.Fatalf("two pods are named %s in\n%s", p.Name, b.String())
			}
			seen[p.Name] = true
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"shop.yaml", "skipped.yaml", "list.json", "spoof.yaml"} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"workloads":[{"kind":"Pod","name":"p","ports":["TCP/80"]}],"namespaces":{"n":{"a":"b"}}}`))
	f.Add([]byte("a: &a [*a]\n"))
	relevance := labels.NewRelevance(labels.DefaultFilter())
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseFiles(File{Name: "f", Data: data})
		if err != nil {
			return
		}
		for _, p := range r.Pods[:min(len(r.Pods), 20)] {
			if p.Name == "" || p.Namespace == "" || p.ServiceAccount == "" {
				t.Fatalf("pod without a name, namespace or account: %+v", p)
			}
			d, err := Derive(p, r.NamespaceLabels(p.Namespace), "default", relevance)
			if err != nil {
				continue
			}
			if again, err := labels.ParseText(d.Set.Text()); err != nil || again != d.Set {
				t.Fatalf("label set %q is not read back: %v", d.Set, err)
			}
		}
	})
}

// What the API server says of a running pod: its addresses, each once. A pod
// that has ended has none any more.
func TestPodStatus(t *testing.T) {
	pod := func(status string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {app: x}}\nstatus: " + status + "\n"
	}
	for status, want := range map[string]string{
		"{}": "[]",
		"{phase: Running, podIP: 10.0.0.7, podIPs: [{ip: 10.0.0.7}, {ip: '2001:db8::7'}]}": "[10.0.0.7 2001:db8::7]",
		"{phase: Pending}":                    "[]",
		"{podIP: '::ffff:10.0.0.7'}":          "[10.0.0.7]",
		"{phase: Succeeded, podIP: 10.0.0.7}": "it has ended (phase Succeeded) and keeps no address",
		"{phase: Failed}":                     "it has ended (phase Failed) and keeps no address",
		"{podIP: here}":                       `its status names "here" as an address, and it is none`,
		"{podIP: [1]}":                        "field podIP has the wrong type: array instead of string; put the value in quotes",
	} {
		r := parseString(t, pod(status))
		have := ""
		if len(r.Pods) == 1 {
			have = fmt.Sprint(r.Pods[0].PodIPs)
		} else if len(r.Skipped) == 1 {
			have = r.Skipped[0].Reason
		}
		if have != want {
			t.Errorf("%s: %s, want %s", status, have, want)
		}
	}
}

func TestSkipNamesItsObject(t *testing.T) {
	for _, tt := range []struct {
		skip Skip
		want string
	}{
		{Skip{Kind: "Pod", Namespace: "a", Name: "b"}, "Pod a/b"},
		{Skip{Kind: "Node", Name: "b"}, "Node b"},
		{Skip{Kind: "Pod", Namespace: "a"}, "Pod without a name, in namespace a"},
		{Skip{}, "object without a name"},
		{Skip{Name: "b"}, "object b"},
	} {
		if have := tt.skip.Object(); have != tt.want {
			t.Errorf("%q, want %q", have, tt.want)
		}
	}
}
