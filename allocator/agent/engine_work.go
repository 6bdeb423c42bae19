// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/allocator/identity"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// noHold is no reference's hold: a store's first write has revision 2.
const noHold = 1

// workIdentities carries out acquires and releases until ctx ends.
func (e *engine) workIdentities(ctx context.Context) error {
	for {
		eff, ok := e.ids.pop(ctx)
		if !ok {
			return nil
		}
		if eff.kind == effectAcquire {
			e.acquire(ctx, eff)
		} else {
			e.release(ctx, eff)
		}
	}
}

func (e *engine) acquire(ctx context.Context, eff effect) {
	ctx, leave, ok := e.pass(ctx, eff)
	if !ok {
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, e.callTime)
	defer cancel()
	if eff.confirm {
		// The client answers from its pin, so the pin goes first: with a hold that
		// no reference has, so that one which stands after all is not taken away.
		if e.client.Refresh(eff.set, eff.claim.number, noHold) {
			if err := e.client.Release(ctx, eff.set); err != nil && failure(err).Code == allocator.Unavailable {
				e.update(func() { e.table.acquireFailed(eff.set.Text(), failure(err), false) })
				return
			}
		}
	}
	a, err := e.client.Allocate(ctx, eff.set)
	text := eff.set.Text()
	if err != nil {
		var ce *client.Error
		unknown := errors.As(err, &ce) && ce.Unknown()
		e.count(failure(err))
		e.update(func() { e.table.acquireFailed(text, failure(err), unknown) })
		return
	}
	at := a.Identity.GetLineage()
	asOf := max(at.GetRevision(), a.Hold)
	e.update(func() {
		e.table.acquired(text, grant{number: a.Number, hold: a.Hold, created: a.Created,
			born: a.Identity.GetCreateRevision(), counter: at.GetCounter(), asOf: asOf})
	})
}

// pass goes through the gate; if that is closed, the effects are given back.
func (e *engine) pass(ctx context.Context, effs ...effect) (context.Context, context.CancelFunc, bool) {
	through, leave, ok := e.gate.through(ctx)
	if !ok {
		e.update(func() {
			for _, eff := range effs {
				e.table.notSent(eff)
			}
		})
	}
	return through, leave, ok
}

func (e *engine) release(ctx context.Context, eff effect) {
	ctx, leave, ok := e.pass(ctx, eff)
	if !ok {
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, e.callTime)
	defer cancel()
	err := e.client.Release(ctx, eff.set)
	var ce *client.Error
	if errors.As(err, &ce) && ce.Reason == "not-pinned" {
		_, err = e.client.ReleaseHold(ctx, eff.set, eff.hold)
	}
	switch client.CodeOf(err) {
	case codes.OK:
		e.update(func() { e.table.released(eff.set.Text()) })
	case codes.FailedPrecondition, codes.NotFound, codes.InvalidArgument:
		e.log.Warn("a reference was not this node's to release", "labels", eff.set.Text(), "hold", eff.hold, "error", err)
		e.count(failure(err))
		e.update(func() { e.table.released(eff.set.Text()) })
	default:
		e.count(failure(err))
		e.update(func() { e.table.releaseFailed(eff.set.Text(), failure(err)) })
	}
}

// workMap carries out changes of the address map until ctx ends, all that are
// there at a time.
func (e *engine) workMap(ctx context.Context) error {
	for {
		batch, ok := e.maps.popAll(ctx, 0)
		if !ok {
			return nil
		}
		e.realise(ctx, batch)
	}
}

// realise states a batch of changes, has them carried out and reports.
func (e *engine) realise(ctx context.Context, batch []effect) {
	errs := make([]error, len(batch))
	for i, eff := range batch {
		prefix := hostPrefix(eff.addr)
		if eff.kind == effectUnmap {
			errs[i] = e.dp.Delete(prefix, SourceEndpoint)
		} else {
			errs[i] = e.dp.Upsert(Entry{Prefix: prefix, Number: eff.claim.number, Source: SourceEndpoint, Dead: eff.claim.dead})
		}
	}
	if err := e.dp.Reconcile(ctx); err != nil {
		if ctx.Err() != nil {
			return // the table learns it from the next run
		}
		failing := e.dp.Failing()
		for i, eff := range batch {
			if errs[i] == nil {
				errs[i] = failing[hostPrefix(eff.addr)]
			}
		}
	}
	e.update(func() {
		e.mapDone += uint64(len(batch))
		for i, eff := range batch {
			if errs[i] == nil {
				e.table.mapDone(eff.addr)
				continue
			}
			e.table.addressFails(eff.addr, refuse(allocator.Unavailable, "addresses",
				"the address map does not take it: %v", errs[i]))
		}
	})
}

// workStore publishes and withdraws addresses until ctx ends, many at a time.
func (e *engine) workStore(ctx context.Context) error {
	for {
		batch, ok := e.store.popAll(ctx, publishBatch)
		if !ok {
			return nil
		}
		e.publish(ctx, batch)
	}
}

func (e *engine) publish(ctx context.Context, batch []effect) {
	ctx, leave, ok := e.pass(ctx, batch...)
	if !ok {
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, e.callTime)
	defer cancel()
	req := &signetv1.PublishEndpointsRequest{Node: e.node}
	var order []effect // puts, then withdraws: as the results come
	for _, eff := range batch {
		if eff.kind == effectPublish {
			req.Put = append(req.Put, e.publication(eff))
			order = append(order, eff)
		}
	}
	for _, eff := range batch {
		if eff.kind == effectWithdraw {
			req.Withdraw = append(req.Withdraw, eff.addr.String())
			order = append(order, eff)
		}
	}
	resp, err := e.client.Publish(ctx, req)
	if err == nil && len(resp.GetResults()) != len(order) {
		err = &client.Error{Code: codes.Internal, Message: "the operator answered for another number of addresses"}
	}
	failures := make([]*allocator.Error, len(order))
	for i := range order {
		if err != nil {
			failures[i] = failure(err)
		} else if r := resp.GetResults()[i]; r.GetCode() != 0 {
			failures[i] = failure(&client.Error{Code: codes.Code(r.GetCode()), Message: r.GetMessage()})
		}
	}
	e.published(order, failures, resp.GetLineage().GetRevision())
}

func (e *engine) published(order []effect, failures []*allocator.Error, revision int64) {
	lost := false
	for _, f := range failures {
		if f != nil {
			e.count(f)
			lost = lost || f.Code == allocator.FailedPrecondition
		}
	}
	e.update(func() {
		for i, eff := range order {
			if failures[i] == nil {
				e.table.publishDone(eff.addr, revision)
			} else {
				e.table.addressFails(eff.addr, failures[i])
			}
		}
	})
	if lost {
		e.rehello() // perhaps a reference is gone: the Welcome tells
	}
}

func (e *engine) publication(eff effect) *signetv1.EndpointAddress {
	out := &signetv1.EndpointAddress{Address: eff.addr.String(), Number: uint32(eff.claim.number),
		Text: eff.claim.set.labels.Text(), EndpointId: eff.endpoint, HostIp: e.hostIP,
		K8SNamespace: eff.meta.K8sNamespace, K8SPodName: eff.meta.K8sPodName, K8SServiceAccount: eff.meta.K8sServiceAccount}
	out.NamedPorts = portsOut(eff.meta.NamedPorts)
	return out
}

// count counts a refusal for status and metrics.
func (e *engine) count(err *allocator.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.refusals[err.Code.String()]++
}

// codesOfClient maps what a client's call ended with; the rest is Unavailable.
var codesOfClient = map[codes.Code]allocator.Code{
	codes.InvalidArgument:    allocator.InvalidArgument,
	codes.ResourceExhausted:  allocator.Exhausted,
	codes.FailedPrecondition: allocator.FailedPrecondition,
	codes.NotFound:           allocator.NotFound,
	codes.PermissionDenied:   allocator.PermissionDenied,
	codes.Unauthenticated:    allocator.PermissionDenied,
	codes.OutOfRange:         allocator.InvalidArgument,
	codes.Unimplemented:      allocator.PermissionDenied,
}

// failure is a client's error as the table takes it.
func failure(err error) *allocator.Error {
	var ce *client.Error
	if !errors.As(err, &ce) {
		return refuse(allocator.Unavailable, "", "%v", err)
	}
	code, ok := codesOfClient[ce.Code]
	if !ok {
		code = allocator.Unavailable
	}
	return &allocator.Error{Code: code, Field: ce.Field, Message: ce.Message, Retry: ce.Retry}
}

// pairOf reads one reference of a Welcome; ok is false for what is malformed.
func pairOf(p *signetv1.HeldPair) (heldPair, bool) {
	ls, err := parseText(p.GetText())
	if err != nil || p.GetNumber() == 0 {
		return heldPair{}, false
	}
	return heldPair{labels: ls, number: identity.Number(p.GetNumber()), hold: p.GetHold(),
		born: p.GetCreateRevision(), counter: p.GetCounter()}, true
}
