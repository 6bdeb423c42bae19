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
		if err := checkSelector(*selector); err != nil {
			return err
		}
		conn, err := s.dial("")
		if err != nil {
			return err
		}
		defer conn.Close()
		show := s.showEvent
		if view.IsTable(s.opts.output) {
			fmt.Fprintf(s.Stdout, watchLine, "EVENT", "NUMBER", "STATE", "HOLDERS", "LABELS")
			show = s.eventLines()
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

// eventLines shows events to people. That the view is current is told once
// after each snapshot: it then stays so, also while others change what the
// selector leaves out.
func (s *session) eventLines() func(view.Event) error {
	told := false
	return func(e view.Event) error {
		if e.Identity == nil {
			if e.Event == "current" && told {
				return nil
			}
			told = e.Event == "current"
			_, err := fmt.Fprintf(s.Stdout, "%-8s revision %d\n", e.Event, e.At.Revision)
			return err
		}
		labels := strings.Join(e.Labels, " ")
		if s.opts.output != view.FormatWide {
			labels = view.Short(labels)
		}
		_, err := fmt.Fprintf(s.Stdout, watchLine, e.Event, fmt.Sprint(e.Number), e.State, fmt.Sprint(len(e.Holders)), labels)
		return err
	}
}
