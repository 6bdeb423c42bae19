// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

func TestNewSetCanonical(t *testing.T) {
	s, err := ParseSet("k8s:zone=z", "gen:io.cilium.k8s.named-ports=http.TCP.80", "k8s:app=a", "reserved:init", "k8s:Z=1")
	if err != nil {
		t.Fatal(err)
	}
	const want = "k8s:Z=1;k8s:app=a;reserved:init=;gen:io.cilium.k8s.named-ports=http.TCP.80;k8s:zone=z;"
	if s.Text() != want {
		t.Errorf("Text = %q, want %q", s.Text(), want)
	}
	if s.Len() != 5 || s.IsZero() {
		t.Errorf("Len = %d, IsZero = %v", s.Len(), s.IsZero())
	}
	if got := strings.Join(s.Strings(), " "); got != "k8s:Z=1 k8s:app=a reserved:init gen:io.cilium.k8s.named-ports=http.TCP.80 k8s:zone=z" {
		t.Errorf("Strings = %q", got)
	}
	if l, ok := s.Get("zone"); !ok || l != (Label{"k8s", "zone", "z"}) {
		t.Errorf("Get(zone) = %v, %v", l, ok)
	}
	if l, ok := s.Get("k8s:zone"); ok {
		t.Errorf("Get takes a key without source, got %v", l)
	}
	if !HasReserved(s) {
		t.Error("HasReserved = false")
	}
}

func TestZeroSet(t *testing.T) {
	var s Set
	if !s.IsZero() || s.Len() != 0 || len(s.Labels()) != 0 || s.Text() != "" || HasReserved(s) {
		t.Errorf("the zero set is not empty: %v", s.Labels())
	}
	if _, ok := s.Get(""); ok {
		t.Error("the zero set has a label")
	}
}

func TestSetStaysSmall(t *testing.T) {
	if size := unsafe.Sizeof(Set{}); size > unsafe.Sizeof("") {
		t.Errorf("a Set takes %d bytes beside its text, want no more than a string", size)
	}
}

// refusals are all the ways a label set can be wrong, each with the words that
// its message has to hold.
var refusals = []struct {
	name   string
	labels []Label
	code   Code
	words  []string
}{
	{"empty set", nil, CodeEmptySet, []string{"empty", "k8s:app=web"}},
	{"no source", []Label{{"unspec", "app", "web"}}, CodeNoSource, []string{`"app=web"`, `"k8s:app=web"`}},
	{"empty source", []Label{{"", "app", "web"}}, CodeBadSource, []string{`":app=web"`, "empty"}},
	{"slash in source", []Label{{"a/b", "app", "web"}}, CodeBadSource, []string{`"a/b:app=web"`}},
	{"colon in source", []Label{{"a:b", "app", "web"}}, CodeBadSource, []string{"source"}},
	{"semicolon in source", []Label{{"a;b", "app", "web"}}, CodeBadSource, []string{"source"}},
	{"equals in source", []Label{{"image=nginx", "1.2", ""}}, CodeBadSource, []string{`"image=nginx"`, `"k8s:image=nginx:1.2"`}},
	{"dollar source", []Label{{"$x", "app", ""}}, CodeBadSource, []string{"reserved"}},
	{"empty key", []Label{{"k8s", "", "web"}}, CodeEmptyKey, []string{`"k8s:=web"`}},
	{"equals in key", []Label{{"k8s", "a=b", "c"}}, CodeEqualsInKey, []string{`"k8s:a=b=c"`}},
	{"semicolon in key", []Label{{"k8s", "a;b", "c"}}, CodeSemicolon, []string{`"k8s:a;b=c"`}},
	{"semicolon in value", []Label{{"k8s", "a", "b;c"}}, CodeSemicolon, []string{`"k8s:a=b;c"`}},
	{"slashes in key", []Label{{"k8s", "a//b", ""}}, CodeSlashRun, []string{`"k8s:a//b"`}},
	{"slashes in value", []Label{{"k8s", "a", "http://b"}}, CodeSlashRun, []string{`"k8s:a=http://b"`}},
	{"not UTF-8 key", []Label{{"k8s", "a\xff", ""}}, CodeNotUTF8, []string{"UTF-8"}},
	{"not UTF-8 value", []Label{{"k8s", "a", "\xc3\x28"}}, CodeNotUTF8, []string{"UTF-8"}},
	{"not UTF-8 source", []Label{{"k\xff", "a", ""}}, CodeNotUTF8, []string{"UTF-8"}},
	{"NUL", []Label{{"k8s", "a", "b\x00c"}}, CodeControl, []string{"control"}},
	{"newline", []Label{{"k8s", "a\nb", ""}}, CodeControl, []string{"control"}},
	{"C1 control", []Label{{"k8s", "a", "\u0085"}}, CodeControl, []string{"control"}},
	{"one key twice", []Label{{"k8s", "a", "1"}, {"k8s", "b", ""}, {"k8s", "a", "2"}}, CodeDuplicateKey, []string{`"k8s:a=1"`, `"k8s:a=2"`}},
	{"one key, two sources", []Label{{"k8s", "a", "1"}, {"cni", "a", "1"}}, CodeDuplicateKey, []string{`"k8s:a=1"`, `"cni:a=1"`}},
	{"one label twice", []Label{{"k8s", "a", "1"}, {"k8s", "a", "1"}}, CodeDuplicateKey, []string{`"k8s:a=1"`}},
	{"too long", []Label{{"k8s", "a", strings.Repeat("x", MaxText)}}, CodeTooLong, []string{"32768", "32775"}},
	{"1 MiB", []Label{{"k8s", strings.Repeat("x", 1<<20), ""}}, CodeTooLong, []string{"32768"}},
}

func TestNewSetRefuses(t *testing.T) {
	for _, tt := range refusals {
		t.Run(tt.name, func(t *testing.T) {
			s, err := NewSet(tt.labels...)
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("NewSet = %q, %v; want *Error", s, err)
			}
			if !s.IsZero() {
				t.Errorf("a refused set is not zero: %q", s)
			}
			if e.Code != tt.code {
				t.Errorf("code = %v, want %v", e.Code, tt.code)
			}
			for _, word := range tt.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("message %q does not say %q", err, word)
				}
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the message is %d bytes long", len(err.Error()))
			}
			if strings.HasPrefix(e.Code.String(), "code-") {
				t.Errorf("code %d has no name", e.Code)
			}
		})
	}
}

// Every rule has a case above, or one in the tests of the function it belongs to.
func TestRefusalsAreComplete(t *testing.T) {
	elsewhere := []Code{CodeNotCanonical, CodeReservedMixed}
	for code := range codeNames {
		seen := slices.Contains(elsewhere, code)
		for _, tt := range refusals {
			seen = seen || tt.code == code
		}
		if !seen {
			t.Errorf("no test refuses for %v", code)
		}
	}
}

func TestMaxTextExactly(t *testing.T) {
	l := Label{"k8s", "a", ""}
	l.Value = strings.Repeat("x", MaxText-len(l.Text()))
	s, err := NewSet(l)
	if err != nil || len(s.Text()) != MaxText {
		t.Errorf("a text of exactly %d bytes: %v", MaxText, err)
	}
}

func TestUnusualButLegal(t *testing.T) {
	for _, s := range []string{
		"k8s:a=b:c", "k8s:a:b=c", "k8s:a=b=c", "k8s:/a", "k8s:a/", "k8s:a=/", "k8s:a=b/", "k8s:a=.", "k8s:..",
		"k8s:ä=ö", "k8s:$(ns)=x", "any:host=v", "cidr:10.0.0.0/8", "k8s:a b=c d", "k8s:$a",
	} {
		set, err := ParseSet(s)
		if err != nil {
			t.Errorf("ParseSet(%q): %v", s, err)
			continue
		}
		if again, err := ParseText(set.Text()); err != nil || again != set {
			t.Errorf("ParseText(%q) = %q, %v", set.Text(), again, err)
		}
	}
}

func TestParseTextRefuses(t *testing.T) {
	tests := map[string]Code{
		"":                         CodeEmptySet,
		";":                        CodeEmptySet,
		"k8s:a=b":                  CodeNotCanonical, // no ";" at the end
		"k8s:a;":                   CodeNotCanonical, // no "="
		"k8s:b=;k8s:a=;":           CodeNotCanonical, // not sorted
		"k8s:a=;;k8s:b=;":          CodeNotCanonical,
		";k8s:a=;":                 CodeNotCanonical,
		"k8s:a=;;":                 CodeNotCanonical,
		"$host=;":                  CodeNotCanonical,
		"reserved:=host;":          CodeNotCanonical,
		"a=b;":                     CodeNoSource,
		":a=b;":                    CodeNoSource,
		"k8s:=b;":                  CodeEmptyKey,
		"k8s:a=1;k8s:a=2;":         CodeDuplicateKey,
		"k8s:a=x//y;":              CodeSlashRun,
		"k8s:a=\x00;":              CodeControl,
		strings.Repeat("x", 1<<20): CodeTooLong,
		strings.Repeat(";", 1<<10): CodeEmptySet,
		"k8s:a=b; ":                CodeNoSource,
		"\xef\xbb\xbfk8s:a=b;":     0, // a byte order mark is part of the source's name
		"k8s:app=web;k8s:ns=shop;": 0,
	}
	for text, want := range tests {
		_, err := ParseText(text)
		var e *Error
		switch {
		case want == 0 && err != nil:
			t.Errorf("ParseText(%q): %v", text, err)
		case want != 0 && (!errors.As(err, &e) || e.Code != want):
			t.Errorf("ParseText(%s) = %v, want %v", Quote(text), err, want)
		}
	}
}

func TestQuote(t *testing.T) {
	if got := Quote("a\n"); got != `"a\n"` {
		t.Errorf("Quote = %s", got)
	}
	long := strings.Repeat("ö", 100)
	if got := Quote(long); !strings.HasSuffix(got, "… (200 bytes)") || strings.Contains(got, `\x`) {
		t.Errorf("Quote of a long text = %s", got)
	}
}

// anyLabel draws labels from few and nasty parts, so that collisions and
// refusals happen often.
func anyLabel(t *rapid.T) Label {
	part := rapid.OneOf(
		rapid.SampledFrom([]string{"", "a", "b", "a/b", "/", "//", "=", ";", ":", "$", ".", "unspec", "reserved", "\x00", "\xff", "app.kubernetes.io/name"}),
		rapid.StringMatching(`[a-z./:=]{0,6}`),
	)
	return Label{
		Source: rapid.OneOf(rapid.SampledFrom([]string{"k8s", "reserved", "cni", "any"}), part).Draw(t, "source"),
		Key:    part.Draw(t, "key"),
		Value:  part.Draw(t, "value"),
	}
}

// What NewSet takes is read back as the same labels, in whatever order they
// were given; what it refuses is refused in every order.
func TestSetRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ls := rapid.SliceOfN(rapid.Custom(anyLabel), 0, 5).Draw(t, "labels")
		s, err := NewSet(ls...)
		shuffled := rapid.Permutation(ls).Draw(t, "shuffled")
		other, otherErr := NewSet(shuffled...)
		if (err == nil) != (otherErr == nil) || s != other {
			t.Fatalf("the order changes the answer: %q %v, %q %v", s, err, other, otherErr)
		}
		if err != nil {
			return
		}
		if again, err := ParseText(s.Text()); err != nil || again != s {
			t.Fatalf("ParseText(%q) = %q, %v", s.Text(), again, err)
		}
		if again, err := ParseSet(s.Strings()...); err != nil || again != s {
			t.Fatalf("ParseSet(%q) = %q, %v", s.Strings(), again, err)
		}
		if got := s.Labels(); !slices.Equal(got, sortedByKey(ls)) {
			t.Fatalf("Labels = %q, want %q", got, sortedByKey(ls))
		}
		if s.Len() != len(ls) {
			t.Fatalf("Len = %d, want %d", s.Len(), len(ls))
		}
	})
}

// Different sets have different texts.
func TestTextIsInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.SliceOfN(rapid.Custom(anyLabel), 1, 3)
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		sa, errA := NewSet(a...)
		sb, errB := NewSet(b...)
		if errA != nil || errB != nil {
			return
		}
		if same := slices.Equal(sortedByKey(a), sortedByKey(b)); same != (sa == sb) {
			t.Fatalf("labels equal: %v, texts equal: %v (%q, %q)", same, sa == sb, sa, sb)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"k8s:app=web", "$host", "a", ":", "reserved:=x", "cidr:10.0.0.0/8", "k8s:a==", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l := Parse(s)
		if l.Source == "" {
			t.Fatalf("Parse(%q) has no source", s)
		}
		if sel := ParseSelect(s); sel.Key != l.Key || sel.Value != l.Value {
			t.Fatalf("Parse %v and ParseSelect %v differ in more than the source", l, sel)
		}
		if set, err := NewSet(l); err == nil && Parse(set.Strings()[0]) != l {
			t.Fatalf("%v is not read back from %q", l, set.Strings())
		}
	})
}

func FuzzParseText(f *testing.F) {
	for _, s := range []string{"k8s:app=web;k8s:ns=shop;", "k8s:a=;", "", ";;", "$host=;", "k8s:a=x//y;", "b;a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseText(text)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("error of an unknown type: %v", err)
			}
			return
		}
		if s.Text() != text || Encode(s.Labels()) != text || !slices.Equal(Decode(text), s.Labels()) {
			t.Fatalf("%q is accepted but not the text of its labels %q", text, s.Labels())
		}
	})
}

func BenchmarkParseText(b *testing.B) {
	const text = "k8s:app=web;k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=shop;k8s:io.cilium.k8s.policy.cluster=default;" +
		"k8s:io.cilium.k8s.policy.serviceaccount=web;k8s:io.kubernetes.pod.namespace=shop;"
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseText(text); err != nil {
			b.Fatal(err)
		}
	}
}
