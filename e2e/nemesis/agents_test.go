// SPDX-License-Identifier: Apache-2.0

package nemesis

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// agentTurn is one call through the node's agent, or a read at a replica.
func (c *client) agentTurn(gen int) error {
	for i, e := range c.endpoints { // one call at a time: finish what is open
		if e.leaving || e.number == 0 {
			return c.continueEndpoint(i)
		}
	}
	dice := c.rng.IntN(100)
	switch past := c.past(gen); {
	case dice < 40:
		return c.get(c.sets.of(agentMark, gen)[c.rng.IntN(setsAtOnce)])
	case past >= 0:
		c.endpoints[past].leaving = true
		return c.continueEndpoint(past)
	case len(c.endpoints) < maxEndpoints && dice < 80:
		c.nextID++
		c.endpoints = append(c.endpoints, endpoint{id: fmt.Sprintf("c%d-%d", c.id, c.nextID), text: c.sets.of(agentMark, gen)[c.rng.IntN(setsAtOnce)]})
		return c.continueEndpoint(len(c.endpoints) - 1)
	case len(c.endpoints) > 0:
		i := c.rng.IntN(len(c.endpoints))
		c.endpoints[i].leaving = true
		return c.continueEndpoint(i)
	}
	return nil
}

// past is an endpoint whose set is of an older generation, or -1.
func (c *client) past(gen int) int {
	return slices.IndexFunc(c.endpoints, func(e endpoint) bool { return !slices.Contains(c.sets.of(agentMark, gen), e.text) })
}

// continueEndpoint makes the call that endpoint i waits for.
func (c *client) continueEndpoint(i int) error {
	ctx, cancel := c.timeout()
	defer cancel()
	if c.endpoints[i].leaving {
		return c.deleteEndpoint(ctx, i)
	}
	return c.putEndpoint(ctx, i)
}

func (c *client) putEndpoint(ctx context.Context, i int) error {
	e := &c.endpoints[i]
	o := op{client: c.id, kind: putEndpoint, text: e.text, holder: c.node + "/" + e.id}
	call := c.log.now()
	r, err := c.agent.PutEndpoint(ctx, &signetv1.PutEndpointRequest{Endpoint: &signetv1.Endpoint{Id: e.id, Labels: labelsOf(e.text)}})
	o.unknown, o.number = unknown(err), r.GetEndpoint().GetNumber()
	c.log.add(o, call)
	if err != nil && !o.unknown {
		return fmt.Errorf("put endpoint %s: %w", e.id, err)
	}
	e.number = o.number
	return nil
}

func (c *client) deleteEndpoint(ctx context.Context, i int) error {
	e := c.endpoints[i]
	o := op{client: c.id, kind: deleteEndpoint, text: e.text, holder: c.node + "/" + e.id, number: e.number}
	call := c.log.now()
	_, err := c.agent.DeleteEndpoint(ctx, &signetv1.DeleteEndpointRequest{Id: e.id})
	o.unknown = unknown(err)
	c.log.add(o, call)
	if o.unknown {
		return nil
	}
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("delete endpoint %s: %w", e.id, err)
	}
	c.endpoints = slices.Delete(c.endpoints, i, i+1)
	return nil
}
