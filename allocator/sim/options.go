// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signet-identity/signet/allocator/identity"
)

// Profile says what kind of run a seed gives.
type Profile uint8

// The profiles.
const (
	// BySeed: of five seeds one is Hand, two are Reuse, two are Faults.
	BySeed Profile = iota
	// Faults: everything breaks, and nobody but Signet writes.
	Faults
	// Hand: in addition somebody edits keys past Signet. The invariants hold for
	// whatever that did not touch.
	Hand
	// Reuse: there are few numbers and many label sets, so that numbers run out
	// and are used again all the time.
	Reuse
)

var profileNames = [...]string{"", "faults", "hand", "reuse"}

// Options bound a run. The zero value of each field means its default.
type Options struct {
	Profile    Profile
	Candidates int           // operators; 3
	Agents     int           // nodes; 3
	Sets       int           // label sets that agents choose from; 6, in Reuse 30
	Numbers    int           // numbers to hand out; 0: all of the range, in Reuse 12 to 27 as the seed says
	Broken     time.Duration // how long faults act; 20 s, in Reuse 35 s
	Settle     time.Duration // how long convergence may take after that; 120 s
	Without    []string      // kinds of faults that are left out, as Stats.Faults names them
	Trace      bool          // keep a trace, whether or not it fails

	mutation mutation
}

// filled sets what is not set.
func (o Options) filled(seed uint64) Options {
	set := func(n *int, to int) {
		if *n == 0 {
			*n = to
		}
	}
	if o.Profile == BySeed {
		o.Profile = [...]Profile{Faults, Reuse, Faults, Reuse, Hand}[seed%5]
	}
	broken := 20 * time.Second
	set(&o.Candidates, 3)
	set(&o.Agents, 3)
	if o.Profile == Reuse {
		set(&o.Sets, 30)
		set(&o.Numbers, (o.Agents+1)*perHolder+int(seed/5%16))
		broken = 35 * time.Second
	}
	set(&o.Sets, 6)
	if o.Broken == 0 {
		o.Broken = broken
	}
	if o.Settle == 0 {
		o.Settle = 120 * time.Second
	}
	return o
}

// perHolder is how many label sets a holder wants at most in Reuse, so that
// there is a number for each.
const perHolder = 3

// limit is the highest number to hand out; 0: the range's.
func (o Options) limit(space identity.Space) identity.Number {
	if o.Numbers == 0 {
		return 0
	}
	return space.Min() + identity.Number(o.Numbers) - 1
}

func (o Options) hand() bool { return o.Profile == Hand }

// String is the form that ParseOptions reads: field=value, separated by commas.
func (o Options) String() string {
	var out []string
	add := func(name string, value any) { out = append(out, fmt.Sprintf("%s=%v", name, value)) }
	if o.Profile != BySeed {
		add("profile", profileNames[o.Profile])
	}
	for _, f := range o.numbers() {
		if *f.at != 0 {
			add(f.name, *f.at)
		}
	}
	if o.Broken != 0 {
		add("broken", o.Broken)
	}
	if o.Settle != 0 {
		add("settle", o.Settle)
	}
	if len(o.Without) > 0 {
		add("without", strings.ReplaceAll(strings.Join(o.Without, "+"), " ", "-"))
	}
	return strings.Join(out, ",")
}

type numberField struct {
	name string
	at   *int
}

func (o *Options) numbers() []numberField {
	return []numberField{{"candidates", &o.Candidates}, {"agents", &o.Agents}, {"sets", &o.Sets}, {"numbers", &o.Numbers}}
}

// ParseOptions reads what String writes.
func ParseOptions(s string) (Options, error) {
	var o Options
	for _, part := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) {
		name, value, _ := strings.Cut(part, "=")
		if err := o.set(name, value); err != nil {
			return Options{}, fmt.Errorf("option %q: %w", part, err)
		}
	}
	return o, nil
}

func (o *Options) set(name, value string) (err error) {
	for _, f := range o.numbers() {
		if f.name == name {
			*f.at, err = strconv.Atoi(value)
			return err
		}
	}
	switch name {
	case "profile":
		i := slices.Index(profileNames[:], value)
		if i < 1 {
			return fmt.Errorf("the profiles are %v", profileNames[1:])
		}
		o.Profile = Profile(i)
	case "broken":
		o.Broken, err = time.ParseDuration(value)
	case "settle":
		o.Settle, err = time.ParseDuration(value)
	case "without":
		o.Without = strings.Split(strings.ReplaceAll(value, "-", " "), "+")
	default:
		err = fmt.Errorf("it is none of profile, candidates, agents, sets, numbers, broken, settle, without")
	}
	return err
}
