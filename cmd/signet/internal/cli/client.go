// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/signet-identity/signet/allocator/agent"
	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/cmd/signet/internal/option"
	"github.com/signet-identity/signet/cmd/signet/internal/run"
	"github.com/signet-identity/signet/cmd/signet/internal/view"
)

// clientOptions are what every client command takes.
type clientOptions struct {
	servers     []string
	tls         run.TLS
	timeout     time.Duration
	agentSocket string
	output      string
}

// devSocket is where signet dev has its agent's socket by default.
const devSocket = "./signet-data/agent.sock"

// defaultTimeout outlasts a failover: a leader that vanished is replaced after
// the election TTL, 15 seconds by default.
const defaultTimeout = 30 * time.Second

// Options are the options.
func (o *clientOptions) Options() *option.Table {
	t := &option.Table{}
	addOutput(t, &o.output)
	t.Strings(&o.servers, "server", "127.0.0.1:7472", "host:port or unix:///path", "operators to talk to; one is enough, others are tried when it is away").NotInFile()
	t.String(&o.agentSocket, "agent-socket", "", "a path", "socket of the node's agent; empty: "+devSocket+" if it is there, else "+agent.DefaultSocket).NotInFile()
	t.Duration(&o.timeout, "timeout", defaultTimeout, time.Millisecond, time.Hour, "how long to wait for an answer; a new leader is there after --election-ttl of the operators (15s) at most")
	o.tls.Add(t)
	return t
}

func addOutput(t *option.Table, p *string) {
	t.Choice(p, "output", view.FormatTable, "form of the output; wide is a table with whole label sets", view.FormatTable, view.FormatWide, view.FormatJSON, view.FormatYAML).Short("o").NotInFile()
}

// session is one run of a client command.
type session struct {
	*app
	cmd  *cobra.Command
	ctx  context.Context
	opts clientOptions
	tab  *option.Table
}

// client completes a command that talks to an operator or an agent; more adds
// options of its own.
func (a *app) client(c *cobra.Command, run func(s *session, args []string) error, more ...func(*option.Table)) *cobra.Command {
	s := &session{app: a, cmd: c}
	s.tab = s.opts.Options()
	for _, add := range more {
		add(s.tab)
	}
	s.tab.AddFlags(c.Flags())
	completeChoices(c, s.tab)
	c.RunE = func(c *cobra.Command, args []string) error {
		s.ctx = c.Context()
		if err := s.tab.Resolve(a.LookupEnv, option.File{}); err != nil {
			return err
		}
		return run(s, args)
	}
	return c
}

// completeChoices offers the legal values of an option to the shell.
func completeChoices(c *cobra.Command, t *option.Table) {
	for _, o := range t.Options() {
		if len(o.Choices) > 0 {
			_ = c.RegisterFlagCompletionFunc(o.Name, cobra.FixedCompletions(o.Choices, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// limited is the command's context with its timeout.
func (s *session) limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, s.opts.timeout)
}

// print shows a result.
func (s *session) print(v any, table func() view.Table) error {
	return view.Print(s.Stdout, s.opts.output, v, table)
}

func (s *session) tlsConfig() (*tls.Config, error) {
	given, err := s.opts.tls.Given()
	if err != nil {
		return nil, err
	}
	if err := run.CheckServers(s.opts.servers, given); err != nil || !given {
		return nil, err
	}
	return client.LoadTLS(s.opts.tls.CA, s.opts.tls.Cert, s.opts.tls.Key)
}

// dial makes a client that holds as holder. It fails at once when nobody
// listens at any of the servers.
func (s *session) dial(holder string) (*client.Client, error) {
	c, err := s.dialLazily(holder)
	if err != nil {
		return nil, err
	}
	if err := someoneListens(s.ctx, s.opts.servers); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (s *session) dialLazily(holder string) (*client.Client, error) {
	cfg, err := s.tlsConfig()
	if err != nil {
		return nil, err
	}
	c, err := client.Dial(s.ctx, client.Config{Servers: s.opts.servers, TLS: cfg, Holder: holder, Timeout: s.opts.timeout})
	if client.CodeOf(err) == codes.InvalidArgument {
		return nil, exit(ExitUsage, "--server: %v", err)
	}
	return c, err
}

// someoneListens fails when no server accepts a connection.
func someoneListens(ctx context.Context, servers []string) error {
	var last error
	for _, s := range servers {
		network, address := "tcp", s
		if path, ok := strings.CutPrefix(s, "unix://"); ok {
			network, address = "unix", path
		}
		d := net.Dialer{Timeout: 2 * time.Second}
		conn, err := d.DialContext(ctx, network, address)
		if err == nil {
			return conn.Close()
		}
		var op *net.OpError
		if last = err; errors.As(err, &op) {
			last = op.Err
		}
	}
	return exit(ExitUnavailable, "no operator answers at %s (%v); start signet dev or signet operator, or name another one with --server",
		strings.Join(servers, ", "), last)
}

// socket is the agent's socket, and whether the user named it.
func (s *session) socket() (path string, named bool) {
	if s.opts.agentSocket != "" {
		return s.opts.agentSocket, true
	}
	if _, err := os.Stat(devSocket); err == nil {
		return devSocket, false
	}
	return agent.DefaultSocket, false
}

func (s *session) dialAgent() (*run.AgentClient, error) {
	path, _ := s.socket()
	return run.DialAgent(path)
}

// defaultHolder is pin-<user>, with what a holder's name cannot have replaced.
func defaultHolder(lookupEnv func(string) (string, bool)) string {
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	} else if env, ok := lookupEnv("USER"); ok {
		name = env
	}
	return "pin-" + holderName(name)
}

func holderName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, name)
	name = strings.Trim(name, "-")
	if name == "" {
		return "someone"
	}
	return name[:min(len(name), 63)]
}

// agentCall makes one call to the agent.
func agentCall[Req, Resp any](s *session, call func(*run.AgentClient) func(context.Context, Req, ...callOption) (Resp, error), req Req) (Resp, error) {
	var none Resp
	c, err := s.dialAgent()
	if err != nil {
		return none, err
	}
	defer c.Close()
	ctx, cancel := s.limited()
	defer cancel()
	resp, err := call(c)(ctx, req)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		path, _ := s.socket()
		return none, exit(ExitUnavailable, "the agent at %s did not answer within %s: %s", path, s.opts.timeout, messageOf(err))
	}
	return resp, err
}
