// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/signet-identity/signet/allocator/check"
	"github.com/signet-identity/signet/cmd/signet/internal/option"
	"github.com/signet-identity/signet/cmd/signet/internal/run"
	"github.com/signet-identity/signet/cmd/signet/internal/view"
	"github.com/signet-identity/signet/kvstore"
)

// checked says whose store is judged.
type checked struct {
	etcd     run.Etcd
	cluster  run.Cluster
	snapshot string
}

func (k *checked) options(t *option.Table) {
	k.where(t)
	t.String(&k.snapshot, "snapshot", "", "a file", "judge a file that signet snapshot save or etcdctl snapshot save wrote, instead of a running etcd")
}

// where adds the options that say where the store is and whose it is.
func (k *checked) where(t *option.Table) {
	k.etcd.Add(t)
	k.cluster.AddName(t)
	t.Default("etcd-endpoints", "")
	t.Default("cluster-name", "")
	t.Default("wait-timeout", "10s")
	t.Lookup("etcd-endpoints").Help = "where etcd serves; empty: the operator is asked"
	t.Lookup("cluster-name").Help = "name of the cluster; empty: the operator is asked, and without one it is default"
}

func (a *app) check() *cobra.Command {
	k := &checked{}
	c := &cobra.Command{Use: "check", GroupID: groupUse,
		Short: "Judge the store: do the invariants hold, can every key be read",
		Long: `Judge the store itself: whether the invariants hold, and whether every key can be
read. It only reads, and needs no operator when etcd is named. Each finding says
what to do; docs/check.md explains the codes.

Exit codes: 0 nothing, or nothing worse than info; 3 a warning or an error.`,
		Example: `  signet check
  signet check --etcd-endpoints http://127.0.0.1:2379 -o json
  signet check --snapshot backup.db --cluster-name prod`,
		Args: arguments(0, 0, "")}
	return a.client(c, func(s *session, _ []string) error {
		kvs, revision, layout, err := s.content(k)
		if err != nil {
			return err
		}
		report := check.Store(kvs, revision, check.Options{Layout: layout})
		if report.Findings == nil {
			report.Findings = []check.Finding{}
		}
		if err := s.print(report, func() view.Table { return reportTable(report) }); err != nil {
			return err
		}
		if report.Worst() >= check.Warning {
			return exit(ExitFindings, "")
		}
		return nil
	}, k.options)
}

// content reads what the store holds.
func (s *session) content(k *checked) ([]kvstore.KV, int64, kvstore.Layout, error) {
	fail := func(err error) ([]kvstore.KV, int64, kvstore.Layout, error) { return nil, 0, kvstore.Layout{}, err }
	if k.snapshot == "" && (len(k.etcd.Endpoints) == 0) {
		if err := s.askWhere(k); err != nil {
			return fail(err)
		}
	}
	layout, err := kvstore.NewLayout(k.cluster.BasePrefix, nonEmpty(k.cluster.Name, "default"))
	if err != nil {
		return fail(err)
	}
	if k.snapshot != "" {
		kvs, revision, err := check.ReadSnapshot(k.snapshot, layout)
		return kvs, revision, layout, err
	}
	store, err := k.etcd.OpenStore(s.ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return fail(err)
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.timeout)
	defer cancel()
	kvs, revision, err := check.Read(ctx, store, layout)
	return kvs, revision, layout, err
}

// askWhere asks the operator for etcd's endpoints and the cluster's name.
func (s *session) askWhere(k *checked) error {
	conn, err := s.dial("")
	if err != nil {
		return fmt.Errorf("where etcd serves is not known: %w, or name etcd with --etcd-endpoints", err)
	}
	defer conn.Close()
	ctx, cancel := s.limited()
	defer cancel()
	st, err := conn.Status(ctx)
	if err != nil {
		return err
	}
	k.etcd.Endpoints = st.GetStore().GetEndpoints()
	k.cluster.Name = nonEmpty(k.cluster.Name, st.GetCluster().GetName())
	return nil
}

func nonEmpty(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func reportTable(r check.Report) view.Table {
	n := strconv.Itoa
	t := view.Table{Rows: [][]string{
		{"revision", strconv.FormatInt(r.Revision, 10)},
		{"keys", n(r.Keys)},
		{"identities", n(r.Identities)},
		{"references", n(r.References)},
		{"nodes", n(r.Nodes)},
		{"addresses", n(r.Addresses)},
	}}
	for _, f := range r.Findings {
		v := view.Finding{Code: string(f.Code), Severity: f.Severity.String(), Object: f.Object, Text: f.Text, Action: f.Action}
		t.Rows = append(t.Rows, []string{"finding", v.Line()})
	}
	t.Rows = append(t.Rows, []string{"findings", fmt.Sprintf("%d errors, %d warnings, %d infos", r.Count(check.Error), r.Count(check.Warning), r.Count(check.Info))})
	return t
}
