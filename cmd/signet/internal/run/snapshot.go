// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/signet-identity/signet/allocator/check"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/embedded"
)

// Saved is a snapshot that was written.
type Saved struct {
	File     string
	Revision int64
	Size     int64  // bytes
	SHA256   string // of the whole file, as sha256sum prints it
	Endpoint string // whose state it is
	Version  string // of etcd; "": unknown
	Took     time.Duration
}

// Progress is told how many bytes have come, of about how many (0: unknown).
type Progress func(done, about int64)

// SaveSnapshot writes a snapshot of the store into a new file that only its
// owner can read. The endpoints are tried in turn. The file is there whole or
// not at all; one that is there already is kept unless force is given, and
// until the new one is complete.
func SaveSnapshot(ctx context.Context, e Etcd, path string, force bool, tell Progress) (Saved, error) {
	if _, err := os.Lstat(path); err == nil && !force {
		return Saved{}, fileExists(path)
	}
	var failed []error
	for _, endpoint := range e.Endpoints {
		one := e
		one.Endpoints = []string{endpoint}
		began := time.Now()
		s, err := saveFrom(ctx, one, path, force, tell)
		if err == nil {
			s.Endpoint, s.Took = endpoint, time.Since(began)
			return s, nil
		}
		var file *FileError
		if ctx.Err() != nil || errors.As(err, &file) {
			return Saved{}, err
		}
		failed = append(failed, err)
	}
	return Saved{}, errors.Join(failed...)
}

func saveFrom(ctx context.Context, e Etcd, path string, force bool, tell Progress) (Saved, error) {
	store, err := e.OpenStore(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return Saved{}, err
	}
	defer store.Close()
	copying, err := store.Snapshot(ctx)
	if err != nil {
		return Saved{}, err
	}
	defer copying.Close()
	out := Saved{File: path, Version: copying.Version}
	err = writeWhole(path, force, func(f *os.File) error {
		sum := sha256.New()
		counted := &counter{r: copying, about: copying.About, tell: tell}
		if out.Size, err = io.Copy(io.MultiWriter(f, sum), counted); err != nil {
			return fmt.Errorf("snapshot of %s: it broke off after %d bytes: %w", e.Endpoints[0], out.Size, err)
		}
		tell(out.Size, out.Size)
		out.SHA256 = hex.EncodeToString(sum.Sum(nil))
		out.Revision, err = verified(f.Name(), copying.Revision)
		return err
	})
	return out, err
}

// verified reads the snapshot back: its checksum, and that it is no older than
// when it was asked for.
func verified(path string, least int64) (int64, error) {
	layout, err := kvstore.NewLayout("", defaultCluster)
	if err != nil {
		return 0, err
	}
	_, revision, err := check.ReadSnapshot(path, layout)
	if err != nil {
		return 0, err
	}
	if revision < least {
		return 0, fmt.Errorf("the snapshot stands at revision %d, the store was at %d already", revision, least)
	}
	return revision, nil
}

// counter tells the progress of what is read through it.
type counter struct {
	r           io.Reader
	done, about int64
	tell        Progress
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.done += int64(n)
	c.tell(c.done, max(c.about, c.done))
	return n, err
}

// FileError is a file that cannot be written or must not be.
type FileError struct {
	Path   string
	Reason string
	Err    error // below; may be nil
}

// Error names the file.
func (e *FileError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.Path, e.Reason, e.Err)
	}
	return e.Path + ": " + e.Reason
}

// Unwrap is the error below.
func (e *FileError) Unwrap() error { return e.Err }

func fileExists(path string) error {
	return &FileError{Path: path, Reason: "it is there already; choose another name, or give --force", Err: os.ErrExist}
}

// writeWhole makes a file by way of another one in its folder, so that it
// appears only once everything is on disk.
func writeWhole(path string, force bool, write func(f *os.File) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*.partial")
	if err != nil {
		return &FileError{Path: path, Reason: "it cannot be written", Err: err}
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return &FileError{Path: path, Reason: "it cannot be written", Err: err}
	}
	place := os.Rename
	if !force {
		place = os.Link // refuses a file that appeared meanwhile
	}
	err = place(f.Name(), path)
	switch {
	case errors.Is(err, os.ErrExist) && !force:
		return fileExists(path)
	case err != nil:
		return &FileError{Path: path, Reason: "it cannot be put in place", Err: err}
	}
	folder, err := os.Open(dir)
	if err != nil {
		return &FileError{Path: dir, Reason: "it cannot be synced", Err: err}
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Inspected is what a snapshot file holds of one cluster.
type Inspected struct {
	File   string
	Size   int64
	SHA256 string
	Report check.Report
	Facts  check.Facts
}

// defaultCluster is the cluster's name when nobody gives one.
const defaultCluster = "default"

// SnapshotContent reads what a file holds of a cluster. Without a name it is
// the one that the store names, if that is one alone.
func SnapshotContent(path string, c Cluster) ([]kvstore.KV, int64, kvstore.Layout, error) {
	fail := func(err error) ([]kvstore.KV, int64, kvstore.Layout, error) { return nil, 0, kvstore.Layout{}, err }
	name := c.Name
	if name == "" {
		var err error
		if name, err = clusterOf(path, c.BasePrefix); err != nil {
			return fail(err)
		}
	}
	layout, err := kvstore.NewLayout(c.BasePrefix, name)
	if err != nil {
		return fail(err)
	}
	kvs, revision, err := check.ReadSnapshot(path, layout)
	return kvs, revision, layout, err
}

// clusterOf is the name of the one cluster in a file.
func clusterOf(path, base string) (string, error) {
	layout, err := kvstore.NewLayout(base, defaultCluster)
	if err != nil {
		return "", err
	}
	kvs, _, err := check.ReadSnapshot(path, layout)
	if err != nil {
		return "", err
	}
	var names []string
	for _, name := range check.FactsOf(kvs, layout).Clusters {
		names = append(names, name)
	}
	slices.Sort(names)
	switch names = slices.Compact(names); len(names) {
	case 0:
		return defaultCluster, nil
	case 1:
		return names[0], nil
	}
	return "", &ConfigError{Option: "cluster-name", Reason: "the snapshot holds several clusters, name one of them: " + strings.Join(names, ", ")}
}

// InspectSnapshot says what a file holds of a cluster.
func InspectSnapshot(path string, c Cluster) (Inspected, error) {
	kvs, revision, layout, err := SnapshotContent(path, c)
	if err != nil {
		return Inspected{}, err
	}
	out := Inspected{File: path, Report: check.Store(kvs, revision, check.Options{Layout: layout}), Facts: check.FactsOf(kvs, layout)}
	f, err := os.Open(path)
	if err != nil {
		return Inspected{}, err
	}
	defer f.Close()
	sum := sha256.New()
	if out.Size, err = io.Copy(sum, f); err != nil {
		return Inspected{}, err
	}
	out.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return out, nil
}

// Restored is a data folder that was made of a snapshot.
type Restored struct {
	File, DataDir string
	// Revision is the snapshot's, Now the one that the restored store begins at.
	Revision, Now int64
	Took          time.Duration
}

// RestoreSnapshot makes a member's data folder of a snapshot.
func RestoreSnapshot(r embedded.Restored) (Restored, error) {
	layout, err := kvstore.NewLayout("", defaultCluster)
	if err != nil {
		return Restored{}, err
	}
	began := time.Now()
	out := Restored{File: r.Snapshot, DataDir: r.DataDir}
	if _, out.Revision, err = check.ReadSnapshot(r.Snapshot, layout); err != nil {
		return Restored{}, err
	}
	if err := embedded.Restore(r); err != nil {
		return Restored{}, err
	}
	if _, out.Now, err = check.ReadSnapshot(filepath.Join(r.DataDir, "member", "snap", "db"), layout); err != nil {
		return Restored{}, err
	}
	out.Took = time.Since(began)
	return out, nil
}
