// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"fmt"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxText is the longest label set text in bytes. The text is part of an etcd
// key, so it stays far below etcd's request limit.
const MaxText = 32 << 10

// Set is an immutable label set: one or more labels with distinct keys, sorted
// by key. It holds nothing but its text, so that a million of them stay small;
// two sets are equal (==) exactly if their texts are. The zero Set has no
// labels and cannot be stored.
type Set struct{ text string }

// NewSet makes a label set. It refuses, with *Error, what cannot be stored and
// read back as the same labels: an empty set, a label without a source, an
// unusable source, an empty key or one with "=", ";" in key or value, "//",
// bytes that are not UTF-8, control characters, two labels with one key, and a
// text longer than MaxText.
func NewSet(ls ...Label) (Set, error) {
	if len(ls) == 0 {
		return Set{}, &Error{Code: CodeEmptySet, Reason: "it is empty; give at least one label such as k8s:app=web"}
	}
	if n := textLen(ls); n > MaxText {
		return Set{}, &Error{Code: CodeTooLong, Reason: fmt.Sprintf(
			"its text is %d bytes long, the limit is %d; drop labels that no policy needs", n, MaxText)}
	}
	for _, l := range ls {
		if err := check(l); err != nil {
			return Set{}, err
		}
	}
	sorted := sortedByKey(ls)
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Key == sorted[i-1].Key {
			return Set{}, refuse(CodeDuplicateKey, sorted[i],
				"its key is also that of %s; keep one of them, a key stands once whatever its source", Quote(sorted[i-1].String()))
		}
	}
	return Set{text: Encode(sorted)}, nil
}

// ParseSet reads labels in their human form (Parse) and makes a set of them
// (NewSet).
func ParseSet(ss ...string) (Set, error) {
	ls := make([]Label, len(ss))
	for i, s := range ss {
		ls[i] = Parse(s)
	}
	return NewSet(ls...)
}

// ParseText reads stored text and accepts exactly what Set.Text returns:
// sorted, every "=" and ";" in place, and each label one that NewSet takes.
// Everything else is refused with *Error.
func ParseText(text string) (Set, error) {
	s, err := NewSet(Decode(text)...)
	if err != nil {
		return Set{}, err
	}
	if s.text != text {
		return Set{}, &Error{Code: CodeNotCanonical, Label: text,
			Reason: fmt.Sprintf("the stored text is not in canonical form, which is %s", Quote(s.text))}
	}
	return s, nil
}

// Text is the stored form; it costs nothing.
func (s Set) Text() string { return s.text }

// String is the text, for messages.
func (s Set) String() string { return s.text }

// IsZero reports whether s is the zero Set, which has no labels.
func (s Set) IsZero() bool { return s.text == "" }

// Len is the number of labels.
func (s Set) Len() int { return strings.Count(s.text, ";") }

// All yields the labels sorted by key.
func (s Set) All() iter.Seq[Label] {
	return func(yield func(Label) bool) {
		for rest := s.text; rest != ""; {
			var part string
			part, rest, _ = strings.Cut(rest, ";")
			source, pair, _ := strings.Cut(part, ":")
			key, value, _ := strings.Cut(pair, "=")
			if !yield(Label{Source: source, Key: key, Value: value}) {
				return
			}
		}
	}
}

// Labels returns the labels sorted by key, in a slice of the caller's own.
func (s Set) Labels() []Label {
	ls := make([]Label, 0, s.Len())
	for l := range s.All() {
		ls = append(ls, l)
	}
	return ls
}

// Strings returns the labels in their human form, sorted by key.
func (s Set) Strings() []string {
	ss := make([]string, 0, s.Len())
	for l := range s.All() {
		ss = append(ss, l.String())
	}
	return ss
}

// Get returns the label with that key; the key carries no source.
func (s Set) Get(key string) (Label, bool) {
	for l := range s.All() {
		if l.Key == key {
			return l, true
		}
	}
	return Label{}, false
}

// HasReserved reports whether a label of the set has the source "reserved".
func HasReserved(s Set) bool {
	for l := range s.All() {
		if l.Source == SourceReserved {
			return true
		}
	}
	return false
}

// CheckPublic says whether a caller from outside may ask for the set: one that
// mixes the source "reserved" with others is refused with *Error, because only
// the system itself may say that a workload is a host or a node. A set of
// nothing but reserved labels passes; package identity knows which of those
// have a number. Keys of the system's name space (SystemPrefix, KeyNamespace)
// pass too: who runs the allocator may set them, and the sources of workloads
// strip them from what a tenant wrote before they get here.
func CheckPublic(s Set) error {
	var reserved, other Label
	for l := range s.All() {
		if l.Source == SourceReserved {
			reserved = l
		} else {
			other = l
		}
	}
	if reserved.Key == "" || other.Key == "" {
		return nil
	}
	return refuse(CodeReservedMixed, reserved,
		`labels of source "reserved" cannot be mixed with others such as %s; drop the reserved label or ask for it alone`,
		Quote(other.String()))
}

// check applies the rules for a single label.
func check(l Label) error {
	if err := checkSource(l); err != nil {
		return err
	}
	switch {
	case l.Key == "":
		return refuse(CodeEmptyKey, l, "it has no key; write source:key=value")
	case strings.Contains(l.Key, "="):
		return refuse(CodeEqualsInKey, l, `the key must not hold "="; the first "=" ends the key`)
	case strings.Contains(l.Key, ";") || strings.Contains(l.Value, ";"):
		return refuse(CodeSemicolon, l, `key and value must not hold ";", which ends a label; use another character`)
	case strings.Contains(l.Key, "//") || strings.Contains(l.Value, "//"):
		return refuse(CodeSlashRun, l, `it must not hold "//", which would collapse to "/" in the reference key; use a single "/"`)
	}
	for _, part := range [...]string{l.Source, l.Key, l.Value} {
		if !utf8.ValidString(part) {
			return refuse(CodeNotUTF8, l, "it is not valid UTF-8; encode it")
		}
		if strings.IndexFunc(part, unicode.IsControl) >= 0 {
			return refuse(CodeControl, l, "it holds a control character; remove it")
		}
	}
	return nil
}

func checkSource(l Label) error {
	switch {
	case l.Source == SourceUnspec:
		bare := strings.TrimPrefix(l.String(), SourceUnspec+":")
		return &Error{Code: CodeNoSource, Label: bare,
			Reason: fmt.Sprintf("it names no source; write %s if it is a Kubernetes label", Quote(SourceK8s+":"+bare))}
	case l.Source == "":
		return refuse(CodeBadSource, l, "its source is empty; write source:key=value, e.g. k8s:app=web")
	case strings.HasPrefix(l.Source, "$"):
		return refuse(CodeBadSource, l, `a source must not start with "$", which stands for the source "reserved"`)
	case strings.Contains(l.Source, "="):
		return refuse(CodeBadSource, l, `its source %s holds "="; the source ends at the first ":", so put one in front: %s`,
			Quote(l.Source), Quote(SourceK8s+":"+l.String()))
	case strings.ContainsAny(l.Source, "/:;"):
		return refuse(CodeBadSource, l, `a source must not hold "/", ":" or ";"; use a plain word such as k8s`)
	}
	return nil
}
