// SPDX-License-Identifier: Apache-2.0

package run

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/embedded"
)

// A sound small store, as keys and values.
var soundStore = map[string]string{
	"signet/v1/prod/cluster":                               `{"name":"prod","id":0,"max_connected_clusters":255,"local_bits":16,"format":1}`,
	"signet/v1/prod/lineage":                               `{"counter":7,"served_s":30,"terms":[{"nonce":"b","first":5,"last":7}]}`,
	"signet/v1/ids/0":                                      "prod",
	"cilium/state/identities/v1/id/300":                    "k8s:app=web;",
	"cilium/state/identities/v1/value/k8s:app=web;/pin-me": "300",
	"elsewhere": "of another program",
}

// startStore starts an etcd that holds these keys.
func startStore(t *testing.T, keys map[string]string) (Etcd, *kvstore.Etcd) {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Config{DataDir: t.TempDir(), ClientURL: anyLoopback, PeerURL: anyLoopback})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	store, err := server.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	for key, value := range keys {
		write(t, store, kvstore.Action{Put: true, Key: key, Value: []byte(value)})
	}
	return Etcd{Endpoints: []string{server.Endpoint()}}, store
}

func write(t *testing.T, store kvstore.Store, actions ...kvstore.Action) int64 {
	t.Helper()
	r, err := store.Txn(t.Context(), kvstore.Txn{Then: actions})
	if err != nil {
		t.Fatal(err)
	}
	return r.Revision
}

func silent(int64, int64) {}

// Save, inspect, drill, restore: what comes back is what was saved.
func TestSnapshotThere(t *testing.T) {
	e, store := startStore(t, soundStore)
	head := write(t, store, kvstore.Action{Put: true, Key: "last", Value: []byte("x")})
	dir := t.TempDir()
	path := filepath.Join(dir, "backup.db")
	var told []int64
	// The first endpoint does not answer: the second one is taken.
	both := Etcd{Endpoints: []string{"http://127.0.0.1:1", e.Endpoints[0]}, WaitTimeout: 300e6}
	saved, err := SaveSnapshot(t.Context(), both, path, false, func(done, about int64) {
		if about < done {
			t.Errorf("%d of about %d", done, about)
		}
		told = append(told, done)
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	sum := sha256.Sum256(data)
	info, _ := os.Stat(path)
	if err != nil || saved.Revision != head || saved.Size != int64(len(data)) || saved.SHA256 != hex.EncodeToString(sum[:]) ||
		saved.Endpoint != e.Endpoints[0] || len(told) == 0 || told[len(told)-1] != saved.Size || info.Mode() != 0o600 {
		t.Errorf("%+v, mode %v, told %v, %v", saved, info.Mode(), told, err)
	}
	seen, err := InspectSnapshot(path, Cluster{})
	if err != nil || seen.SHA256 != saved.SHA256 || seen.Report.Identities != 1 || seen.Report.References != 1 || len(seen.Report.Findings) != 0 ||
		seen.Facts.Cluster == nil || seen.Facts.Cluster.Name != "prod" || seen.Facts.Lineage.Counter != 7 {
		t.Errorf("%+v, %v", seen, err)
	}
	scratch := t.TempDir()
	d, err := DrillSnapshot(t.Context(), path, scratch, Cluster{}, 500)
	if err != nil || !d.Passed() || d.Revision != head || d.Restored != head+500 || d.Written != head+501 || d.Report.Identities != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if rest, err := os.ReadDir(scratch); err != nil || len(rest) != 0 {
		t.Errorf("left behind: %v, %v", rest, err)
	}
	back := filepath.Join(dir, "new")
	r, err := RestoreSnapshot(embedded.Restored{Snapshot: path, DataDir: back, Bump: 500})
	if err != nil || r.Revision != head || r.Now != head+500 {
		t.Errorf("%+v, %v", r, err)
	}
	server, err := embedded.Start(t.Context(), embedded.Config{DataDir: back, ClientURL: anyLoopback, PeerURL: anyLoopback})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	again, err := server.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for key, value := range soundStore {
		if got, err := again.Range(t.Context(), kvstore.RangeRequest{Key: key}); err != nil || len(got.KVs) != 1 || string(got.KVs[0].Value) != value {
			t.Errorf("%s: %+v, %v", key, got, err)
		}
	}
}

func TestSnapshotFileIsNotOverwritten(t *testing.T) {
	e, _ := startStore(t, soundStore)
	dir := t.TempDir()
	path := filepath.Join(dir, "backup.db")
	if err := os.WriteFile(path, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := SaveSnapshot(t.Context(), e, path, false, silent)
	if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "--force") {
		t.Errorf("%v", err)
	}
	// One that appears meanwhile is kept as well.
	err = writeWhole(path, false, func(*os.File) error { return nil })
	if data, _ := os.ReadFile(path); !errors.Is(err, fs.ErrExist) || string(data) != "precious" {
		t.Errorf("%v, %q", err, data)
	}
	// A copy that breaks off leaves the old file, forced or not.
	broken := errors.New("the line is cut")
	err = writeWhole(path, true, func(f *os.File) error { _, _ = f.WriteString("half"); return broken })
	if data, _ := os.ReadFile(path); !errors.Is(err, broken) || string(data) != "precious" {
		t.Errorf("%v, %q", err, data)
	}
	if _, err := SaveSnapshot(t.Context(), e, path, true, silent); err != nil {
		t.Error(err)
	}
	if _, err := InspectSnapshot(path, Cluster{}); err != nil {
		t.Errorf("the new one: %v", err)
	}
	if rest, err := os.ReadDir(dir); err != nil || len(rest) != 1 {
		t.Errorf("left behind: %v, %v", rest, err)
	}
	var file *FileError
	if _, err := SaveSnapshot(t.Context(), e, filepath.Join(dir, "none", "x.db"), false, silent); !errors.As(err, &file) {
		t.Errorf("into no folder: %v", err)
	}
	var late *kvstore.NotReadyError
	away := Etcd{Endpoints: []string{"http://127.0.0.1:1"}, WaitTimeout: 300e6}
	if _, err := SaveSnapshot(t.Context(), away, filepath.Join(dir, "x.db"), false, silent); !errors.As(err, &late) {
		t.Errorf("from nobody: %v", err)
	}
}

// A snapshot that does not come back as it was, or is not sound, is bad.
func TestBadDrills(t *testing.T) {
	broken := map[string]string{"cilium/state/identities/v1/id/301": "k8s:app=web;"}
	for key, value := range soundStore {
		broken[key] = value
	}
	e, _ := startStore(t, broken)
	path := filepath.Join(t.TempDir(), "backup.db")
	if _, err := SaveSnapshot(t.Context(), e, path, false, silent); err != nil {
		t.Fatal(err)
	}
	d, err := DrillSnapshot(t.Context(), path, "", Cluster{Name: "prod"}, 0)
	if err != nil || d.Passed() || d.Restored != d.Revision || len(d.Differences) != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := DrillSnapshot(t.Context(), path, "", Cluster{Name: "prod"}, 0); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("a damaged file: %v", err)
	}
}

func TestDifferences(t *testing.T) {
	kv := func(key, value string, mod, lease int64) kvstore.KV {
		return kvstore.KV{Key: key, Value: []byte(value), CreateRevision: 2, ModRevision: mod, Lease: lease}
	}
	want := []kvstore.KV{kv("a", "1", 3, 0), kv("b", "1", 4, 0), kv("c", "1", 5, 0), kv("d", "1", 6, 9), kv("e", "1", 7, 0)}
	have := []kvstore.KV{kv("a", "1", 3, 0), kv("b", "2", 4, 0), kv("e", "1", 8, 0), kv("f", "1", 9, 0)}
	got := strings.Join(differences(want, have), "; ")
	if got != `"b" differs; "c" is missing; "e" differs; "f" is not in the snapshot` {
		t.Error(got)
	}
	if out := differences(make([]kvstore.KV, 50), nil); len(out) > maxDifferences {
		t.Errorf("%d lines", len(out))
	}
}

// Of several clusters in one file one has to be named.
func TestClusterOfAFile(t *testing.T) {
	two := map[string]string{"signet/v1/ids/1": "a", "signet/v1/ids/2": "b"}
	for keys, want := range map[*map[string]string]string{{}: "default", &two: "cluster-name", &soundStore: "prod"} {
		e, _ := startStore(t, *keys)
		path := filepath.Join(t.TempDir(), "x.db")
		if _, err := SaveSnapshot(t.Context(), e, path, false, silent); err != nil {
			t.Fatal(err)
		}
		_, _, layout, err := SnapshotContent(path, Cluster{})
		var config *ConfigError
		if errors.As(err, &config) != (want == "cluster-name") || err == nil && layout.Cluster() != want {
			t.Errorf("want %s: %q, %v", want, layout.Cluster(), err)
		}
	}
}
