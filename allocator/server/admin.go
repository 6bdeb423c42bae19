// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/signet-identity/signet/allocator"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// adminService is AdminService.
type adminService struct {
	*Server
	signetv1.UnimplementedAdminServiceServer
}

// Status implements AdminService: the Backend's, with the server's refusals.
func (s *adminService) Status(ctx context.Context, _ *signetv1.StatusRequest) (*signetv1.StatusResponse, error) {
	st, err := s.cfg.Backend.Status(ctx)
	if err != nil {
		return nil, err
	}
	if st.GetVersion() == "" {
		st.Version = s.cfg.Version
	}
	if st.Refusals == nil {
		st.Refusals = map[string]uint64{}
	}
	for reason, n := range s.Refusals() {
		st.Refusals[reason] += n
	}
	return st, nil
}

// StepDown implements AdminService.
func (s *adminService) StepDown(ctx context.Context, req *signetv1.StepDownRequest) (*signetv1.StepDownResponse, error) {
	if err := CallerFrom(ctx).mayRun("make the leader step down"); err != nil {
		return nil, err
	}
	return lead(ctx, s.Server, req,
		func(c *grpc.ClientConn) func(context.Context, *signetv1.StepDownRequest, ...grpc.CallOption) (*signetv1.StepDownResponse, error) {
			return signetv1.NewAdminServiceClient(c).StepDown
		},
		func(ctx context.Context) (*signetv1.StepDownResponse, error) {
			was, err := s.cfg.Backend.StepDown(ctx)
			return &signetv1.StepDownResponse{WasLeader: was}, err
		})
}

// GC implements AdminService.
func (s *adminService) GC(ctx context.Context, req *signetv1.GCRequest) (*signetv1.GCResponse, error) {
	if req.GetPlan() == nil {
		if err := CallerFrom(ctx).mayRun("steer the collection"); err != nil {
			return nil, err
		}
	}
	return lead(ctx, s.Server, req,
		func(c *grpc.ClientConn) func(context.Context, *signetv1.GCRequest, ...grpc.CallOption) (*signetv1.GCResponse, error) {
			return signetv1.NewAdminServiceClient(c).GC
		},
		func(ctx context.Context) (*signetv1.GCResponse, error) { return s.gc(ctx, req) })
}

func (s *adminService) gc(ctx context.Context, req *signetv1.GCRequest) (*signetv1.GCResponse, error) {
	var err error
	switch b := s.cfg.Backend; a := req.GetAction().(type) {
	case *signetv1.GCRequest_Plan:
	case *signetv1.GCRequest_Run:
		err = b.Sweep(ctx, allocator.SweepRequest{ReleaseBrake: a.Run.GetReleaseBrake()})
	case *signetv1.GCRequest_Pause:
		err = b.Pause(ctx, allocator.PauseRequest{By: cmp.Or(CallerFrom(ctx).Name, a.Pause.GetBy()), Reason: a.Pause.GetReason()})
	case *signetv1.GCRequest_Resume:
		err = b.Resume(ctx)
	default:
		err = &allocator.Error{Code: allocator.InvalidArgument, Field: "action", Message: "the request names no action: plan, run, pause or resume"}
	}
	if err != nil {
		return nil, err
	}
	plan, err := s.cfg.Backend.Plan(ctx)
	if err != nil {
		return nil, err
	}
	return planOut(plan), nil
}

func planOut(p allocator.SweepPlan) *signetv1.GCResponse {
	out := &signetv1.GCResponse{Brake: p.Brake, ServedS: int64(p.Served / time.Second)}
	if p.Paused != nil {
		out.Paused, out.PausedBy, out.PauseReason = true, p.Paused.By, p.Paused.Reason
	}
	for _, k := range p.Candidates {
		out.Items = append(out.Items, &signetv1.GCCandidate{Kind: k.Kind, Object: k.Object, Text: k.Labels,
			Since: &signetv1.Time{Revision: k.Since.Revision, ServedS: k.Since.ServedS}, DueInS: int64(k.DueIn / time.Second),
			References: uint32(k.References), Addresses: uint32(k.Addresses), Why: k.Why})
	}
	return out
}

// ListNodes implements AdminService.
func (s *adminService) ListNodes(ctx context.Context, _ *signetv1.ListNodesRequest) (*signetv1.ListNodesResponse, error) {
	nodes, err := s.cfg.Backend.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	out := &signetv1.ListNodesResponse{Items: make([]*signetv1.Node, len(nodes))}
	for i, n := range nodes {
		out.Items[i] = nodeOut(n)
	}
	return out, nil
}

// healthService is the standard health service. A replica is healthy as a
// whole: it serves when the Backend is ready.
type healthService struct {
	*Server
	healthv1.UnimplementedHealthServer
}

// Check implements Health.
func (s *healthService) Check(ctx context.Context, req *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if !s.knows(req.GetService()) {
		return nil, notFound("service %q is not served here", printable(req.GetService()))
	}
	return &healthv1.HealthCheckResponse{Status: s.health(ctx)}, nil
}

func (s *healthService) knows(service string) bool {
	if service == "" {
		return true
	}
	_, ok := s.grpc.GetServiceInfo()[service]
	return ok
}

func (s *healthService) health(ctx context.Context) healthv1.HealthCheckResponse_ServingStatus {
	select {
	case <-s.stopping:
		return healthv1.HealthCheckResponse_NOT_SERVING
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, pollInterval)
	defer cancel()
	if st, err := s.cfg.Backend.Status(ctx); err != nil || !st.GetReady() {
		return healthv1.HealthCheckResponse_NOT_SERVING
	}
	return healthv1.HealthCheckResponse_SERVING
}

// Watch implements Health: the state now, then each change.
func (s *healthService) Watch(req *healthv1.HealthCheckRequest, out grpc.ServerStreamingServer[healthv1.HealthCheckResponse]) error {
	ctx := out.Context()
	if !s.knows(req.GetService()) {
		return &refusal{code: codes.NotFound, reason: reasonField, message: "the service is not served here"}
	}
	look := time.NewTicker(pollInterval)
	defer look.Stop()
	last := healthv1.HealthCheckResponse_UNKNOWN
	for {
		if now := s.health(ctx); now != last {
			last = now
			if err := out.Send(&healthv1.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.stopping:
			return unavailable(reasonStopping, "this replica is stopping")
		case <-look.C:
		}
	}
}
