// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/signet-identity/signet/cmd/signet/internal/option"
	"github.com/signet-identity/signet/cmd/signet/internal/run"
)

func (a *app) operator() *cobra.Command {
	o := &run.Operator{Version: a.Version}
	c := &cobra.Command{Use: "operator", GroupID: groupRun,
		Short: "Run an operator: one of several, of which one leads",
		Long: `Run an operator against an etcd. Of several, one leads and writes; the others serve
reads and pass writes on, and take over when it goes.

Each option can also stand in the environment and in a YAML file; a flag counts
before the environment, the environment before the file.`,
		Example: `  # the first start of a new cluster
  signet operator --etcd-endpoints https://10.0.0.1:2379 --etcd-ca ca.pem --etcd-cert op.pem --etcd-key op-key.pem \
    --cluster-name prod --new-cluster --listen 10.0.0.7:7472 --tls-ca ca.pem --tls-cert op.pem --tls-key op-key.pem

  # from a file
  signet operator --config /etc/signet/operator.yaml`,
		Args: arguments(0, 0, "")}
	a.daemon(c, o.Options(), &o.Logs, "/etc/signet/operator.yaml", o.Run)
	c.AddCommand(a.stepDown())
	return c
}

func (a *app) agent() *cobra.Command {
	n := &run.Agent{Version: a.Version}
	c := &cobra.Command{Use: "agent", GroupID: groupRun,
		Short: "Run the agent of this node",
		Long: `Run the agent of this node: it gives the node's endpoints their numbers, keeps the
address map in the kernel right, and speaks for the node. Stopping it keeps maps,
references and endpoints, and as long as the operators' --node-grace (15 minutes; 10
seconds in signet dev) lasts, everything goes on when it comes back; signet agent
leave gives them up.

Each option can also stand in the environment and in a YAML file; a flag counts
before the environment, the environment before the file.`,
		Example: `  signet agent --etcd-endpoints http://127.0.0.1:2379 --server 127.0.0.1:7472 --node-name worker-1

  # beside signet dev --no-agent, which prints this command with its own paths
  signet agent --etcd-endpoints http://127.0.0.1:7470 --server 127.0.0.1:7472 --node-name dev \
    --state-dir ./signet-data/agent --socket ./signet-data/agent.sock \
    --pin-path /sys/fs/bpf/signet-dev-7470 --presence-ttl 5s`,
		Args: arguments(0, 0, "")}
	a.daemon(c, n.Options(), &n.Logs, "/etc/signet/agent.yaml", n.Run)
	c.AddCommand(a.leave())
	return c
}

// daemon completes a command that runs until it is stopped.
func (a *app) daemon(c *cobra.Command, t *option.Table, logs *run.Logs, file string, run func(context.Context, *slog.Logger, func()) error) {
	config := addConfig(t, file)
	t.AddFlags(c.Flags())
	completeChoices(c, t)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := a.resolve(c, t, config, file); err != nil {
			return err
		}
		log := newLogger(a.Stderr, *logs)
		// Under systemd this process tells when it is ready and when it stops.
		tell := func(state string) {
			if _, err := daemon.SdNotify(false, state); err != nil {
				log.Warn("systemd was not told", "state", state, "error", err)
			}
		}
		defer context.AfterFunc(c.Context(), func() { tell(daemon.SdNotifyStopping) })()
		err := run(c.Context(), log, func() {
			log.Info("ready")
			tell(daemon.SdNotifyReady)
		})
		return stopped(c.Context(), err)
	}
}

// stopped forgives what a stop that was asked for cut short.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func addConfig(t *option.Table, file string) *string {
	var path string
	t.String(&path, "config", "", "a YAML file", "configuration file; empty: "+file+" if it is there").NotInFile()
	return &path
}

// resolve fills options in from environment and file.
func (a *app) resolve(c *cobra.Command, t *option.Table, config *string, file string) error {
	f := option.File{Path: file, Optional: true}
	if env, ok := a.LookupEnv(t.Lookup("config").Env()); ok && *config == "" {
		*config = env
	}
	if *config != "" {
		f = option.File{Path: *config}
	}
	return t.Resolve(a.LookupEnv, f)
}

func newLogger(w io.Writer, l run.Logs) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // one of the choices
	opts := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
