// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signet-identity/signet/allocator/check"
	"github.com/signet-identity/signet/cmd/signet/internal/run"
)

// SavedSnapshot is a snapshot that was written.
type SavedSnapshot struct {
	File     string `json:"file"`
	Revision int64  `json:"revision"`
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"` // of the whole file
	Endpoint string `json:"endpoint"`
	Version  string `json:"etcd_version"`
	TookMS   int64  `json:"took_ms"`
}

// NewSavedSnapshot makes the view of a snapshot that was written.
func NewSavedSnapshot(s run.Saved) SavedSnapshot {
	return SavedSnapshot{File: s.File, Revision: s.Revision, Bytes: s.Size, SHA256: s.SHA256, Endpoint: s.Endpoint,
		Version: s.Version, TookMS: s.Took.Milliseconds()}
}

// Table is for people.
func (s SavedSnapshot) Table() Table {
	return Table{Rows: [][]string{
		{"file", s.File}, {"revision", decimal(s.Revision)}, {"size", Bytes(s.Bytes)}, {"sha256", s.SHA256},
		{"from", s.Endpoint}, {"took", took(s.TookMS)},
	}}
}

// Bytes is a size as people read it.
func Bytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, at := float64(n)/unit, 0
	for ; v >= unit && at < len("KMGT")-1; at++ {
		v /= unit
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGT"[at])
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func took(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

// SnapshotCluster is the cluster record in a snapshot.
type SnapshotCluster struct {
	Name      string `json:"name"`
	ID        uint32 `json:"id"`
	LocalBits uint32 `json:"local_bits"`
	Format    int    `json:"format"`
}

// Snapshot is what a snapshot file holds of one cluster.
type Snapshot struct {
	File       string           `json:"file"`
	Bytes      int64            `json:"bytes"`
	SHA256     string           `json:"sha256"`
	Revision   int64            `json:"revision"`
	Keys       int              `json:"keys"`
	Identities int              `json:"identities"`
	References int              `json:"references"`
	Nodes      int              `json:"nodes"`
	Addresses  int              `json:"addresses"`
	Cluster    *SnapshotCluster `json:"cluster"` // null: there is no record
	Lineage    *Position        `json:"lineage"` // null: there is none
	ServedS    int64            `json:"served_s"`
	Clusters   []string         `json:"clusters"` // all that the store names
	Errors     int              `json:"errors"`
	Warnings   int              `json:"warnings"`
	Infos      int              `json:"infos"`
}

// NewSnapshot makes the view of a snapshot.
func NewSnapshot(i run.Inspected) Snapshot {
	r, f := i.Report, i.Facts
	out := Snapshot{File: i.File, Bytes: i.Size, SHA256: i.SHA256, Revision: r.Revision, Keys: r.Keys, Identities: r.Identities,
		References: r.References, Nodes: r.Nodes, Addresses: r.Addresses, Clusters: []string{},
		Errors: r.Count(check.Error), Warnings: r.Count(check.Warning), Infos: r.Count(check.Info)}
	if c := f.Cluster; c != nil {
		out.Cluster = &SnapshotCluster{Name: c.Name, ID: c.ID, LocalBits: c.LocalBits, Format: c.Format}
	}
	if f.Lineage != nil {
		p := f.Position(r.Revision)
		out.Lineage, out.ServedS = &Position{Nonce: p.Nonce, Counter: p.Counter, Revision: p.Revision}, f.Lineage.ServedS
	}
	for _, name := range f.Clusters {
		out.Clusters = append(out.Clusters, name)
	}
	slices.Sort(out.Clusters)
	out.Clusters = slices.Compact(out.Clusters)
	return out
}

// Table is for people.
func (s Snapshot) Table() Table {
	n := strconv.Itoa
	cluster, lineage := "no record", "none"
	if c := s.Cluster; c != nil {
		cluster = fmt.Sprintf("%s (id %d, %d local bits, format %d)", c.Name, c.ID, c.LocalBits, c.Format)
	}
	if p := s.Lineage; p != nil {
		lineage = fmt.Sprintf("counter %d of term %s, %s served", p.Counter, p.Nonce, time.Duration(s.ServedS)*time.Second)
	}
	t := Table{Rows: [][]string{
		{"file", s.File}, {"size", Bytes(s.Bytes)}, {"sha256", s.SHA256}, {"revision", decimal(s.Revision)},
		{"cluster", cluster}, {"lineage", lineage}, {"keys", n(s.Keys)}, {"identities", n(s.Identities)}, {"references", n(s.References)},
		{"nodes", n(s.Nodes)}, {"addresses", n(s.Addresses)},
		{"findings", fmt.Sprintf("%d errors, %d warnings, %d infos", s.Errors, s.Warnings, s.Infos)},
	}}
	if len(s.Clusters) > 1 {
		t.Rows = append(t.Rows, []string{"clusters", strings.Join(s.Clusters, ", ")})
	}
	return t
}

// RestoredSnapshot is a data folder that was made of a snapshot.
type RestoredSnapshot struct {
	File     string   `json:"file"`
	DataDir  string   `json:"data_dir"`
	Revision int64    `json:"revision"` // of the snapshot
	Now      int64    `json:"now"`      // of the restored store
	TookMS   int64    `json:"took_ms"`
	Next     []string `json:"next"` // what to do now
}

// NewRestoredSnapshot makes the view of a restore.
func NewRestoredSnapshot(r run.Restored) RestoredSnapshot {
	return RestoredSnapshot{File: r.File, DataDir: r.DataDir, Revision: r.Revision, Now: r.Now, TookMS: r.Took.Milliseconds(),
		Next: []string{
			"start etcd on this folder, each member on its own",
			"leave operators and agents as they are: the leader recognises the restored store, and agents announce what they hold",
			"watch signet status until the recovery window has ended, then run signet check",
		}}
}

// Table is for people.
func (r RestoredSnapshot) Table() Table {
	t := Table{Rows: [][]string{{"data folder", r.DataDir}, {"revision of the snapshot", decimal(r.Revision)},
		{"revision now", decimal(r.Now)}, {"took", took(r.TookMS)}}}
	for _, step := range r.Next {
		t.Rows = append(t.Rows, []string{"next", step})
	}
	return t
}

// Drill is the outcome of a drill.
type Drill struct {
	File        string          `json:"file"`
	Verdict     string          `json:"verdict"` // good or bad
	Revision    int64           `json:"revision"`
	Restored    int64           `json:"restored"` // revision of the restored store
	Written     int64           `json:"written"`  // revision of a write to it
	RestoreMS   int64           `json:"restore_ms"`
	StartMS     int64           `json:"start_ms"`
	CheckMS     int64           `json:"check_ms"`
	Keys        int             `json:"keys"`
	Identities  int             `json:"identities"`
	Differences []string        `json:"differences"`
	Findings    []check.Finding `json:"findings"` // worst last
}

// The verdicts of a drill.
const (
	VerdictGood = "good"
	VerdictBad  = "bad"
)

// NewDrill makes the view of a drill.
func NewDrill(d run.Drilled) Drill {
	out := Drill{File: d.File, Verdict: VerdictBad, Revision: d.Revision, Restored: d.Restored, Written: d.Written,
		RestoreMS: d.Restoring.Milliseconds(), StartMS: d.Starting.Milliseconds(), CheckMS: d.Checking.Milliseconds(),
		Keys: d.Report.Keys, Identities: d.Report.Identities, Differences: list(d.Differences), Findings: NewCheck(d.Report).Items}
	if d.Passed() {
		out.Verdict = VerdictGood
	}
	return out
}

// Table is for people; the verdict comes last.
func (d Drill) Table() Table {
	t := Table{Rows: [][]string{{"file", d.File}, {"revision of the snapshot", decimal(d.Revision)},
		{"revision restored", decimal(d.Restored)}, {"revision of a write", decimal(d.Written)},
		{"times", fmt.Sprintf("restore %s, start %s, check %s", took(d.RestoreMS), took(d.StartMS), took(d.CheckMS))},
		{"keys", strconv.Itoa(d.Keys)}, {"identities", strconv.Itoa(d.Identities)}}}
	for _, text := range d.Differences {
		t.Rows = append(t.Rows, []string{"difference", text})
	}
	for _, f := range d.Findings {
		v := Finding{Code: string(f.Code), Severity: f.Severity.String(), Object: f.Object, Text: f.Text, Action: f.Action}
		t.Rows = append(t.Rows, []string{"finding", v.Line()})
	}
	t.Rows = append(t.Rows, []string{"verdict", d.Verdict})
	return t
}
