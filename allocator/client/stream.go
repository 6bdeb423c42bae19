// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"time"

	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// ListOptions select identities.
type ListOptions struct {
	// Selector is a label selector; "": all.
	Selector string
	// IncludeFreed also lists freed numbers that a tombstone remembers.
	IncludeFreed bool
	// IncludeReserved also lists reserved numbers.
	IncludeReserved bool
	// PageSize is how many come with one answer; 0: the server's choice.
	PageSize int32
	// MinRevision makes the first answer wait until the server applied it.
	MinRevision int64
}

// List yields identities in order of number, page after page. An error ends it.
func (c *Client) List(ctx context.Context, o ListOptions) iter.Seq2[*signetv1.Identity, error] {
	return func(yield func(*signetv1.Identity, error) bool) {
		req := &signetv1.ListIdentitiesRequest{Selector: o.Selector, IncludeFreed: o.IncludeFreed,
			IncludeReserved: o.IncludeReserved, PageSize: o.PageSize, MinRevision: o.MinRevision}
		for {
			page, err := unary(ctx, c, "list identities", func(ctx context.Context, conn *conn) (*signetv1.ListIdentitiesResponse, error) {
				return conn.identity.ListIdentities(ctx, req)
			})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, i := range page.GetItems() {
				if !yield(i, nil) {
					return
				}
			}
			if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
				return
			}
		}
	}
}

// WatchOptions select identities and where to begin.
type WatchOptions struct {
	Selector string
	// After resumes behind a position that came with KIND_CURRENT; nil begins
	// with a reset and a snapshot.
	After *signetv1.Position
}

// Watch yields what is and what changes. A broken stream is resumed, at
// another server if need be, behind the last KIND_CURRENT; what came after
// that may come again, and a KIND_RESET may come at any time. It ends with an
// error: that of ctx, a refusal, or Unavailable when no server could be
// reached within Config.Timeout at the beginning.
func (c *Client) Watch(ctx context.Context, o WatchOptions) iter.Seq2[*signetv1.WatchIdentitiesResponse, error] {
	return func(yield func(*signetv1.WatchIdentitiesResponse, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.life, cancel)()
		w := &watch{c: c, req: &signetv1.WatchIdentitiesRequest{Selector: o.Selector, After: o.After}, began: time.Now()}
		for {
			err, stopped := w.once(ctx, yield)
			if stopped {
				return
			}
			if err = w.wait(ctx, err); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

type watch struct {
	c     *Client
	req   *signetv1.WatchIdentitiesRequest
	began time.Time
	heard bool // something came at all
	tries int  // since something came
}

// once runs one stream until it breaks, or the consumer stops.
func (w *watch) once(ctx context.Context, yield func(*signetv1.WatchIdentitiesResponse, error) bool) (_ *Error, stopped bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.c.current().identity.WatchIdentities(ctx, w.req)
	if err != nil {
		return asError(err), false
	}
	for {
		ev, err := stream.Recv()
		if err != nil {
			return asError(err), false
		}
		w.heard, w.tries = true, 0
		switch ev.GetKind() {
		case signetv1.WatchIdentitiesResponse_KIND_RESET:
			w.req.After = nil
		case signetv1.WatchIdentitiesResponse_KIND_CURRENT:
			w.req.After = ev.GetLineage()
		}
		if !yield(ev, nil) {
			return nil, true
		}
	}
}

// wait sleeps before the next stream; its error ends the watch.
func (w *watch) wait(ctx context.Context, err *Error) *Error {
	if ctx.Err() != nil {
		return ended(ctx, "watch identities", err)
	}
	if !again(err) {
		return err
	}
	if !w.heard && time.Since(w.began) > w.c.cfg.Timeout {
		return lateRetry("watch identities", err)
	}
	return w.c.rotate(ctx, "watch identities", &w.tries, err)
}

func (c *Client) current() *conn { return c.conns[int(c.at.Load())%len(c.conns)] }

// rotate goes to the next server after a stream broke, and waits a little.
func (c *Client) rotate(ctx context.Context, what string, tries *int, err *Error) *Error {
	at := c.at.Load()
	c.at.CompareAndSwap(at, at+1)
	pause := c.pause(*tries, err)
	*tries++
	if !sleep(ctx, pause) {
		if ctx.Err() == nil {
			return lateRetry(what, err)
		}
		return ended(ctx, what, err)
	}
	return nil
}
