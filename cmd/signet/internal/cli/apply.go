// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/signet-identity/signet/cmd/signet/internal/apply"
	"github.com/signet-identity/signet/cmd/signet/internal/view"
)

func (a *app) apply() *cobra.Command {
	c := &cobra.Command{Use: "apply -f FILE...", GroupID: groupUse,
		Short: "Make endpoints of the workloads in manifests",
		Long: `Make endpoints of this node of the workloads in files: Kubernetes manifests (Pod,
Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob, Namespace; many
documents in a file, lists too), or a list of pod templates in JSON. Each pod gets
an address of the node's range and the label set that Cilium would derive. A Pod
that runs keeps the addresses of its status where they lie in the node's range; a
note names those that get another one. What cannot be used is named and skipped.

It ends with code 3 when a pod was refused, and with 1 when the files hold nothing
to apply.`,
		Example: `  signet apply -f samples/workloads.json
  signet apply -f deploy.yaml -f namespaces.yaml
  kubectl get pods,namespaces -A -o yaml | signet apply -f -`}
	files := c.Flags().StringArrayP("filename", "f", nil, "file to apply; - is standard input; repeat it, or name further files after it")
	cluster := c.Flags().String("cluster-name", "", "cluster whose name the label sets carry; empty: the operator is asked")
	return a.client(c, func(s *session, args []string) error {
		names := append(*files, args...)
		if len(names) == 0 {
			return usage(c, "a file is missing; name it with -f")
		}
		return s.apply(names, *cluster)
	})
}

// apply applies files and shows what became of them.
func (s *session) apply(names []string, cluster string) error {
	workloads, err := apply.Read(s.Stdin, names...)
	var nothing *apply.NothingError
	if errors.As(err, &nothing) {
		err = errors.Join(s.print(nothing.Summary, func() view.Table { return summaryTable(nothing.Summary) }), err)
	}
	if err != nil {
		return err
	}
	if cluster == "" {
		if cluster, err = s.clusterName(); err != nil {
			return err
		}
	}
	agent, err := s.dialAgent()
	if err != nil {
		return err
	}
	defer agent.Close()
	sum, err := apply.Workloads(s.ctx, agent, workloads, cluster, s.progress())
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted; %d endpoints are there, and the same command again makes the rest", sum.Endpoints)
	}
	if err != nil {
		return err
	}
	if err := s.print(sum, func() view.Table { return summaryTable(sum) }); err != nil {
		return err
	}
	if n := len(sum.Refused); n > 0 {
		return exit(ExitFindings, "%d of %d pods were refused; the first: %s: %s", n, n+sum.Endpoints, sum.Refused[0].Object, sum.Refused[0].Reason)
	}
	return nil
}

func (s *session) clusterName() (string, error) {
	conn, err := s.dial("")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	ctx, cancel := s.limited()
	defer cancel()
	st, err := conn.Status(ctx)
	return st.GetCluster().GetName(), err
}

// progress says every second how far the work is.
func (s *session) progress() func(done, all int) {
	last := time.Now()
	return func(done, all int) {
		if time.Since(last) >= time.Second && done < all {
			last = time.Now()
			fmt.Fprintf(s.Stderr, "signet: %d of %d endpoints\n", done, all)
		}
	}
}

func summaryTable(sum apply.Summary) view.Table {
	n := strconv.Itoa
	t := view.Table{Rows: [][]string{
		{"workloads", n(sum.Workloads)},
		{"endpoints", n(sum.Endpoints)},
		{"label sets", n(sum.LabelSets)},
		{"numbers", n(sum.NumbersNew) + " new, " + n(sum.NumbersKnown) + " known"},
		{"refused", n(len(sum.Refused))},
		{"skipped", n(len(sum.Skipped))},
		{"took", (time.Duration(sum.Millis) * time.Millisecond).String()},
	}}
	t.Rows = append(t.Rows, named("refused", sum.Refused)...)
	t.Rows = append(t.Rows, named("skipped", sum.Skipped)...)
	t.Rows = append(t.Rows, named("stripped", sum.Stripped)...)
	t.Rows = append(t.Rows, named("note", sum.Notes)...)
	return t
}

// named lists objects and reasons, each on its row.
func named(kind string, list []apply.Refusal) [][]string {
	var rows [][]string
	for _, r := range list {
		rows = append(rows, []string{kind, r.Object + ": " + r.Reason})
	}
	return rows
}
