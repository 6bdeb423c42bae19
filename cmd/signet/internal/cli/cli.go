// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line: it reads arguments, calls what does the
// work, shows the result and turns errors into one line and an exit code.
package cli

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Env is the world around the program.
type Env struct {
	Args           []string // with the program's name first
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	LookupEnv      func(string) (string, bool)
	Version        string
	Began          time.Time // when the process began
}

// app is one run of the program.
type app struct{ Env }

// Main runs one command and returns the exit code.
func Main(env Env) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// After the first signal the default is back: a second one ends the process at once.
	defer context.AfterFunc(ctx, stop)()
	root := New(env)
	root.SetArgs(env.Args[1:])
	return report(env.Stderr, root.ExecuteContext(ctx))
}

// New makes the tree of commands.
func New(env Env) *cobra.Command {
	a := &app{Env: env}
	root := &cobra.Command{
		Use:   "signet",
		Short: "One stable number for every workload, from its labels to the kernel",
		Long: `Signet gives every workload one stable numeric identity, derived from its
labels. One elected operator decides the number and stores it in etcd; the agent
of each node pushes the numbers into eBPF maps.

Exit codes: 0 fine, 1 error, 2 wrong usage, 3 findings or degraded, 4 not found,
5 unavailable or timed out.`,
		Example: `  # everything in one process, with the sample workloads
  signet dev --apply samples/workloads.json

  # then, in another terminal
  signet identity allocate k8s:app=web k8s:io.kubernetes.pod.namespace=shop
  signet status`,
		SilenceUsage: true, SilenceErrors: true, Version: env.Version,
	}
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetIn(env.Stdin)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usage(c, "%v", err) })
	for id, title := range map[string]string{groupRun: "Run it:", groupUse: "Use it:"} {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
	}
	root.AddCommand(a.dev(), a.operator(), a.agent(), a.identity(), a.apply(), a.endpoint(), a.ipcache(),
		a.status(), a.gc(), a.node(), a.check(), a.repair(), a.snapshot(), a.version(), a.docs())

	a.group(root)
	return root
}

// Groups of commands in the help.
const (
	groupRun = "1run"
	groupUse = "2use"
)

// group makes a command that only has subcommands refuse anything else.
func (a *app) group(c *cobra.Command) {
	c.Args, c.SuggestionsMinimumDistance = cobra.ArbitraryArgs, 2
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		hint := ""
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			hint = fmt.Sprintf(" (did you mean %s?)", near[0])
		}
		return usage(c, "there is no command %q%s", args[0], hint)
	}
}

// arguments checks their number and says what is missing.
func arguments(least, most int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usage(c, "%s is missing", what)
		case most >= 0 && len(args) > most && most == 0:
			return usage(c, "it takes no arguments, and %q is one", args[0])
		case most >= 0 && len(args) > most:
			return usage(c, "it takes %s and nothing more, and %q is more", what, args[most])
		}
		return nil
	}
}
