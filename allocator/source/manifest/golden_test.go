// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/signet-identity/signet/allocator/labels"
)

var update = flag.Bool("update", false, "rewrite samples/workloads.labelsets.golden")

const (
	samples    = "../../../samples/"
	goldenFile = samples + "workloads.labelsets.golden"
)

func readSamples(t *testing.T) Result {
	t.Helper()
	f, err := os.Open(samples + "workloads.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := Parse(f, "workloads.json")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The label sets of the sample workloads in cluster "default" are a committed
// file, so that a change of parser, filter or text shows as a difference of
// bytes.
func TestGoldenSamples(t *testing.T) {
	r := readSamples(t)
	if len(r.Skipped) != 0 {
		t.Errorf("skipped: %v", r.Skipped)
	}
	if r.Workloads != 218 {
		t.Errorf("workloads = %d, want 218", r.Workloads)
	}
	distinct := map[string]bool{}
	for _, p := range r.Pods {
		distinct[derive(t, r, p)] = true
	}
	texts := make([]string, 0, len(distinct))
	for text := range distinct {
		texts = append(texts, text+"\n")
	}
	slices.Sort(texts)
	got := strings.Join(texts, "")
	t.Logf("%d workloads, %d pods, %d label sets", r.Workloads, len(r.Pods), len(texts))
	if *update {
		if err := os.WriteFile(goldenFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the label sets differ from %s; run with -update and read the difference", goldenFile)
	}
}

// Worked out by hand from the sample data: whoever regenerates the golden file
// has to agree with these.
func TestSamplesByHand(t *testing.T) {
	r := readSamples(t)
	pods := map[string]Pod{}
	for _, p := range r.Pods {
		pods[p.Namespace+"/"+p.Name] = p
	}
	tests := map[string]string{
		// No labels of its own namespace, no service account.
		"microservices-demo/redis-cart-0": "k8s:app=redis-cart;" +
			"k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=microservices-demo;" +
			"k8s:io.cilium.k8s.policy.cluster=default;" +
			"k8s:io.cilium.k8s.policy.serviceaccount=default;" +
			"k8s:io.kubernetes.pod.namespace=microservices-demo;",
		// A namespace label that is a plain word; app.kubernetes.io survives the filter.
		"monitoring/node-exporter-0": "k8s:app.kubernetes.io/component=exporter;" +
			"k8s:app.kubernetes.io/name=node-exporter;" +
			"k8s:app.kubernetes.io/part-of=kube-prometheus;" +
			"k8s:app.kubernetes.io/version=1.12.1;" +
			"k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=monitoring;" +
			"k8s:io.cilium.k8s.namespace.labels.name=monitoring;" +
			"k8s:io.cilium.k8s.policy.cluster=default;" +
			"k8s:io.cilium.k8s.policy.serviceaccount=node-exporter;" +
			"k8s:io.kubernetes.pod.namespace=monitoring;",
		// A Job: its names stay, its controller's UID does not.
		"knative-serving/storage-version-migration-serving-0": "k8s:app=storage-version-migration-serving;" +
			"k8s:app.kubernetes.io/component=storage-version-migration-job;" +
			"k8s:app.kubernetes.io/name=knative-serving;" +
			"k8s:app.kubernetes.io/version=1.21.1;" +
			"k8s:batch.kubernetes.io/job-name=storage-version-migration-serving;" +
			"k8s:io.cilium.k8s.namespace.labels.app.kubernetes.io/name=knative-serving;" +
			"k8s:io.cilium.k8s.namespace.labels.app.kubernetes.io/version=1.21.1;" +
			"k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=knative-serving;" +
			"k8s:io.cilium.k8s.policy.cluster=default;" +
			"k8s:io.cilium.k8s.policy.serviceaccount=controller;" +
			"k8s:io.kubernetes.pod.namespace=knative-serving;" +
			"k8s:job-name=storage-version-migration-serving;" +
			"k8s:sidecar.istio.io/inject=false;",
		// Three namespace labels, sorted between the pod's own.
		"metallb-system/speaker-0": "k8s:app=metallb;k8s:component=speaker;" +
			"k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=metallb-system;" +
			"k8s:io.cilium.k8s.namespace.labels.pod-security.kubernetes.io/audit=privileged;" +
			"k8s:io.cilium.k8s.namespace.labels.pod-security.kubernetes.io/enforce=privileged;" +
			"k8s:io.cilium.k8s.namespace.labels.pod-security.kubernetes.io/warn=privileged;" +
			"k8s:io.cilium.k8s.policy.cluster=default;" +
			"k8s:io.cilium.k8s.policy.serviceaccount=speaker;" +
			"k8s:io.kubernetes.pod.namespace=metallb-system;",
		// A bare Pod whose labels differ from its name.
		"kubernetes-examples/mysql-pod": "k8s:context=docker-k8s-lab;" +
			"k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=kubernetes-examples;" +
			"k8s:io.cilium.k8s.policy.cluster=default;" +
			"k8s:io.cilium.k8s.policy.serviceaccount=default;" +
			"k8s:io.kubernetes.pod.namespace=kubernetes-examples;" +
			"k8s:name=mysql-pod;",
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			p, ok := pods[name]
			if !ok {
				t.Fatalf("there is no pod %s", name)
			}
			if got := derive(t, r, p); got != want {
				t.Errorf("label set\n got %s\nwant %s", got, want)
			}
		})
	}
}

// Every namespace of the samples makes legal text, also those whose name was
// left as a variable.
func TestSampleNamespaces(t *testing.T) {
	r := readSamples(t)
	relevance := labels.NewRelevance(labels.DefaultFilter())
	variables := 0
	for name := range r.Namespaces {
		p := Pod{Namespace: name, Name: "p", ServiceAccount: DefaultServiceAccount}
		if _, err := Derive(p, r.NamespaceLabels(name), "default", relevance); err != nil {
			t.Errorf("namespace %s: %v", name, err)
		}
		if strings.Contains(name, "$(") {
			variables++
		}
	}
	if variables != 2 {
		t.Errorf("namespaces named by a variable = %d, want 2", variables)
	}
}

// The samples have policies beside the workloads; they are no workloads.
func TestPoliciesAreNoWorkloads(t *testing.T) {
	data, err := os.ReadFile(samples + "networkpolicies.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseFiles(File{Name: "networkpolicies.json", Data: data})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Pods) != 0 || len(r.Skipped) != 1 {
		t.Errorf("pods %d, skipped %v; want the file named and skipped", len(r.Pods), r.Skipped)
	}
}
