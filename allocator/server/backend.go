// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// ErrNotLeader is for a Backend whose leadership ended between Leader and the
// call: the server answers UNAVAILABLE with a retry hint, and the retry finds
// the next leader. An *allocator.Error with code Unavailable does the same.
var ErrNotLeader = errors.New("this replica does not lead")

// Backend is the replica's operator, as the server needs it.
//
// Writes (Allocate to StepDown) are called at the leader only: while Leader
// says that another leads, the server forwards them. Refusals are
// *allocator.Error, the context's error, or wrap ErrNotLeader; anything else
// becomes INTERNAL.
type Backend interface {
	Allocate(context.Context, allocator.AllocateRequest) (allocator.Allocation, error)
	Release(context.Context, allocator.ReleaseRequest) (allocator.Released, error)
	Publish(context.Context, allocator.PublishRequest) (allocator.Published, error)
	Leave(context.Context, allocator.LeaveRequest) (allocator.Left, error)
	Forget(context.Context, allocator.ForgetRequest) error
	Hello(context.Context, allocator.HelloRequest) (allocator.Welcome, error)
	// Acknowledge says that the node's agent applied everything up to at.
	Acknowledge(ctx context.Context, node, instance string, at allocator.Position) error
	// Plan, Sweep, Pause and Resume explain and steer the collection.
	Plan(context.Context) (allocator.SweepPlan, error)
	Sweep(context.Context, allocator.SweepRequest) error
	Pause(context.Context, allocator.PauseRequest) error
	Resume(context.Context) error
	// StepDown gives leadership up and names who led.
	StepDown(context.Context) (was string, err error)

	// Get finds one identity of the store: live, idle, or remembered by a
	// tombstone. Reserved numbers never reach it.
	Get(context.Context, allocator.GetQuery) (allocator.Identity, allocator.Position, error)
	// List returns up to Limit identities with a number above After, in order
	// of number, and whether there are more.
	List(context.Context, allocator.ListQuery) (items []allocator.Identity, more bool, at allocator.Position, err error)
	// Watch sends what follows after, or a Reset and a snapshot when after is
	// nil or too old. Each batch ends with Current; only its position can be
	// resumed at. The channel is closed when the reader is slow or ctx ends.
	Watch(ctx context.Context, after *allocator.Position) (<-chan allocator.WatchEvent, error)
	Status(context.Context) (*signetv1.StatusResponse, error)
	Nodes(context.Context) ([]allocator.NodeInfo, error)

	// Leader is the leader's gRPC address, "" when none is known, and whether
	// this replica is it. It does not block.
	Leader() (address string, self bool)
	// Space is the cluster's number space. It is asked on every call and does
	// not block.
	Space() identity.Space
}
