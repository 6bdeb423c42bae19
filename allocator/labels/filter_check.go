// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// FilterCode says what is wrong with a filter entry.
type FilterCode int

// What can be wrong with an entry.
const (
	// FilterEmptyPattern: nothing to match.
	FilterEmptyPattern FilterCode = iota + 1
	// FilterBadPattern: not a regular expression; in a file, not a plain prefix.
	FilterBadPattern
	// FilterComma: several entries in one, joined by commas.
	FilterComma
	// FilterBangSource: "!" in front of the source instead of behind it.
	FilterBangSource
	// FilterNoEffect: an include that an exclude always beats.
	FilterNoEffect
	// FilterBadFile: the file is not JSON, of another version, or misses a field.
	FilterBadFile
	// FilterReservedLost: the filter would drop the labels of the source "reserved".
	FilterReservedLost
)

var filterCodeNames = map[FilterCode]string{
	FilterEmptyPattern: "empty-pattern",
	FilterBadPattern:   "bad-pattern",
	FilterComma:        "comma",
	FilterBangSource:   "bang-before-source",
	FilterNoEffect:     "no-effect",
	FilterBadFile:      "bad-file",
	FilterReservedLost: "reserved-lost",
}

// String is the code as JSON shows it, e.g. "bad-pattern".
func (c FilterCode) String() string {
	if name, ok := filterCodeNames[c]; ok {
		return name
	}
	return "code-" + strconv.Itoa(int(c))
}

// FilterError names the entry of a label filter that cannot be used, and why.
type FilterError struct {
	Code   FilterCode
	Entry  string
	Reason string
}

// Error names the entry and the reason.
func (e *FilterError) Error() string {
	if e.Entry == "" {
		return "label filter: " + e.Reason
	}
	return fmt.Sprintf("label filter entry %s: %s", Quote(e.Entry), e.Reason)
}

// lintEntry finds entries that are legal but cannot be meant.
func lintEntry(entry string) error {
	source, pattern, found := strings.Cut(entry, ":")
	if rest, bang := strings.CutPrefix(source, "!"); found && bang {
		return &FilterError{Code: FilterBangSource, Entry: entry, Reason: fmt.Sprintf(
			`"!" comes after the source; write %s`, Quote(rest+":!"+strings.TrimPrefix(pattern, "!")))}
	}
	if hasComma(entry) {
		return &FilterError{Code: FilterComma, Entry: entry, Reason: fmt.Sprintf(
			"a label key holds no comma; give each as an entry of its own: %s", Quote(strings.ReplaceAll(entry, ",", " ")))}
	}
	if strings.ContainsAny(entry, " \t\r\n") {
		return &FilterError{Code: FilterBadPattern, Entry: entry,
			Reason: "a label key holds no white space; give each entry on its own"}
	}
	return nil
}

// hasComma reports a comma outside a repetition such as {1,3}.
func hasComma(s string) bool {
	depth := 0
	for _, r := range s {
		switch r {
		case '{':
			depth++
		case '}':
			depth--
		case ',':
			if depth <= 0 {
				return true
			}
		}
	}
	return false
}

// Warnings names the includes that can never keep a label, because an exclude
// that is no longer than they are matches the same keys: equal length means
// dropped. Only plain prefixes are judged.
func (f Filter) Warnings() []*FilterError {
	var found []*FilterError
	for _, r := range f.rules {
		if r.exclude || strings.HasPrefix(r.text, "default ") {
			continue
		}
		key, plain := plainKey(r.pattern)
		if !plain {
			continue
		}
		source := r.source
		if source == "" {
			source = SourceK8s
		}
		if keep, why := f.Keep(Label{Source: source, Key: key}); !keep {
			found = append(found, &FilterError{Code: FilterNoEffect, Entry: r.text, Reason: fmt.Sprintf(
				"it has no effect: the entry %s drops the same labels, and an include wins only if it is longer", Quote(why))})
		}
	}
	return found
}

// plainKey is the one key that a pattern without operators stands for.
func plainKey(pattern string) (string, bool) {
	key := strings.TrimSuffix(strings.ReplaceAll(pattern, `\.`, "."), "$")
	return key, !strings.ContainsAny(key, operators)
}

const operators = `^$*+?()[]{}|\`

// filterFile is the file format of Cilium's label-prefix-file.
type filterFile struct {
	Version  int          `json:"version"`
	Prefixes []filePrefix `json:"valid-prefixes"`
}

type filePrefix struct {
	Source string `json:"source"`
	Prefix string `json:"prefix"`
	Invert bool   `json:"invert"`
}

func (p filePrefix) entry() string {
	if p.Invert {
		return p.Source + ":!" + p.Prefix
	}
	return p.Source + ":" + p.Prefix
}

// ParseFilterFile reads a filter from Cilium's file format, at most 1 MiB:
//
//	{"version":1,"valid-prefixes":[{"source":"k8s","prefix":"app","invert":false}]}
//
// The file replaces the default entries. Its prefixes are plain text, not
// patterns, except ".*" for every key of a source; a prefix with a pattern's
// operators would match nothing and is refused. An include makes an allow list,
// as on the command line. A filter that would drop the reserved labels is
// refused. All refusals are *FilterError.
func ParseFilterFile(r io.Reader) (Filter, error) {
	const most = 1 << 20
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return Filter{}, fmt.Errorf("read label filter file: %w", err)
	}
	if len(data) > most {
		return Filter{}, &FilterError{Code: FilterBadFile, Reason: "the file is larger than 1 MiB"}
	}
	var file filterFile
	if err := json.Unmarshal(data, &file); err != nil {
		return Filter{}, &FilterError{Code: FilterBadFile, Reason: fmt.Sprintf("the file is not the expected JSON: %v", err)}
	}
	if file.Version != 1 {
		return Filter{}, &FilterError{Code: FilterBadFile, Reason: fmt.Sprintf("the file's version is %d, only 1 is known", file.Version)}
	}
	var f Filter
	for _, p := range file.Prefixes {
		r, err := p.rule()
		if err != nil {
			return Filter{}, err
		}
		f.allowList = f.allowList || !r.exclude
		f.rules = append(f.rules, r)
	}
	if keep, why := f.Keep(Label{Source: SourceReserved, Key: "host"}); !keep {
		return Filter{}, &FilterError{Code: FilterReservedLost, Entry: why, Reason: `it loses labels of the source "reserved", so ` +
			`hosts and nodes would lose their numbers; add {"source":"reserved","prefix":".*"}`}
	}
	return f, nil
}

func (p filePrefix) rule() (rule, error) {
	switch {
	case p.Source == "" || p.Prefix == "":
		return rule{}, &FilterError{Code: FilterBadFile, Entry: p.entry(), Reason: "source and prefix have to be given"}
	case strings.HasPrefix(p.Source, "!") || strings.HasPrefix(p.Prefix, "!"):
		return rule{}, &FilterError{Code: FilterBangSource, Entry: p.entry(), Reason: `a file says "invert": true instead of "!"`}
	case hasComma(p.Prefix):
		return rule{}, &FilterError{Code: FilterComma, Entry: p.entry(), Reason: "a label key holds no comma; give each as an entry of its own"}
	case p.Prefix != ".*" && strings.ContainsAny(p.Prefix, operators):
		return rule{}, &FilterError{Code: FilterBadPattern, Entry: p.entry(), Reason: "a file holds plain prefixes, not patterns; " +
			"write the prefix without operators, or give the pattern as a command-line entry"}
	}
	r := rule{text: p.entry(), source: p.Source, exclude: p.Invert, pattern: p.Prefix, match: prefixMatcher(p.Prefix)}
	if p.Prefix == ".*" {
		r.match = func(key string) (int, bool) { return len(key), true }
	} else {
		r.pattern = regexp.QuoteMeta(p.Prefix)
	}
	return r, nil
}
