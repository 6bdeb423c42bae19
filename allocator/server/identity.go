// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// identityService is the writing half of IdentityService; read.go has the rest.
type identityService struct {
	*Server
	signetv1.UnimplementedIdentityServiceServer
}

func identityClient(c *grpc.ClientConn) signetv1.IdentityServiceClient {
	return signetv1.NewIdentityServiceClient(c)
}

// Allocate implements IdentityService.
func (s *identityService) Allocate(ctx context.Context, req *signetv1.AllocateRequest) (*signetv1.AllocateResponse, error) {
	in, fixed, err := allocateIn(CallerFrom(ctx), req)
	if err != nil || fixed != nil {
		return fixed, err
	}
	return lead(ctx, s.Server, req,
		func(c *grpc.ClientConn) func(context.Context, *signetv1.AllocateRequest, ...grpc.CallOption) (*signetv1.AllocateResponse, error) {
			return identityClient(c).Allocate
		},
		func(ctx context.Context) (*signetv1.AllocateResponse, error) { return s.allocate(ctx, in) })
}

func (s *identityService) allocate(ctx context.Context, in allocator.AllocateRequest) (*signetv1.AllocateResponse, error) {
	a, err := s.cfg.Backend.Allocate(ctx, in)
	if err != nil {
		return nil, err
	}
	return &signetv1.AllocateResponse{Hold: a.Hold, Created: a.Created,
		Identity: identityOut(s.cfg.Backend.Space(), a.Identity, a.Position)}, nil
}

// allocateIn checks a request. A label set with a fixed number is answered at
// once: it is never stored, and nobody holds it.
func allocateIn(c Caller, req *signetv1.AllocateRequest) (in allocator.AllocateRequest, fixed *signetv1.AllocateResponse, err error) {
	set, err := setIn(req.GetLabels())
	if err != nil {
		return in, nil, err
	}
	if err := c.mayHold(req.GetHolder()); err != nil {
		return in, nil, err
	}
	if err := c.mayLabel(set); err != nil {
		return in, nil, err
	}
	if req.GetGivenUpHold() < 0 {
		return in, nil, invalid(reasonHold, "given_up_hold", "given_up_hold %d is negative; 0 means none", req.GetGivenUpHold())
	}
	if i := fixedBySet(set); i != nil {
		return in, &signetv1.AllocateResponse{Identity: i}, nil
	}
	if err := identity.CheckStorable(set); err != nil {
		return in, nil, invalid(reasonScope, "labels", "%v", err)
	}
	return allocator.AllocateRequest{Labels: set, Holder: req.GetHolder(), GivenUpHold: req.GetGivenUpHold()}, nil, nil
}

// setIn reads labels as callers write them: the one door for every RPC, so
// that what one refuses all refuse.
func setIn(in []string) (labels.Set, error) {
	set, err := labels.ParseSet(in...)
	if err != nil {
		return labels.Set{}, err
	}
	return set, labels.CheckPublic(set)
}

// fixedBySet is the identity of a label set with a reserved number, or nil.
func fixedBySet(set labels.Set) *signetv1.Identity {
	n, ok := identity.ReservedForLabels(set)
	if !ok {
		return nil
	}
	return fixedByNumber(n)
}

// fixedByNumber is the identity of a reserved number, or nil.
func fixedByNumber(n identity.Number) *signetv1.Identity {
	set, ok := identity.LabelsOf(n)
	if !ok {
		return nil
	}
	return reservedOut(n, set)
}

// BatchAllocate implements IdentityService.
func (s *identityService) BatchAllocate(ctx context.Context, req *signetv1.BatchAllocateRequest) (*signetv1.BatchAllocateResponse, error) {
	if n := len(req.GetItems()); n > MaxBatch {
		return nil, invalid(reasonBatch, "items", "the batch has %d items, the limit is %d; send several", n, MaxBatch)
	}
	return lead(ctx, s.Server, req,
		func(c *grpc.ClientConn) func(context.Context, *signetv1.BatchAllocateRequest, ...grpc.CallOption) (*signetv1.BatchAllocateResponse, error) {
			return identityClient(c).BatchAllocate
		},
		func(ctx context.Context) (*signetv1.BatchAllocateResponse, error) { return s.batch(ctx, req), nil })
}

// batch hands all items to the Backend at once, so that it can pack them into
// few transactions.
func (s *identityService) batch(ctx context.Context, req *signetv1.BatchAllocateRequest) *signetv1.BatchAllocateResponse {
	out := &signetv1.BatchAllocateResponse{Results: make([]*signetv1.BatchAllocateResult, len(req.GetItems()))}
	var all sync.WaitGroup
	for i, item := range req.GetItems() {
		all.Go(func() { out.Results[i] = s.batchItem(ctx, item) })
	}
	all.Wait()
	return out
}

func (s *identityService) batchItem(ctx context.Context, item *signetv1.AllocateRequest) (result *signetv1.BatchAllocateResult) {
	defer func() {
		if p := recover(); p != nil {
			result = s.failedItem(s.panicked(signetv1.IdentityService_BatchAllocate_FullMethodName, p))
		}
	}()
	in, resp, err := allocateIn(CallerFrom(ctx), item)
	if err == nil && resp == nil {
		resp, err = s.allocate(ctx, in)
	}
	if err != nil {
		return s.failedItem(err)
	}
	ownHolderOnly(resp.GetIdentity(), item.GetHolder())
	return &signetv1.BatchAllocateResult{Response: resp}
}

func (s *identityService) failedItem(err error) *signetv1.BatchAllocateResult {
	s.metrics.refuse(err)
	return &signetv1.BatchAllocateResult{Error: itemStatus(err)}
}

// ownHolderOnly keeps a batch's answer small: a thousand identities with
// thousands of holders each would not fit a message.
func ownHolderOnly(i *signetv1.Identity, holder string) {
	for _, h := range i.GetHolders() {
		if h.GetHolder() == holder {
			i.Holders = []*signetv1.Holder{h}
			return
		}
	}
	i.Holders = nil
}

// Release implements IdentityService.
func (s *identityService) Release(ctx context.Context, req *signetv1.ReleaseRequest) (*signetv1.ReleaseResponse, error) {
	set, err := setIn(req.GetLabels())
	if err != nil {
		return nil, err
	}
	if err := CallerFrom(ctx).mayHold(req.GetHolder()); err != nil {
		return nil, err
	}
	if err := checkHold(req.GetHolder(), req.GetHold()); err != nil {
		return nil, err
	}
	if fixedBySet(set) != nil {
		return &signetv1.ReleaseResponse{}, nil
	}
	return lead(ctx, s.Server, req,
		func(c *grpc.ClientConn) func(context.Context, *signetv1.ReleaseRequest, ...grpc.CallOption) (*signetv1.ReleaseResponse, error) {
			return identityClient(c).Release
		},
		func(ctx context.Context) (*signetv1.ReleaseResponse, error) {
			r, err := s.cfg.Backend.Release(ctx, allocator.ReleaseRequest{Labels: set, Holder: req.GetHolder(), Hold: req.GetHold()})
			if err != nil {
				return nil, err
			}
			return &signetv1.ReleaseResponse{Released: r.Done, Lineage: positionOut(r.Position)}, nil
		})
}

// checkHold refuses "any hold" for nodes: a late Release must not take the
// reference of a later Allocate.
func checkHold(holder string, hold int64) error {
	kind, _, err := allocator.ParseHolder(holder)
	switch {
	case err != nil:
		return err
	case hold < 0:
		return invalid(reasonHold, "hold", "hold %d is negative; give the one that Allocate returned", hold)
	case hold == 0 && kind != allocator.HolderPin:
		return invalid(reasonHold, "hold", "holder %q has to name its hold, as Allocate returned it; only pins may leave it out", holder)
	}
	return nil
}
