// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// AgentSocketError says why no agent can be reached at a socket.
type AgentSocketError struct {
	Path string
	Err  error
}

// Error names the socket, the reason and the way out.
func (e *AgentSocketError) Error() string {
	const other = "name another one with --agent-socket"
	switch {
	case errors.Is(e.Err, fs.ErrPermission):
		return fmt.Sprintf("agent socket %s: this user may not open it; run as its owner, or %s", e.Path, other)
	case errors.Is(e.Err, fs.ErrNotExist):
		return fmt.Sprintf("agent socket %s: there is none; start signet dev or signet agent, or %s", e.Path, other)
	}
	return fmt.Sprintf("agent socket %s: no agent answers (%v); start signet dev or signet agent, or %s", e.Path, reason(e.Err), other)
}

// Unwrap is the system's error.
func (e *AgentSocketError) Unwrap() error { return e.Err }

func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// maxAnswer bounds one answer of an agent, in bytes: a list of all that a node has.
const maxAnswer = 256 << 20

// AgentClient talks to an agent over its socket.
type AgentClient struct {
	signetv1.EndpointServiceClient
	conn *grpc.ClientConn
}

// DialAgent opens an agent's socket. The error is an *AgentSocketError.
func DialAgent(path string) (*AgentClient, error) {
	probe, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return nil, &AgentSocketError{Path: path, Err: err}
	}
	_ = probe.Close()
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, &AgentSocketError{Path: path, Err: err}
	}
	conn, err := grpc.NewClient(unixPrefix+whole, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, &AgentSocketError{Path: path, Err: err}
	}
	return &AgentClient{EndpointServiceClient: signetv1.NewEndpointServiceClient(conn), conn: conn}, nil
}

// Close closes the connection.
func (c *AgentClient) Close() error { return c.conn.Close() }

// Put makes or changes an endpoint.
func (c *AgentClient) Put(ctx context.Context, e *signetv1.Endpoint) (*signetv1.Endpoint, error) {
	resp, err := c.PutEndpoint(ctx, &signetv1.PutEndpointRequest{Endpoint: e})
	return resp.GetEndpoint(), err
}

// List lists all endpoints.
func (c *AgentClient) List(ctx context.Context) ([]*signetv1.Endpoint, error) {
	resp, err := c.ListEndpoints(ctx, &signetv1.ListEndpointsRequest{})
	return resp.GetItems(), err
}
