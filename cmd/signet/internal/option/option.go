// SPDX-License-Identifier: Apache-2.0

// Package option defines each setting of the program once: name, default,
// legal values and help. Command-line flags, SIGNET_… variables, keys of a YAML
// file and the reference pages are all made from that one definition.
//
// A setting called node-grace is the flag --node-grace, the variable
// SIGNET_NODE_GRACE and the key node-grace of the file. Of those that are
// given, the first counts: flag, variable, file, default.
package option

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Value reads and shows a setting.
type Value interface {
	pflag.Value
	// Legal says which texts Set takes, for errors and the reference.
	Legal() string
}

// Option is one setting.
type Option struct {
	Name    string
	Default string // as text; "" may stand for "none"
	Help    string // a phrase without a full stop
	// Choices are the only legal texts, if there are few.
	Choices []string
	Value   Value

	short   string
	noFile  bool
	isBool  bool
	changed bool // by flag, variable or file
}

// Env is the name of the option's variable.
func (o *Option) Env() string {
	return "SIGNET_" + strings.ToUpper(strings.ReplaceAll(o.Name, "-", "_"))
}

// Type is the kind of value, as the help shows it.
func (o *Option) Type() string { return o.Value.Type() }

// Legal says which texts are taken.
func (o *Option) Legal() string { return o.Value.Legal() }

// InFile reports whether a configuration file may set it.
func (o *Option) InFile() bool { return !o.noFile }

// Short names a one-letter flag for the option.
func (o *Option) Short(letter string) *Option { o.short = letter; return o }

// NotInFile keeps an option out of configuration files.
func (o *Option) NotInFile() *Option { o.noFile = true; return o }

// Table is a set of options, in the order of the help.
type Table struct {
	options []*Option
}

// Options are the options in order.
func (t *Table) Options() []*Option { return t.options }

// Lookup finds an option; nil: there is none of that name.
func (t *Table) Lookup(name string) *Option {
	for _, o := range t.options {
		if o.Name == name {
			return o
		}
	}
	return nil
}

// Given reports whether flag, variable or file set the option.
func (t *Table) Given(name string) bool {
	o := t.Lookup(name)
	return o != nil && o.changed
}

// Default changes an option's default; it panics when the text is not legal,
// for the program's own defaults are.
func (t *Table) Default(name, text string) {
	o := t.Lookup(name)
	if err := set(o.Value, text); err != nil {
		panic(fmt.Sprintf("option %s: default %q: %v", name, text, err))
	}
	o.Default = text
}

func (t *Table) add(o *Option) *Option {
	if t.Lookup(o.Name) != nil {
		panic("option " + o.Name + " is defined twice")
	}
	t.options = append(t.options, o)
	t.Default(o.Name, o.Default)
	return o
}

// AddFlags makes a flag of each option.
func (t *Table) AddFlags(fs *pflag.FlagSet) {
	for _, o := range t.options {
		f := fs.VarPF(&tracked{Value: o.Value, o: o}, o.Name, o.short, o.Help+" ["+o.Env()+"]")
		f.DefValue = o.Default
		if o.isBool {
			f.NoOptDefVal = "true"
		}
	}
}

// tracked notes that a flag set its option. The first use of a flag replaces
// the default, further ones of a list add to it.
type tracked struct {
	Value
	o *Option
}

// Set implements pflag.Value.
func (v *tracked) Set(text string) error {
	first := !v.o.changed
	v.o.changed = true
	take := v.Value.Set
	if l, ok := v.Value.(adder); ok && !first {
		take = l.add
	}
	if err := take(text); err != nil {
		return fmt.Errorf("%w (legal: %s)", err, v.Legal())
	}
	return nil
}

// adder is a value that holds a list, and can have more added to it.
type adder interface{ add(text string) error }

func set(v Value, text string) error { return v.Set(text) }

// Names are the options' names, sorted.
func (t *Table) Names() []string {
	names := make([]string, len(t.options))
	for i, o := range t.options {
		names[i] = o.Name
	}
	slices.Sort(names)
	return names
}
