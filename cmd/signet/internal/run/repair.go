// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"os"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/signet-identity/signet/allocator/check"
	"github.com/signet-identity/signet/kvstore"
)

// Repaired is what became of a repair.
type Repaired struct {
	// Results are the steps that were done, and of the last plan those that
	// were not.
	Results []check.Result
	// Left are the findings that no step repairs.
	Left []check.Left
	// After is the judgement on the store once all was done.
	After check.Report
}

// Complete says whether nothing is left to look at: every step was done, and
// what no step repairs is worth knowing at most.
func (r Repaired) Complete() bool {
	return !slices.ContainsFunc(r.Results, func(x check.Result) bool { return x.Fate != check.Done }) && !check.Serious(r.Left)
}

// PlanRepair reads the store and plans.
func PlanRepair(ctx context.Context, s kvstore.Store, l kvstore.Layout, codes []check.Code) (check.Plan, error) {
	kvs, revision, err := check.Read(ctx, s, l)
	if err != nil {
		return check.Plan{}, err
	}
	return check.NewPlan(kvs, revision, check.Options{Layout: l}, codes...), nil
}

// repairRounds bounds the plans of one repair: a step may wait for another, and
// a store that goes on changing must not keep it busy for ever.
const repairRounds = 5

// ApplyRepair plans and applies until nothing is planned any more.
func ApplyRepair(ctx context.Context, s kvstore.Store, l kvstore.Layout, codes []check.Code) (Repaired, error) {
	out := Repaired{Results: []check.Result{}}
	for range repairRounds {
		plan, err := PlanRepair(ctx, s, l, codes)
		if err != nil {
			return out, err
		}
		if out.Left = plan.Left; len(plan.Steps) == 0 {
			break
		}
		results, err := check.Apply(ctx, s, l, plan)
		if err != nil {
			return out, err
		}
		out.Results = append(done(out.Results), results...)
		if len(done(results)) == 0 {
			break
		}
	}
	return out.judged(ctx, s, l)
}

// ApplyPlan applies a plan that was saved, as it is.
func ApplyPlan(ctx context.Context, s kvstore.Store, l kvstore.Layout, p check.Plan) (Repaired, error) {
	results, err := check.Apply(ctx, s, l, p)
	if err != nil {
		return Repaired{}, err
	}
	return Repaired{Results: results, Left: p.Left}.judged(ctx, s, l)
}

func done(rs []check.Result) []check.Result {
	out := []check.Result{}
	for _, r := range rs {
		if r.Fate == check.Done {
			out = append(out, r)
		}
	}
	return out
}

func (r Repaired) judged(ctx context.Context, s kvstore.Store, l kvstore.Layout) (Repaired, error) {
	kvs, revision, err := check.Read(ctx, s, l)
	if err != nil {
		return r, err
	}
	r.After = check.Store(kvs, revision, check.Options{Layout: l})
	return r, nil
}

// ReadPlan reads a plan that was saved as JSON or YAML. A field that no plan
// has is an error.
func ReadPlan(path string) (check.Plan, error) {
	var p check.Plan
	data, err := os.ReadFile(path)
	if err != nil {
		return p, fmt.Errorf("plan: %w", err)
	}
	if err := yaml.UnmarshalStrict(data, &p); err != nil {
		return p, fmt.Errorf("plan %s cannot be read: %w", path, err)
	}
	return p, nil
}
