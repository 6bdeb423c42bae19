// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// group runs named functions that end together: the first error ends the others.
type group struct {
	*errgroup.Group
	ctx    context.Context
	cancel context.CancelFunc
}

func newGroup(ctx context.Context) group {
	ctx, cancel := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	return group{Group: g, ctx: ctx, cancel: cancel}
}

// run starts a function; its error is told with its name.
func (g group) run(name string, f func(context.Context) error) {
	g.Go(func() error {
		if err := f(g.ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}
