// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/signet-identity/signet/cmd/signet/internal/option"
	"github.com/signet-identity/signet/cmd/signet/internal/run"
	"github.com/signet-identity/signet/cmd/signet/internal/view"
	"github.com/signet-identity/signet/kvstore/embedded"
)

func (a *app) snapshot() *cobra.Command {
	c := &cobra.Command{Use: "snapshot", GroupID: groupUse, Aliases: []string{"snapshots"},
		Short: "Save the store into a file, look into one, restore one, try a restore",
		Long: `Save the store into a file, look into one, restore one, and try a restore without
touching anything. The files are etcd's own: etcdctl and etcdutl take them, and
theirs are taken here.`,
		Example: `  signet snapshot save backup.db && signet snapshot drill backup.db`}
	c.AddCommand(a.snapshotSave(), a.snapshotInspect(), a.snapshotRestore(), a.snapshotDrill())
	a.group(c)
	return c
}

func (a *app) snapshotSave() *cobra.Command {
	k := &checked{}
	c := &cobra.Command{Use: "save FILE", Short: "Save the whole store into a file",
		Long: `Save the whole store into a file that only its owner can read. It is the state of one
etcd member, no older than the moment of the call; the file appears once it is
complete, read back and on disk. Progress goes to standard error.

The file holds everything of that etcd, other programs' keys too. With etcd's
authentication on, the user needs the role root.`,
		Example: `  signet snapshot save backup-$(date +%F).db
  signet snapshot save backup.db --etcd-endpoints https://10.0.0.1:2379 --etcd-ca ca.pem --etcd-cert root.pem --etcd-key root-key.pem`,
		Args: arguments(1, 1, "a file")}
	force := c.Flags().Bool("force", false, "replace the file if it is there")
	return a.client(c, func(s *session, args []string) error {
		if len(k.etcd.Endpoints) == 0 {
			if err := s.askWhere(k); err != nil {
				return err
			}
		}
		saved, err := run.SaveSnapshot(s.ctx, k.etcd, args[0], *force, showProgress(s.Stderr))
		if err != nil {
			return err
		}
		out := view.NewSavedSnapshot(saved)
		return s.print(out, out.Table)
	}, k.where)
}

// progressEvery is how often progress is shown.
const progressEvery = time.Second

// showProgress writes a line now and then, and one at the end.
func showProgress(w io.Writer) run.Progress {
	last := time.Now()
	return func(done, about int64) {
		if time.Since(last) < progressEvery {
			return
		}
		last = time.Now()
		fmt.Fprintf(w, "saved %s of about %s\n", view.Bytes(done), view.Bytes(about))
	}
}

func (a *app) snapshotInspect() *cobra.Command {
	cluster := &run.Cluster{}
	c := &cobra.Command{Use: "inspect FILE", Short: "Show what a snapshot holds",
		Long: `Show what a snapshot holds of a cluster: how much, of which cluster, where its
lineage stands, and how many findings signet check --snapshot would list. The
file's checksum is verified; the file is not changed.`,
		Example: `  signet snapshot inspect backup.db -o json`, Args: arguments(1, 1, "a file")}
	return a.client(c, func(s *session, args []string) error {
		inspected, err := run.InspectSnapshot(args[0], *cluster)
		if err != nil {
			return err
		}
		out := view.NewSnapshot(inspected)
		return s.print(out, out.Table)
	}, func(t *option.Table) { addClusterOfFile(cluster, t) })
}

// addClusterOfFile adds the options that say whose keys in a file are meant.
func addClusterOfFile(cluster *run.Cluster, t *option.Table) {
	cluster.AddName(t)
	t.Default("cluster-name", "")
	t.Lookup("cluster-name").Help = "name of the cluster; empty: the one that the file names"
}

// restored are the options of a restore.
type restored struct {
	embedded.Restored
	markCompacted bool
}

// defaultBump is what etcd's own manual recommends to add to the revision:
// more than was ever written since the snapshot.
const defaultBump = 1_000_000_000

func (r *restored) bump(t *option.Table) {
	t.Uint32(&r.Bump, "bump-revision", defaultBump, 0, 1<<32-1,
		"how far the restored store's revision lies beyond the snapshot's, so that none that was seen since is used again; 0: it goes back")
	t.Bool(&r.markCompacted, "mark-compacted", true, "count everything before as compacted, so that watchers notice the restore; goes with --bump-revision")
}

// check refuses what etcd cannot do: one of the two without the other.
func (r *restored) check() error {
	if r.markCompacted != (r.Bump > 0) {
		return &run.ConfigError{Option: "mark-compacted", Reason: "it goes with --bump-revision: give both, or --bump-revision 0 --mark-compacted=false for a plain restore"}
	}
	return nil
}

func (r *restored) options(t *option.Table) {
	t.String(&r.DataDir, "data-dir", "", "a path that is not there, or an empty folder", "the member's new data folder")
	r.bump(t)
	t.String(&r.Name, "name", "signet", "a name", "the member's name")
	t.String(&r.PeerURL, "initial-advertise-peer-urls", "http://127.0.0.1:2380", "a URL", "where the member's peers find it")
	t.String(&r.InitialCluster, "initial-cluster", "", "NAME=URL,NAME=URL", "all members of the new etcd cluster; empty: this one alone")
	t.String(&r.Token, "initial-cluster-token", "signet", "a text", "token of the new etcd cluster")
}

func (a *app) snapshotRestore() *cobra.Command {
	r := &restored{}
	c := &cobra.Command{Use: "restore FILE", Short: "Make an etcd data folder out of a snapshot",
		Long: `Make the data folder of an etcd member out of a snapshot, as etcdutl snapshot restore
does. Do it once for each member, with the same FILE, then start them. The revision
is moved ahead and marked as compacted, so that no watcher takes the restored past
for the present. What Signet does then is in docs/check.md: nothing is deleted
anywhere, agents keep their maps and announce what they hold.`,
		Example: `  signet snapshot restore backup.db --data-dir /var/lib/etcd.new
  signet snapshot restore backup.db --data-dir ./signet-data/etcd   # of a stopped signet dev
  signet snapshot restore backup.db --data-dir /var/lib/etcd.new --name a --initial-advertise-peer-urls https://10.0.0.1:2380 \
    --initial-cluster a=https://10.0.0.1:2380,b=https://10.0.0.2:2380,c=https://10.0.0.3:2380`,
		Args: arguments(1, 1, "a file")}
	return a.client(c, func(s *session, args []string) error {
		if r.DataDir == "" {
			return usage(c, "--data-dir is missing")
		}
		if err := r.check(); err != nil {
			return err
		}
		r.Snapshot = args[0]
		made, err := run.RestoreSnapshot(r.Restored)
		if err != nil {
			return err
		}
		out := view.NewRestoredSnapshot(made)
		return s.print(out, out.Table)
	}, r.options)
}

func (a *app) snapshotDrill() *cobra.Command {
	r, cluster, scratch := &restored{}, &run.Cluster{}, ""
	c := &cobra.Command{Use: "drill FILE", Short: "Restore a snapshot into a scratch store, check it, take it away",
		Long: `Restore a snapshot into a scratch folder, start an etcd on it that nobody else can
find, compare what it serves with the file key by key, run the checks, write to it,
and take it all away. The times say how long a real restore would take.

Exit codes: 0 the verdict is good; 3 it is bad: something differs, or a check found
a warning or an error.`,
		Example: `  signet snapshot drill backup.db
  signet snapshot drill backup.db --scratch-dir /var/tmp -o json`,
		Args: arguments(1, 1, "a file")}
	return a.client(c, func(s *session, args []string) error {
		if err := r.check(); err != nil {
			return err
		}
		drilled, err := run.DrillSnapshot(s.ctx, args[0], scratch, *cluster, r.Bump)
		if err != nil {
			return err
		}
		out := view.NewDrill(drilled)
		if err := s.print(out, out.Table); err != nil {
			return err
		}
		if out.Verdict != view.VerdictGood {
			return exit(ExitFindings, "")
		}
		return nil
	}, func(t *option.Table) {
		r.bump(t)
		addClusterOfFile(cluster, t)
		t.String(&scratch, "scratch-dir", "", "a folder", "where the scratch folder is made; empty: the system's folder for temporary files")
	})
}
