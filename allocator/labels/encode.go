// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"slices"
	"strings"
)

// Encode writes labels in the stored form without any check: sorted by the
// bytes of their keys, each as source:key=value;. Labels with equal keys keep
// their order. Use NewSet for what is to be stored; Encode is for comparing
// with what others have written.
func Encode(ls []Label) string {
	sorted := sortedByKey(ls)
	var b strings.Builder
	b.Grow(textLen(sorted))
	for _, l := range sorted {
		b.WriteString(l.Source)
		b.WriteByte(':')
		b.WriteString(l.Key)
		b.WriteByte('=')
		b.WriteString(l.Value)
		b.WriteByte(';')
	}
	return b.String()
}

// Decode reads stored text as leniently as Cilium does: empty parts are
// dropped, the last ";" and each "=" may be missing, the stored order is kept,
// nothing is refused. Use ParseText to know whether text is canonical.
func Decode(text string) []Label {
	ls := make([]Label, 0, strings.Count(text, ";")+1)
	for part := range strings.SplitSeq(text, ";") {
		if part != "" {
			ls = append(ls, Parse(part))
		}
	}
	return ls
}

// FromMap turns a map whose keys are "source:key" or "key" into labels sorted
// by key. A source that is not empty replaces the one inside each key.
func FromMap(m map[string]string, source string) []Label {
	ls := make([]Label, 0, len(m))
	for k, v := range m {
		src, key := cutSource(k)
		switch {
		case source != "":
			src = source
		case src == "":
			src = SourceUnspec
		}
		ls = append(ls, Label{Source: src, Key: key, Value: v})
	}
	slices.SortFunc(ls, func(a, b Label) int {
		if c := strings.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return strings.Compare(a.Source, b.Source)
	})
	return ls
}

// Map gives "source:key" → value, the form of a CiliumIdentity's security-labels.
func Map(ls []Label) map[string]string {
	m := make(map[string]string, len(ls))
	for _, l := range ls {
		m[l.Source+":"+l.Key] = l.Value
	}
	return m
}

// KubernetesMap gives keys as a Kubernetes object can carry them: the bare key
// for the sources k8s, any and unspec, "source.key" for every other one.
func KubernetesMap(ls []Label) map[string]string {
	m := make(map[string]string, len(ls))
	for _, l := range ls {
		switch l.Source {
		case SourceK8s, SourceAny, SourceUnspec:
			m[l.Key] = l.Value
		default:
			m[l.Source+"."+l.Key] = l.Value
		}
	}
	return m
}

// Has reports whether one of the labels is what the query names (Label.Matches);
// a query without a source means any source.
func Has(ls []Label, query string) bool {
	q := ParseSelect(query)
	return slices.ContainsFunc(ls, func(l Label) bool { return l.Matches(q) })
}

func sortedByKey(ls []Label) []Label {
	sorted := slices.Clone(ls)
	slices.SortStableFunc(sorted, func(a, b Label) int { return strings.Compare(a.Key, b.Key) })
	return sorted
}

// textLen is the length of the stored form in bytes.
func textLen(ls []Label) int {
	n := 0
	for _, l := range ls {
		n += len(l.Source) + len(l.Key) + len(l.Value) + len(":=;")
	}
	return n
}
