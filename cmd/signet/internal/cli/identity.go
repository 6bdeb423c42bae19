// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/allocator/labels"
	"github.com/signet-identity/signet/cmd/signet/internal/view"
)

func (a *app) identity() *cobra.Command {
	c := &cobra.Command{Use: "identity", GroupID: groupUse, Aliases: []string{"identities", "id"},
		Short: "Allocate and look up numbers of label sets",
		Example: `  signet identity allocate k8s:app=web k8s:io.kubernetes.pod.namespace=shop
  signet identity get 12345
  signet identity list -l app=web -o json`}
	c.AddCommand(a.allocate(), a.release(), a.get(), a.list(), a.watch(), a.explain())
	a.group(c)
	return c
}

func (a *app) allocate() *cobra.Command {
	c := &cobra.Command{Use: "allocate LABEL...",
		Short: "Give a label set its number, and hold it",
		Long: `Give a label set its number. A label is source:key=value. The same labels get the
same number, whoever asks and in whatever order. The number stays as long as
somebody holds it; the hold that is printed is the token of this reference.`,
		Example: `  signet identity allocate k8s:app=web k8s:io.kubernetes.pod.namespace=shop
  signet identity allocate vm:role=db --holder pin-billing -o json | jq .number`}
	holder := c.Flags().String("holder", defaultHolder(a.LookupEnv), "who holds the number: pin-<name>, or a node's name")
	return a.client(c, func(s *session, args []string) error {
		set, err := labelSet(c, args)
		if err != nil {
			return err
		}
		conn, err := s.dial(*holder)
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := s.limited()
		defer cancel()
		got, err := conn.Allocate(ctx, set)
		if err != nil {
			return err
		}
		out := view.Allocation{Identity: view.NewIdentity(got.Identity), Holder: *holder, Hold: got.Hold, Created: got.Created}
		return s.print(out, out.Table)
	})
}

// labelSet reads labels from arguments. None at all, or one that cannot be, is
// wrong usage.
func labelSet(c *cobra.Command, args []string) (labels.Set, error) {
	set, err := labels.ParseSet(args...)
	if err == nil {
		err = labels.CheckPublic(set)
	}
	switch {
	case err != nil && len(args) == 0:
		return set, usage(c, "%v", err)
	case err != nil:
		return set, exit(ExitUsage, "%v", err)
	}
	return set, nil
}

// checkSelector refuses, before anybody is asked, what is no selector.
func checkSelector(text string) error {
	if _, err := labels.ParseSelector(text); err != nil {
		return exit(ExitUsage, "%v", err)
	}
	return nil
}

func (a *app) release() *cobra.Command {
	c := &cobra.Command{Use: "release LABEL... | NUMBER",
		Short: "Give a reference back",
		Long: `Give a reference back. When nobody holds a number any more, it is freed after the
identity grace. A hold other than the one that stands is refused, so that a late
release takes nothing from somebody who allocated again.`,
		Example: `  signet identity release k8s:app=web k8s:io.kubernetes.pod.namespace=shop
  signet identity release 12345 --holder pin-billing --hold 271`}
	holder := c.Flags().String("holder", defaultHolder(a.LookupEnv), "who gives it back: pin-<name>, or a node's name")
	hold := c.Flags().Int64("hold", 0, "the hold to give back, as allocate printed it; 0: any, for pins only")
	return a.client(c, func(s *session, args []string) error {
		o, err := s.which(args)
		if err != nil {
			return err
		}
		conn, err := s.dial(*holder)
		if err != nil {
			return err
		}
		defer conn.Close()
		set, err := s.named(conn, o)
		if err != nil {
			return err
		}
		ctx, cancel := s.limited()
		defer cancel()
		released, err := conn.ReleaseHold(ctx, set, *hold)
		if err != nil {
			return err
		}
		out := view.Released{Released: released, Holder: *holder, Labels: set.Strings()}
		return s.print(out, func() view.Table {
			row := []string{"released", *holder, set.Text()}
			if !released {
				row[0] = "not held"
			}
			return view.Table{Rows: [][]string{row}}
		})
	})
}

// named is the label set that is asked for, or that the number has.
func (s *session) named(conn *client.Client, o client.GetOptions) (labels.Set, error) {
	if o.Number == nil {
		return labels.ParseSet(o.Labels...)
	}
	ctx, cancel := s.limited()
	defer cancel()
	i, err := conn.Get(ctx, o)
	if err != nil {
		return labels.Set{}, err
	}
	return labels.ParseText(i.GetText())
}

// which reads a number, or labels.
func (s *session) which(args []string) (client.GetOptions, error) {
	if len(args) == 0 {
		return client.GetOptions{}, usage(s.cmd, "a number or labels are missing")
	}
	if len(args) == 1 && !strings.ContainsAny(args[0], ":=") {
		n, err := strconv.ParseUint(args[0], 10, 32)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return client.GetOptions{}, exit(ExitUsage, "number %q: it does not fit 32 bits", args[0])
		case err != nil:
			return client.GetOptions{}, usage(s.cmd, "%q is neither a number (4242) nor a label (k8s:app=web)", args[0])
		case n == 0:
			return client.GetOptions{}, exit(ExitUsage, "number 0 is no identity; the first one is 1")
		}
		return client.GetOptions{Number: &n}, nil
	}
	set, err := labelSet(s.cmd, args)
	if err != nil {
		return client.GetOptions{}, err
	}
	return client.GetOptions{Labels: set.Strings()}, nil
}

// nextLabel is where another label begins in text that joins them with commas.
var nextLabel = regexp.MustCompile(`[,;]+(?:[a-zA-Z0-9._-]+:|$)`)

// splitLabels takes labels apart that stand in one argument: joined by commas,
// or as a label set's text with semicolons.
func splitLabels(in []string) []string {
	var out []string
	for _, text := range in {
		for {
			at := nextLabel.FindStringIndex(text)
			if at == nil {
				break
			}
			out = append(out, text[:at[0]])
			text = strings.TrimLeft(text[at[0]:], ",;")
		}
		if text != "" {
			out = append(out, text)
		}
	}
	return out
}

func (a *app) get() *cobra.Command {
	c := &cobra.Command{Use: "get NUMBER | LABEL... | --labels LABEL,...",
		Short: "Look an identity up, by number or by labels",
		Long: `Look an identity up. A freed number is answered from what is remembered of it.
Looking up takes no reference: use allocate to keep a number.`,
		Example: `  signet identity get 12345
  signet identity get --labels k8s:app=web,k8s:io.kubernetes.pod.namespace=shop -o yaml`}
	byLabels := c.Flags().StringArray("labels", nil, "labels, separated by commas, or the flag repeated")
	revision := c.Flags().Int64("min-revision", 0, "wait until the operator has applied this store revision")
	linearizable := c.Flags().Bool("linearizable", false, "let the leader confirm that nothing newer exists")
	return a.client(c, func(s *session, args []string) error {
		if len(*byLabels) > 0 {
			args = append(splitLabels(*byLabels), args...)
		}
		o, err := s.which(args)
		if err != nil {
			return err
		}
		o.MinRevision, o.Linearizable = *revision, *linearizable
		conn, err := s.dial("")
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := s.limited()
		defer cancel()
		i, err := conn.Get(ctx, o)
		if err != nil {
			return err
		}
		out := view.NewIdentity(i)
		return s.print(out, func() view.Table { return view.IdentityTable(out) })
	})
}

func (a *app) list() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List identities by number", Aliases: []string{"ls"},
		Long: `List identities by number. A selector is written as for kubectl: k=v, k!=v,
k in (a,b), k notin (a,b), k, !k, joined with commas; a key may carry its source.`,
		Example: `  signet identity list -l app=web
  signet identity list -l 'k8s:app in (web,api),!canary' -o json
  signet identity list --freed --reserved`,
		Args: arguments(0, 0, "")}
	selector := c.Flags().StringP("selector", "l", "", "label selector")
	freed := c.Flags().Bool("freed", false, "also list freed numbers that are remembered")
	reserved := c.Flags().Bool("reserved", false, "also list reserved numbers")
	return a.client(c, func(s *session, _ []string) error {
		if err := checkSelector(*selector); err != nil {
			return err
		}
		conn, err := s.dial("")
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := s.limited()
		defer cancel()
		out := view.List[view.Identity]{Items: []view.Identity{}}
		for i, err := range conn.List(ctx, client.ListOptions{Selector: *selector, IncludeFreed: *freed, IncludeReserved: *reserved}) {
			if err != nil {
				return err
			}
			out.Items = append(out.Items, view.NewIdentity(i))
		}
		return s.print(out, func() view.Table { return view.IdentityTable(out.Items...) })
	})
}

func (a *app) explain() *cobra.Command {
	c := &cobra.Command{Use: "explain NUMBER | LABEL...", Short: "Tell the story of a number or label set",
		Long: `Tell the story of a number or label set: who holds it, what would free it, and
what happens next.`,
		Example: `  signet identity explain 12345`}
	return a.client(c, func(s *session, args []string) error {
		o, err := s.which(args)
		if err != nil {
			return err
		}
		conn, err := s.dial("")
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := s.limited()
		defer cancel()
		e, err := conn.Explain(ctx, o)
		if err != nil {
			return err
		}
		out := view.NewExplanation(e)
		return s.print(out, out.Table)
	})
}
