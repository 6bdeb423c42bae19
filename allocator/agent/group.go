// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"sync"
)

// group runs functions that end together: the first error ends the others.
type group struct {
	ctx    context.Context
	cancel context.CancelFunc
	state  *groupState
}

type groupState struct {
	funcs []func()
	wg    sync.WaitGroup
	mu    sync.Mutex
	err   error
}

func newGroup(ctx context.Context) group {
	ctx, cancel := context.WithCancel(ctx)
	return group{ctx: ctx, cancel: cancel, state: &groupState{}}
}

// add takes a function in that start will run.
func (g group) add(name string, f func(context.Context) error) {
	g.state.funcs = append(g.state.funcs, func() {
		if err := f(g.ctx); err != nil {
			g.state.mu.Lock()
			if g.state.err == nil {
				g.state.err = fmt.Errorf("%s: %w", name, err)
			}
			g.state.mu.Unlock()
			g.cancel()
		}
	})
}

func (g group) start() {
	for _, f := range g.state.funcs {
		g.state.wg.Go(f)
	}
}

// wait returns the first error once all have ended.
func (g group) wait() error {
	g.state.wg.Wait()
	g.cancel()
	g.state.mu.Lock()
	defer g.state.mu.Unlock()
	return g.state.err
}
