// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/signet-identity/signet/cmd/signet/internal/option"
	"github.com/signet-identity/signet/cmd/signet/internal/run"
	"github.com/signet-identity/signet/cmd/signet/internal/view"
)

func (a *app) dev() *cobra.Command {
	d := &run.Dev{Version: a.Version, Began: a.Began}
	c := &cobra.Command{Use: "dev", GroupID: groupRun,
		Short: "Run everything in one process: etcd, an operator and an agent",
		Long: `Run everything in one process: an etcd on disk, an operator and this node's agent.
Its times are short, so that one can watch things happen: what a node holds is
removed 10 seconds (--node-grace) after it was found gone. It prints where everything
is once it is ready; with -o json that is one object on one line. With --no-agent it
prints the command of an agent that fits.

Ctrl-C stops it and keeps the data folder and the pinned maps; a second Ctrl-C
ends it at once.`,
		Example: `  signet dev --apply samples/workloads.json
  signet dev --data-dir /tmp/try --listen-base 7570 -o json
  signet dev --no-agent`,
		Args: arguments(0, 0, "")}
	t := d.Options()
	var output string
	addOutput(t, &output)
	t.AddFlags(c.Flags())
	completeChoices(c, t)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := t.Resolve(a.LookupEnv, option.File{}); err != nil {
			return err
		}
		var was *run.Ready
		defer context.AfterFunc(c.Context(), func() { fmt.Fprintln(a.Stderr, "signet: stopping; a second Ctrl-C ends it at once") })()
		err := d.Run(c.Context(), newLogger(a.Stderr, d.Logs), func(r run.Ready) {
			was = &r
			if view.IsTable(output) {
				a.printReady(r, d)
				return
			}
			_ = view.Line(a.Stdout, output, r)
		})
		if was != nil {
			printKept(a.Stderr, *was)
		}
		return stopped(c.Context(), err)
	}
	return c
}

// printReady says where everything is, what to try, and how long it took.
func (a *app) printReady(r run.Ready, d *run.Dev) {
	fmt.Fprintf(a.Stdout, "signet %s is running; Ctrl-C stops it\n\n", r.Version)
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("version", "%s", r.Version)
	line("cluster", "%s, id %d, %d local bits, numbers %d to %d", r.Cluster, r.ClusterID, r.LocalBits, r.Min, r.Max)
	line("store", "etcd at %s, data in %s", r.Etcd, filepath.Join(r.DataDir, "etcd"))
	line("gRPC", "%s", r.GRPC)
	if r.AgentSocket == "" {
		line("agent", "none (--no-agent)")
		line("metrics", "%s", r.Metrics)
	} else {
		line("agent socket", "%s", r.AgentSocket)
		line("metrics", "%s (operator), %s (agent)", r.Metrics, r.AgentMetrics)
	}
	line("leader", "%s", r.Leader)
	switch {
	case r.PinPath != "":
		line("datapath", "ebpf, pinned in %s", r.PinPath)
	case r.Datapath != "":
		line("datapath", "memory: %s", r.DatapathDetail)
	}
	if s := r.Applied; s != nil {
		line("applied", "%d workloads, %d endpoints, %d label sets; numbers: %d new, %d known; %d refused, %d skipped",
			s.Workloads, s.Endpoints, s.LabelSets, s.NumbersNew, s.NumbersKnown, len(s.Refused), len(s.Skipped))
	}
	_ = w.Flush()
	fmt.Fprintln(a.Stdout, "\nTry, in another terminal:")
	for _, command := range a.suggestions(r) {
		fmt.Fprintln(a.Stdout, "  "+command)
	}
	if len(r.AgentCommand) > 0 {
		fmt.Fprintf(a.Stdout, "\nAn agent for it (what a node holds is removed %s after its agent vanished):\n  %s\n",
			d.Graces.Presence+d.Graces.Node, commandLine(append([]string{a.Args[0]}, r.AgentCommand[1:]...)))
	}
	fmt.Fprintf(a.Stdout, "\nready in %d ms (etcd alone %d ms)\n", r.ReadyMS, r.EtcdMS)
}

// suggestions are three commands that work as they stand.
func (a *app) suggestions(r run.Ready) []string {
	server, socket := "", ""
	if r.GRPC != "127.0.0.1:7472" {
		server = " --server " + r.GRPC
	}
	if own, err := filepath.Abs(devSocket); r.AgentSocket != "" && (err != nil || own != r.AgentSocket) {
		socket = " --agent-socket " + r.AgentSocket
	}
	program := a.Args[0]
	second := program + " ipcache list" + socket
	if r.AgentSocket == "" {
		second = program + " identity list" + server
	}
	return []string{
		program + " identity allocate" + server + " k8s:app=web k8s:io.kubernetes.pod.namespace=shop",
		second,
		program + " status" + strings.TrimRight(server+socket, " "),
	}
}

// commandLine is a command as a shell takes it.
func commandLine(args []string) string {
	out := make([]string, len(args))
	for i, arg := range args {
		if out[i] = arg; arg == "" || strings.ContainsAny(arg, " \t'\"$&;|<>()*?[]#~`\\") {
			out[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}

func printKept(w io.Writer, r run.Ready) {
	kept, away := "the data folder "+r.DataDir, "it"
	if r.PinPath != "" {
		kept, away = kept+" and the maps pinned in "+r.PinPath, "both"
	}
	fmt.Fprintf(w, "signet: stopped; kept: %s (the next start goes on from there; remove %s to begin anew)\n", kept, away)
}
