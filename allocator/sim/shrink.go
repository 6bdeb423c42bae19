// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// shrinkRuns bounds how often Shrink runs a seed.
const shrinkRuns = 150

// Shrink looks for smaller options with which the seed still fails: a shorter
// time, fewer processes and label sets, fewer kinds of faults. It returns the
// smallest that it found, and what failed there.
func Shrink(seed uint64, opt Options) (Options, Result) {
	opt.Trace = false
	best := opt.filled(seed)
	best.Trace = false
	last := Run(seed, best)
	if len(last.Violations) == 0 {
		return opt, last
	}
	runs := 0
	try := func(change func(*Options)) bool {
		smaller := best
		smaller.Without = slices.Clone(best.Without)
		change(&smaller)
		if runs++; runs > shrinkRuns || smaller.String() == best.String() {
			return false
		}
		if r := Run(seed, smaller); len(r.Violations) > 0 {
			best, last = smaller, r
			return true
		}
		return false
	}
	for smaller := true; smaller && runs <= shrinkRuns; {
		smaller = shrinkOnce(try, &best, &last)
	}
	return best, last
}

// shrinkOnce tries each way to make a run smaller. It reports whether any did.
func shrinkOnce(try func(func(*Options)) bool, best *Options, last *Result) (any bool) {
	if at := last.Violations[0].At.Truncate(100*time.Millisecond) + 100*time.Millisecond; at < best.Broken {
		any = try(func(o *Options) { o.Broken = at }) || any
	}
	for _, f := range best.numbers() {
		least := 1
		if f.name == "numbers" {
			continue // fewer numbers make nothing simpler
		}
		for *f.at > least && try(func(o *Options) { *o.number(f.name) /= 2 }) {
			any = true
		}
		for *f.at > least && try(func(o *Options) { *o.number(f.name)-- }) {
			any = true
		}
	}
	kinds := slices.Sorted(maps.Keys(last.Stats.Faults))
	for _, kind := range append(kinds, "clocks", "edit") {
		if !slices.Contains(best.Without, kind) {
			any = try(func(o *Options) { o.Without = append(o.Without, kind) }) || any
		}
	}
	for _, share := range []time.Duration{2, 4} { // three quarters of it, or a half
		any = try(func(o *Options) { o.Broken -= o.Broken / share }) || any
	}
	return any
}

func (o *Options) number(name string) *int {
	for _, f := range o.numbers() {
		if f.name == name {
			return f.at
		}
	}
	panic("no number is called " + name)
}

// ReplayCommand repeats a run and prints what led to its violation.
func ReplayCommand(seed uint64, opt Options) string {
	cmd := fmt.Sprintf("go test ./allocator/sim -run TestReplay -v -args -seed=%d", seed)
	if s := opt.String(); s != "" {
		cmd += " -opt=" + s
	}
	return cmd
}
