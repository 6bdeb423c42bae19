// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/labels"
)

// call hands a request to the core and waits for its reply. When ctx ends the
// request is withdrawn: nothing is written for it any more, unless it is in flight.
func call[T any](ctx context.Context, o *Operator, req any) (T, error) {
	var zero T
	id := o.nextID.Add(1)
	ch := make(chan allocator.Reply, 1)
	err := o.ask(ctx, func() {
		if ctx.Err() == nil {
			o.waiters[id] = ch
			o.core.Request(id, req)
		}
	})
	if err != nil {
		o.withdraw(id)
		return zero, stopped(err)
	}
	select {
	case r := <-ch:
		if r.Err != nil {
			return zero, r.Err
		}
		v, _ := r.Value.(T)
		return v, nil
	case <-ctx.Done():
		o.withdraw(id)
		return zero, ctx.Err()
	case <-o.stopped:
		return zero, stopped(errStopped)
	}
}

func (o *Operator) withdraw(id uint64) {
	go o.post(func() {
		delete(o.waiters, id)
		o.core.Cancel(id)
	})
}

func stopped(err error) error {
	if !errors.Is(err, errStopped) {
		return err
	}
	return &allocator.Error{Code: allocator.Unavailable, Field: "stopping", Retry: 100 * time.Millisecond,
		Message: "this replica is stopping; try another"}
}

// Allocate gives a label set's number to a holder, with a reference.
func (o *Operator) Allocate(ctx context.Context, r allocator.AllocateRequest) (allocator.Allocation, error) {
	return call[allocator.Allocation](ctx, o, r)
}

// Release gives a reference back.
func (o *Operator) Release(ctx context.Context, r allocator.ReleaseRequest) (allocator.Released, error) {
	return call[allocator.Released](ctx, o, r)
}

// Publish writes and withdraws a node's addresses.
func (o *Operator) Publish(ctx context.Context, r allocator.PublishRequest) (allocator.Published, error) {
	return call[allocator.Published](ctx, o, r)
}

// Leave releases everything that a node holds.
func (o *Operator) Leave(ctx context.Context, r allocator.LeaveRequest) (allocator.Left, error) {
	return call[allocator.Left](ctx, o, r)
}

// Forget stops waiting for a gone node.
func (o *Operator) Forget(ctx context.Context, r allocator.ForgetRequest) error {
	_, err := call[any](ctx, o, r)
	return err
}

// Hello answers a node's hello with the references it has.
func (o *Operator) Hello(ctx context.Context, r allocator.HelloRequest) (allocator.Welcome, error) {
	return call[allocator.Welcome](ctx, o, r)
}

// Acknowledge notes how far a node's agent has come.
func (o *Operator) Acknowledge(ctx context.Context, node, instance string, at allocator.Position) error {
	return stopped(o.ask(ctx, func() {
		o.acked[node] = at
		o.core.Acknowledge(allocator.AckRequest{Node: node, Instance: instance, Position: at})
	}))
}

// Plan lists what waits to be collected, and how the collection stands.
func (o *Operator) Plan(ctx context.Context) (allocator.SweepPlan, error) {
	var plan allocator.SweepPlan
	var err error
	asked := o.ask(ctx, func() { plan, err = o.core.Plan(maxCandidates) })
	if asked != nil {
		return plan, stopped(asked)
	}
	return plan, err
}

// maxCandidates bounds the candidates of each kind in a plan.
const maxCandidates = 10_000

// Sweep sweeps now.
func (o *Operator) Sweep(ctx context.Context, r allocator.SweepRequest) error {
	_, err := call[any](ctx, o, r)
	return err
}

// Pause stops the collection until Resume.
func (o *Operator) Pause(ctx context.Context, r allocator.PauseRequest) error {
	_, err := call[any](ctx, o, r)
	return err
}

// Resume lets the collection go on.
func (o *Operator) Resume(ctx context.Context) error {
	_, err := call[any](ctx, o, allocator.ResumeRequest{})
	return err
}

// Get finds one identity.
func (o *Operator) Get(ctx context.Context, q allocator.GetQuery) (allocator.Identity, allocator.Position, error) {
	if err := o.await(ctx, q.MinRevision); err != nil {
		return allocator.Identity{}, allocator.Position{}, err
	}
	found, err := o.find(ctx, q)
	switch {
	case err != nil:
		return allocator.Identity{}, allocator.Position{}, err
	case !found.OK:
		return allocator.Identity{}, found.Position, notFound(q)
	}
	return found.Identity, found.Position, nil
}

func (o *Operator) find(ctx context.Context, q allocator.GetQuery) (allocator.Found, error) {
	if q.Linearizable {
		req := allocator.LookupRequest{Labels: q.Labels.Text()}
		if q.Number != nil {
			req = allocator.LookupRequest{Number: *q.Number}
		}
		confirmed, err := call[allocator.Found](ctx, o, req)
		if err != nil {
			return confirmed, err
		}
		// The answer is the view once it has come to where the fenced read was:
		// before, it may miss a commit that others have seen.
		if err := o.await(ctx, confirmed.Confirmed); err != nil {
			return allocator.Found{}, err
		}
	}
	var out allocator.Found
	err := o.ask(ctx, func() {
		if q.Number != nil {
			out.Identity, out.OK = o.core.Identity(*q.Number)
		} else {
			out.Identity, out.OK = o.core.ByLabels(q.Labels.Text())
		}
		out.Position = o.core.Position()
	})
	return out, stopped(err)
}

func notFound(q allocator.GetQuery) error {
	what := "label set " + q.Labels.Text()
	if q.Number != nil {
		what = "number " + q.Number.String()
	}
	return &allocator.Error{Code: allocator.NotFound, Field: what, Message: "no identity is known for " + what}
}

// await waits until the view has applied a revision, and the first list.
func (o *Operator) await(ctx context.Context, revision int64) error {
	select {
	case <-o.listed:
	case <-ctx.Done():
		return &allocator.Error{Code: allocator.Unavailable, Field: "not-listed", Retry: time.Second,
			Message: "this replica has not listed the store yet; try again"}
	}
	if revision <= 0 {
		return nil
	}
	return o.mirror.Wait(ctx, revision)
}

// List returns a page of identities in order of number.
func (o *Operator) List(ctx context.Context, q allocator.ListQuery) ([]allocator.Identity, bool, allocator.Position, error) {
	var items []allocator.Identity
	var more bool
	var at allocator.Position
	if err := o.await(ctx, q.MinRevision); err != nil {
		return nil, false, at, err
	}
	err := o.ask(ctx, func() {
		at = o.core.Position()
		o.core.Each(q.After+1, func(id allocator.Identity) bool {
			if !wanted(q, id) {
				return true
			}
			if len(items) == q.Limit {
				more = true
				return false
			}
			items = append(items, id)
			return true
		})
	})
	return items, more, at, stopped(err)
}

func wanted(q allocator.ListQuery, id allocator.Identity) bool {
	if id.State != allocator.Live && id.State != allocator.IdleState && !q.IncludeFreed {
		return false
	}
	s, err := labels.ParseText(id.Labels)
	return err == nil && q.Selector.Matches(s)
}

// Watch sends what follows after, or a snapshot first.
func (o *Operator) Watch(ctx context.Context, after *allocator.Position) (<-chan allocator.WatchEvent, error) {
	if err := o.await(ctx, 0); err != nil {
		return nil, err
	}
	if after != nil {
		o.catchUp(ctx, after.Revision)
	}
	var s *subscription
	if err := o.ask(ctx, func() { s = o.hub.subscribe(o.core, after) }); err != nil {
		return nil, stopped(err)
	}
	out := make(chan allocator.WatchEvent)
	go func() {
		s.run(ctx, out)
		o.post(func() { o.hub.leave(s) })
	}()
	return out, nil
}

// catchUpLimit bounds how long a reader that resumes waits for a replica that is
// behind it. After that its position is taken to be of another lineage.
const catchUpLimit = 2 * time.Second

// catchUp gives a replica that lags time to come to where a reader was.
func (o *Operator) catchUp(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, catchUpLimit)
	defer cancel()
	_ = o.mirror.Wait(ctx, revision) // what the store says of the position decides
}

// Nodes lists the nodes that are present, gone, or hold something.
func (o *Operator) Nodes(ctx context.Context) ([]allocator.NodeInfo, error) {
	var out []allocator.NodeInfo
	err := o.ask(ctx, func() {
		out = o.core.Nodes()
		for i := range out {
			out[i].Acknowledged = o.acked[out[i].Name]
		}
	})
	return out, stopped(err)
}
