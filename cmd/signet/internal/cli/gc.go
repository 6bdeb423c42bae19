// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os/user"

	"github.com/spf13/cobra"

	"github.com/signet-identity/signet/cmd/signet/internal/view"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// steer completes a command that asks the leader about its collection.
func (a *app) steer(c *cobra.Command, request func() *signetv1.GCRequest) *cobra.Command {
	c.Args = arguments(0, 0, "")
	return a.client(c, func(s *session, _ []string) error {
		conn, err := s.dial("")
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := s.limited()
		defer cancel()
		got, err := conn.GC(ctx, request())
		if err != nil {
			return err
		}
		out := view.NewPlan(got)
		return s.print(out, out.Table)
	})
}

func (a *app) gcPlan() *cobra.Command {
	c := &cobra.Command{Use: "plan", Short: "List what waits to be collected, and why it is or is not",
		Long: `List what waits to be collected, and why it is or is not: gone nodes with what they
still hold, idle identities, and the freed number whose reuse is next.`,
		Example: `  signet gc plan
  signet gc plan -o json | jq '.items[] | select(.why | startswith("held back"))'`}
	return a.steer(c, func() *signetv1.GCRequest {
		return &signetv1.GCRequest{Action: &signetv1.GCRequest_Plan{Plan: &signetv1.GCPlan{}}}
	})
}

func (a *app) gcRun() *cobra.Command {
	c := &cobra.Command{Use: "run", Short: "Sweep now; with --release-brake, let go what the brake holds back",
		Long: `Sweep now. The sweep stops itself when too large a share would go at once: look at
the plan first, and when it is right, let it go with --release-brake.`,
		Example: `  signet gc run
  signet gc run --release-brake`}
	release := c.Flags().Bool("release-brake", false, "let go what the brake holds back now")
	return a.steer(c, func() *signetv1.GCRequest {
		return &signetv1.GCRequest{Action: &signetv1.GCRequest_Run{Run: &signetv1.GCRun{ReleaseBrake: *release}}}
	})
}

func (a *app) gcPause() *cobra.Command {
	c := &cobra.Command{Use: "pause", Short: "Stop collecting until resumed, whoever leads",
		Example: `  signet gc pause --reason "looking into lost nodes"`}
	reason := c.Flags().String("reason", "no reason given", "why; it stands in status")
	return a.steer(c, func() *signetv1.GCRequest {
		by := "someone"
		if u, err := user.Current(); err == nil {
			by = u.Username
		}
		return &signetv1.GCRequest{Action: &signetv1.GCRequest_Pause{Pause: &signetv1.GCPause{By: by, Reason: *reason}}}
	})
}

func (a *app) gcResume() *cobra.Command {
	c := &cobra.Command{Use: "resume", Short: "Let the collection go on", Example: `  signet gc resume`}
	return a.steer(c, func() *signetv1.GCRequest {
		return &signetv1.GCRequest{Action: &signetv1.GCRequest_Resume{Resume: &signetv1.GCResume{}}}
	})
}
