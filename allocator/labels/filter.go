// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"fmt"
	"regexp"
	"strings"
)

// Filter decides which labels count for an identity. It is immutable, and its
// decisions are those of Cilium 1.20 for the same entries.
//
// An entry is an optional "source:", an optional "!" (exclude), and a regular
// expression that has to match from the first byte of the key. Over all entries
// that match a label, I is the length of the longest include match and X that
// of the shortest exclude match. The label is kept if I > X, or if nothing
// excludes it and the user gave no include of their own: one include turns the
// filter into an allow list.
//
// The zero Filter keeps everything.
type Filter struct {
	rules     []rule
	allowList bool
}

type rule struct {
	text    string // as a person wrote it; shown as the reason of a decision
	source  string // empty: any source
	pattern string
	exclude bool
	match   func(key string) (length int, ok bool)
}

// DefaultsRelease is the Cilium release whose default entries are built in. A
// newer list would renumber workloads, so it never replaces this one silently.
const DefaultsRelease = "1.20.2"

// DefaultEntries are the entries that every filter starts with unless a file
// replaces them. The includes among them do not make an allow list.
func DefaultEntries() []string {
	return []string{
		`reserved:.*`,
		`io\.kubernetes\.pod\.namespace`,
		`io\.cilium\.k8s\.namespace\.labels`,
		`app\.kubernetes\.io`,
		`io\.cilium\.k8s\.policy\.cluster`,
		`io\.cilium\.k8s\.policy\.serviceaccount`,
		`!io\.kubernetes`,
		`!kubernetes\.io`,
		`!statefulset\.kubernetes\.io/pod-name`,
		`!apps\.kubernetes\.io/pod-index`,
		`!batch\.kubernetes\.io/job-completion-index`,
		`!batch\.kubernetes\.io/controller-uid`,
		`!.*beta\.kubernetes\.io`,
		`!k8s\.io`,
		`!pod-template-generation`,
		`!pod-template-hash`,
		`!controller-revision-hash`,
		`!controller-uid`,
		`!annotation.*`,
		`!etcd_node`,
		`!topology\.kubernetes\.io`,
	}
}

// DefaultFilter is the filter of someone who configured nothing.
func DefaultFilter() Filter {
	f, err := buildFilter(DefaultEntries(), nil)
	if err != nil {
		panic(fmt.Sprintf("labels: a built-in filter entry is broken: %v", err))
	}
	return f
}

// NewFilter is DefaultFilter plus the given entries. Entries that cannot mean
// what their author meant are refused with *FilterError: several entries in one
// joined by commas, "!" in front of the source, an empty or invalid pattern.
func NewFilter(entries ...string) (Filter, error) {
	for _, entry := range entries {
		if err := lintEntry(entry); err != nil {
			return Filter{}, err
		}
	}
	return NewUncheckedFilter(entries...)
}

// NewUncheckedFilter is NewFilter without its help: it takes what Cilium takes
// and decides as Cilium does, traps included. "!k8s:app" is then an include for
// the source "!k8s". It is for comparing with a running Cilium.
func NewUncheckedFilter(entries ...string) (Filter, error) {
	return buildFilter(DefaultEntries(), entries)
}

func buildFilter(defaults, user []string) (Filter, error) {
	var f Filter
	for i, entry := range append(defaults, user...) {
		r, err := parseEntry(entry)
		if err != nil {
			return Filter{}, err
		}
		if i < len(defaults) {
			r.text = "default " + entry
		} else if !r.exclude {
			f.allowList = true
		}
		f.rules = append(f.rules, r)
	}
	return f, nil
}

func parseEntry(entry string) (rule, error) {
	source, pattern, found := strings.Cut(entry, ":")
	if !found {
		source, pattern = "", entry
	}
	r := rule{text: entry, source: source}
	r.pattern, r.exclude = strings.CutPrefix(pattern, "!")
	if r.pattern == "" {
		return rule{}, &FilterError{Code: FilterEmptyPattern, Entry: entry, Reason: "it has no pattern; write [source:][!]pattern"}
	}
	re, err := regexp.Compile(r.pattern)
	if err != nil {
		return rule{}, &FilterError{Code: FilterBadPattern, Entry: entry, Reason: fmt.Sprintf("its pattern is not a regular expression: %v", err)}
	}
	r.match = matcher(re)
	return r, nil
}

// matcher returns the length of a match at offset 0. Most patterns are plain
// prefixes, which need no regular expression.
func matcher(re *regexp.Regexp) func(string) (int, bool) {
	if literal, whole := re.LiteralPrefix(); whole {
		return prefixMatcher(literal)
	}
	return func(key string) (int, bool) {
		at := re.FindStringIndex(key)
		if at == nil || at[0] != 0 {
			return 0, false
		}
		return at[1], true
	}
}

func prefixMatcher(prefix string) func(string) (int, bool) {
	return func(key string) (int, bool) { return len(prefix), strings.HasPrefix(key, prefix) }
}

// Keep decides about one label and says which entry decided: the entry as it
// was written, "default " in front of a built-in one, or a sentence when no
// entry matches.
func (f Filter) Keep(l Label) (keep bool, why string) {
	included, excluded := 0, 0
	var include, exclude string
	for _, r := range f.rules {
		if r.source != "" && r.source != l.Source {
			continue
		}
		n, ok := r.match(l.Key)
		switch {
		case !ok:
		case r.exclude && (excluded == 0 || n < excluded):
			excluded, exclude = n, r.text
		case !r.exclude && n > included:
			included, include = n, r.text
		}
	}
	switch {
	case included > excluded:
		return true, include
	case excluded > 0:
		return false, exclude
	case f.allowList:
		return false, "no entry includes it, and the filter is an allow list"
	default:
		return true, "no entry excludes it"
	}
}

// Apply returns the labels that the filter keeps, in their order.
func (f Filter) Apply(ls []Label) []Label {
	kept := make([]Label, 0, len(ls))
	for _, l := range ls {
		if keep, _ := f.Keep(l); keep {
			kept = append(kept, l)
		}
	}
	return kept
}

// Entries are the filter's entries as they were written, in order; built-in
// ones carry "default " in front.
func (f Filter) Entries() []string {
	entries := make([]string, len(f.rules))
	for i, r := range f.rules {
		entries[i] = r.text
	}
	return entries
}

// AllowList reports whether only included labels are kept.
func (f Filter) AllowList() bool { return f.allowList }
