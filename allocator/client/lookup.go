// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// Lookup finds the label set of a number in use: among the pins, the reserved
// numbers, the store's mirror, the cache, and at last a server. A freed number
// is NotFound; Get explains it.
func (c *Client) Lookup(ctx context.Context, n identity.Number) (Identity, error) {
	if i, ok := c.pins.number(n); ok {
		return i, nil
	}
	if set, ok := identity.LabelsOf(n); ok {
		return Identity{Number: n, Labels: set}, nil
	}
	if c.cfg.Store != nil {
		if set, ok := c.cfg.Store.ByNumber(n); ok {
			return Identity{Number: n, Labels: set}, nil
		}
	}
	if i, ok := c.cache.number(n); ok {
		return i, nil
	}
	number := uint64(n)
	return c.lookUp(ctx, &signetv1.GetIdentityRequest{Number: &number})
}

// LookupLabels finds the number of a label set in use, in the same order. It
// takes no reference: the number can be freed at any time (Allocate keeps it).
func (c *Client) LookupLabels(ctx context.Context, set labels.Set) (Identity, error) {
	if i, ok := c.pins.labels(set); ok {
		return i, nil
	}
	if c.cfg.Store != nil {
		if n, ok := c.cfg.Store.ByLabels(set); ok {
			return Identity{Number: n, Labels: set}, nil
		}
	}
	if i, ok := c.cache.labels(set); ok {
		return i, nil
	}
	return c.lookUp(ctx, &signetv1.GetIdentityRequest{Labels: set.Strings()})
}

func (c *Client) lookUp(ctx context.Context, req *signetv1.GetIdentityRequest) (Identity, error) {
	found, err := c.get(ctx, req)
	if err != nil {
		return Identity{}, err
	}
	if s := found.GetState(); s != signetv1.State_STATE_LIVE && s != signetv1.State_STATE_IDLE {
		return Identity{}, &Error{Code: codes.NotFound, Reason: "freed",
			Message: fmt.Sprintf("number %d of %s was freed", found.GetNumber(), labels.Quote(found.GetText()))}
	}
	i, err := identityIn(found)
	if err != nil {
		return Identity{}, err
	}
	c.cache.answer(i)
	return i, nil
}

func identityIn(in *signetv1.Identity) (Identity, error) {
	set, err := labels.ParseText(in.GetText())
	if err != nil {
		return Identity{}, asError(fmt.Errorf("number %d carries labels that are not canonical: %w", in.GetNumber(), err))
	}
	return Identity{Number: identity.Number(in.GetNumber()), Labels: set}, nil
}

// GetOptions name one identity: by Number when it is not nil, else by Labels.
type GetOptions struct {
	Number *uint64 // as the user gave it: the server refuses what no number can be
	Labels []string
	// MinRevision makes the answer wait until the server applied it; 0: no wait.
	MinRevision int64
	// Linearizable makes the leader confirm that nothing newer exists.
	Linearizable bool
}

// Get asks a server, past the cache, for all that is known of an identity.
func (c *Client) Get(ctx context.Context, o GetOptions) (*signetv1.Identity, error) {
	return c.get(ctx, &signetv1.GetIdentityRequest{Number: o.Number, Labels: o.Labels,
		MinRevision: o.MinRevision, Linearizable: o.Linearizable})
}

func (c *Client) get(ctx context.Context, req *signetv1.GetIdentityRequest) (*signetv1.Identity, error) {
	resp, err := unary(ctx, c, "get identity", func(ctx context.Context, conn *conn) (*signetv1.GetIdentityResponse, error) {
		return conn.identity.GetIdentity(ctx, req)
	})
	return resp.GetIdentity(), err
}

// Explain tells the story of a number or label set.
func (c *Client) Explain(ctx context.Context, o GetOptions) (*signetv1.ExplainIdentityResponse, error) {
	return unary(ctx, c, "explain identity", func(ctx context.Context, conn *conn) (*signetv1.ExplainIdentityResponse, error) {
		return conn.identity.ExplainIdentity(ctx, &signetv1.ExplainIdentityRequest{Number: o.Number, Labels: o.Labels})
	})
}

// unary is call for one request with one answer.
func unary[T any](ctx context.Context, c *Client, what string, try func(context.Context, *conn) (*T, error)) (*T, error) {
	var resp *T
	err := c.call(ctx, what, func(ctx context.Context, conn *conn) (err error) {
		resp, err = try(ctx, conn)
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// Learn puts an identity into the cache as a mirror of the store has it: it
// counts until Drop.
func (c *Client) Learn(i Identity) { c.cache.learn(i) }

// Drop takes a number out of the cache: a mirror saw it freed. Pins stay, for
// they are references, which only Release gives back.
func (c *Client) Drop(n identity.Number) { c.cache.drop(n) }

// Apply feeds the cache from a watch: upserts are learned, deletions dropped,
// and a reset drops everything that is not pinned.
func (c *Client) Apply(ev *signetv1.WatchIdentitiesResponse) {
	switch ev.GetKind() {
	case signetv1.WatchIdentitiesResponse_KIND_RESET:
		c.cache.purge()
	case signetv1.WatchIdentitiesResponse_KIND_UPSERT:
		if i, err := identityIn(ev.GetIdentity()); err == nil {
			c.cache.learn(i)
		}
	case signetv1.WatchIdentitiesResponse_KIND_DELETE:
		c.cache.drop(identity.Number(ev.GetIdentity().GetNumber()))
	}
}

// Stats counts what the client keeps.
type Stats struct {
	// Cached is the number of identities in the bounded cache.
	Cached int
	// Pinned is the number of label sets held.
	Pinned int
	// Unsettled is the number of sets whose last call got no answer.
	Unsettled int
}

// Stats returns the present counts.
func (c *Client) Stats() Stats {
	s := Stats{Cached: c.cache.len(), Unsettled: len(c.Unsettled())}
	c.pins.mu.Lock()
	defer c.pins.mu.Unlock()
	for _, e := range c.pins.bySet {
		if e.have {
			s.Pinned++
		}
	}
	return s
}
