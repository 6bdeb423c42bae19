// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"github.com/signet-identity/signet/e2e/harness"
)

var binary string

func TestMain(m *testing.M) { harness.Main(m, func(b string) { binary = b }) }

// world is one etcd with the processes around it.
type world struct{ *harness.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{harness.New(t, binary)}
}

func (w *world) operator(name string) *harness.Operator {
	w.T.Helper()
	return w.Operator(name, w.Endpoints, harness.OperatorGraces()...)
}

func (w *world) agent(node, prefix string, servers ...string) *harness.Agent {
	w.T.Helper()
	return w.Agent(node, prefix, w.Endpoints, servers)
}

func (w *world) restart(a *harness.Agent) {
	w.T.Helper()
	if err := w.RestartAgent(a); err != nil {
		w.T.Fatal(err)
	}
}
