// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signet-identity/signet/kvstore"
)

// saved copies the member's store into a file.
func saved(t *testing.T, s *Server) (path string, least int64) {
	t.Helper()
	store, err := s.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	from, err := store.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	data, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	if from.Version == "" || from.About == 0 {
		t.Errorf("version %q, about %d bytes", from.Version, from.About)
	}
	path = filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, from.Revision
}

// An official restore serves the old values at a revision far ahead, with
// everything before compacted; a plain one goes back.
func TestRestore(t *testing.T) {
	s := start(t, Config{DataDir: t.TempDir(), ClientURL: anyPort, PeerURL: anyPort})
	put(t, s, "a", "1")
	at := put(t, s, "b", "2")
	path, least := saved(t, s)
	put(t, s, "b", "3")
	s.Close()
	if least != at {
		t.Errorf("the head before the copy is %d, want %d", least, at)
	}
	for name, bump := range map[string]uint32{"official": 1000, "plain": 0} {
		dir := filepath.Join(t.TempDir(), "new", "etcd")
		if err := Restore(Restored{Snapshot: path, DataDir: dir, Bump: bump}); err != nil {
			t.Fatal(err)
		}
		s := start(t, Config{DataDir: dir, ClientURL: anyPort, PeerURL: anyPort})
		if v := get(t, s, "b"); v != "2" {
			t.Errorf("%s: b is %q", name, v)
		}
		store, err := s.Store(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.Range(t.Context(), kvstore.RangeRequest{Key: "b", Revision: at - 1})
		if compacted := errors.Is(err, kvstore.ErrCompacted); compacted != (bump > 0) {
			t.Errorf("%s: the past says %v", name, err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		if rev := put(t, s, "c", "4"); rev != at+int64(bump)+1 {
			t.Errorf("%s: the first write has revision %d, want %d", name, rev, at+int64(bump)+1)
		}
		s.Close()
		if err := Restore(Restored{Snapshot: path, DataDir: dir}); !errors.Is(err, ErrNotEmpty) {
			t.Errorf("%s: onto a folder in use: %v", name, err)
		}
		if rest, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(rest) != 1 {
			t.Errorf("%s: left behind: %v, %v", name, rest, err)
		}
	}
}

// A restore that fails leaves nothing behind.
func TestRestoreOfNoSnapshot(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("hello ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(dir, "place")
	for _, r := range []Restored{
		{Snapshot: filepath.Join(dir, "none"), DataDir: place},
		{Snapshot: text, DataDir: place},
		{Snapshot: text, DataDir: place, InitialCluster: "other=http://127.0.0.1:1"},
		{Snapshot: text, DataDir: text},
		{Snapshot: text, DataDir: filepath.Join(text, "below")},
	} {
		if err := Restore(r); err == nil {
			t.Errorf("%+v: no error", r)
		}
	}
	if rest, err := os.ReadDir(dir); err != nil || len(rest) != 1 {
		t.Errorf("left behind: %v, %v", rest, err)
	}
}

// A client of several members must say whose state it wants.
func TestSnapshotOfSeveral(t *testing.T) {
	store, err := kvstore.NewEtcd(t.Context(), kvstore.EtcdConfig{Endpoints: []string{"http://127.0.0.1:1", "http://127.0.0.1:2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Snapshot(t.Context()); !errors.Is(err, kvstore.ErrManyEndpoints) {
		t.Error(err)
	}
}
