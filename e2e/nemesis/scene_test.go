// SPDX-License-Identifier: Apache-2.0

package nemesis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	signetv1 "github.com/signet-identity/signet/proto/signet/v1"

	"github.com/signet-identity/signet/e2e/harness"
)

// Times of the operators: a life ends in seconds, and freed numbers come back
// to others within a run.
func operatorTimes() []string {
	return []string{"--presence-ttl=2s", "--election-ttl=2s", "--node-grace=8s", "--identity-grace=2s", "--quarantine=1s",
		"--forget-after=20s", "--tombstone-retention=20s", "--sweep-interval=200ms"}
}

// scene is everything that runs.
type scene struct {
	*harness.World
	members   []*member
	operators []*harness.Operator
	agents    []*harness.Agent
	links     [][]*link // of each process, operators first, to each member
	clients   []*client
	log       *history

	mu    sync.Mutex
	count map[faultKind]int
	said  []string // what faults could not do
}

// newScene starts members, operators and agents, and waits until they are ready.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{World: harness.Prepare(t, binary), count: map[faultKind]int{}}
	s.members = startMembers(s.World, memberCount)
	var direct []string
	for _, m := range s.members {
		direct = append(direct, "http://"+m.client)
	}
	s.Attach(direct...)
	var servers []string
	for i := range operatorCount {
		s.operators = append(s.operators, s.Operator(fmt.Sprintf("op-%d", i), s.linked(), operatorTimes()...))
		servers = append(servers, s.operators[i].Address)
	}
	s.AwaitReady(s.operators...)
	for i := range agentCount {
		datapath := "memory"
		if i == 0 {
			datapath = "auto" // eBPF where the kernel allows it
		}
		s.agents = append(s.agents, s.Agent(fmt.Sprintf("n%d", i), fmt.Sprintf("10.%d.0.0/24", i+1), s.linked(), servers, "--datapath", datapath))
	}
	for _, a := range s.agents {
		s.AwaitAgent(a)
	}
	return s
}

// linked makes a process's links, one to each member.
func (s *scene) linked() []string {
	s.T.Helper()
	var links []*link
	var urls []string
	for _, m := range s.members {
		k, err := newLink(m.client)
		if err != nil {
			s.T.Fatal(err)
		}
		s.T.Cleanup(k.close)
		links, urls = append(links, k), append(urls, "http://"+k.address())
	}
	s.links = append(s.links, links)
	return urls
}

// join makes the clients: pins, and agents' callers, one to each agent.
func (s *scene) join(seed uint64, pins, callers int) {
	s.T.Helper()
	s.log = newHistory()
	all, err := newSets()
	if err != nil {
		s.T.Fatal(err)
	}
	var idents []signetv1.IdentityServiceClient
	for _, o := range s.operators {
		idents = append(idents, signetv1.NewIdentityServiceClient(s.Dial(o.Address)))
	}
	for i := range pins + callers {
		c := &client{id: i, rng: rand.New(rand.NewPCG(seed, uint64(i)+2)), log: s.log, sets: all, idents: idents, holds: map[string]*pinHold{}}
		if i >= pins {
			a := s.agents[i%len(s.agents)]
			c.node, c.agent = a.Node, s.EndpointsOf(a)
		}
		s.clients = append(s.clients, c)
	}
}

// work lets the clients work until stop is called, which waits for them.
func (s *scene) work() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, c := range s.clients {
		all.Go(func() {
			if err := c.run(ctx); err != nil {
				s.T.Error(err)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// settle makes the clients repeat what got no answer.
func (s *scene) settle(within time.Duration) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	var all sync.WaitGroup
	for _, c := range s.clients {
		all.Go(func() {
			if err := c.settle(ctx); err != nil {
				s.T.Error(err)
			}
		})
	}
	all.Wait()
}

// compact compacts the store behind the recorder, ten times a second, until ctx ends.
func (s *scene) compact(ctx context.Context) {
	var last int64
	for {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return
		}
		if at := s.Recorder.History.Revision(); at > last {
			once, cancel := context.WithTimeout(ctx, time.Second)
			if _, err := s.Store.Client().Compact(once, at); err == nil {
				last = at
			}
			cancel()
		}
	}
}
