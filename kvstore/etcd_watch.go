// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// etcdWatch is one watch on a stream of its own. clientv3's watcher would
// resume a broken stream unseen, perhaps on a store that was restored to an
// older revision, and there stay silent. Here a stream that breaks ends the
// watch, so whoever opens the next one sees the store's head in its first
// batch (DESIGN.md I7, section 5). A reader that is slow slows its stream down
// instead of filling memory.
type etcdWatch struct {
	stream   grpc.BidiStreamingClient[pb.WatchRequest, pb.WatchResponse]
	progress chan struct{} // room for one request
	out      chan WatchBatch
}

// Watch implements Store.
func (e *Etcd) Watch(ctx context.Context, r WatchRequest) <-chan WatchBatch {
	w := &etcdWatch{progress: make(chan struct{}, 1), out: make(chan WatchBatch)}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(e.ctx, cancel)
	e.mu.Lock()
	e.watches[w] = struct{}{}
	e.mu.Unlock()
	e.running.Go(func() {
		defer close(w.out)
		defer cancel()
		defer stop()
		err := w.run(ctx, e.client, r)
		e.mu.Lock()
		delete(e.watches, w)
		e.mu.Unlock()
		if ctx.Err() == nil {
			w.deliver(ctx, err)
		}
	})
	return w.out
}

// RequestProgress implements Store. It does not wait. etcd answers with a
// batch without events, after all events before it; while some watch of the
// stream is still catching up it does not answer at all, so a reader that
// still waits asks again.
func (e *Etcd) RequestProgress(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.watches {
		select {
		case w.progress <- struct{}{}:
		default: // one that will be sent from now on is there already
		}
	}
	return nil
}

// run delivers batches until the watch ends, and returns the last one.
func (w *etcdWatch) run(ctx context.Context, client *clientv3.Client, r WatchRequest) WatchBatch {
	stream, err := pb.NewWatchClient(client.ActiveConnection()).Watch(
		clientv3.WithRequireLeader(ctx), grpc.MaxCallRecvMsgSize(maxReceivedLength))
	if err != nil {
		return WatchBatch{Err: classify(err)}
	}
	w.stream = stream
	create := &pb.WatchCreateRequest{
		Key: []byte(r.Key), RangeEnd: []byte(r.RangeEnd), StartRevision: r.Revision, ProgressNotify: true,
	}
	if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		_, err = stream.Recv() // a failed Send leaves the reason to Recv
		return WatchBatch{Err: classify(err)}
	}
	done := make(chan struct{})
	defer close(done)
	for created := false; ; {
		resp, err := stream.Recv()
		if err != nil {
			return WatchBatch{Err: classify(err)}
		}
		batch := fromWatch(resp)
		if batch.Err != nil || !w.deliver(ctx, batch) {
			return batch
		}
		if batch.Created && !created {
			created = true
			go w.sendProgress(done)
		}
	}
}

// sendProgress passes requests for progress on. It alone sends from now on.
func (w *etcdWatch) sendProgress(done <-chan struct{}) {
	request := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
	for {
		select {
		case <-w.progress:
			if w.stream.Send(request) != nil {
				return // Recv tells why
			}
		case <-done:
			return
		}
	}
}

// deliver hands a batch over; false once ctx has ended.
func (w *etcdWatch) deliver(ctx context.Context, batch WatchBatch) bool {
	select {
	case w.out <- batch:
		return true
	case <-ctx.Done():
		return false
	}
}

// fromWatch reads one answer. etcd stamps events with the store's head, which
// may lie beyond what a watch that is catching up has been given; the last
// event's revision is what holds.
func fromWatch(resp *pb.WatchResponse) WatchBatch {
	batch := WatchBatch{Revision: resp.Header.GetRevision(), Created: resp.Created}
	if resp.CompactRevision != 0 {
		batch.Err, batch.CompactRevision = ErrCompacted, resp.CompactRevision
		return batch
	}
	if resp.Canceled {
		batch.Err = fmt.Errorf("etcd ended the watch: %w", errors.New(resp.CancelReason))
		return batch
	}
	for _, ev := range resp.Events {
		batch.Events = append(batch.Events, Event{Delete: ev.Type == mvccpb.Event_DELETE, KV: kvFromPB(ev.Kv)})
	}
	if n := len(batch.Events); n > 0 {
		batch.Revision = batch.Events[n-1].KV.ModRevision
	}
	return batch
}
