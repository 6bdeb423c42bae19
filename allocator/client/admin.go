// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// Publish writes and withdraws a node's addresses. Each item succeeds or fails
// alone: look at the results, one for each put, then one for each withdraw.
func (c *Client) Publish(ctx context.Context, req *signetv1.PublishEndpointsRequest) (*signetv1.PublishEndpointsResponse, error) {
	return unary(ctx, c, "publish endpoints", func(ctx context.Context, conn *conn) (*signetv1.PublishEndpointsResponse, error) {
		return conn.node.PublishEndpoints(ctx, req)
	})
}

// Leave releases everything the node holds: references, addresses, presence.
// Pins of the client are forgotten with it.
func (c *Client) Leave(ctx context.Context, node, instance string) (*signetv1.LeaveResponse, error) {
	resp, err := unary(ctx, c, "leave", func(ctx context.Context, conn *conn) (*signetv1.LeaveResponse, error) {
		return conn.node.Leave(ctx, &signetv1.LeaveRequest{Node: node, Instance: instance})
	})
	if err == nil && node == c.cfg.Holder {
		c.unpinAll()
	}
	return resp, err
}

func (c *Client) unpinAll() {
	c.pins.mu.Lock()
	defer c.pins.mu.Unlock()
	for set, e := range c.pins.bySet {
		if e.flight == nil {
			c.pins.unhold(set, e)
			e.refs, e.givenUp, e.orphan = 0, 0, false
			c.pins.tidy(set, e)
		}
	}
}

// ForgetNode makes the operators stop waiting for a gone node's acknowledgements.
func (c *Client) ForgetNode(ctx context.Context, node string) error {
	_, err := unary(ctx, c, "forget node", func(ctx context.Context, conn *conn) (*signetv1.ForgetResponse, error) {
		return conn.node.Forget(ctx, &signetv1.ForgetRequest{Node: node})
	})
	return err
}

// Status is one replica's one screen.
func (c *Client) Status(ctx context.Context) (*signetv1.StatusResponse, error) {
	return unary(ctx, c, "status", func(ctx context.Context, conn *conn) (*signetv1.StatusResponse, error) {
		return conn.admin.Status(ctx, &signetv1.StatusRequest{})
	})
}

// StatusOf asks one server, by its place in Config.Servers, and no other.
func (c *Client) StatusOf(ctx context.Context, server int) (*signetv1.StatusResponse, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	resp, err := c.conns[server].admin.Status(ctx, &signetv1.StatusRequest{})
	if err != nil {
		return nil, asError(err)
	}
	return resp, nil
}

// StepDown makes the leader hand over, and says who it was. It is sent once:
// repeated after a lost answer it could hit the next leader.
func (c *Client) StepDown(ctx context.Context) (was string, err error) {
	if _, err := c.Status(ctx); err != nil { // finds a server that answers
		return "", err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	resp, err := c.current().admin.StepDown(ctx, &signetv1.StepDownRequest{})
	if err != nil {
		return "", asError(err)
	}
	return resp.GetWasLeader(), nil
}

// GC explains or steers the collection; the leader answers.
func (c *Client) GC(ctx context.Context, req *signetv1.GCRequest) (*signetv1.GCResponse, error) {
	return unary(ctx, c, "steer the collection", func(ctx context.Context, conn *conn) (*signetv1.GCResponse, error) {
		return conn.admin.GC(ctx, req)
	})
}

// Nodes lists nodes that are present or gone.
func (c *Client) Nodes(ctx context.Context) ([]*signetv1.Node, error) {
	resp, err := unary(ctx, c, "list nodes", func(ctx context.Context, conn *conn) (*signetv1.ListNodesResponse, error) {
		return conn.admin.ListNodes(ctx, &signetv1.ListNodesRequest{})
	})
	return resp.GetItems(), err
}
