// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/signet-identity/signet/allocator"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// maxID bounds an endpoint's id and an agent's instance, in bytes.
const maxID = 253

// nodeService is NodeService; session.go has Session.
type nodeService struct {
	*Server
	signetv1.UnimplementedNodeServiceServer
}

func nodeClient(c *grpc.ClientConn) signetv1.NodeServiceClient {
	return signetv1.NewNodeServiceClient(c)
}

// PublishEndpoints implements NodeService.
func (s *nodeService) PublishEndpoints(ctx context.Context, req *signetv1.PublishEndpointsRequest) (*signetv1.PublishEndpointsResponse, error) {
	if err := CallerFrom(ctx).mayBe(req.GetNode()); err != nil {
		return nil, err
	}
	if n := len(req.GetPut()) + len(req.GetWithdraw()); n > MaxBatch {
		return nil, invalid(reasonBatch, "put", "the batch has %d items, the limit is %d; send several", n, MaxBatch)
	}
	return lead(ctx, s.Server, req,
		func(c *grpc.ClientConn) func(context.Context, *signetv1.PublishEndpointsRequest, ...grpc.CallOption) (*signetv1.PublishEndpointsResponse, error) {
			return nodeClient(c).PublishEndpoints
		},
		func(ctx context.Context) (*signetv1.PublishEndpointsResponse, error) { return s.publish(ctx, req) })
}

// publish hands the sound items to the Backend; the others fail alone.
func (s *nodeService) publish(ctx context.Context, req *signetv1.PublishEndpointsRequest) (*signetv1.PublishEndpointsResponse, error) {
	in := allocator.PublishRequest{Node: req.GetNode()}
	results := make([]*signetv1.PublishResult, len(req.GetPut())+len(req.GetWithdraw()))
	var open []int // places in results that the Backend fills, in its order
	for i, p := range req.GetPut() {
		claim, err := checkedClaim(p)
		if err != nil {
			results[i] = s.failedAddress(p.GetAddress(), err)
			continue
		}
		in.Put, open = append(in.Put, claim), append(open, i)
	}
	for i, address := range req.GetWithdraw() {
		place := len(req.GetPut()) + i
		key, err := addressKey(address)
		if err != nil {
			results[place] = s.failedAddress(address, err)
			continue
		}
		in.Withdraw, open = append(in.Withdraw, key), append(open, place)
	}
	done := allocator.Published{}
	if len(open) > 0 {
		var err error
		if done, err = s.cfg.Backend.Publish(ctx, in); err != nil {
			return nil, err
		}
	}
	if len(done.Results) != len(open) {
		return nil, &refusal{code: codes.Internal, reason: reasonUnknown, message: "the operator answered for another number of addresses than it was asked"}
	}
	for i, r := range done.Results {
		results[open[i]] = s.publishResult(asked(req, open[i]), r)
	}
	return &signetv1.PublishEndpointsResponse{Results: results, Lineage: positionOut(done.Position)}, nil
}

// asked is the address at a place of the results, as the caller spelled it.
func asked(req *signetv1.PublishEndpointsRequest, place int) string {
	if place < len(req.GetPut()) {
		return req.GetPut()[place].GetAddress()
	}
	return req.GetWithdraw()[place-len(req.GetPut())]
}

func checkedClaim(p *signetv1.EndpointAddress) (allocator.AddressClaim, error) {
	if id := p.GetEndpointId(); id == "" || len(id) > maxID {
		return allocator.AddressClaim{}, invalid(reasonField, "endpoint_id", "address %q: endpoint_id has to be 1 to %d bytes long",
			printable(p.GetAddress()), maxID)
	}
	return claimIn(p)
}

func (s *nodeService) failedAddress(address string, err error) *signetv1.PublishResult {
	s.metrics.refuse(err)
	return publishResult(address, err)
}

func (s *nodeService) publishResult(address string, r allocator.PublishResult) *signetv1.PublishResult {
	if r.Err == nil {
		return publishResult(address, nil)
	}
	return s.failedAddress(address, r.Err)
}

// Leave implements NodeService.
func (s *nodeService) Leave(ctx context.Context, req *signetv1.LeaveRequest) (*signetv1.LeaveResponse, error) {
	if err := CallerFrom(ctx).mayBe(req.GetNode()); err != nil {
		return nil, err
	}
	return lead(ctx, s.Server, req,
		func(c *grpc.ClientConn) func(context.Context, *signetv1.LeaveRequest, ...grpc.CallOption) (*signetv1.LeaveResponse, error) {
			return nodeClient(c).Leave
		},
		func(ctx context.Context) (*signetv1.LeaveResponse, error) {
			left, err := s.cfg.Backend.Leave(ctx, allocator.LeaveRequest{Node: req.GetNode(), Instance: req.GetInstance()})
			if err != nil {
				return nil, err
			}
			return &signetv1.LeaveResponse{References: uint32(left.References), Addresses: uint32(left.Addresses)}, nil
		})
}

// Forget implements NodeService.
func (s *nodeService) Forget(ctx context.Context, req *signetv1.ForgetRequest) (*signetv1.ForgetResponse, error) {
	if err := CallerFrom(ctx).mayRun("forget a node"); err != nil {
		return nil, err
	}
	if err := allocator.CheckNode(req.GetNode()); err != nil {
		return nil, err
	}
	return lead(ctx, s.Server, req,
		func(c *grpc.ClientConn) func(context.Context, *signetv1.ForgetRequest, ...grpc.CallOption) (*signetv1.ForgetResponse, error) {
			return nodeClient(c).Forget
		},
		func(ctx context.Context) (*signetv1.ForgetResponse, error) {
			return &signetv1.ForgetResponse{}, s.cfg.Backend.Forget(ctx, allocator.ForgetRequest{Node: req.GetNode()})
		})
}
