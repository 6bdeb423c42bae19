// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"fmt"
	"slices"
	"strings"
)

// Selector finds label sets. All of its requirements have to hold; the zero
// Selector matches every set.
type Selector struct{ requirements []requirement }

type operator string

const (
	opExists    operator = "exists"
	opNotExists operator = "!"
	opIn        operator = "in"
	opNotIn     operator = "notin"
)

type requirement struct {
	source string // SourceAny: any source
	key    string
	op     operator
	values []string // sorted, distinct
}

// SelectorError says where a selector cannot be read.
type SelectorError struct {
	Selector string
	// At is the byte offset of the fault.
	At     int
	Reason string
}

// Error names the selector, the place and the reason.
func (e *SelectorError) Error() string {
	return fmt.Sprintf("selector %s, at byte %d: %s", Quote(e.Selector), e.At, e.Reason)
}

// ParseSelector reads a selector in kubectl's syntax: requirements joined by
// commas, each one of
//
//	key=value  key==value  key!=value  key in (a,b)  key notin (a,b)  key  !key
//
// A key may carry a source (k8s:app=web); without one, any source will do. As
// in Kubernetes, != and notin also hold for sets without the key. An empty
// selector matches everything. The error is a *SelectorError.
func ParseSelector(s string) (Selector, error) {
	p := selectorParser{text: s}
	p.space()
	if p.done() {
		return Selector{}, nil
	}
	var sel Selector
	for {
		r, err := p.requirement()
		if err != nil {
			return Selector{}, err
		}
		sel.requirements = append(sel.requirements, r)
		p.space()
		if p.done() {
			return sel, nil
		}
		if !p.take(",") {
			return Selector{}, p.fail(`a "," has to separate two requirements`)
		}
	}
}

// Matches reports whether the set meets every requirement.
func (sel Selector) Matches(s Set) bool {
	for _, r := range sel.requirements {
		if !r.matches(s) {
			return false
		}
	}
	return true
}

// Empty reports whether the selector matches every set.
func (sel Selector) Empty() bool { return len(sel.requirements) == 0 }

// String is a canonical form that ParseSelector reads back as the same selector.
func (sel Selector) String() string {
	parts := make([]string, len(sel.requirements))
	for i, r := range sel.requirements {
		key := r.source + ":" + r.key
		switch {
		case r.op == opExists:
			parts[i] = key
		case r.op == opNotExists:
			parts[i] = "!" + key
		default:
			parts[i] = fmt.Sprintf("%s %s (%s)", key, r.op, strings.Join(r.values, ","))
		}
	}
	return strings.Join(parts, ",")
}

func (r requirement) matches(s Set) bool {
	l, found := s.Get(r.key)
	found = found && (r.source == SourceAny || r.source == l.Source)
	switch r.op {
	case opExists:
		return found
	case opNotExists:
		return !found
	case opIn:
		return found && slices.Contains(r.values, l.Value)
	default:
		return !found || !slices.Contains(r.values, l.Value)
	}
}

type selectorParser struct {
	text string
	at   int
}

func (p *selectorParser) done() bool { return p.at == len(p.text) }

func (p *selectorParser) space() {
	for !p.done() && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

func (p *selectorParser) take(token string) bool {
	if !strings.HasPrefix(p.text[p.at:], token) {
		return false
	}
	p.at += len(token)
	return true
}

// until returns the text before the next byte of stop, or the rest.
func (p *selectorParser) until(stop string) string {
	rest := p.text[p.at:]
	if end := strings.IndexAny(rest, stop); end >= 0 {
		rest = rest[:end]
	}
	p.at += len(rest)
	return rest
}

func (p *selectorParser) fail(reason string) error {
	return &SelectorError{Selector: p.text, At: p.at, Reason: reason}
}

func (p *selectorParser) requirement() (requirement, error) {
	p.space()
	negated := p.take("!")
	if negated {
		p.space()
	}
	source, key := cutSource(p.until(" \t\r\n,()=!<>"))
	if source == "" {
		source = SourceAny
	}
	if key == "" {
		return requirement{}, p.fail("a label key is missing")
	}
	r := requirement{source: source, key: key, op: opExists}
	if negated {
		r.op = opNotExists
		return r, nil
	}
	return p.operator(r)
}

func (p *selectorParser) operator(r requirement) (requirement, error) {
	p.space()
	switch {
	case p.done() || p.text[p.at] == ',':
		return r, nil
	case p.take("!="):
		r.op = opNotIn
		return p.value(r)
	case p.take("==") || p.take("="):
		r.op = opIn
		return p.value(r)
	}
	start := p.at
	switch word := p.until(" \t\r\n,()=!<>"); operator(word) {
	case opIn, opNotIn:
		r.op = operator(word)
		return p.valueList(r)
	}
	p.at = start
	return requirement{}, p.fail("an operator has to follow the key: =, ==, !=, in, notin")
}

func (p *selectorParser) value(r requirement) (requirement, error) {
	p.space()
	r.values = []string{p.until(" \t\r\n,()")}
	return r, nil
}

func (p *selectorParser) valueList(r requirement) (requirement, error) {
	p.space()
	if !p.take("(") {
		return requirement{}, p.fail(`"(" has to follow in or notin`)
	}
	for {
		p.space()
		r.values = append(r.values, p.until(" \t\r\n,()"))
		p.space()
		if p.take(")") {
			break
		}
		if !p.take(",") {
			return requirement{}, p.fail(`"," or ")" has to follow a value`)
		}
	}
	slices.Sort(r.values)
	r.values = slices.Compact(r.values)
	return r, nil
}
