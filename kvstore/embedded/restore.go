// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Restored says how to make a member's data folder out of a snapshot.
type Restored struct {
	// Snapshot is the file; DataDir must not be there, or be empty.
	Snapshot, DataDir string
	// Name is the member's name; "" is "signet".
	Name string
	// PeerURL is the member's own; "" is http://127.0.0.1:2380.
	PeerURL string
	// InitialCluster lists all members as etcd's option of the name does; ""
	// is this one alone. Token is the new cluster's; "" is "signet".
	InitialCluster, Token string
	// Bump is added to the revision, and everything before counts as compacted:
	// watchers notice, and no revision ever means two things. 0: the revision
	// goes back to the snapshot's, a plain restore.
	Bump uint32
}

// ErrNotEmpty: the data folder of a restore holds something already.
var ErrNotEmpty = errors.New("the folder is not empty; a restore makes a new one")

// Restore makes the data folder, whole or not at all: it grows beside its
// place under another name. The file's checksum is verified.
func Restore(r Restored) error {
	if entries, err := os.ReadDir(r.DataDir); err == nil && len(entries) > 0 {
		return fmt.Errorf("data folder %s: %w", r.DataDir, ErrNotEmpty)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("data folder: %w", err)
	}
	dir, err := filepath.Abs(r.DataDir)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	scratch, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+".restore-*")
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	defer os.RemoveAll(scratch)
	if err := restore(r.config(scratch)); err != nil {
		return fmt.Errorf("restore %s: %w", r.Snapshot, err)
	}
	if err := os.Rename(scratch, dir); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return syncFolder(parent)
}

// restore turns into an error what would end the process: etcd's code logs
// fatally when a database cannot be used.
func restore(c snapshot.RestoreConfig) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the snapshot cannot be used: %v", r)
		}
	}()
	return snapshot.NewV3(zap.New(zapcore.NewNopCore(), zap.WithFatalHook(zapcore.WriteThenPanic))).Restore(c)
}

func (r Restored) config(dir string) snapshot.RestoreConfig {
	if r.Name == "" {
		r.Name = defaultName
	}
	if r.PeerURL == "" {
		r.PeerURL = "http://127.0.0.1:2380"
	}
	if r.InitialCluster == "" {
		r.InitialCluster = r.Name + "=" + r.PeerURL
	}
	if r.Token == "" {
		r.Token = clusterToken
	}
	return snapshot.RestoreConfig{
		SnapshotPath: r.Snapshot, Name: r.Name, OutputDataDir: dir, PeerURLs: []string{r.PeerURL},
		InitialCluster: r.InitialCluster, InitialClusterToken: r.Token,
		RevisionBump: uint64(r.Bump), MarkCompacted: r.Bump > 0,
	}
}

// syncFolder makes a rename inside the folder last.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
