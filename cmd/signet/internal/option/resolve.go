// SPDX-License-Identifier: Apache-2.0

package option

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Error is a setting that cannot be used.
type Error struct {
	// Where it was given: a file's path with line, or a variable's name.
	Where  string
	Key    string // the option's name; "" when the file as a whole is at fault
	Reason string
	Legal  string // "" when there is nothing to choose from
}

// Error names place, key, reason and what is legal.
func (e *Error) Error() string {
	s := e.Where + ": "
	if e.Key != "" {
		s += e.Key + ": "
	}
	s += e.Reason
	if e.Legal != "" {
		s += "; legal: " + e.Legal
	}
	return s
}

// File is the configuration file to read.
type File struct {
	Path string
	// Optional: it need not be there.
	Optional bool
}

// Resolve fills in what no flag set: from variables (getenv; an empty one
// counts as not given), else from the file. The error is an *Error. Options that
// nobody set keep their default.
func (t *Table) Resolve(getenv func(string) (string, bool), file File) error {
	fromFlag := map[string]bool{}
	for _, o := range t.options {
		fromFlag[o.Name] = o.changed
	}
	if err := t.readFile(file, fromFlag); err != nil {
		return err
	}
	for _, o := range t.options {
		value, ok := getenv(o.Env())
		if !ok || value == "" || fromFlag[o.Name] {
			continue
		}
		if err := set(o.Value, value); err != nil {
			return &Error{Where: "environment variable " + o.Env(), Key: o.Name, Reason: err.Error(), Legal: o.Legal()}
		}
		o.changed = true
	}
	return nil
}

func (t *Table) readFile(file File, skip map[string]bool) error {
	if file.Path == "" {
		return nil
	}
	data, err := os.ReadFile(file.Path)
	if errors.Is(err, fs.ErrNotExist) && file.Optional {
		return nil
	}
	if err != nil {
		return &Error{Where: file.Path, Reason: "it cannot be read: " + reasonOf(err)}
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return &Error{Where: file.Path, Reason: "it is not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	if len(root.Content) == 0 {
		return nil
	}
	top := root.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return nil
	}
	if top.Kind != yaml.MappingNode {
		return &Error{Where: place(file.Path, top), Reason: "it is no mapping of option names to values"}
	}
	return t.readMapping(file.Path, top, skip)
}

func (t *Table) readMapping(path string, top *yaml.Node, skip map[string]bool) error {
	seen := map[string]bool{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		o := t.Lookup(key.Value)
		switch {
		case o == nil || !o.InFile():
			return &Error{Where: place(path, key), Key: key.Value, Reason: "there is no such option", Legal: strings.Join(t.fileNames(), ", ")}
		case seen[key.Value]:
			return &Error{Where: place(path, key), Key: key.Value, Reason: "it stands there twice"}
		}
		seen[key.Value] = true
		text, err := scalars(value)
		if err == nil && skip[o.Name] {
			continue
		}
		if err == nil {
			err = set(o.Value, text)
		}
		if err != nil {
			return &Error{Where: place(path, value), Key: key.Value, Reason: err.Error(), Legal: o.Legal()}
		}
		o.changed = true
	}
	return nil
}

func (t *Table) fileNames() []string {
	return slices.DeleteFunc(t.Names(), func(name string) bool { return !t.Lookup(name).InFile() })
}

// scalars is a value as text: a scalar, or a list of them joined with commas.
func scalars(n *yaml.Node) (string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return "", errors.New("it has no value; delete the line to use the default")
		}
		return n.Value, nil
	case yaml.SequenceNode:
		parts := make([]string, len(n.Content))
		for i, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return "", errors.New("the list holds something that is no plain value")
			}
			parts[i] = item.Value
		}
		return strings.Join(parts, ","), nil
	case yaml.AliasNode:
		return scalars(n.Alias)
	}
	return "", errors.New("it is neither a plain value nor a list")
}

func place(path string, n *yaml.Node) string { return fmt.Sprintf("%s:%d", path, n.Line) }

// reasonOf is an error without the path that the message names already.
func reasonOf(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
