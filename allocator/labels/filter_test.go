// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mustFilter(t *testing.T, entries ...string) Filter {
	t.Helper()
	f, err := NewFilter(entries...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestKeepSaysWhy(t *testing.T) {
	f := mustFilter(t, "k8s:!app", "id.*")
	tests := []struct {
		label string
		keep  bool
		why   string
	}{
		{"k8s:app=x", false, "k8s:!app"},
		{"cni:app=x", false, "no entry includes it, and the filter is an allow list"},
		{"k8s:id.a=x", true, "id.*"},
		{"k8s:pod-template-hash=x", false, "default !pod-template-hash"},
		{"k8s:io.kubernetes.pod.namespace=x", true, `default io\.kubernetes\.pod\.namespace`},
		{"reserved:host", true, "default reserved:.*"},
	}
	for _, tt := range tests {
		if keep, why := f.Keep(Parse(tt.label)); keep != tt.keep || why != tt.why {
			t.Errorf("Keep(%s) = %v, %q; want %v, %q", tt.label, keep, why, tt.keep, tt.why)
		}
	}
	if keep, why := DefaultFilter().Keep(Parse("k8s:app=x")); !keep || why != "no entry excludes it" {
		t.Errorf("default filter: %v, %q", keep, why)
	}
	if keep, _ := (Filter{}).Keep(Parse("k8s:pod-template-hash=x")); !keep {
		t.Error("the zero filter drops a label")
	}
}

// The shortest exclude and the longest include count, wherever they stand.
func TestShortestExcludeLongestInclude(t *testing.T) {
	for _, entries := range [][]string{{"!a", "!abc", "ab", "abx"}, {"!abc", "abx", "ab", "!a"}} {
		f := mustFilter(t, entries...)
		if keep, why := f.Keep(Parse("k8s:abc")); !keep || why != "ab" {
			t.Errorf("%q: Keep(abc) = %v, %q; want the include ab to win", entries, keep, why)
		}
		if keep, why := f.Keep(Parse("k8s:ac")); keep || why != "!a" {
			t.Errorf("%q: Keep(ac) = %v, %q; want the exclude !a to win", entries, keep, why)
		}
	}
}

func TestExplain(t *testing.T) {
	ls := []Label{Parse("k8s:app=x"), Parse("k8s:controller-uid=1")}
	r := NewRelevance(DefaultFilter())
	ds := r.Explain(ls)
	want := []Decision{
		{Label: ls[0], Kept: true, Rule: "no entry excludes it"},
		{Label: ls[1], Kept: false, Rule: "default !controller-uid"},
	}
	if !slices.Equal(ds, want) {
		t.Errorf("Explain = %v, want %v", ds, want)
	}
}

func TestRelevanceDerive(t *testing.T) {
	r := NewRelevance(DefaultFilter())
	s, err := r.Derive([]Label{Parse("k8s:pod-template-hash=1;2"), Parse("k8s:app=x")})
	if err != nil || s.Text() != "k8s:app=x;" {
		t.Errorf("a bad label that does not count is in the way: %q, %v", s, err)
	}
	for name, ls := range map[string][]Label{
		"everything dropped": {Parse("k8s:pod-template-hash=1")},
		"nothing given":      nil,
	} {
		_, err := r.Derive(ls)
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeEmptySet {
			t.Errorf("%s: %v, want code empty-set", name, err)
		}
		if dropped := strings.Contains(err.Error(), "filter"); dropped != (ls != nil) {
			t.Errorf("%s: message %q", name, err)
		}
	}
	if _, err := r.Derive([]Label{Parse("k8s:a=b;c")}); err == nil {
		t.Error("a relevant label with ; is taken")
	}
}

func TestWarnings(t *testing.T) {
	f := mustFilter(t, "pod-template-hash", "k8s:controller-uid$", "team", "kubernetes.io", "kubernetes.io/arch", "other.*")
	var got []string
	for _, w := range f.Warnings() {
		got = append(got, w.Entry)
		if w.Code != FilterNoEffect || !strings.Contains(w.Error(), "default !") {
			t.Errorf("warning %v does not name the entry in the way", w)
		}
	}
	if want := []string{"pod-template-hash", "k8s:controller-uid$", "kubernetes.io"}; !slices.Equal(got, want) {
		t.Errorf("warnings for %q, want %q", got, want)
	}
	if ws := DefaultFilter().Warnings(); len(ws) != 0 {
		t.Errorf("the default filter warns: %v", ws)
	}
}

func TestFilterFileRefuses(t *testing.T) {
	const reserved = `{"source":"reserved","prefix":".*"}`
	tests := map[string]struct {
		file string
		code FilterCode
	}{
		"not JSON":       {"labels: k8s", FilterBadFile},
		"other version":  {`{"version":2,"valid-prefixes":[` + reserved + `]}`, FilterBadFile},
		"no source":      {`{"version":1,"valid-prefixes":[{"prefix":"a"}]}`, FilterBadFile},
		"no prefix":      {`{"version":1,"valid-prefixes":[{"source":"k8s"}]}`, FilterBadFile},
		"pattern":        {`{"version":1,"valid-prefixes":[` + reserved + `,{"source":"k8s","prefix":"tier$"}]}`, FilterBadPattern},
		"bang":           {`{"version":1,"valid-prefixes":[` + reserved + `,{"source":"k8s","prefix":"!a"}]}`, FilterBangSource},
		"comma":          {`{"version":1,"valid-prefixes":[` + reserved + `,{"source":"k8s","prefix":"a,b"}]}`, FilterComma},
		"reserved lost":  {`{"version":1,"valid-prefixes":[{"source":"k8s","prefix":"a"}]}`, FilterReservedLost},
		"reserved out":   {`{"version":1,"valid-prefixes":[{"source":"reserved","prefix":".*","invert":true}]}`, FilterReservedLost},
		"more than 1MiB": {strings.Repeat(" ", 1<<20+1), FilterBadFile},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ParseFilterFile(strings.NewReader(tt.file))
			var e *FilterError
			if !errors.As(err, &e) || e.Code != tt.code {
				t.Errorf("error = %v, want %v", err, tt.code)
			}
		})
	}
	if _, err := ParseFilterFile(io.MultiReader(strings.NewReader("{"), brokenReader{})); err == nil {
		t.Error("a reader that fails is taken for a file")
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestFilterFile(t *testing.T) {
	f, err := ParseFilterFile(strings.NewReader(`{"version":1,"valid-prefixes":[
		{"source":"reserved","prefix":".*"},{"source":"k8s","prefix":"app.io"},{"source":"k8s","prefix":"app.io/x","invert":true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for label, want := range map[string]bool{
		"reserved:host": true, "k8s:app.io": true, "k8s:app.io/y": true, "k8s:app.io/x": false, "k8s:appXio": false,
		"cni:app.io": false, "k8s:io.kubernetes.pod.namespace": false,
	} {
		if keep, why := f.Keep(Parse(label)); keep != want {
			t.Errorf("Keep(%s) = %v (%s), want %v", label, keep, why, want)
		}
	}
	if !f.AllowList() || len(f.Entries()) != 3 {
		t.Errorf("AllowList = %v, entries = %q", f.AllowList(), f.Entries())
	}
}

// naiveKeep is the rule as the documentation puts it, without any shortcut.
func naiveKeep(userIncludes bool, entries []string, l Label) bool {
	var includes, excludes []int
	for _, entry := range entries {
		source, pattern := "", entry
		if i := strings.Index(entry, ":"); i >= 0 {
			source, pattern = entry[:i], entry[i+1:]
		}
		if source != "" && source != l.Source {
			continue
		}
		bang := strings.HasPrefix(pattern, "!")
		anchored := regexp.MustCompile(`^(?:` + strings.TrimPrefix(pattern, "!") + `)`)
		match := anchored.FindString(l.Key)
		if !anchored.MatchString(l.Key) {
			continue
		}
		if bang {
			excludes = append(excludes, len(match))
		} else {
			includes = append(includes, len(match))
		}
	}
	longest, shortest := 0, 0
	if len(includes) > 0 {
		longest = slices.Max(includes)
	}
	if len(excludes) > 0 {
		shortest = slices.Min(excludes)
	}
	return longest > shortest || !userIncludes && shortest == 0
}

func TestFilterEqualsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.SampledFrom([]string{"a", "ab", "abc", "a.*", ".*b", "b|ab", "a+", `a\.b`, "io.kubernetes", "app", "kubernetes.io/x"})
		user := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			source := rapid.SampledFrom([]string{"", ":", "k8s:", "cni:"}).Draw(t, "source")
			bang := rapid.SampledFrom([]string{"", "!"}).Draw(t, "bang")
			return source + bang + pattern.Draw(t, "pattern")
		}), 0, 7).Draw(t, "entries")
		f, err := NewFilter(user...)
		if err != nil {
			t.Fatal(err)
		}
		userIncludes := slices.ContainsFunc(user, func(e string) bool { return !strings.Contains(e, "!") })
		l := Label{
			Source: rapid.SampledFrom([]string{"k8s", "cni", "reserved"}).Draw(t, "label source"),
			Key: rapid.OneOf(rapid.StringMatching(`[ab.]{1,4}`), rapid.SampledFrom([]string{
				"app.kubernetes.io/x", "io.kubernetes.pod.namespace", "io.kubernetes.x", "kubernetes.io/x/y", "pod-template-hash", "controller-uid-2",
			})).Draw(t, "key"),
		}
		want := naiveKeep(userIncludes, append(DefaultEntries(), user...), l)
		keep, why := f.Keep(l)
		if keep != want {
			t.Fatalf("Keep(%v) with %q = %v (%s), want %v", l, user, keep, why, want)
		}
		if got := len(f.Apply([]Label{l})) == 1; got != keep {
			t.Fatalf("Apply and Keep differ for %v", l)
		}
	})
}

func FuzzNewFilter(f *testing.F) {
	for _, s := range []string{"k8s:!app", "!k8s:app", "a,b", "a{1,3}", "(", "", ":", "k8s:", "a b", "x*"} {
		f.Add(s, "k8s:app")
	}
	f.Fuzz(func(t *testing.T, entry, label string) {
		filter, err := NewFilter(entry)
		if err != nil {
			var e *FilterError
			if !errors.As(err, &e) || e.Entry != entry {
				t.Fatalf("error %v does not name the entry %q", err, entry)
			}
			return
		}
		unchecked, err := NewUncheckedFilter(entry)
		if err != nil {
			t.Fatalf("only the strict filter takes %q: %v", entry, err)
		}
		l := Parse(label)
		keep, why := filter.Keep(l)
		if other, _ := unchecked.Keep(l); other != keep || why == "" {
			t.Fatalf("Keep(%v) = %v %q, unchecked %v", l, keep, why, other)
		}
		filter.Warnings()
	})
}

func FuzzParseFilterFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"valid-prefixes":[{"source":"reserved","prefix":".*"},{"source":"k8s","prefix":"a","invert":true}]}`))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		filter, err := ParseFilterFile(strings.NewReader(string(data)))
		if err != nil {
			return
		}
		if keep, _ := filter.Keep(Label{Source: SourceReserved, Key: "host"}); !keep {
			t.Fatalf("a file that loses reserved labels is taken: %s", data)
		}
	})
}

func BenchmarkApplyDefault(b *testing.B) {
	f := DefaultFilter()
	var ls []Label
	for i := range 15 {
		ls = append(ls, Label{SourceK8s, fmt.Sprintf("example.com/label-%d", i), "v"})
	}
	b.ReportAllocs()
	for b.Loop() {
		f.Apply(ls)
	}
}
