// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// SessionConfig is what an agent has to say and wants to hear. The functions
// are called one at a time.
type SessionConfig struct {
	// Hello says what the node holds. It is called for each connection, and
	// again when Session.Hello or the operator asks for it.
	Hello func() *signetv1.Hello
	// Welcome gets each answer to a hello.
	Welcome func(*signetv1.Welcome)
	// AckWanted gets the revision at or past which the leader waits for an
	// acknowledgement. May be nil.
	AckWanted func(revision int64)
	// Lost gets the error that ended a connection; the next one is on its way.
	// May be nil.
	Lost func(error)
}

// Session is a node's conversation with the operators. It survives them:
// after a break it says hello again, and repeats the last acknowledgement.
type Session struct {
	c   *Client
	cfg SessionConfig

	calls sync.Mutex // one function of cfg at a time

	mu    sync.Mutex
	ack   *signetv1.Position // the newest; nil: none yet
	again bool               // a hello is wanted
	wake  chan struct{}      // capacity 1: ack or again changed
}

// NewSession makes a session; Run opens it.
func (c *Client) NewSession(cfg SessionConfig) *Session {
	return &Session{c: c, cfg: cfg, wake: make(chan struct{}, 1)}
}

// Ack acknowledges everything up to a position. Only the newest matters; it
// is sent as soon as a connection is welcomed. It does not block.
func (s *Session) Ack(at *signetv1.Position) {
	s.mu.Lock()
	s.ack = at
	s.mu.Unlock()
	s.signal()
}

// Hello says hello again: the store's lineage changed, or what is held did.
// It does not block.
func (s *Session) Hello() {
	s.mu.Lock()
	s.again = true
	s.mu.Unlock()
	s.signal()
}

func (s *Session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run keeps the session open until ctx or the client ends, which it reports as
// an *Error, or until an operator refuses it for good (InvalidArgument,
// PermissionDenied, Unimplemented).
func (s *Session) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.c.life, cancel)()
	tries := 0
	for {
		err := s.once(ctx, &tries)
		if ctx.Err() != nil {
			return ended(ctx, "session", err)
		}
		switch err.Code {
		case codes.InvalidArgument, codes.PermissionDenied, codes.Unimplemented:
			return err
		}
		if s.cfg.Lost != nil {
			s.cfg.Lost(err)
		}
		if err := s.c.rotate(ctx, "session", &tries, err); err != nil {
			return err
		}
	}
}

// once runs one connection until it breaks.
func (s *Session) once(ctx context.Context, tries *int) *Error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.c.current().node.Session(ctx)
	if err != nil {
		return asError(err)
	}
	talk := &talk{s: s, stream: stream, welcomed: make(chan struct{})}
	if err := talk.hello(); err != nil {
		_, err = stream.Recv() // Send only says that it ended; Recv says why
		return asError(err)
	}
	var sender sync.WaitGroup
	sender.Go(func() { talk.send(ctx) })
	defer func() { cancel(); sender.Wait() }()
	for first := true; ; {
		f, err := stream.Recv()
		if err != nil {
			return asError(err)
		}
		s.hear(f)
		if f.GetWelcome() != nil && first {
			first, *tries = false, 0
			close(talk.welcomed)
		}
	}
}

func (s *Session) hear(f *signetv1.SessionResponse) {
	switch m := f.GetMessage().(type) {
	case *signetv1.SessionResponse_Welcome:
		s.calls.Lock()
		defer s.calls.Unlock()
		s.cfg.Welcome(m.Welcome)
	case *signetv1.SessionResponse_AckWanted:
		if s.cfg.AckWanted != nil {
			s.calls.Lock()
			defer s.calls.Unlock()
			s.cfg.AckWanted(m.AckWanted.GetRevision())
		}
	case *signetv1.SessionResponse_HelloWanted:
		s.c.cfg.Logger.Info("an operator asks for a new hello", "reason", m.HelloWanted.GetReason())
		s.Hello()
	}
}

// talk is one connection's sending side.
type talk struct {
	s        *Session
	stream   grpc.BidiStreamingClient[signetv1.SessionRequest, signetv1.SessionResponse]
	said     *signetv1.Hello
	acked    *signetv1.Position // the last one sent on this connection
	welcomed chan struct{}      // closed by the first Welcome: acknowledgements wait for it
}

func (t *talk) hello() error {
	t.s.calls.Lock()
	t.said = t.s.cfg.Hello()
	t.s.calls.Unlock()
	return t.stream.Send(&signetv1.SessionRequest{Message: &signetv1.SessionRequest_Hello{Hello: t.said}})
}

// send writes hellos and acknowledgements until the connection ends. An error
// of Send ends the stream, and Recv reports why.
func (t *talk) send(ctx context.Context) {
	select {
	case <-t.welcomed:
	case <-ctx.Done():
		return
	}
	for {
		ack, again := t.s.wanted()
		if again && t.hello() != nil {
			return
		}
		if ack != nil && ack != t.acked {
			t.acked = ack
			frame := &signetv1.Ack{Node: t.said.GetNode(), Instance: t.said.GetInstance(), Lineage: ack}
			if t.stream.Send(&signetv1.SessionRequest{Message: &signetv1.SessionRequest_Ack{Ack: frame}}) != nil {
				return
			}
		}
		select {
		case <-t.s.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Session) wanted() (ack *signetv1.Position, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ack, again = s.ack, s.again
	s.again = false
	return ack, again
}
