// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// ErrManyEndpoints: a snapshot is the state of one member, and the client knows several.
var ErrManyEndpoints = errors.New("a snapshot is taken of one member, so the client must have one endpoint")

// Snapshot is a copy of the store while it arrives: etcd's database with the
// SHA-256 of it at the end, the form that etcdutl reads. Close it.
type Snapshot struct {
	io.ReadCloser
	// Revision was the store's head before the copy began: the copy's is this
	// or a later one.
	Revision int64
	// About is the database's size in bytes before the copy began; 0: unknown.
	About int64
	// Version is etcd's version; "": unknown.
	Version string
}

// Snapshot copies the store from the one member that the client talks to. A
// linearizable read goes before it, so that a member which lags behind, or
// has lost its cluster, fails or catches up instead of giving an old copy. ctx
// has to live until everything is read.
func (e *Etcd) Snapshot(ctx context.Context) (*Snapshot, error) {
	if len(e.endpoints) != 1 {
		return nil, ErrManyEndpoints
	}
	head, err := e.Range(ctx, RangeRequest{Key: signetRoot, KeysOnly: true})
	if err != nil {
		return nil, fmt.Errorf("snapshot of %s: %w", e.endpoints[0], err)
	}
	s := &Snapshot{Revision: head.Revision}
	if st, err := e.client.Status(ctx, e.endpoints[0]); err == nil {
		s.About, s.Version = st.DbSize, st.Version
	}
	r, err := e.client.SnapshotWithVersion(ctx)
	if err != nil {
		return nil, fmt.Errorf("snapshot of %s: %w", e.endpoints[0], classify(err))
	}
	s.ReadCloser = r.Snapshot
	return s, nil
}
