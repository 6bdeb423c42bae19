// SPDX-License-Identifier: Apache-2.0

package nemesis

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/e2e/harness"
	"github.com/signet-identity/signet/kvstore"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// objectLimit bounds the search for an order of one object's steps.
const objectLimit = 20 * time.Second

// verdict is what the judges say of a run.
type verdict struct {
	calls, unknown              int
	objects, undecided, illegal int
	faults, violations, terms   int
	excused                     int // label sets of purged nodes
}

// judge looks at the store's history and at the clients' answers.
func (s *scene) judge() verdict {
	s.T.Helper()
	s.Recorder.Judge(s.T)
	t := trackEvents(s.Layout, s.Recorder.Events(), s.log.began)
	v := verdict{terms: t.terms, violations: len(s.Recorder.History.Violations()), excused: len(t.purged)}
	v.calls, v.unknown = s.log.count()
	out := settle(s.log.ops, t)
	v.faults = len(out.faults)
	for _, f := range out.faults {
		s.T.Errorf("not explained: %s", f)
	}
	for _, name := range slices.Sorted(maps.Keys(out.objects)) {
		v.objects++
		switch judgeObject(s.T, name, out.objects[name]) {
		case porcupine.Illegal:
			v.illegal++
		case porcupine.Unknown:
			v.undecided++
		}
	}
	return v
}

func judgeObject(t testing.TB, name string, ops []porcupine.Operation) porcupine.CheckResult {
	t.Helper()
	result := porcupine.CheckOperationsTimeout(model(), ops, objectLimit)
	switch result {
	case porcupine.Illegal:
		_, info := porcupine.CheckOperationsVerbose(model(), ops, objectLimit)
		path, err := picturePath(name)
		if err == nil {
			err = porcupine.VisualizePath(model(), info, path)
		}
		t.Errorf("%s is not linearizable; its history: %s (%v)", name, path, err)
	case porcupine.Unknown:
		t.Logf("%s: no order of its %d steps was found in %s", name, len(ops), objectLimit)
	}
	return result
}

// picturePath is where an object's history is drawn: it outlives the test.
func picturePath(name string) (string, error) {
	dir := os.Getenv("SIGNET_NEMESIS_ARTIFACTS")
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "signet-nemesis-"); err != nil {
			return "", err
		}
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	file := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" :;=/", r) {
			return '_'
		}
		return r
	}, name)
	return filepath.Join(dir, file+".html"), nil
}

// converge waits until the scene is whole again.
func (s *scene) converge() {
	s.T.Helper()
	awaitMembers(s.T, s.members)
	s.AwaitReady(s.operators...)
	s.Until("exactly one operator leads", func(ctx context.Context) bool {
		leaders := 0
		for _, o := range s.operators {
			if st, err := s.StatusOf(ctx, o); err == nil && st.GetElection().GetRole() == "leader" {
				leaders++
			}
		}
		return leaders == 1
	})
	for _, a := range s.agents {
		s.AwaitAgent(a)
	}
}

// whole waits until what the callers were promised is in the store, nothing is
// pending at the agents, and check finds nothing.
func (s *scene) whole() {
	s.T.Helper()
	s.Until("the wanted references are there", func(ctx context.Context) bool {
		have := map[reference]int64{}
		for _, kv := range s.Keys(ctx, s.Layout.References()) {
			if k, err := s.Layout.Parse(kv.Key); err == nil {
				have[reference{k.Labels, k.Name}] = kv.ModRevision
			}
		}
		for _, c := range s.clients {
			for text, h := range c.holds {
				if h.hold != 0 && have[reference{text, c.holder()}] != h.hold {
					return false
				}
			}
		}
		return true
	})
	for _, a := range s.agents {
		s.Until(a.Node+" agrees with the store", func(ctx context.Context) bool { return s.agrees(ctx, a) == nil })
	}
	var said string
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		out, code := s.Run("check", "--etcd-endpoints", strings.Join(s.Endpoints, ","), "--cluster-name=default")
		if code == 0 {
			return
		}
		said = fmt.Sprintf("exit %d\n%s", code, out)
	}
	s.T.Errorf("signet check: %s", said)
}

// agrees says what differs between an agent and the store, or returns nil.
func (s *scene) agrees(ctx context.Context, a *harness.Agent) error {
	c, err := dial("unix://" + a.Socket)
	if err != nil {
		return err
	}
	defer c.Close()
	agent := signetv1.NewEndpointServiceClient(c)
	st, err := agent.AgentStatus(ctx, &signetv1.AgentStatusRequest{})
	if err != nil {
		return err
	}
	if !st.GetReady() || st.GetIpcachePending() != 0 {
		return fmt.Errorf("%s is ready: %v, pending: %d", a.Node, st.GetReady(), st.GetIpcachePending())
	}
	list, err := agent.ListEndpoints(ctx, &signetv1.ListEndpointsRequest{})
	if err != nil {
		return err
	}
	for _, e := range list.GetItems() {
		if err := s.endpointAgrees(ctx, a.Node, e); err != nil {
			return fmt.Errorf("%s: endpoint %s: %w", a.Node, e.GetId(), err)
		}
	}
	return nil
}

func (s *scene) endpointAgrees(ctx context.Context, node string, e *signetv1.Endpoint) error {
	n := identity.Number(e.GetNumber())
	text := strings.Join(e.GetLabels(), ";") + ";"
	for key, want := range map[allocator.Key]string{
		allocator.MasterKey(n):             text,
		allocator.ReferenceKey(text, node): n.String(),
	} {
		stored, err := s.Layout.Key(key)
		if err != nil {
			return err
		}
		r, err := s.Store.Range(ctx, kvstore.RangeRequest{Key: stored})
		if err != nil {
			return err
		}
		if len(r.KVs) != 1 || string(r.KVs[0].Value) != want {
			return fmt.Errorf("%s is %v, want %q", stored, r.KVs, want)
		}
	}
	return nil
}
