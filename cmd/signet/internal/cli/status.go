// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/cmd/signet/internal/view"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// The states of the whole.
const (
	stateOK          = "ok"
	stateDegraded    = "degraded"
	stateUnavailable = "unavailable"
)

func (a *app) status() *cobra.Command {
	c := &cobra.Command{Use: "status", GroupID: groupUse,
		Short: "Everything at a glance: operator and agent, worst last",
		Long: `Everything at a glance: the operator that answers, and this node's agent if there is
one. The worst comes last.

Exit codes: 0 all is well, 3 degraded (something is not ready, or there is a
finding of severity warning or error), 5 no operator answers.

With --wait it returns once operator and agent are ready: with 0, also when there
are warnings; with 3 when there is a finding of severity error; with 5 when
--timeout passes first.`,
		Example: `  signet status
  signet status --wait --timeout 1m && echo ready`,
		Args: arguments(0, 0, "")}
	wait := c.Flags().Bool("wait", false, "wait until operator and agent are ready")
	return a.client(c, func(s *session, _ []string) error {
		conn, err := s.dialLazily("")
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := s.limited()
		defer cancel()
		st := s.look(ctx, conn)
		for *wait && !st.ready() && pause(ctx, waitEvery) {
			st = s.look(ctx, conn)
		}
		if err := s.print(st.Status, st.Table); err != nil {
			return err
		}
		return st.verdict(*wait, s.opts.timeout)
	})
}

// waitEvery is how often --wait looks.
const waitEvery = 50 * time.Millisecond

// pause reports false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// look is what was found out about the whole.
type look struct {
	view.Status
	agentExpected bool
}

func (l *look) ready() bool {
	return l.Operator != nil && l.Operator.Ready && (!l.agentExpected || l.Agent != nil && l.Agent.Ready)
}

func (l *look) verdict(waited bool, limit time.Duration) error {
	switch {
	case waited && !l.ready():
		return exit(ExitUnavailable, "not ready within %s; the status above says what is missing", limit)
	case l.State == stateUnavailable:
		return exit(ExitUnavailable, "%s", l.Findings[len(l.Findings)-1].Text)
	case waited && l.worst() != "error":
		return nil
	case l.State == stateDegraded:
		return exit(ExitFindings, "")
	}
	return nil
}

// tryLimit bounds one look at one server.
const tryLimit = 3 * time.Second

// look asks operator and agent once.
func (s *session) look(ctx context.Context, conn *client.Client) *look {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	l := &look{Status: view.Status{State: stateOK}}
	var findings []*signetv1.Finding
	agent, err := s.lookAtAgent(ctx)
	path, named := s.socket()
	_, statErr := os.Stat(path)
	l.agentExpected = named || statErr == nil
	switch {
	case err == nil:
		l.Agent = view.NewAgent(agent)
		findings = append(findings, agent.GetFindings()...)
	case l.agentExpected:
		findings = append(findings, &signetv1.Finding{Code: "AGENT-UNREACHABLE", Severity: signetv1.Severity_SEVERITY_WARNING,
			Object: path, Text: messageOf(err), Action: "see whether the node's agent runs"})
	}
	operator, err := s.lookAtOperators(ctx, conn)
	if err == nil {
		l.Operator = view.NewOperator(operator)
		findings = append(findings, operator.GetFindings()...)
	} else {
		findings = append(findings, &signetv1.Finding{Code: "OPERATOR-UNREACHABLE", Severity: signetv1.Severity_SEVERITY_ERROR,
			Object: fmt.Sprint(s.opts.servers), Text: oneLine(messageOf(err)), Action: "see whether an operator runs"})
	}
	l.Findings = view.NewFindings(findings)
	l.State = l.judge()
	return l
}

func (l *look) judge() string {
	switch {
	case l.Operator == nil:
		return stateUnavailable
	case !l.ready(), l.worst() == "warning", l.worst() == "error":
		return stateDegraded
	}
	return stateOK
}

// worst is the severity of the worst finding; "" when there is none.
func (l *look) worst() string {
	if len(l.Findings) == 0 {
		return ""
	}
	return l.Findings[len(l.Findings)-1].Severity
}

func (s *session) lookAtAgent(ctx context.Context) (*signetv1.AgentStatusResponse, error) {
	c, err := s.dialAgent()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.AgentStatus(ctx, &signetv1.AgentStatusRequest{})
}

// lookAtOperators returns what the first one that answers says.
func (s *session) lookAtOperators(ctx context.Context, conn *client.Client) (*signetv1.StatusResponse, error) {
	if err := someoneListens(ctx, s.opts.servers); err != nil {
		return nil, err
	}
	var last error
	for i := range s.opts.servers {
		st, err := conn.StatusOf(ctx, i)
		if err == nil {
			return st, nil
		}
		last = err
	}
	return nil, last
}

func (a *app) gc() *cobra.Command {
	c := &cobra.Command{Use: "gc", GroupID: groupUse, Short: "Explain and steer the collection of unused numbers"}
	st := &cobra.Command{Use: "status", Short: "Counts of the collection, and the age of its last success",
		Long: `Counts of the collection since the leader started, and the age of its last sweep.
Only the leader collects: when another operator answers, the leader is asked.`,
		Example: `  signet gc status -o json | jq .last_success_ms`, Args: arguments(0, 0, "")}
	c.AddCommand(a.client(st, func(s *session, _ []string) error {
		conn, err := s.dial("")
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := s.limited()
		defer cancel()
		got, err := conn.Status(ctx)
		if err != nil {
			return err
		}
		got = s.ofLeader(ctx, got)
		out := view.NewGC(got)
		return s.print(out, out.Table)
	}))
	c.AddCommand(a.gcPlan(), a.gcRun(), a.gcPause(), a.gcResume())
	a.group(c)
	return c
}

// ofLeader asks the leader, if another operator answered and it can be reached.
func (s *session) ofLeader(ctx context.Context, got *signetv1.StatusResponse) *signetv1.StatusResponse {
	address := got.GetElection().GetLeaderAddress()
	if got.GetElection().GetRole() == "leader" || address == "" {
		return got
	}
	cfg, err := s.tlsConfig()
	if err != nil {
		return got
	}
	conn, err := client.Dial(ctx, client.Config{Servers: []string{address}, TLS: cfg})
	if err != nil {
		return got
	}
	defer conn.Close()
	if leader, err := conn.StatusOf(ctx, 0); err == nil {
		return leader
	}
	return got
}
