// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/signet-identity/signet/allocator/check"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/embedded"
)

// Drilled is the outcome of a drill.
type Drilled struct {
	File     string
	Revision int64 // of the snapshot
	// Restored is the restored store's revision, Written the one of a write to it.
	Restored, Written int64
	// Restoring, Starting and Checking are how long each took.
	Restoring, Starting, Checking time.Duration
	// Differences are keys that the restored store does not hold as the file
	// does, at most maxDifferences of them.
	Differences []string
	Report      check.Report
}

// Passed says whether the snapshot can be relied upon: it comes back as it was
// taken, and what it holds is sound.
func (d Drilled) Passed() bool {
	return len(d.Differences) == 0 && d.Written > d.Restored && d.Report.Worst() < check.Warning
}

const maxDifferences = 10

// DrillSnapshot restores a file into a scratch folder under dir ("": the
// system's), starts an etcd on it that only this process can find, compares
// what it serves with the file, judges it, writes to it, and takes it all away.
func DrillSnapshot(ctx context.Context, path, dir string, c Cluster, bump uint32) (d Drilled, err error) {
	kvs, revision, layout, err := SnapshotContent(path, c)
	if err != nil {
		return d, err
	}
	scratch, err := os.MkdirTemp(dir, "signet-drill-*")
	if err != nil {
		return d, &FileError{Path: dir, Reason: "a scratch folder cannot be made", Err: err}
	}
	defer os.RemoveAll(scratch)
	d = Drilled{File: path, Revision: revision}
	data := filepath.Join(scratch, "etcd")
	began := time.Now()
	if err := embedded.Restore(embedded.Restored{Snapshot: path, DataDir: data, Bump: bump}); err != nil {
		return d, err
	}
	d.Restoring, began = time.Since(began), time.Now()
	server, err := embedded.Start(ctx, embedded.Config{DataDir: data, ClientURL: anyLoopback, PeerURL: anyLoopback})
	if err != nil {
		return d, fmt.Errorf("start etcd on the restored folder: %w", err)
	}
	defer server.Close()
	d.Starting, began = time.Since(began), time.Now()
	store, err := server.Store(ctx)
	if err != nil {
		return d, err
	}
	defer store.Close()
	if err := d.try(ctx, store, layout, kvs); err != nil {
		return d, err
	}
	d.Checking = time.Since(began)
	return d, nil
}

// anyLoopback is a free port that nobody is told of.
const anyLoopback = "http://127.0.0.1:0"

// drillKey is written to a restored store to see that it takes writes.
const drillKey = "drill"

func (d *Drilled) try(ctx context.Context, store kvstore.Store, layout kvstore.Layout, want []kvstore.KV) error {
	have, revision, err := check.Read(ctx, store, layout)
	if err != nil {
		return err
	}
	d.Restored = revision
	d.Differences = differences(want, have)
	d.Report = check.Store(have, revision, check.Options{Layout: layout})
	r, err := store.Txn(ctx, kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: layout.Own() + drillKey}}})
	if err != nil {
		return fmt.Errorf("write to the restored store: %w", err)
	}
	d.Written = r.Revision
	return nil
}

// differences lists keys that differ. One whose lease has run out meanwhile is
// none: leases begin anew with the restored store.
func differences(want, have []kvstore.KV) []string {
	served := make(map[string]kvstore.KV, len(have))
	for _, kv := range have {
		served[kv.Key] = kv
	}
	var out []string
	say := func(key, how string) {
		if len(out) < maxDifferences {
			out = append(out, fmt.Sprintf("%q %s", key, how))
		}
	}
	for _, w := range want {
		h, ok := served[w.Key]
		delete(served, w.Key)
		switch {
		case !ok && w.Lease == 0:
			say(w.Key, "is missing")
		case ok && (!bytes.Equal(h.Value, w.Value) || h.ModRevision != w.ModRevision || h.CreateRevision != w.CreateRevision || h.Lease != w.Lease):
			say(w.Key, "differs")
		}
	}
	for _, kv := range have {
		if _, extra := served[kv.Key]; extra {
			say(kv.Key, "is not in the snapshot")
		}
	}
	return out
}
