// SPDX-License-Identifier: Apache-2.0

// Package apply turns the workloads of files into endpoints of a node.
package apply

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/signet-identity/signet/allocator/labels"
	"github.com/signet-identity/signet/allocator/source/manifest"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// inFlight is how many endpoints are put at once.
const inFlight = 32

// putTimeout bounds one endpoint.
const putTimeout = 30 * time.Second

// Agent is the part of the agent's API that is used.
type Agent interface {
	Put(context.Context, *signetv1.Endpoint) (*signetv1.Endpoint, error)
	List(context.Context) ([]*signetv1.Endpoint, error)
}

// Refusal is a workload or pod that became no endpoint, or a label that was
// taken from one, and why.
type Refusal struct {
	Object string `json:"object"`
	Reason string `json:"reason"`
}

// Summary says what became of the files.
type Summary struct {
	Workloads int `json:"workloads"`
	// Endpoints counts those that have their number now.
	Endpoints int `json:"endpoints"`
	LabelSets int `json:"label_sets"`
	// NumbersNew were taken from the pool; NumbersKnown were there before.
	NumbersNew   int       `json:"numbers_new"`
	NumbersKnown int       `json:"numbers_known"`
	Refused      []Refusal `json:"refused"`
	Skipped      []Refusal `json:"skipped"`
	// Stripped names pods that carried labels which only the system may set.
	Stripped []Refusal `json:"stripped"`
	// Notes names pods that got other addresses than their status says.
	Notes  []Refusal `json:"notes"`
	Millis int64     `json:"took_ms"`
}

// NothingError says that files hold no workload.
type NothingError struct {
	Files   []string
	Summary Summary // with what was skipped
}

// Error names the files and the first thing that was skipped.
func (e *NothingError) Error() string {
	s := "nothing to apply in " + strings.Join(e.Files, ", ")
	if n := len(e.Summary.Skipped); n > 0 {
		s += fmt.Sprintf("; skipped: %d, the first: %s: %s", n, e.Summary.Skipped[0].Object, e.Summary.Skipped[0].Reason)
	}
	return s
}

// Read reads files; "-" is standard input. Without any workload in them the
// error is a *NothingError.
func Read(stdin io.Reader, names ...string) (manifest.Result, error) {
	files := make([]manifest.File, 0, len(names))
	for _, name := range names {
		f, err := readFile(stdin, name)
		if err != nil {
			return manifest.Result{}, err
		}
		files = append(files, f)
	}
	r, err := manifest.ParseFiles(files...)
	if err == nil && r.Workloads == 0 {
		err = &NothingError{Files: fileNames(files), Summary: newSummary(r)}
	}
	return r, err
}

func fileNames(files []manifest.File) []string {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	return names
}

func newSummary(r manifest.Result) Summary {
	s := Summary{Workloads: r.Workloads, Refused: []Refusal{}, Skipped: []Refusal{}, Stripped: []Refusal{}, Notes: []Refusal{}}
	for _, skip := range r.Skipped {
		s.Skipped = append(s.Skipped, Refusal{Object: skip.Object(), Reason: fmt.Sprintf("%s (%s)", skip.Reason, skip.Origin)})
	}
	return s
}

func readFile(stdin io.Reader, name string) (manifest.File, error) {
	if name == "-" {
		data, err := io.ReadAll(io.LimitReader(stdin, manifest.MaxFile+1))
		return manifest.File{Name: "standard input", Data: data}, err
	}
	f, err := os.Open(name)
	if err != nil {
		return manifest.File{}, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return manifest.File{}, fmt.Errorf("%s is a folder; name its files, such as %s", name, strings.TrimSuffix(name, "/")+"/*.yaml")
	}
	data, err := io.ReadAll(io.LimitReader(f, manifest.MaxFile+1))
	return manifest.File{Name: name, Data: data}, err
}

// Workloads puts every pod as an endpoint with the label set that it derives
// to in the cluster. What is refused is in the summary; the error is about the
// agent itself. progress is called, one call at a time, after each endpoint.
func Workloads(ctx context.Context, a Agent, r manifest.Result, cluster string, progress func(done, all int)) (Summary, error) {
	began := time.Now()
	w := &work{agent: a, sum: newSummary(r), known: map[string]bool{}, sets: map[string]bool{}, fresh: map[string]bool{}}
	before, err := a.List(ctx)
	if err != nil {
		return w.sum, err
	}
	for _, e := range before {
		w.known[strings.Join(e.GetLabels(), "\n")] = true
	}
	endpoints := w.derive(r, cluster)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for _, e := range endpoints {
		g.Go(func() error {
			w.put(gctx, e)
			w.note(progress, len(endpoints))
			return gctx.Err()
		})
	}
	err = g.Wait()
	return w.finish(began), err
}

// work is one run of Workloads.
type work struct {
	agent Agent

	mu    sync.Mutex
	sum   Summary
	done  int
	known map[string]bool // label sets that the node used before
	sets  map[string]bool
	fresh map[string]bool // label sets whose number was made now
}

func (w *work) derive(r manifest.Result, cluster string) []*signetv1.Endpoint {
	relevance := labels.NewRelevance(labels.DefaultFilter())
	namespaces := map[string]map[string]string{}
	var out []*signetv1.Endpoint
	for _, p := range r.Pods {
		if namespaces[p.Namespace] == nil {
			namespaces[p.Namespace] = r.NamespaceLabels(p.Namespace)
		}
		d, err := manifest.Derive(p, namespaces[p.Namespace], cluster, relevance)
		name := "pod " + p.Namespace + "/" + p.Name
		for _, l := range d.Stripped {
			w.sum.Stripped = append(w.sum.Stripped, Refusal{Object: name, Reason: "only the system may set the label " + labels.Quote(l.String())})
		}
		if err != nil {
			w.sum.Refused = append(w.sum.Refused, Refusal{Object: name, Reason: err.Error()})
			continue
		}
		out = append(out, endpoint(p, d.Set))
	}
	return out
}

func endpoint(p manifest.Pod, set labels.Set) *signetv1.Endpoint {
	e := &signetv1.Endpoint{Id: p.Namespace + "/" + p.Name, Labels: set.Strings(),
		K8SNamespace: p.Namespace, K8SPodName: p.Name, K8SServiceAccount: p.ServiceAccount}
	for _, a := range p.PodIPs {
		e.Addresses = append(e.Addresses, a.String())
	}
	for _, port := range p.Ports {
		if port.Name != "" {
			e.NamedPorts = append(e.NamedPorts, &signetv1.NamedPort{Name: port.Name, Port: uint32(port.Number), Protocol: port.Protocol})
		}
	}
	return e
}

func (w *work) put(ctx context.Context, e *signetv1.Endpoint) {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	got, note, err := w.putWithAddresses(ctx, e)
	w.mu.Lock()
	defer w.mu.Unlock()
	if note != "" {
		w.sum.Notes = append(w.sum.Notes, Refusal{Object: "pod " + e.GetId(), Reason: note})
	}
	if err != nil {
		w.sum.Refused = append(w.sum.Refused, Refusal{Object: "pod " + e.GetId(), Reason: status.Convert(err).Message()})
		return
	}
	set := strings.Join(got.GetLabels(), "\n")
	w.sum.Endpoints++
	w.sets[set] = true
	if got.GetCreated() && !w.known[set] {
		w.fresh[set] = true
	}
}

// putWithAddresses puts an endpoint with the addresses that its pod has, or
// those of them that the agent takes; else the agent chooses one, and the note
// says so.
func (w *work) putWithAddresses(ctx context.Context, e *signetv1.Endpoint) (got *signetv1.Endpoint, note string, err error) {
	got, err = w.agent.Put(ctx, e)
	if len(e.GetAddresses()) == 0 || status.Code(err) != codes.InvalidArgument {
		return got, "", err
	}
	var fewer [][]string
	if len(e.GetAddresses()) > 1 {
		for _, a := range e.GetAddresses() {
			fewer = append(fewer, []string{a})
		}
	}
	refusal := err
	for _, addresses := range append(fewer, nil) {
		other := proto.CloneOf(e)
		other.Addresses = addresses
		if got, err = w.agent.Put(ctx, other); err == nil {
			return got, fmt.Sprintf("it has %s instead of %s: %s", strings.Join(got.GetAddresses(), ", "),
				strings.Join(e.GetAddresses(), ", "), status.Convert(refusal).Message()), nil
		}
	}
	return got, "", err
}

func (w *work) note(progress func(done, all int), all int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done++
	if progress != nil {
		progress(w.done, all)
	}
}

func (w *work) finish(began time.Time) Summary {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sum.LabelSets, w.sum.NumbersNew = len(w.sets), len(w.fresh)
	w.sum.NumbersKnown = len(w.sets) - len(w.fresh)
	for _, list := range [][]Refusal{w.sum.Refused, w.sum.Notes} {
		slices.SortFunc(list, func(a, b Refusal) int { return strings.Compare(a.Object, b.Object) })
	}
	w.sum.Millis = time.Since(began).Milliseconds()
	return w.sum
}
