// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"encoding/json"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// vector is one black-box fact about Cilium; testdata/README.md says which
// groups run where.
type vector struct {
	ID, Group, Op, Note string
	Input, Expected     json.RawMessage
}

// jsonLabel is a label as the vectors spell it.
type jsonLabel struct {
	Source, Key, Value string
}

func toLabels(js []jsonLabel) []Label {
	ls := make([]Label, len(js))
	for i, j := range js {
		ls[i] = Label(j)
	}
	return ls
}

func readVectors(t *testing.T) []vector {
	t.Helper()
	data, err := os.ReadFile("testdata/cilium-1.20.2.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vectors
}

// runVectors decodes each vector of the group and compares f's answer with it.
func runVectors[In, Out any](t *testing.T, group string, f func(t *testing.T, in In) Out) {
	t.Run(group, func(t *testing.T) {
		ran := 0
		for _, v := range readVectors(t) {
			if v.Group != group {
				continue
			}
			ran++
			t.Run(v.ID, func(t *testing.T) {
				var in In
				var want Out
				decode(t, v.Input, &in)
				decode(t, v.Expected, &want)
				if diff := cmp.Diff(want, f(t, in)); diff != "" {
					t.Errorf("input %s (-want +got):\n%s", v.Input, diff)
				}
			})
		}
		if ran == 0 {
			t.Errorf("group %q has no vectors", group)
		}
	})
}

func decode(t *testing.T, raw json.RawMessage, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("vector %s: %v", raw, err)
	}
}

func TestVectorsParse(t *testing.T) {
	runVectors(t, "label-parse", func(_ *testing.T, in string) jsonLabel { return jsonLabel(Parse(in)) })
	runVectors(t, "label-parse-select", func(_ *testing.T, in string) jsonLabel { return jsonLabel(ParseSelect(in)) })
	runVectors(t, "label-string", func(_ *testing.T, in jsonLabel) string { return Label(in).String() })
}

func TestVectorsEncode(t *testing.T) {
	for _, v := range readVectors(t) {
		if v.Group != "kv-encode" {
			continue
		}
		t.Run(v.ID, func(t *testing.T) {
			switch v.Op {
			case "encode_labels":
				var in []jsonLabel
				var want string
				decode(t, v.Input, &in)
				decode(t, v.Expected, &want)
				if got := Encode(toLabels(in)); got != want {
					t.Errorf("Encode = %q, want %q", got, want)
				}
			case "labels_from_map":
				var in struct {
					Map    map[string]string
					Source string
				}
				var want []jsonLabel
				decode(t, v.Input, &in)
				decode(t, v.Expected, &want)
				if got, want := Encode(FromMap(in.Map, in.Source)), Encode(toLabels(want)); got != want {
					t.Errorf("FromMap = %q, want %q", got, want)
				}
			default:
				t.Errorf("unknown op %q", v.Op)
			}
		})
	}
	runVectors(t, "kv-decode", func(_ *testing.T, in string) []jsonLabel {
		got := []jsonLabel{}
		for _, l := range Decode(in) {
			got = append(got, jsonLabel(l))
		}
		return got
	})
	type keyInput struct {
		Labels map[string]string
		Source string
	}
	runVectors(t, "cid-key", func(_ *testing.T, in keyInput) []jsonLabel {
		got := []jsonLabel{}
		for _, l := range FromMap(in.Labels, in.Source) {
			got = append(got, jsonLabel(l))
		}
		// The vectors list them by source first; the encoding does not depend on it.
		slices.SortFunc(got, func(a, b jsonLabel) int { return compareStrings(a.Source+":"+a.Key, b.Source+":"+b.Key) })
		return got
	})
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestVectorsMaps(t *testing.T) {
	runVectors(t, "label-map", func(_ *testing.T, in []jsonLabel) map[string]string { return Map(toLabels(in)) })
	runVectors(t, "label-k8smap", func(_ *testing.T, in []jsonLabel) map[string]string { return KubernetesMap(toLabels(in)) })
}

func TestVectorsHas(t *testing.T) {
	type input struct {
		Labels []jsonLabel
		Query  string
	}
	has := func(_ *testing.T, in input) bool { return Has(toLabels(in.Labels), in.Query) }
	runVectors(t, "label-has", has)
	runVectors(t, "label-has-cidr", has)
}

func TestVectorsCIDR(t *testing.T) {
	type input struct {
		IPv4, IPv6 bool
		Prefix     string
	}
	runVectors(t, "cidr-labels", func(t *testing.T, in input) []string {
		p, err := netip.ParsePrefix(in.Prefix)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range (Families{IPv4: in.IPv4, IPv6: in.IPv6}).CIDRSet(p) {
			got = append(got, l.String())
		}
		slices.Sort(got)
		return got
	})
	runVectors(t, "ip-to-label", func(t *testing.T, in string) string {
		l, err := (Families{IPv4: true, IPv6: true}).ForAddress(in)
		if err != nil {
			t.Fatal(err)
		}
		return l.String()
	})
}

func TestVectorsFilter(t *testing.T) {
	type input struct {
		Prefixes []string
		Labels   []jsonLabel
	}
	runVectors(t, "filter", func(t *testing.T, in input) []string {
		f, err := NewFilter(in.Prefixes...)
		if err != nil {
			t.Fatal(err)
		}
		keys := []string{}
		for _, l := range f.Apply(toLabels(in.Labels)) {
			keys = append(keys, l.Key)
		}
		slices.Sort(keys)
		return keys
	})
	type one struct {
		Prefixes []string
		Label    jsonLabel
	}
	runVectors(t, "filter-one", func(t *testing.T, in one) bool {
		f, err := NewUncheckedFilter(in.Prefixes...)
		if err != nil {
			t.Fatal(err)
		}
		keep, _ := f.Keep(Label(in.Label))
		return keep
	})
	type exclude struct {
		Exclude []string
		Labels  map[string]string
	}
	runVectors(t, "filter-regex", func(t *testing.T, in exclude) map[string]string {
		for i := range in.Exclude {
			in.Exclude[i] = "!" + in.Exclude[i]
		}
		f, err := buildFilter(nil, in.Exclude)
		if err != nil {
			t.Fatal(err)
		}
		return KubernetesMap(f.Apply(FromMap(in.Labels, SourceK8s)))
	})
}
