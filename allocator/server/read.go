// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// Page sizes of ListIdentities, and the bytes at which a page is cut short.
const (
	defaultPage = 1000
	maxPage     = 10000
	maxPageSize = 3 << 20
)

// GetIdentity implements IdentityService.
func (s *identityService) GetIdentity(ctx context.Context, req *signetv1.GetIdentityRequest) (*signetv1.GetIdentityResponse, error) {
	q, fixed, err := which(req.Number, req.GetLabels())
	switch {
	case err != nil:
		return nil, err
	case req.GetMinRevision() < 0:
		return nil, invalid(reasonField, "min_revision", "min_revision %d is negative; 0 means none", req.GetMinRevision())
	case fixed != nil:
		return &signetv1.GetIdentityResponse{Identity: fixed}, nil
	}
	q.MinRevision, q.Linearizable = req.GetMinRevision(), req.GetLinearizable()
	here := func(ctx context.Context) (*signetv1.GetIdentityResponse, error) {
		_, out, err := s.find(ctx, q)
		return &signetv1.GetIdentityResponse{Identity: out}, err
	}
	if !q.Linearizable {
		return here(ctx)
	}
	return lead(ctx, s.Server, req,
		func(c *grpc.ClientConn) func(context.Context, *signetv1.GetIdentityRequest, ...grpc.CallOption) (*signetv1.GetIdentityResponse, error) {
			return identityClient(c).GetIdentity
		}, here)
}

// which reads "by number or by labels". A reserved identity is answered at once.
func which(number *uint64, in []string) (q allocator.GetQuery, fixed *signetv1.Identity, err error) {
	switch {
	case number != nil && len(in) > 0:
		return q, nil, invalid(reasonWhich, "number", "both number and labels are given; give one")
	case number != nil:
		n, err := numberIn(*number)
		if err != nil {
			return q, nil, err
		}
		if fixed = fixedByNumber(n); fixed == nil && n.IsReserved() {
			return q, nil, notFound("number %d is reserved and has no meaning", n)
		}
		return allocator.GetQuery{Number: &n}, fixed, nil
	}
	set, err := setIn(in)
	if err != nil {
		return q, nil, err
	}
	return allocator.GetQuery{Labels: set}, fixedBySet(set), nil
}

// numberIn reads a number as callers give it: 64 bits wide, so that what does
// not fit is refused and never cut into another's number.
func numberIn(v uint64) (identity.Number, error) {
	n, err := identity.FromUint64(v)
	if err == nil && n == identity.Unknown {
		err = invalid(reasonNumberRange, "number", "number 0 is no identity; numbers go from 1 to 4294967295")
	}
	return n, err
}

func notFound(format string, args ...any) *refusal {
	r := invalid(allocator.NotFound.String(), "", format, args...)
	r.code = codes.NotFound
	return r
}

func (s *identityService) find(ctx context.Context, q allocator.GetQuery) (allocator.Identity, *signetv1.Identity, error) {
	i, at, err := s.cfg.Backend.Get(ctx, q)
	if err != nil {
		return i, nil, err
	}
	return i, identityOut(s.cfg.Backend.Space(), i, at), nil
}

// ListIdentities implements IdentityService.
func (s *identityService) ListIdentities(ctx context.Context, req *signetv1.ListIdentitiesRequest) (*signetv1.ListIdentitiesResponse, error) {
	q, err := listIn(req)
	if err != nil {
		return nil, err
	}
	p := &page{limit: q.Limit}
	if req.GetIncludeReserved() {
		p.reserved(q)
	}
	if !p.full {
		if err := s.fill(ctx, p, q); err != nil {
			return nil, err
		}
	}
	out := &signetv1.ListIdentitiesResponse{Items: p.items, Lineage: p.at}
	if p.full {
		out.NextPageToken = pageToken(p.items[len(p.items)-1].GetNumber())
	}
	return out, nil
}

func listIn(req *signetv1.ListIdentitiesRequest) (q allocator.ListQuery, err error) {
	if q.Selector, err = labels.ParseSelector(req.GetSelector()); err != nil {
		return q, err
	}
	q.IncludeFreed, q.MinRevision, q.Limit = req.GetIncludeFreed(), req.GetMinRevision(), int(req.GetPageSize())
	switch {
	case q.Limit < 0 || q.Limit > maxPage:
		return q, invalid(reasonPage, "page_size", "page_size %d is outside 1 to %d; 0 means %d", q.Limit, maxPage, defaultPage)
	case q.MinRevision < 0:
		return q, invalid(reasonField, "min_revision", "min_revision %d is negative; 0 means none", q.MinRevision)
	case q.Limit == 0:
		q.Limit = defaultPage
	}
	q.After, err = pageTokenIn(req.GetPageToken())
	return q, err
}

const tokenPrefix = "after-"

func pageToken(n uint32) string { return tokenPrefix + strconv.FormatUint(uint64(n), 10) }

func pageTokenIn(s string) (identity.Number, error) {
	if s == "" {
		return 0, nil
	}
	digits, ok := strings.CutPrefix(s, tokenPrefix)
	n, err := identity.ParseNumber(digits)
	if !ok || err != nil {
		return 0, invalid(reasonPage, "page_token", "page_token %q is not one of this server's; give next_page_token of the page before, or none",
			printable(s))
	}
	return n, nil
}

// page collects identities up to a count and a size. It is full when at least
// one more is left.
type page struct {
	items []*signetv1.Identity
	at    *signetv1.Position
	limit int
	bytes int
	full  bool
}

// add reports whether there was room.
func (p *page) add(i *signetv1.Identity) bool {
	size := proto.Size(i)
	if len(p.items) > 0 && (len(p.items) >= p.limit || p.bytes+size > maxPageSize) {
		p.full = true
		return false
	}
	p.items, p.bytes = append(p.items, i), p.bytes+size
	return true
}

// reserved adds the reserved numbers, which come before all others.
func (p *page) reserved(q allocator.ListQuery) {
	for n := q.After + 1; n.IsReserved(); n++ {
		set, ok := identity.LabelsOf(n)
		if ok && q.Selector.Matches(set) && !p.add(reservedOut(n, set)) {
			return
		}
	}
}

// fill adds what the store has.
func (s *identityService) fill(ctx context.Context, p *page, q allocator.ListQuery) error {
	q.Limit = max(q.Limit-len(p.items), 1)
	items, more, at, err := s.cfg.Backend.List(ctx, q)
	if err != nil {
		return err
	}
	p.at = positionOut(at)
	space := s.cfg.Backend.Space()
	for _, i := range items {
		if !p.add(identityOut(space, i, at)) {
			return nil
		}
	}
	p.full = more && len(p.items) > 0
	return nil
}

// WatchIdentities implements IdentityService.
func (s *identityService) WatchIdentities(req *signetv1.WatchIdentitiesRequest, out grpc.ServerStreamingServer[signetv1.WatchIdentitiesResponse]) error {
	sel, err := labels.ParseSelector(req.GetSelector())
	if err != nil {
		return err
	}
	var after *allocator.Position
	if req.GetAfter() != nil {
		at := positionIn(req.GetAfter())
		after = &at
	}
	ctx := out.Context()
	events, err := s.cfg.Backend.Watch(ctx, after)
	if err != nil {
		return err
	}
	for {
		select {
		case <-s.stopping:
			return unavailable(reasonStopping, "this replica is stopping; resume at another")
		case <-ctx.Done():
			return ctx.Err()
		case ev, open := <-events:
			if !open {
				return watchClosed(ctx)
			}
			if err := s.sendEvent(out, sel, ev); err != nil {
				return err
			}
		}
	}
}

func watchClosed(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return unavailable(reasonSlow, "the watch was ended because its reader fell behind, or its source did; resume after the last KIND_CURRENT")
}

var watchKinds = map[allocator.WatchKind]signetv1.WatchIdentitiesResponse_Kind{
	allocator.WatchReset:   signetv1.WatchIdentitiesResponse_KIND_RESET,
	allocator.WatchUpsert:  signetv1.WatchIdentitiesResponse_KIND_UPSERT,
	allocator.WatchDelete:  signetv1.WatchIdentitiesResponse_KIND_DELETE,
	allocator.WatchCurrent: signetv1.WatchIdentitiesResponse_KIND_CURRENT,
}

// sendEvent sends what the selector lets through. An identity keeps its labels
// for life, so it never changes sides.
func (s *identityService) sendEvent(out grpc.ServerStreamingServer[signetv1.WatchIdentitiesResponse], sel labels.Selector, ev allocator.WatchEvent) error {
	m := &signetv1.WatchIdentitiesResponse{Kind: watchKinds[ev.Kind], Lineage: positionOut(ev.Position)}
	if ev.Kind == allocator.WatchUpsert || ev.Kind == allocator.WatchDelete {
		if !sel.Empty() {
			set, err := labels.NewSet(labels.Decode(ev.Identity.Labels)...)
			if err != nil || !sel.Matches(set) {
				return nil
			}
		}
		m.Identity = identityOut(s.cfg.Backend.Space(), ev.Identity, ev.Position)
	}
	return out.Send(m)
}
