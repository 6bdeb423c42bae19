// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/signet-identity/signet/cmd/signet/internal/run"
	"github.com/signet-identity/signet/cmd/signet/internal/view"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

type callOption = grpc.CallOption

func (a *app) endpoint() *cobra.Command {
	c := &cobra.Command{Use: "endpoint", GroupID: groupUse, Aliases: []string{"endpoints", "ep"},
		Short: "Put, show and delete endpoints of this node",
		Long: `Put, show and delete endpoints of this node: things with addresses and labels. They
are asked of the node's agent, at --agent-socket.`,
		Example: `  signet endpoint put shop/web-0 k8s:app=web k8s:io.kubernetes.pod.namespace=shop
  signet endpoint list -l app=web`}
	c.AddCommand(a.endpointPut(), a.endpointGet(), a.endpointList(), a.endpointDelete())
	a.group(c)
	return c
}

func (a *app) endpointPut() *cobra.Command {
	c := &cobra.Command{Use: "put ID LABEL...", Short: "Make or change an endpoint",
		Long: `Make or change an endpoint. It returns once the endpoint has its number and its
addresses are in the node's map and published. An address has to lie in one of the
ranges of the agent's --pod-prefix (10.244.0.0/16 unless told otherwise).`,
		Example: `  signet endpoint put shop/web-0 k8s:app=web k8s:io.kubernetes.pod.namespace=shop
  signet endpoint put vm-7 vm:role=db --address 10.244.3.7`,
		Args: arguments(1, -1, "an endpoint's id")}
	addresses := c.Flags().StringSlice("address", nil, "address of the endpoint; repeat it for more; without one the agent takes a free one")
	return a.client(c, func(s *session, args []string) error {
		set, err := labelSet(c, args[1:])
		if err != nil {
			return err
		}
		req := &signetv1.PutEndpointRequest{Endpoint: &signetv1.Endpoint{Id: args[0], Labels: set.Strings(), Addresses: *addresses}}
		resp, err := agentCall(s, func(c *run.AgentClient) func(context.Context, *signetv1.PutEndpointRequest, ...callOption) (*signetv1.PutEndpointResponse, error) {
			return c.PutEndpoint
		}, req)
		if err != nil {
			return err
		}
		return s.printEndpoint(resp.GetEndpoint())
	})
}

func (s *session) printEndpoint(e *signetv1.Endpoint) error {
	out := view.NewEndpoint(e)
	return s.print(out, func() view.Table { return view.EndpointTable(out) })
}

func (a *app) endpointGet() *cobra.Command {
	c := &cobra.Command{Use: "get ID", Short: "Show one endpoint", Example: `  signet endpoint get shop/web-0 -o json`,
		Args: arguments(1, 1, "an endpoint's id")}
	return a.client(c, func(s *session, args []string) error {
		resp, err := agentCall(s, func(c *run.AgentClient) func(context.Context, *signetv1.GetEndpointRequest, ...callOption) (*signetv1.GetEndpointResponse, error) {
			return c.GetEndpoint
		}, &signetv1.GetEndpointRequest{Id: args[0]})
		if err != nil {
			return err
		}
		return s.printEndpoint(resp.GetEndpoint())
	})
}

func (a *app) endpointList() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the node's endpoints by id", Aliases: []string{"ls"},
		Example: `  signet endpoint list -l app=web -o json`, Args: arguments(0, 0, "")}
	selector := c.Flags().StringP("selector", "l", "", "label selector")
	return a.client(c, func(s *session, _ []string) error {
		if err := checkSelector(*selector); err != nil {
			return err
		}
		resp, err := agentCall(s, func(c *run.AgentClient) func(context.Context, *signetv1.ListEndpointsRequest, ...callOption) (*signetv1.ListEndpointsResponse, error) {
			return c.ListEndpoints
		}, &signetv1.ListEndpointsRequest{Selector: *selector})
		if err != nil {
			return err
		}
		out := view.NewList(resp.GetItems(), view.NewEndpoint)
		return s.print(out, func() view.Table { return view.EndpointTable(out.Items...) })
	})
}

func (a *app) endpointDelete() *cobra.Command {
	c := &cobra.Command{Use: "delete ID...", Short: "Delete endpoints", Aliases: []string{"rm"},
		Long: `Delete endpoints: their addresses leave the map, and numbers that no other endpoint of
the node uses are given back.`,
		Example: `  signet endpoint delete shop/web-0 shop/web-1`,
		Args:    arguments(1, -1, "an endpoint's id")}
	return a.client(c, func(s *session, args []string) error {
		out := view.List[view.Deleted]{Items: []view.Deleted{}}
		missing := ""
		for _, id := range args {
			resp, err := agentCall(s, func(c *run.AgentClient) func(context.Context, *signetv1.DeleteEndpointRequest, ...callOption) (*signetv1.DeleteEndpointResponse, error) {
				return c.DeleteEndpoint
			}, &signetv1.DeleteEndpointRequest{Id: id})
			if err != nil {
				return err
			}
			if !resp.GetDeleted() {
				missing = id
			}
			out.Items = append(out.Items, view.Deleted{ID: id, Deleted: resp.GetDeleted()})
		}
		err := s.print(out, func() view.Table {
			t := view.Table{Heading: []string{"ID", "RESULT"}}
			for _, d := range out.Items {
				result := "deleted"
				if !d.Deleted {
					result = "was not there"
				}
				t.Rows = append(t.Rows, []string{d.ID, result})
			}
			return t
		})
		if err == nil && missing != "" {
			err = exit(ExitNotFound, "the node has no endpoint %q", missing)
		}
		return err
	})
}

func (a *app) ipcache() *cobra.Command {
	c := &cobra.Command{Use: "ipcache", GroupID: groupUse, Short: "Show what the node's address map holds"}
	list := &cobra.Command{Use: "list", Short: "List the addresses of the node's map", Aliases: []string{"ls"},
		Long: `List what the node's address map really holds, joined with labels. The kernel's maps
are read, not what the agent believes of them.`,
		Example: `  signet ipcache list
  signet ipcache list --raw -o json`, Args: arguments(0, 0, "")}
	raw := list.Flags().Bool("raw", false, "numbers only: do not look labels up")
	c.AddCommand(a.client(list, func(s *session, _ []string) error {
		resp, err := agentCall(s, func(c *run.AgentClient) func(context.Context, *signetv1.ListIPCacheRequest, ...callOption) (*signetv1.ListIPCacheResponse, error) {
			return c.ListIPCache
		}, &signetv1.ListIPCacheRequest{Raw: *raw})
		if err != nil {
			return err
		}
		out := view.NewList(resp.GetItems(), view.NewIPCacheEntry)
		return s.print(out, func() view.Table { return view.IPCacheTable(*raw, out.Items...) })
	}))
	a.group(c)
	return c
}
