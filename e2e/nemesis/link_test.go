// SPDX-License-Identifier: Apache-2.0

package nemesis

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// link is a TCP proxy between one process and one port. What is cut is held
// back and goes on once it is healed, as with packets that are sent again.
type link struct {
	to       string
	listener net.Listener
	up, down *way // toward the port, and back

	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup
}

func newLink(to string) (*link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &link{to: to, listener: l, up: newWay(), down: newWay()}
	k.ctx, k.stop = context.WithCancel(context.Background())
	k.work.Go(k.accept)
	return k, nil
}

// address is where the process connects to.
func (k *link) address() string { return k.listener.Addr().String() }

func (k *link) close() {
	k.stop()
	k.listener.Close()
	k.work.Wait()
}

func (k *link) heal() {
	k.up.set(false, 0)
	k.down.set(false, 0)
}

func (k *link) accept() {
	for {
		c, err := k.listener.Accept()
		if err != nil {
			return
		}
		k.work.Go(func() { k.carry(c) })
	}
}

// carry serves one connection. The port sees it once the way up is open.
func (k *link) carry(c net.Conn) {
	defer c.Close()
	if !k.up.wait(k.ctx) {
		return
	}
	s, err := (&net.Dialer{}).DialContext(k.ctx, "tcp", k.to)
	if err != nil {
		return
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { c.Close(); s.Close() })
	var both sync.WaitGroup
	both.Go(func() { defer cancel(); k.up.copy(ctx, s, c) })
	both.Go(func() { defer cancel(); k.down.copy(ctx, c, s) })
	both.Wait()
}

// way is one direction of a link.
type way struct {
	mu    sync.Mutex
	open  chan struct{} // closed while nothing is cut
	delay time.Duration
}

func newWay() *way {
	w := &way{open: make(chan struct{})}
	close(w.open)
	return w
}

func (w *way) set(cut bool, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = delay
	select {
	case <-w.open:
		if cut {
			w.open = make(chan struct{})
		}
	default:
		if !cut {
			close(w.open)
		}
	}
}

// wait returns once nothing is cut; false: ctx ended.
func (w *way) wait(ctx context.Context) bool {
	for {
		w.mu.Lock()
		open := w.open
		w.mu.Unlock()
		select {
		case <-open:
			return ctx.Err() == nil
		case <-ctx.Done():
			return false
		}
	}
}

type chunk struct {
	data []byte
	due  time.Time
}

// copy carries bytes, each chunk no earlier than its delay, until one side ends.
func (w *way) copy(ctx context.Context, dst io.Writer, src io.Reader) {
	chunks := make(chan chunk, 16)
	go func() {
		defer close(chunks)
		for {
			data := make([]byte, 16<<10)
			n, err := src.Read(data)
			w.mu.Lock()
			due := time.Now().Add(w.delay)
			w.mu.Unlock()
			select {
			case chunks <- chunk{data[:n], due}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for c := range chunks {
		select {
		case <-time.After(time.Until(c.due)):
		case <-ctx.Done():
		}
		if !w.wait(ctx) {
			return
		}
		if _, err := dst.Write(c.data); err != nil {
			return
		}
	}
}

// echo is a port that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	return l.Addr().String()
}

func TestLink_cutsHoldAndHealDelivers(t *testing.T) {
	k, err := newLink(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	c, err := net.Dial("tcp", k.address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	say := func(what string, within time.Duration) error {
		c.SetDeadline(time.Now().Add(within))
		c.Write([]byte(what))
		return hear(c, what)
	}
	if err := say("before", 5*time.Second); err != nil {
		t.Fatal(err)
	}
	for name, w := range map[string]*way{"up": k.up, "down": k.down} {
		w.set(true, 0)
		if err := say(name, 100*time.Millisecond); err == nil {
			t.Errorf("%s is cut and the answer came", name)
		}
		w.set(false, 0)
		c.SetDeadline(time.Now().Add(5 * time.Second))
		if err := hear(c, name); err != nil {
			t.Errorf("%s was healed: %v", name, err)
		}
	}
	k.up.set(false, 150*time.Millisecond)
	began := time.Now()
	if err := say("slow", 5*time.Second); err != nil || time.Since(began) < 150*time.Millisecond {
		t.Errorf("a slow way took %v: %v", time.Since(began), err)
	}
}

func hear(c net.Conn, what string) error {
	_, err := io.ReadFull(c, make([]byte, len(what)))
	return err
}
