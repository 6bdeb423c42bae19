// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signet-identity/signet/allocator/source/manifest"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

const samples = "../../../../samples/"

// fakeAgent gives each label set a number, as an agent and its operator would.
type fakeAgent struct {
	mu        sync.Mutex
	endpoints map[string]*signetv1.Endpoint
	numbers   map[string]uint32
	refuse    func(*signetv1.Endpoint) error
	most, now int // calls at once
}

func newFake() *fakeAgent {
	return &fakeAgent{endpoints: map[string]*signetv1.Endpoint{}, numbers: map[string]uint32{}}
}

func (f *fakeAgent) Put(_ context.Context, e *signetv1.Endpoint) (*signetv1.Endpoint, error) {
	f.mu.Lock()
	f.now++
	f.most = max(f.most, f.now)
	f.mu.Unlock()
	defer func() { f.mu.Lock(); f.now--; f.mu.Unlock() }()
	if f.refuse != nil {
		if err := f.refuse(e); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	set := strings.Join(e.GetLabels(), "\n")
	n, known := f.numbers[set]
	if !known {
		n = uint32(len(f.numbers) + 256)
		f.numbers[set] = n
	}
	e.Number, e.State = n, "ready"
	e.Created = true // an agent says so as long as it keeps the set
	f.endpoints[e.GetId()] = e
	return e, nil
}

func (f *fakeAgent) List(context.Context) ([]*signetv1.Endpoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*signetv1.Endpoint
	for _, e := range f.endpoints {
		out = append(out, e)
	}
	return out, nil
}

func read(t *testing.T, names ...string) manifest.Result {
	t.Helper()
	r, err := Read(strings.NewReader(""), names...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// All sample workloads become endpoints, with exactly the label sets of the golden file.
func TestSamples(t *testing.T) {
	f, r := newFake(), read(t, samples+"workloads.json")
	last := 0
	sum, err := Workloads(t.Context(), f, r, "default", func(done, all int) {
		if done != last+1 || all < done {
			t.Errorf("progress went from %d to %d of %d", last, done, all)
		}
		last = done
	})
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile(samples + "workloads.labelsets.golden")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(string(golden))
	var have []string
	for set := range f.numbers {
		have = append(have, strings.ReplaceAll(set, "\n", ";")+";")
	}
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("%d label sets, and the golden file has %d", len(have), len(want))
	}
	if sum.Workloads != 218 || sum.Endpoints != len(f.endpoints) || last != sum.Endpoints || sum.LabelSets != len(want) ||
		sum.NumbersNew != len(want) || sum.NumbersKnown != 0 || len(sum.Refused)+len(sum.Skipped)+len(sum.Stripped) != 0 {
		t.Errorf("%+v", sum)
	}
	if f.most > inFlight {
		t.Errorf("%d calls at once", f.most)
	}
	again, err := Workloads(t.Context(), f, r, "default", nil)
	if err != nil || again.NumbersNew != 0 || again.NumbersKnown != len(want) {
		t.Errorf("the second time: %+v, %v", again, err)
	}
}

func TestWhatIsRefusedIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods.yaml")
	const pods = `
apiVersion: v1
kind: Pod
metadata: {name: good, labels: {app: good}}
---
apiVersion: v1
kind: Pod
metadata: {name: semicolon, labels: {app: "a;b"}}
---
apiVersion: v1
kind: Pod
metadata: {name: full, labels: {app: full}}
---
apiVersion: v1
kind: Pod
metadata: {name: liar, labels: {app: good, io.kubernetes.pod.namespace: kube-system}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
`
	if err := os.WriteFile(path, []byte(pods), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFake()
	f.refuse = func(e *signetv1.Endpoint) error {
		if e.GetId() == "default/full" {
			return status.Error(codes.ResourceExhausted, "no number is left")
		}
		return nil
	}
	sum, err := Workloads(t.Context(), f, read(t, path), "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	if sum.Endpoints != 2 || sum.LabelSets != 1 || len(sum.Refused) != 2 || len(sum.Skipped) != 1 || len(sum.Stripped) != 1 {
		t.Fatalf("%+v", sum)
	}
	for i, want := range []Refusal{{"pod default/full", "no number is left"}, {"pod default/semicolon", `label "k8s:app=a;b"`}} {
		if sum.Refused[i].Object != want.Object || !strings.Contains(sum.Refused[i].Reason, want.Reason) {
			t.Errorf("%+v, want %+v", sum.Refused[i], want)
		}
	}
	if sum.Stripped[0].Object != "pod default/liar" || !strings.Contains(sum.Stripped[0].Reason, "kube-system") {
		t.Errorf("%+v", sum.Stripped)
	}
	for _, l := range f.endpoints["default/liar"].GetLabels() {
		if strings.Contains(l, "kube-system") {
			t.Errorf("the stripped label was sent: %s", l)
		}
	}
}

// A pod that runs keeps its addresses where the node's range has them; a note
// names the others.
func TestPodsKeepTheirAddresses(t *testing.T) {
	pod := func(name string, ips ...string) manifest.Pod {
		p := manifest.Pod{Namespace: "a", Name: name, Labels: map[string]string{"app": name}}
		for _, ip := range ips {
			p.PodIPs = append(p.PodIPs, netip.MustParseAddr(ip))
		}
		return p
	}
	f := newFake()
	f.refuse = func(e *signetv1.Endpoint) error {
		for _, a := range e.GetAddresses() {
			if !strings.HasPrefix(a, "10.244.") {
				return status.Errorf(codes.InvalidArgument, "address %s lies outside", a)
			}
		}
		if e.GetId() == "a/bad" {
			return status.Error(codes.InvalidArgument, "no")
		}
		if e.GetId() == "a/taken" {
			return status.Error(codes.AlreadyExists, "taken")
		}
		return nil
	}
	r := manifest.Result{Workloads: 6, Pods: []manifest.Pod{pod("in", "10.244.0.9"), pod("out", "10.9.0.9"), pod("both", "10.244.0.8", "2001:db8::8"),
		pod("none"), pod("bad", "10.9.0.1"), pod("taken", "10.244.0.9")}}
	sum, err := Workloads(t.Context(), f, r, "default", nil)
	if err != nil || sum.Endpoints != 4 || len(sum.Refused) != 2 || len(sum.Notes) != 2 {
		t.Fatalf("%+v, %v", sum, err)
	}
	for id, want := range map[string]string{"a/in": "10.244.0.9", "a/out": "", "a/both": "10.244.0.8", "a/none": ""} {
		if have := strings.Join(f.endpoints[id].GetAddresses(), ","); have != want {
			t.Errorf("%s has %q, want %q", id, have, want)
		}
	}
	for i, object := range []string{"pod a/both", "pod a/out"} {
		if n := sum.Notes[i]; n.Object != object || !strings.Contains(n.Reason, "lies outside") {
			t.Errorf("%+v", n)
		}
	}
}

func TestNothingToApply(t *testing.T) {
	_, err := Read(strings.NewReader("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n---\n{a: b}\n"), "-")
	var nothing *NothingError
	if !errors.As(err, &nothing) || len(nothing.Summary.Skipped) != 2 {
		t.Fatalf("%v", err)
	}
	if want := "nothing to apply in standard input; skipped: 2, the first: Service shop/web: "; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s…", err, want)
	}
	if o := nothing.Summary.Skipped[1].Object; o != "object without a name" {
		t.Errorf("%q", o)
	}
	if _, err := Read(strings.NewReader(""), "-"); err == nil || err.Error() != "nothing to apply in standard input" {
		t.Errorf("%v", err)
	}
}

func TestCancelledWorkSaysHowFarItCame(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f, n := newFake(), 0
	sum, err := Workloads(ctx, f, read(t, samples+"workloads.json"), "default", func(int, int) {
		if n++; n == 10 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || sum.Endpoints < 10 {
		t.Errorf("%+v, %v", sum, err)
	}
}

func TestReadErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("a: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, part := range map[string]string{
		dir: "is a folder; name its files", filepath.Join(dir, "none"): "no such file", bad: "bad.yaml, document 1",
	} {
		if _, err := Read(nil, name); err == nil || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, err := Read(strings.NewReader("kind: Pod\napiVersion: v1\nmetadata: {name: a, labels: {x: z}}\n"), "-")
	if err != nil || len(r.Pods) != 1 || r.Pods[0].Origin.File != "standard input" {
		t.Errorf("%+v, %v", r, err)
	}
}
