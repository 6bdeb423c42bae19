// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/signet-identity/signet/kvstore"
)

// SnapshotError is a file that is no readable snapshot of etcd.
type SnapshotError struct {
	Path   string
	Reason string
	Err    error // below; may be nil
}

// Error implements error.
func (e *SnapshotError) Error() string {
	text := fmt.Sprintf("snapshot %s: %s", e.Path, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap is the error below.
func (e *SnapshotError) Unwrap() error { return e.Err }

// How etcd keeps its keys (storage/mvcc and storage/schema of etcd 3.7): the
// bucket "key" has one entry for each change, under the revision that made it:
// 8 bytes, "_", 8 bytes that count the changes of the revision, and for a
// deletion a "t". The bucket "meta" knows the last compaction in the same form.
const (
	keyBucket     = "key"
	metaBucket    = "meta"
	revisionBytes = 17
	deletionMark  = 't'
	// diskSector is what the length of a database is a multiple of; a snapshot
	// that a client saved has its SHA-256 behind it.
	diskSector = 512
)

// compactKeys are the entries of metaBucket that hold a revision.
var compactKeys = [...]string{"scheduledCompactRev", "finishedCompactRev"}

// lockTimeout bounds the wait for a file that another process has open.
const lockTimeout = time.Second

// ReadSnapshot is Read on a snapshot: the file that "etcdctl snapshot save"
// writes, or the database of a member that was stopped (after a crash it may
// lack what only the member's log holds). It rebuilds the newest state of
// everything under Prefixes, sorted by key, and never writes to the file. A checksum at the file's end is verified. Errors are *SnapshotError.
func ReadSnapshot(path string, l kvstore.Layout) (kvs []kvstore.KV, revision int64, err error) {
	if err := verifyChecksum(path); err != nil {
		return nil, 0, err
	}
	// A damaged file without a checksum can lead the reader astray: into a
	// panic, or beyond the end of the mapped file.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			kvs, revision, err = nil, 0, &SnapshotError{Path: path, Reason: fmt.Sprintf("the database is damaged (%v)", r)}
		}
	}()
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		return nil, 0, &SnapshotError{Path: path, Reason: "it cannot be opened as a database of etcd", Err: err}
	}
	defer db.Close()
	s := snapshot{prefixes: Prefixes(l), live: map[string]kvstore.KV{}, revision: 1}
	if err := db.View(s.read); err != nil {
		return nil, 0, &SnapshotError{Path: path, Reason: "it is no database of etcd", Err: err}
	}
	kvs = slices.SortedFunc(maps.Values(s.live), func(a, b kvstore.KV) int { return cmp.Compare(a.Key, b.Key) })
	return kvs, s.revision, nil
}

// verifyChecksum compares the SHA-256 behind the database, if there is one.
func verifyChecksum(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return &SnapshotError{Path: path, Reason: "it cannot be read", Err: err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return &SnapshotError{Path: path, Reason: "it cannot be read", Err: err}
	}
	if !info.Mode().IsRegular() {
		return &SnapshotError{Path: path, Reason: "it is no file"}
	}
	if info.Size()%diskSector != sha256.Size {
		return nil
	}
	h := sha256.New()
	if _, err := io.CopyN(h, f, info.Size()-sha256.Size); err != nil {
		return &SnapshotError{Path: path, Reason: "it cannot be read", Err: err}
	}
	want, err := io.ReadAll(f)
	if err != nil {
		return &SnapshotError{Path: path, Reason: "it cannot be read", Err: err}
	}
	if string(h.Sum(nil)) != string(want) {
		return &SnapshotError{Path: path, Reason: "its content does not match the checksum at its end; take it again"}
	}
	return nil
}

// snapshot is a database while it is read.
type snapshot struct {
	prefixes []string
	live     map[string]kvstore.KV
	revision int64
}

func (s *snapshot) read(tx *bolt.Tx) error {
	changes := tx.Bucket([]byte(keyBucket))
	if changes == nil {
		return errors.New("it has no bucket of keys")
	}
	if meta := tx.Bucket([]byte(metaBucket)); meta != nil {
		for _, name := range compactKeys {
			if rev, _, ok := parseRevision(meta.Get([]byte(name))); ok {
				s.revision = max(s.revision, rev)
			}
		}
	}
	return changes.ForEach(s.apply)
}

// apply takes one change; bbolt hands them out in the order of revisions.
func (s *snapshot) apply(k, v []byte) error {
	rev, deleted, ok := parseRevision(k)
	if !ok {
		return fmt.Errorf("a key of the database is no revision: %x", k)
	}
	s.revision = max(s.revision, rev)
	var kv mvccpb.KeyValue
	if err := proto.Unmarshal(v, &kv); err != nil {
		return fmt.Errorf("the change at revision %d cannot be read: %w", rev, err)
	}
	key := string(kv.Key)
	switch {
	case !covered(s.prefixes, key):
	case deleted:
		delete(s.live, key)
	default:
		s.live[key] = kvstore.KV{
			Key: key, Value: kv.Value, CreateRevision: kv.CreateRevision,
			ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease,
		}
	}
	return nil
}

// parseRevision reads a key of the database.
func parseRevision(b []byte) (revision int64, deleted, ok bool) {
	switch {
	case len(b) == revisionBytes:
	case len(b) == revisionBytes+1 && b[revisionBytes] == deletionMark:
		deleted = true
	default:
		return 0, false, false
	}
	main, sub := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[9:])
	if b[8] != '_' || main > 1<<63-1 || sub > 1<<63-1 {
		return 0, false, false
	}
	return int64(main), deleted, true
}
