// SPDX-License-Identifier: Apache-2.0

package option

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// String defines an option with any text; legal describes what is meant.
func (t *Table) String(p *string, name, def, legal, help string) *Option {
	return t.add(&Option{Name: name, Default: def, Help: help, Value: &text{p: p, legal: legal}})
}

// Choice defines an option with few legal texts.
func (t *Table) Choice(p *string, name, def, help string, choices ...string) *Option {
	return t.add(&Option{Name: name, Default: def, Help: help, Choices: choices,
		Value: &text{p: p, legal: strings.Join(choices, ", "), choices: choices}})
}

// Strings defines an option with a list of texts: separated by commas, or the
// flag repeated, or a YAML list.
func (t *Table) Strings(p *[]string, name, def, legal, help string) *Option {
	return t.add(&Option{Name: name, Default: def, Help: help, Value: &list{p: p, legal: legal}})
}

// Duration defines an option with a time between least and most.
func (t *Table) Duration(p *time.Duration, name string, def, least, most time.Duration, help string) *Option {
	return t.add(&Option{Name: name, Default: shortDuration(def), Help: help, Value: &duration{p: p, least: least, most: most}})
}

// Uint32 defines an option with a whole number between least and most.
func (t *Table) Uint32(p *uint32, name string, def, least, most uint32, help string) *Option {
	return t.add(&Option{Name: name, Default: strconv.FormatUint(uint64(def), 10), Help: help, Value: &number{p: p, least: least, most: most}})
}

// Bool defines an option that is true or false.
func (t *Table) Bool(p *bool, name string, def bool, help string) *Option {
	return t.add(&Option{Name: name, Default: strconv.FormatBool(def), Help: help, isBool: true, Value: &boolean{p: p}})
}

// Prefixes defines an option with a list of address ranges.
func (t *Table) Prefixes(p *[]netip.Prefix, name, def, help string) *Option {
	return t.add(&Option{Name: name, Default: def, Help: help, Value: &prefixes{p: p}})
}

// Addresses defines an option with a list of addresses.
func (t *Table) Addresses(p *[]netip.Addr, name, def, help string) *Option {
	return t.add(&Option{Name: name, Default: def, Help: help, Value: &addresses{p: p}})
}

type text struct {
	p       *string
	legal   string
	choices []string
}

func (v *text) Type() string   { return "text" }
func (v *text) Legal() string  { return v.legal }
func (v *text) String() string { return *v.p }
func (v *text) Set(s string) error {
	if v.choices != nil && !slices.Contains(v.choices, s) {
		return fmt.Errorf("%q is none of the choices", s)
	}
	*v.p = s
	return nil
}

type list struct {
	p     *[]string
	legal string
}

func (v *list) Type() string   { return "list" }
func (v *list) Legal() string  { return v.legal }
func (v *list) String() string { return strings.Join(*v.p, ",") }
func (v *list) Set(s string) error {
	*v.p = split(s)
	return nil
}

func (v *list) add(s string) error {
	*v.p = append(*v.p, split(s)...)
	return nil
}

func split(s string) []string {
	var out []string
	for _, part := range strings.Split(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

type duration struct {
	p           *time.Duration
	least, most time.Duration
}

func (v *duration) Type() string   { return "duration" }
func (v *duration) String() string { return shortDuration(*v.p) }
func (v *duration) Legal() string {
	return fmt.Sprintf("a time such as 90s, 15m or 1h, from %s to %s", shortDuration(v.least), shortDuration(v.most))
}

func (v *duration) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is no time", s)
	}
	if d < v.least || d > v.most {
		return fmt.Errorf("%s is out of range", s)
	}
	*v.p = d
	return nil
}

// shortDuration is 15m instead of 15m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

type number struct {
	p           *uint32
	least, most uint32
}

func (v *number) Type() string   { return "number" }
func (v *number) String() string { return strconv.FormatUint(uint64(*v.p), 10) }
func (v *number) Legal() string  { return fmt.Sprintf("a whole number from %d to %d", v.least, v.most) }
func (v *number) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && (n < uint64(v.least) || n > uint64(v.most)):
		return fmt.Errorf("%s is out of range", s)
	case err != nil:
		return fmt.Errorf("%q is no whole number", s)
	}
	*v.p = uint32(n)
	return nil
}

type boolean struct{ p *bool }

func (v *boolean) Type() string   { return "bool" }
func (v *boolean) Legal() string  { return "true or false" }
func (v *boolean) String() string { return strconv.FormatBool(*v.p) }
func (v *boolean) Set(s string) error {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", s)
	}
	*v.p = b
	return nil
}

// IsBoolFlag tells pflag that the flag may stand alone.
func (v *boolean) IsBoolFlag() bool { return true }

type prefixes struct{ p *[]netip.Prefix }

func (v *prefixes) Type() string   { return "list" }
func (v *prefixes) Legal() string  { return "address ranges such as 10.244.0.0/16 or 2001:db8::/64" }
func (v *prefixes) String() string { return Join(*v.p) }
func (v *prefixes) Set(s string) error {
	return v.append([]netip.Prefix{}, s)
}

func (v *prefixes) add(s string) error { return v.append(*v.p, s) }

func (v *prefixes) append(out []netip.Prefix, s string) error {
	for _, part := range split(s) {
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return fmt.Errorf("%q is no address range", part)
		}
		if p != p.Masked() {
			return fmt.Errorf("%q has bits beyond its length; its range is %s", part, p.Masked())
		}
		out = append(out, p)
	}
	*v.p = out
	return nil
}

type addresses struct{ p *[]netip.Addr }

func (v *addresses) Type() string   { return "list" }
func (v *addresses) Legal() string  { return "addresses such as 10.0.0.7 or 2001:db8::7" }
func (v *addresses) String() string { return Join(*v.p) }
func (v *addresses) Set(s string) error {
	return v.append([]netip.Addr{}, s)
}

func (v *addresses) add(s string) error { return v.append(*v.p, s) }

func (v *addresses) append(out []netip.Addr, s string) error {
	for _, part := range split(s) {
		a, err := netip.ParseAddr(part)
		if err != nil {
			return fmt.Errorf("%q is no address", part)
		}
		out = append(out, a)
	}
	*v.p = out
	return nil
}

// Join writes a list as its option takes it.
func Join[T fmt.Stringer](items []T) string {
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = item.String()
	}
	return strings.Join(out, ",")
}

// ChoiceUint32 defines an option with few legal numbers.
func (t *Table) ChoiceUint32(p *uint32, name string, def uint32, help string, choices ...uint32) *Option {
	names := make([]string, len(choices))
	for i, c := range choices {
		names[i] = strconv.FormatUint(uint64(c), 10)
	}
	return t.add(&Option{Name: name, Default: strconv.FormatUint(uint64(def), 10), Help: help, Choices: names, Value: &oneOf{p: p, choices: names}})
}

type oneOf struct {
	p       *uint32
	choices []string
}

func (v *oneOf) Type() string   { return "number" }
func (v *oneOf) Legal() string  { return strings.Join(v.choices, ", ") }
func (v *oneOf) String() string { return strconv.FormatUint(uint64(*v.p), 10) }
func (v *oneOf) Set(s string) error {
	if !slices.Contains(v.choices, s) {
		return fmt.Errorf("%q is none of the choices", s)
	}
	n, err := strconv.ParseUint(s, 10, 32)
	*v.p = uint32(n)
	return err
}
