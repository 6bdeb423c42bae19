// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

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
