// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSelector(t *testing.T) {
	set, err := ParseSet("k8s:app=web", "k8s:tier=", "cni:net=a=b", "reserved:init", "k8s:a:b=c")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		selector string
		want     bool
	}{
		{"", true},
		{"  ", true},
		{"app", true},
		{"!app", false},
		{"other", false},
		{"! other", true},
		{"app=web", true},
		{"app == web", true},
		{" app = web , tier = ", true},
		{"app=api", false},
		{"app!=api", true},
		{"app!=web", false},
		{"other!=x", true},
		{"k8s:app=web", true},
		{"any:app=web", true},
		{":app=web", true},
		{"cni:app=web", false},
		{"cni:app!=web", true},
		{"!cni:app", true},
		{"app in (api, web)", true},
		{"app in(api,web)", true},
		{"app in (api)", false},
		{"app notin (api,db)", true},
		{"app notin (web)", false},
		{"other notin (x)", true},
		{"tier in (,x)", true},
		{"tier", true},
		{"net=a=b", true},
		{"reserved:init", true},
		{"$init", true},
		{"k8s:init", false},
		{"k8s:a:b=c", true},
		{"app=web,other", false},
		{"in=x", false},
	}
	for _, tt := range tests {
		sel, err := ParseSelector(tt.selector)
		if err != nil {
			t.Errorf("ParseSelector(%q): %v", tt.selector, err)
			continue
		}
		if got := sel.Matches(set); got != tt.want {
			t.Errorf("%q matches = %v, want %v", tt.selector, got, tt.want)
		}
		again, err := ParseSelector(sel.String())
		if err != nil || again.String() != sel.String() {
			t.Errorf("%q: canonical form %q is read as %q, %v", tt.selector, sel, again, err)
		}
	}
	if !(Selector{}).Empty() {
		t.Error("the zero selector is not empty")
	}
}

func TestSelectorErrors(t *testing.T) {
	tests := map[string]int{
		",":            0,
		"app,":         4,
		"app=web,,x":   8,
		"=web":         0,
		"app web":      4,
		"app in web":   7,
		"app in (web":  11,
		"app in (a b)": 10,
		"app > 3":      4,
		"!":            1,
		"!app=web":     4,
		"app=web)":     7,
		"k8s:":         4,
		"app in (a)) ": 10,
		"app notin":    9,
		"app=a b":      6,
	}
	for text, at := range tests {
		_, err := ParseSelector(text)
		var e *SelectorError
		if !errors.As(err, &e) {
			t.Errorf("ParseSelector(%q) = %v, want *SelectorError", text, err)
			continue
		}
		if e.At != at || !strings.Contains(err.Error(), Quote(text)) {
			t.Errorf("ParseSelector(%q): %v, want the fault at byte %d", text, err, at)
		}
	}
}

// A selector's answer is that of its requirements, looked up by hand.
func TestSelectorEqualsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom([]string{"a", "b", "c"})
		source := rapid.SampledFrom([]string{"k8s", "cni"})
		own := map[string]Label{}
		for range rapid.IntRange(1, 3).Draw(t, "labels") {
			l := Label{source.Draw(t, "source"), word.Draw(t, "key"), word.Draw(t, "value")}
			own[l.Key] = l
		}
		var ls []Label
		for _, l := range own {
			ls = append(ls, l)
		}
		set, err := NewSet(ls...)
		if err != nil {
			t.Fatal(err)
		}
		var parts []string
		want := true
		for range rapid.IntRange(1, 3).Draw(t, "requirements") {
			src := rapid.SampledFrom([]string{"", "any", "k8s", "cni"}).Draw(t, "requirement source")
			key := word.Draw(t, "requirement key")
			values := rapid.SliceOfN(word, 1, 2).Draw(t, "values")
			op := rapid.SampledFrom([]string{"", "!", "=", "==", "!=", "in", "notin"}).Draw(t, "operator")
			l, has := own[key]
			has = has && (src == "" || src == "any" || src == l.Source)
			holds := map[string]bool{
				"": has, "!": !has, "=": has && l.Value == values[0], "==": has && l.Value == values[0],
				"!=": !has || l.Value != values[0],
				"in": has && slices.Contains(values, l.Value), "notin": !has || !slices.Contains(values, l.Value),
			}[op]
			want = want && holds
			parts = append(parts, write(src, key, op, values))
		}
		text := strings.Join(parts, ",")
		sel, err := ParseSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := sel.Matches(set); got != want {
			t.Fatalf("%q matches %q = %v, want %v", text, set, got, want)
		}
	})
}

func write(source, key, op string, values []string) string {
	if source != "" {
		key = source + ":" + key
	}
	switch op {
	case "":
		return key
	case "!":
		return "!" + key
	case "in", "notin":
		return key + " " + op + " (" + strings.Join(values, ", ") + ")"
	default:
		return key + op + values[0]
	}
}

func FuzzParseSelector(f *testing.F) {
	for _, s := range []string{"app=web", "k8s:app in (a,b),!c", "a notin (", "$host", "a!=", ",", "a>1"} {
		f.Add(s, "k8s:app=web;")
	}
	f.Fuzz(func(t *testing.T, text, labels string) {
		sel, err := ParseSelector(text)
		if err != nil {
			var e *SelectorError
			if !errors.As(err, &e) || e.At < 0 || e.At > len(text) {
				t.Fatalf("ParseSelector(%q): %v", text, err)
			}
			return
		}
		again, err := ParseSelector(sel.String())
		if err != nil || again.String() != sel.String() {
			t.Fatalf("%q: canonical form %q is read as %q, %v", text, sel, again, err)
		}
		if set, err := NewSet(Decode(labels)...); err == nil && sel.Matches(set) != again.Matches(set) {
			t.Fatalf("%q and its canonical form %q differ on %q", text, sel, set)
		}
	})
}
