// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/cmd/signet/internal/view"
)

func (a *app) watch() *cobra.Command {
	c := &cobra.Command{Use: "watch", Short: "Show what is, then what changes",
		Long: `Show what is, then what changes, until Ctrl-C. In JSON each line is one object with
event: reset (a snapshot follows; what it does not name is gone), upsert, delete,
or current (everything up to here was shown).`,
		Example: `  signet identity watch -l app=web
  signet identity watch -o json | jq -c 'select(.event == "delete") | .number'`,
		Args: arguments(0, 0, "")}
	selector := c.Flags().StringP("selector", "l", "", "label selector")
	return a.client(c, func(s *session, _ []string) error {
		conn, err := s.dial("")
		if err != nil {
			return err
		}
		defer conn.Close()
		show := s.showEvent
		if s.opts.output == view.FormatTable {
			fmt.Fprintf(s.Stdout, watchLine, "EVENT", "NUMBER", "STATE", "HOLDERS", "LABELS")
			show = s.showEventLine
		}
		for e, err := range conn.Watch(s.ctx, client.WatchOptions{Selector: *selector}) {
			if err != nil && s.ctx.Err() != nil {
				return nil
			}
			if err == nil {
				err = show(view.NewEvent(e))
			}
			if err != nil {
				return err
			}
		}
		return errors.New("the watch ended")
	})
}

const watchLine = "%-8s %-9s %-11s %-7s %s\n"

func (s *session) showEvent(e view.Event) error { return view.Line(s.Stdout, s.opts.output, e) }

func (s *session) showEventLine(e view.Event) error {
	if e.Identity == nil {
		_, err := fmt.Fprintf(s.Stdout, "%-8s revision %d\n", e.Event, e.At.Revision)
		return err
	}
	_, err := fmt.Fprintf(s.Stdout, watchLine, e.Event, fmt.Sprint(e.Number), e.State, fmt.Sprint(len(e.Holders)), strings.Join(e.Labels, " "))
	return err
}
