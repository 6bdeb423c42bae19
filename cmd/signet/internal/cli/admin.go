// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/cmd/signet/internal/run"
	"github.com/signet-identity/signet/cmd/signet/internal/view"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

func (a *app) node() *cobra.Command {
	c := &cobra.Command{Use: "node", GroupID: groupUse, Aliases: []string{"nodes"}, Short: "Show nodes, and forget one that is gone for good"}
	c.AddCommand(a.nodeList(), a.nodeForget())
	a.group(c)
	return c
}

func (a *app) nodeList() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List nodes that are present or gone", Aliases: []string{"ls"},
		Example: `  signet node list -o json`, Args: arguments(0, 0, "")}
	return a.client(c, func(s *session, _ []string) error {
		conn, err := s.dial("")
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := s.limited()
		defer cancel()
		nodes, err := conn.Nodes(ctx)
		if err != nil {
			return err
		}
		out := view.NewList(nodes, view.NewNode)
		slices.SortFunc(out.Items, func(a, b view.Node) int { return cmp.Compare(a.Name, b.Name) })
		return s.print(out, func() view.Table { return view.NodeTable(s.servedTime(ctx, conn, out.Items), out.Items...) })
	})
}

// servedTime is the served time now, in seconds; 0 when no node is gone or
// nobody tells.
func (s *session) servedTime(ctx context.Context, conn *client.Client, nodes []view.Node) int64 {
	if !slices.ContainsFunc(nodes, func(n view.Node) bool { return n.GoneSince != nil }) {
		return 0
	}
	st, err := conn.Status(ctx)
	if err != nil {
		return 0
	}
	return s.ofLeader(ctx, st).GetSweep().GetServedS()
}

func (a *app) nodeForget() *cobra.Command {
	c := &cobra.Command{Use: "forget NODE", Short: "Stop waiting for a node that is gone for good",
		Long: `Stop waiting for a node that is gone for good: what it holds is removed, and its
acknowledgement is no longer waited for before numbers are reused. Do it only when
the machine will not come back with what it knew.`,
		Example: `  signet node forget worker-7`, Args: arguments(1, 1, "a node's name")}
	return a.client(c, func(s *session, args []string) error {
		conn, err := s.dial("")
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := s.limited()
		defer cancel()
		if err := conn.ForgetNode(ctx, args[0]); err != nil {
			return err
		}
		out := forgotten{Node: args[0], Forgotten: true}
		return s.print(out, func() view.Table { return view.Table{Rows: [][]string{{"forgotten", out.Node}}} })
	})
}

type forgotten struct {
	Node      string `json:"node"`
	Forgotten bool   `json:"forgotten"`
}

func (a *app) stepDown() *cobra.Command {
	c := &cobra.Command{Use: "step-down", Short: "Make the leader hand over",
		Example: `  signet operator step-down --server 10.0.0.7:7472`, Args: arguments(0, 0, "")}
	return a.client(c, func(s *session, _ []string) error {
		conn, err := s.dial("")
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := s.limited()
		defer cancel()
		was, err := conn.StepDown(ctx)
		if err != nil {
			return err
		}
		out := steppedDown{WasLeader: was}
		return s.print(out, func() view.Table { return view.Table{Rows: [][]string{{"was leader", was}}} })
	})
}

type steppedDown struct {
	WasLeader string `json:"was_leader"`
}

func (a *app) leave() *cobra.Command {
	c := &cobra.Command{Use: "leave", Short: "Take this node out for good",
		Long: `Take this node out for good: its maps are removed, then everything it holds is
released, and its agent ends. Stopping an agent is not a leave: it keeps all of it.`,
		Example: `  signet agent leave`, Args: arguments(0, 0, "")}
	return a.client(c, func(s *session, _ []string) error {
		resp, err := agentCall(s, func(c *run.AgentClient) func(context.Context, *signetv1.LeaveNodeRequest, ...callOption) (*signetv1.LeaveNodeResponse, error) {
			return c.LeaveNode
		}, &signetv1.LeaveNodeRequest{})
		if err != nil {
			return err
		}
		out := left{References: resp.GetReferences(), Addresses: resp.GetAddresses()}
		return s.print(out, func() view.Table {
			return view.Table{Rows: [][]string{{"references released", strconv.Itoa(int(out.References))}, {"addresses withdrawn", strconv.Itoa(int(out.Addresses))}}}
		})
	})
}

type left struct {
	References uint32 `json:"references"`
	Addresses  uint32 `json:"addresses"`
}
