// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/labels"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// stopLimit bounds how long a stop waits for calls under way.
const stopLimit = 3 * time.Second

// maxRequest bounds one request, in bytes.
const maxRequest = 1 << 20

func (a *Agent) newServer() *grpc.Server {
	s := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxConcurrentStreams(1024),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(a.unary),
		grpc.StreamInterceptor(a.stream),
	)
	signetv1.RegisterEndpointServiceServer(s, &endpointService{a: a})
	healthv1.RegisterHealthServer(s, a.health)
	reflection.Register(s)
	return s
}

// serve answers on the socket until ctx ends. Calls under way get some time.
func (a *Agent) serve(ctx context.Context) error {
	stopped := make(chan struct{})
	defer func() { <-stopped }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(stopped)
		<-ctx.Done()
		a.health.Shutdown()
		a.engine.stop()
		hard := time.AfterFunc(stopLimit, a.server.Stop)
		defer hard.Stop()
		a.server.GracefulStop()
	}()
	close(a.served)
	if err := a.server.Serve(a.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// unary turns errors into statuses, counts them, and keeps a panic to its call.
func (a *Agent) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer func() { err = a.finish(info.FullMethod, recover(), err) }()
	return handler(ctx, req)
}

func (a *Agent) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() { err = a.finish(info.FullMethod, recover(), err) }()
	return handler(srv, ss)
}

func (a *Agent) finish(method string, panicked any, err error) error {
	if panicked != nil {
		a.cfg.Logger.Error("a handler panicked", "method", method, "panic", panicked, "stack", string(debug.Stack()))
		err = fmt.Errorf("the handler failed; the agent's log says where")
	}
	if err == nil {
		return nil
	}
	err = toStatus(err)
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	a.engine.stats.refusals[reason(err)]++
	return err
}

// reason is the word under which a refusal is counted.
func reason(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return strings.ToLower(strings.ReplaceAll(info.GetReason(), "_", "-"))
		}
	}
	return strings.ToLower(status.Code(err).String())
}

var codesOut = map[allocator.Code]codes.Code{
	allocator.InvalidArgument:    codes.InvalidArgument,
	allocator.Exhausted:          codes.ResourceExhausted,
	allocator.Unavailable:        codes.Unavailable,
	allocator.FailedPrecondition: codes.FailedPrecondition,
	allocator.NotFound:           codes.NotFound,
	allocator.PermissionDenied:   codes.PermissionDenied,
	allocator.DeadlineExceeded:   codes.DeadlineExceeded,
}

// toStatus is an error as it goes over the socket: with an ErrorInfo that names
// the reason, the field at fault, and when a repetition makes sense.
func toStatus(err error) error {
	var refused *allocator.Error
	var label *labels.Error
	var selector *labels.SelectorError
	switch {
	case errors.As(err, &label):
		return detailed(codes.InvalidArgument, label.Code.String(), "labels", label.Error(), 0)
	case errors.As(err, &selector):
		return detailed(codes.InvalidArgument, "bad-selector", "selector", selector.Error(), 0)
	case errors.As(err, &refused):
		retry := refused.Retry
		if retry == 0 && refused.Code == allocator.Unavailable {
			retry = time.Second
		}
		return detailed(codesOut[refused.Code], refused.Code.String(), refused.Field, refused.Message, retry)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return detailed(codes.Internal, "internal", "", err.Error(), 0)
}

func detailed(code codes.Code, reason, field, message string, retry time.Duration) error {
	message = strings.ToValidUTF8(message, "\uFFFD")
	st := status.New(code, message)
	info := &errdetails.ErrorInfo{Reason: strings.ToUpper(strings.ReplaceAll(reason, "-", "_")), Domain: "signet"}
	details := []protoadapt.MessageV1{info}
	if field != "" {
		info.Metadata = map[string]string{"field": strings.ToValidUTF8(field, "\uFFFD")}
	}
	if code == codes.InvalidArgument {
		details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: info.Metadata["field"], Description: message}}})
	}
	if retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	}
	if with, err := st.WithDetails(details...); err == nil {
		st = with
	}
	return st.Err()
}

// endpointService answers on the socket.
type endpointService struct {
	signetv1.UnimplementedEndpointServiceServer
	a *Agent
}

// PutEndpoint implements signetv1.EndpointServiceServer.
func (s *endpointService) PutEndpoint(ctx context.Context, req *signetv1.PutEndpointRequest) (*signetv1.PutEndpointResponse, error) {
	spec, err := specIn(req.GetEndpoint())
	if err != nil {
		return nil, err
	}
	if err := refuseLeft(s.a.left); err != nil {
		return nil, err
	}
	ctx, cancel := answerInTime(ctx, s.a.cfg.PutTimeout)
	defer cancel()
	v, err := s.a.engine.put(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &signetv1.PutEndpointResponse{Endpoint: endpointOut(s.a.cfg.Node, v)}, nil
}

// answerInTime ends a little before the caller's deadline, so that the caller
// gets an answer that says why instead of a mere timeout.
func answerInTime(ctx context.Context, otherwise time.Duration) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, otherwise)
	}
	left := time.Until(end)
	return context.WithDeadline(ctx, end.Add(-min(left/10, 200*time.Millisecond)))
}

// deleteLimit is how long DeleteEndpoint waits for an operator: the endpoint is
// deleted all the same.
const deleteLimit = 2 * time.Second

// DeleteEndpoint implements signetv1.EndpointServiceServer.
func (s *endpointService) DeleteEndpoint(ctx context.Context, req *signetv1.DeleteEndpointRequest) (*signetv1.DeleteEndpointResponse, error) {
	if err := checkID(req.GetId()); err != nil {
		return nil, err
	}
	ctx, cancel := answerInTime(ctx, deleteLimit)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, deleteLimit)
	defer stop()
	deleted, err := s.a.engine.remove(ctx, req.GetId())
	return &signetv1.DeleteEndpointResponse{Deleted: deleted}, err
}

// GetEndpoint implements signetv1.EndpointServiceServer.
func (s *endpointService) GetEndpoint(_ context.Context, req *signetv1.GetEndpointRequest) (*signetv1.GetEndpointResponse, error) {
	if err := checkID(req.GetId()); err != nil {
		return nil, err
	}
	for _, v := range s.a.engine.views() {
		if v.ID == req.GetId() {
			return &signetv1.GetEndpointResponse{Endpoint: endpointOut(s.a.cfg.Node, v)}, nil
		}
	}
	return nil, refuse(allocator.NotFound, "id", "node %s has no endpoint %s", s.a.cfg.Node, labels.Quote(req.GetId()))
}

// ListEndpoints implements signetv1.EndpointServiceServer.
func (s *endpointService) ListEndpoints(_ context.Context, req *signetv1.ListEndpointsRequest) (*signetv1.ListEndpointsResponse, error) {
	selector, err := labels.ParseSelector(req.GetSelector())
	if err != nil {
		return nil, err
	}
	resp := &signetv1.ListEndpointsResponse{}
	for _, v := range s.a.engine.views() {
		if selector.Matches(v.Labels) {
			resp.Items = append(resp.Items, endpointOut(s.a.cfg.Node, v))
		}
	}
	return resp, nil
}

// views are all endpoints, sorted by id.
func (e *engine) views() []*View {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]*View, 0, len(e.table.endpoints))
	for _, id := range slices.Sorted(maps.Keys(e.table.endpoints)) {
		if v := e.table.endpoints[id].view; v != nil {
			out = append(out, v)
		}
	}
	return out
}

// WatchEndpoints implements signetv1.EndpointServiceServer.
func (s *endpointService) WatchEndpoints(_ *signetv1.WatchEndpointsRequest, stream signetv1.EndpointService_WatchEndpointsServer) error {
	w := newWatcher()
	snapshot := s.a.engine.watch(w)
	defer s.a.engine.unwatch(w)
	send := func(kind signetv1.WatchEndpointsResponse_Kind, ep *signetv1.Endpoint) error {
		return stream.Send(&signetv1.WatchEndpointsResponse{Kind: kind, Endpoint: ep})
	}
	for _, v := range snapshot {
		if err := send(signetv1.WatchEndpointsResponse_KIND_UPSERT, endpointOut(s.a.cfg.Node, v)); err != nil {
			return err
		}
	}
	if err := send(signetv1.WatchEndpointsResponse_KIND_CURRENT, nil); err != nil {
		return err
	}
	for {
		changes, err := w.next(stream.Context())
		if err != nil {
			return err
		}
		for _, c := range changes {
			kind, ep := signetv1.WatchEndpointsResponse_KIND_UPSERT, &signetv1.Endpoint{Id: c.id, Node: s.a.cfg.Node}
			if c.view == nil {
				kind = signetv1.WatchEndpointsResponse_KIND_DELETE
			} else {
				ep = endpointOut(s.a.cfg.Node, c.view)
			}
			if err := send(kind, ep); err != nil {
				return err
			}
		}
	}
}

// ListIPCache implements signetv1.EndpointServiceServer.
func (s *endpointService) ListIPCache(ctx context.Context, req *signetv1.ListIPCacheRequest) (*signetv1.ListIPCacheResponse, error) {
	entries, err := s.a.cfg.Datapath.List()
	if err != nil {
		return nil, fmt.Errorf("the address map cannot be read: %w", err)
	}
	resp := &signetv1.ListIPCacheResponse{}
	names := s.a.namer(ctx, req.GetRaw())
	for _, r := range entries {
		address := ""
		if r.Prefix.IsValid() {
			address = r.Prefix.String()
			if r.Prefix.IsSingleIP() {
				address = r.Prefix.Addr().String()
			}
		}
		resp.Items = append(resp.Items, &signetv1.IPCacheEntry{Address: address, Row: r.Row,
			Number: uint32(r.Number), Dead: r.Dead, Labels: names(r.Number)})
	}
	return resp, nil
}

// LeaveNode implements signetv1.EndpointServiceServer.
func (s *endpointService) LeaveNode(ctx context.Context, _ *signetv1.LeaveNodeRequest) (*signetv1.LeaveNodeResponse, error) {
	references, addresses, err := s.a.Leave(ctx)
	if err != nil {
		return nil, err
	}
	return &signetv1.LeaveNodeResponse{References: references, Addresses: addresses}, nil
}
