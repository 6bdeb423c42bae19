// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signet-identity/signet/allocator/check"
	"github.com/signet-identity/signet/cmd/signet/internal/run"
	"github.com/signet-identity/signet/cmd/signet/internal/view"
	"github.com/signet-identity/signet/kvstore"
)

// repairing is one call of repair.
type repairing struct {
	checked
	dryRun, apply bool
	planFile      string
}

func (a *app) repair() *cobra.Command {
	r := &repairing{}
	c := &cobra.Command{Use: "repair --dry-run|--apply [CODE...]", GroupID: groupUse,
		Short: "Repair what signet check finds in the store",
		Long: `Repair what signet check finds in the store. With --dry-run it only says what it would
do; as JSON that is a plan, which can be reviewed, kept, and applied later with
--plan. With --apply it does it.

Each step is one transaction that compares everything it was planned from: what has
changed meanwhile is left alone, so it is safe beside a leader, agents and other
writers. Without a CODE only repairs are done that cannot do harm; those that take
something which could still be needed are done when their code is named. What stood
in a key before is part of the output. docs/check.md lists the repair of each code.

Exit codes: 0 nothing is left to do; 3 something is: with --dry-run the plan, with
--apply a step that was not done, or a warning or error that no step repairs.`,
		Example: `  signet repair --dry-run
  signet repair --dry-run -o json > plan.json && signet repair --apply --plan plan.json
  signet repair --apply
  signet repair --apply HOLDER-UNKNOWN`,
		Args: arguments(0, -1, "")}
	c.Flags().BoolVar(&r.dryRun, "dry-run", false, "only say what would be done")
	c.Flags().BoolVar(&r.apply, "apply", false, "do it")
	c.Flags().StringVar(&r.planFile, "plan", "", "a file that --dry-run -o json wrote: apply it as it is")
	return a.client(c, func(s *session, args []string) error {
		codes, err := r.codes(c, args)
		if err != nil {
			return err
		}
		store, layout, err := s.open(&r.checked)
		if err != nil {
			return err
		}
		defer store.Close()
		ctx, cancel := s.limited()
		defer cancel()
		if r.dryRun {
			return s.planRepair(ctx, store, layout, codes)
		}
		return s.applyRepair(ctx, store, layout, r.planFile, codes)
	}, r.where)
}

// codes checks how the command was called.
func (r *repairing) codes(c *cobra.Command, args []string) ([]check.Code, error) {
	switch {
	case r.dryRun == r.apply:
		return nil, usage(c, "one of --dry-run and --apply is needed")
	case r.planFile != "" && r.dryRun:
		return nil, usage(c, "--plan is for --apply")
	case r.planFile != "" && len(args) > 0:
		return nil, usage(c, "a plan is applied as it is, and %q is more", args[0])
	}
	var codes []check.Code
	for _, arg := range args {
		code := check.Code(strings.ToUpper(arg))
		if !slices.ContainsFunc(check.Codes(), func(i check.CodeInfo) bool { return i.Code == code }) {
			return nil, usage(c, "there is no code %q; signet check shows them", arg)
		}
		codes = append(codes, code)
	}
	return codes, nil
}

// open opens the store that the options name, or the operator's.
func (s *session) open(k *checked) (*kvstore.Etcd, kvstore.Layout, error) {
	if len(k.etcd.Endpoints) == 0 {
		if err := s.askWhere(k); err != nil {
			return nil, kvstore.Layout{}, err
		}
	}
	layout, err := kvstore.NewLayout(k.cluster.BasePrefix, nonEmpty(k.cluster.Name, "default"))
	if err != nil {
		return nil, kvstore.Layout{}, err
	}
	store, err := k.etcd.OpenStore(s.ctx, slog.New(slog.DiscardHandler))
	return store, layout, err
}

func (s *session) planRepair(ctx context.Context, store kvstore.Store, layout kvstore.Layout, codes []check.Code) error {
	plan, err := run.PlanRepair(ctx, store, layout, codes)
	if err != nil {
		return err
	}
	if err := s.print(plan, func() view.Table { return view.PlanTable(plan) }); err != nil {
		return err
	}
	if len(plan.Steps) > 0 || check.Serious(plan.Left) {
		return exit(ExitFindings, "")
	}
	return nil
}

func (s *session) applyRepair(ctx context.Context, store kvstore.Store, layout kvstore.Layout, file string, codes []check.Code) error {
	var repaired run.Repaired
	var err error
	if file == "" {
		repaired, err = run.ApplyRepair(ctx, store, layout, codes)
	} else {
		var plan check.Plan
		if plan, err = run.ReadPlan(file); err == nil {
			repaired, err = run.ApplyPlan(ctx, store, layout, plan)
		}
	}
	out := view.NewRepaired(repaired)
	if err != nil && len(out.Results) == 0 {
		return err
	}
	// What was done is shown, also when the rest failed.
	if printed := s.print(out, out.Table); err == nil {
		err = printed
	}
	if err == nil && !out.Complete {
		err = exit(ExitFindings, "")
	}
	return err
}
