// SPDX-License-Identifier: Apache-2.0

package nemesis

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// One model serves two views. Seen per label set the bond is the number that it
// has; seen per number it is the label set that the number belongs to. In both,
// holders keep the bond: it may change only while nobody holds it.

// act is what a step says of the object.
type act int

const (
	hold   act = iota // the holder has it now, under this hold and with this bond
	drop              // the holder gave this hold back
	absent            // the holder has nothing
	other             // the holder has another hold than this one
	loosen            // what the holder has, if anything, no longer counts
	read              // this is the bond; "" says that there is none
)

// step is one operation on one object as its answer tells it.
type step struct {
	act    act
	bond   string
	holder string
	hold   int64
	// replaces are holds that the holder had given up, so that they may be overwritten.
	replaces []int64
	// created: it was taken from the pool, so nobody held it.
	created bool
	// holders is what a read showed, as held formats it; exact: it has to be so.
	holders string
	exact   bool
}

// bound is the state of one object.
type bound struct{ bond, holders string }

// held maps holders to their holds, and writes them as a text that can be compared.
type held map[string]int64

func (h held) String() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(h)) {
		fmt.Fprintf(&b, "%s=%d ", k, h[k])
	}
	return b.String()
}

func parseHeld(text string) held {
	h := held{}
	for _, f := range strings.Fields(text) {
		var v int64
		name, number, _ := strings.Cut(f, "=")
		fmt.Sscan(number, &v)
		h[name] = v
	}
	return h
}

// next applies a step; false: it cannot happen in this state.
func (s bound) next(p step) (bound, bool) {
	h := parseHeld(s.holders)
	mine, has := h[p.holder]
	switch p.act {
	case hold:
		return s.holding(p, h, mine, has)
	case drop:
		if !has || mine != p.hold {
			return s, false
		}
		delete(h, p.holder)
	case absent:
		return s, !has
	case other:
		return s, has && mine != p.hold
	case loosen:
		delete(h, p.holder)
	case read:
		if len(h) > 0 && s.bond != p.bond || p.exact && s.holders != p.holders {
			return s, false
		}
		s.bond = p.bond
	}
	return bound{s.bond, h.String()}, true
}

func (s bound) holding(p step, h held, mine int64, has bool) (bound, bool) {
	if len(h) > 0 && (s.bond != p.bond || p.created) {
		return s, false
	}
	if has && mine != p.hold && !slices.Contains(p.replaces, mine) {
		return s, false
	}
	if has && mine == p.hold && slices.Contains(p.replaces, mine) {
		return s, false // what was given up had to get a new hold
	}
	h[p.holder] = p.hold
	return bound{p.bond, h.String()}, true
}

func (p step) String() string {
	names := [...]string{"allocate", "release", "release, absent", "release, another hold", "delete endpoint", "read"}
	switch p.act {
	case hold:
		return fmt.Sprintf("%s %s hold %d → %s", names[p.act], p.holder, p.hold, p.bond)
	case read:
		return fmt.Sprintf("read → %q held by %s", p.bond, p.holders)
	}
	return fmt.Sprintf("%s %s hold %d", names[p.act], p.holder, p.hold)
}

// model is the sequential meaning of one object; a step carries its own answer.
func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return bound{} },
		Step: func(state, input, _ any) (bool, any) {
			next, ok := state.(bound).next(input.(step))
			return ok, next
		},
		DescribeOperation: func(input, _ any) string { return input.(step).String() },
		DescribeState:     func(state any) string { return fmt.Sprintf("%q: %s", state.(bound).bond, state.(bound).holders) },
	}
}

func TestModel(t *testing.T) {
	type timed struct {
		call, ret int64
		step
	}
	take := func(who string, h int64, n string) step { return step{act: hold, holder: who, hold: h, bond: n} }
	give := func(who string, h int64) step { return step{act: drop, holder: who, hold: h} }
	see := func(n string, h held) step { return step{act: read, bond: n, holders: h.String(), exact: true} }
	fresh := take("b", 9, "7")
	fresh.created = true
	again := take("a", 6, "7")
	again.replaces = []int64{5}
	same := take("a", 5, "7")
	same.replaces = []int64{5}
	for name, c := range map[string]struct {
		ok  bool
		ops []timed
	}{
		"one number for two holders":            {true, []timed{{1, 2, take("a", 5, "7")}, {3, 4, take("b", 6, "7")}, {5, 6, see("7", held{"a": 5, "b": 6})}}},
		"two numbers for one set":               {false, []timed{{1, 2, take("a", 5, "7")}, {3, 4, take("b", 6, "8")}}},
		"another number once nobody holds it":   {true, []timed{{1, 2, take("a", 5, "7")}, {3, 4, give("a", 5)}, {5, 6, take("b", 6, "8")}}},
		"a read misses what was acknowledged":   {false, []timed{{1, 2, take("a", 5, "7")}, {3, 4, see("", nil)}}},
		"a read misses what is under way":       {true, []timed{{1, 9, take("a", 5, "7")}, {3, 4, see("", nil)}, {5, 6, see("7", held{"a": 5})}}},
		"reads go back":                         {false, []timed{{1, 9, take("a", 5, "7")}, {3, 4, see("7", held{"a": 5})}, {5, 6, see("", nil)}}},
		"the same call again":                   {true, []timed{{1, 2, take("a", 5, "7")}, {3, 4, take("a", 5, "7")}}},
		"another hold out of nothing":           {false, []timed{{1, 2, take("a", 5, "7")}, {3, 4, take("a", 6, "7")}}},
		"another hold after it was given up":    {true, []timed{{1, 2, take("a", 5, "7")}, {3, 4, again}}},
		"what was given up keeps its hold":      {false, []timed{{1, 2, take("a", 5, "7")}, {3, 4, same}}},
		"a release takes another hold":          {false, []timed{{1, 2, take("a", 5, "7")}, {3, 4, give("a", 4)}}},
		"a release finds nothing":               {true, []timed{{3, 4, step{act: absent, holder: "a"}}}},
		"a release finds nothing, yet held":     {false, []timed{{1, 2, take("a", 5, "7")}, {3, 4, step{act: absent, holder: "a"}}}},
		"another hold is named":                 {true, []timed{{1, 2, take("a", 5, "7")}, {3, 4, step{act: other, holder: "a", hold: 4}}}},
		"taken from the pool while held":        {false, []timed{{1, 2, take("a", 5, "7")}, {3, 4, fresh}}},
		"an endpoint keeps the number":          {false, []timed{{1, 2, take("n/e", 0, "7")}, {3, 4, step{act: read, bond: "8"}}}},
		"a deleted endpoint keeps nothing":      {true, []timed{{1, 2, take("n/e", 0, "7")}, {3, 4, step{act: loosen, holder: "n/e"}}, {5, 6, step{act: read}}}},
		"idle: the number stands, nobody holds": {true, []timed{{1, 2, take("a", 5, "7")}, {3, 4, give("a", 5)}, {5, 6, see("7", nil)}, {7, 8, see("", nil)}}},
	} {
		var ops []porcupine.Operation
		for _, o := range c.ops {
			ops = append(ops, porcupine.Operation{Input: o.step, Call: o.call, Return: o.ret})
		}
		if got := porcupine.CheckOperations(model(), ops); got != c.ok {
			t.Errorf("%s: linearizable is %v", name, got)
		}
	}
}
