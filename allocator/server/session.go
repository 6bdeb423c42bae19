// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/signet-identity/signet/allocator"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

type sessionStream = grpc.BidiStreamingServer[signetv1.SessionRequest, signetv1.SessionResponse]

// Session implements NodeService: at the leader it talks to the Backend, at a
// follower it relays the frames. It ends with UNAVAILABLE when leadership
// moves, so that the agent says hello to the next leader.
func (s *nodeService) Session(stream sessionStream) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	onward, conn, err := s.route(ctx)
	if err != nil {
		return err
	}
	frames, ended := received(ctx, stream.Recv)
	if conn != nil {
		return s.relay(onward, conn, stream, frames, ended)
	}
	return s.converse(ctx, stream, frames, ended)
}

// received reads frames until an error, which is the last thing it gives.
func received[F any](ctx context.Context, recv func() (F, error)) (<-chan F, <-chan error) {
	frames, ended := make(chan F), make(chan error, 1)
	go func() {
		for {
			f, err := recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case frames <- f:
			case <-ctx.Done():
				return
			}
		}
	}()
	return frames, ended
}

func endOf(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// converse is the leader's side of a session.
func (s *nodeService) converse(ctx context.Context, stream sessionStream, frames <-chan *signetv1.SessionRequest, ended <-chan error) error {
	look := time.NewTicker(pollInterval)
	defer look.Stop()
	node := ""
	for {
		select {
		case <-s.stopping:
			return unavailable(reasonStopping, "this replica is stopping; open the session at another")
		case <-look.C:
			if _, self := s.cfg.Backend.Leader(); !self {
				return unavailable(reasonNoLeader, "this replica no longer leads; open the session again")
			}
		case err := <-ended:
			return endOf(err)
		case f := <-frames:
			said, err := s.frame(ctx, stream, node, f)
			if err != nil {
				return err
			}
			node = said
		}
	}
}

// frame answers one frame. It returns the node that the session speaks for.
func (s *nodeService) frame(ctx context.Context, stream sessionStream, node string, f *signetv1.SessionRequest) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	switch m := f.GetMessage().(type) {
	case *signetv1.SessionRequest_Hello:
		if node != "" && m.Hello.GetNode() != node {
			return "", invalid(reasonSession, "hello.node", "the session is node %q's; open another one for %q", node, printable(m.Hello.GetNode()))
		}
		return m.Hello.GetNode(), s.hello(ctx, stream, m.Hello)
	case *signetv1.SessionRequest_Ack:
		return node, s.ack(ctx, node, m.Ack)
	}
	return node, invalid(reasonSession, "message", "the frame is neither a hello nor an acknowledgement")
}

func (s *nodeService) hello(ctx context.Context, stream sessionStream, h *signetv1.Hello) error {
	if err := CallerFrom(ctx).mayBe(h.GetNode()); err != nil {
		return err
	}
	if err := checkInstance(h.GetInstance()); err != nil {
		return err
	}
	pairs, err := pairsIn(h.GetPairs())
	if err != nil {
		return err
	}
	w, err := s.cfg.Backend.Hello(ctx, allocator.HelloRequest{Node: h.GetNode(), Instance: h.GetInstance(),
		Position: positionIn(h.GetLineage()), Pairs: pairs, Complete: h.GetComplete(), Version: h.GetVersion()})
	if err != nil {
		return err
	}
	return stream.Send(&signetv1.SessionResponse{Message: &signetv1.SessionResponse_Welcome{Welcome: &signetv1.Welcome{
		Lineage: positionOut(w.Position), Holds: pairsOut(w.Holds), Recovery: w.Recovery}}})
}

func checkInstance(instance string) error {
	if instance == "" || len(instance) > maxID {
		return invalid(reasonField, "instance", "instance has to be 1 to %d bytes long; it is the UUID in the agent's state folder", maxID)
	}
	return nil
}

func (s *nodeService) ack(ctx context.Context, node string, a *signetv1.Ack) error {
	if node == "" || a.GetNode() != node {
		return invalid(reasonSession, "ack.node", "an acknowledgement of node %q came before its hello", printable(a.GetNode()))
	}
	if err := checkInstance(a.GetInstance()); err != nil {
		return err
	}
	return s.cfg.Backend.Acknowledge(ctx, node, a.GetInstance(), positionIn(a.GetLineage()))
}

// relay is a follower's side of a session: it passes frames on, both ways.
func (s *nodeService) relay(ctx context.Context, conn *grpc.ClientConn, stream sessionStream,
	frames <-chan *signetv1.SessionRequest, ended <-chan error,
) error {
	address, _ := s.cfg.Backend.Leader()
	there, err := nodeClient(conn).Session(ctx)
	if err != nil {
		return forwardedError(ctx, conn, err)
	}
	answers, over := received(ctx, there.Recv)
	look := time.NewTicker(pollInterval)
	defer look.Stop()
	for {
		select {
		case <-s.stopping:
			return unavailable(reasonStopping, "this replica is stopping; open the session at another")
		case <-look.C:
			if now, self := s.cfg.Backend.Leader(); self || now != address {
				return unavailable(reasonNoLeader, "leadership moved; open the session again")
			}
		case err := <-ended:
			return endOf(err)
		case f := <-frames:
			_ = there.Send(f) // if the leader ended the stream, over says why
		case a := <-answers:
			if err := stream.Send(a); err != nil {
				return err
			}
		case err := <-over:
			if endOf(err) == nil {
				return nil
			}
			return forwardedError(ctx, conn, err)
		}
	}
}
