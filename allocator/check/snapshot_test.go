// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/embedded"
)

// save takes a snapshot as "etcdctl snapshot save" does.
func save(t *testing.T, ctx context.Context, client *clientv3.Client) string {
	t.Helper()
	r, err := client.SnapshotWithVersion(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Snapshot.Close()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(f, r.Snapshot); err != nil {
		t.Fatal(err)
	}
	return path
}

// A snapshot of a real etcd reads as the store itself does: leases, deleted
// keys, keys made anew, compacted history, a head that is a deletion.
func TestSnapshotOfEtcd(t *testing.T) {
	ctx := t.Context()
	server, err := embedded.Start(ctx, embedded.Config{DataDir: t.TempDir(), ClientURL: "http://127.0.0.1:0", PeerURL: "http://127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := server.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	store, err := server.Store(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	layout := newLayout(t)

	same := func(step string) ([]kvstore.KV, string) {
		t.Helper()
		want, wantRev, err := Read(ctx, store, layout)
		if err != nil {
			t.Fatal(err)
		}
		path := save(t, ctx, client)
		got, rev, err := ReadSnapshot(path, layout)
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		byKey := func(kvs []kvstore.KV) map[string]kvstore.KV {
			m := map[string]kvstore.KV{}
			for _, kv := range kvs {
				if len(kv.Value) == 0 {
					kv.Value = nil
				}
				m[kv.Key] = kv
			}
			return m
		}
		if rev != wantRev || len(got) != len(want) || !reflect.DeepEqual(byKey(got), byKey(want)) {
			t.Errorf("%s: the snapshot at %d holds\n%v\nthe store at %d\n%v", step, rev, got, wantRev, want)
		}
		return got, path
	}
	do := func(actions ...kvstore.Action) {
		t.Helper()
		if _, err := store.Txn(ctx, kvstore.Txn{Then: actions}); err != nil {
			t.Fatal(err)
		}
	}
	same("empty")
	lease, err := store.Grant(ctx, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	c := sound()
	for _, kv := range c.list() {
		a := kvstore.Action{Put: true, Key: kv.Key, Value: kv.Value}
		if kv.Key == own+"nodes/n1" {
			a.Lease = lease
		}
		if !strings.Contains(kv.Key, "/election/") { // their leases are none of this store's
			do(a)
		}
	}
	do(kvstore.Action{Put: true, Key: ids + "310", Value: []byte(web)}, kvstore.Action{Delete: true, Key: ids + "302"})
	do(kvstore.Action{Delete: true, Key: ids + "310"}, kvstore.Action{Delete: true, Key: own + "idle/302"})
	do(kvstore.Action{Put: true, Key: ids + "302", Value: []byte(old)}, kvstore.Action{Put: true, Key: own + "idle/302", Value: []byte(mark(2, 1))})
	do(kvstore.Action{Put: true, Key: ids + "302", Value: []byte(old)})
	kvs, path := same("after changes")
	if r := Store(kvs, 1, Options{Layout: layout}); r.Identities != 3 || len(r.Findings) != 0 {
		t.Errorf("the report on the snapshot: %+v", r)
	}
	do(kvstore.Action{Delete: true, Key: ids + "302"}, kvstore.Action{Delete: true, Key: own + "idle/302"})
	head, err := client.Get(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(ctx, head.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	same("after compaction of everything, the last deletion too")
	damagedSnapshots(t, layout, path)
}

// damagedSnapshots tries what is no snapshot, or no whole one.
func damagedSnapshots(t *testing.T, layout kvstore.Layout, path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(data []byte) string {
		p := filepath.Join(t.TempDir(), "damaged.db")
		if err := os.WriteFile(p, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	flipped := append([]byte(nil), data...)
	flipped[len(flipped)/2] ^= 1
	garbage := append([]byte(nil), data[:len(data)-32]...)
	for i := 2 * os.Getpagesize(); i < len(garbage); i++ { // the first two pages say where the rest is
		garbage[i] = 0xa5
	}
	other := filepath.Join(t.TempDir(), "other.db")
	db, err := bolt.Open(other, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	for name, c := range map[string]struct{ path, says string }{
		"no file":                 {filepath.Join(t.TempDir(), "none"), "cannot be read"},
		"a folder":                {t.TempDir(), "is no file"},
		"an empty file":           {write(nil), "cannot be opened"},
		"a text":                  {write([]byte("hello, this is no database")), "cannot be opened"},
		"another database":        {other, "bucket of keys"},
		"one bit wrong":           {write(flipped), "checksum"},
		"only the first pages":    {write(data[:2*os.Getpagesize()]), "damaged"},
		"garbage behind the head": {write(garbage), "damaged"},
	} {
		var want *SnapshotError
		kvs, _, err := ReadSnapshot(c.path, layout)
		if !errors.As(err, &want) || !strings.Contains(err.Error(), c.says) || want.Path != c.path || kvs != nil {
			t.Errorf("%s: %d keys, %v; want an error that says %q", name, len(kvs), err, c.says)
		}
	}
	if _, _, err := ReadSnapshot(write(data[:len(data)-32]), layout); err != nil {
		t.Errorf("a database without a checksum: %v", err)
	}
	after, err := os.ReadFile(path)
	if err != nil || string(after) != string(data) {
		t.Errorf("reading changed the snapshot: %v", err)
	}
}

// A store whose newest changes are all compacted away stands where it was compacted.
func TestSnapshotThatIsCompactedToItsHead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "compacted.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bolt.Tx) error {
		if _, err := tx.CreateBucket([]byte("key")); err != nil {
			return err
		}
		meta, err := tx.CreateBucket([]byte("meta"))
		if err != nil {
			return err
		}
		return meta.Put([]byte("finishedCompactRev"), mvcc.RevToBytes(mvcc.Revision{Main: 9}, mvcc.NewRevBytes()))
	})
	if err != nil {
		t.Fatal(err)
	}
	var busy *SnapshotError
	if _, _, err := ReadSnapshot(path, newLayout(t)); !errors.As(err, &busy) {
		t.Errorf("a database that is in use: %v", err)
	}
	db.Close()
	if kvs, rev, err := ReadSnapshot(path, newLayout(t)); err != nil || rev != 9 || len(kvs) != 0 {
		t.Errorf("%v at %d, %v; want nothing at 9", kvs, rev, err)
	}
}

// Keys of the database are read as etcd writes them.
func TestParseRevision(t *testing.T) {
	for _, rev := range []mvcc.Revision{{Main: 1}, {Main: 2, Sub: 3}, {Main: 1<<63 - 1, Sub: 1<<63 - 1}} {
		b := mvcc.RevToBytes(rev, mvcc.NewRevBytes())
		got, deleted, ok := parseRevision(b)
		if got != rev.Main || deleted || !ok {
			t.Errorf("%v: %d, %v, %v", rev, got, deleted, ok)
		}
		b = append(b, 't')
		if got, deleted, ok = parseRevision(b); got != rev.Main || deleted != mvcc.IsTombstone(b) || !deleted || !ok {
			t.Errorf("%v, deleted: %d, %v, %v", rev, got, deleted, ok)
		}
	}
}

func FuzzParseRevision(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x01_\x00\x00\x00\x00\x00\x00\x00\x00t"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		rev, deleted, ok := parseRevision(b)
		if !ok && (rev != 0 || deleted) || rev < 0 {
			t.Fatalf("%x is %d, %v, %v", b, rev, deleted, ok)
		}
		if ok && mvcc.BytesToRev(b).Main != rev {
			t.Fatalf("%x is %d, etcd says %d", b, rev, mvcc.BytesToRev(b).Main)
		}
	})
}
