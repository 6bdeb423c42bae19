// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// unary is what every call with one answer passes.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
	began := time.Now()
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, s.panicked(info.FullMethod, p)
		}
		err = s.answer(info.FullMethod, err, time.Since(began))
	}()
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	if ctx, err = withCaller(ctx); err != nil {
		return nil, err
	}
	return handle(ctx, req)
}

// stream is what every stream passes. It has no deadline of its own.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(info.FullMethod, p)
		}
		err = s.answer(info.FullMethod, err, 0)
	}()
	ctx, err := withCaller(ss.Context())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return handle(srv, &contextStream{ServerStream: ss, ctx: ctx})
}

type contextStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *contextStream) Context() context.Context { return s.ctx }

func (s *Server) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.cfg.Timeout)
}

// answer counts the outcome and gives the error its form on the wire.
func (s *Server) answer(method string, err error, took time.Duration) error {
	out := toStatus(err)
	if strings.HasPrefix(method, "/signet.") {
		s.metrics.answered(path.Base(method), out, took)
		if err != nil {
			s.metrics.refuse(err)
		}
	}
	return out
}

func (s *Server) panicked(method string, p any) error {
	s.log.Error("a handler panicked; the call was answered with INTERNAL", "method", method, "panic", p, "stack", string(debug.Stack()))
	return &refusal{code: codes.Internal, reason: reasonUnknown, message: fmt.Sprintf("%s failed inside the server; its log says where", path.Base(method))}
}
