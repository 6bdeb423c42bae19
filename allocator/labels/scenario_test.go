// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A label whose key is a word that Cilium reserves keeps its source in the
// stored text, so nothing can take it for the reserved label.
func TestScenario_K01_ReservedWordsAsKeys(t *testing.T) {
	for _, word := range []string{"host", "world", "health", "init", "unmanaged", "remote-node", "kube-apiserver", "ingress", "cluster", "all"} {
		s, err := NewRelevance(DefaultFilter()).Derive([]Label{Parse("k8s:" + word + "=v"), Parse("k8s:role=x")})
		if err != nil {
			t.Errorf("%s: %v", word, err)
			continue
		}
		for l := range s.All() {
			if l.Source != SourceK8s {
				t.Errorf("%s: label %v has lost its source", word, l)
			}
		}
		if HasReserved(s) || !strings.HasPrefix(s.Text(), "k8s:") {
			t.Errorf("%s: text %q", word, s)
		}
		if _, err := ParseSet(word + "=v"); err == nil {
			t.Errorf("%s without a source is taken", word)
		}
		if anySource, err := ParseSet("any:"+word+"=v", "k8s:role=x"); err != nil || HasReserved(anySource) {
			t.Errorf("any:%s: %q, %v", word, anySource, err)
		}
	}
}

// Each of the mistakes that people make in a label filter either works as
// documented or is refused with the entry named.
func TestScenario_K03_FilterSyntax(t *testing.T) {
	refused := map[string]FilterCode{
		"k8s:app,k8s:name": FilterComma,
		"!k8s:app":         FilterBangSource,
		"k8s:app k8s:name": FilterBadPattern,
		"k8s:(app":         FilterBadPattern,
		"":                 FilterEmptyPattern,
		"k8s:":             FilterEmptyPattern,
		"k8s:!":            FilterEmptyPattern,
	}
	for entry, code := range refused {
		_, err := NewFilter("k8s:fine", entry)
		var e *FilterError
		if !errors.As(err, &e) || e.Code != code || e.Entry != entry {
			t.Errorf("NewFilter(%q) = %v, want %v", entry, err, code)
		}
		if strings.HasPrefix(code.String(), "code-") {
			t.Errorf("code %d has no name", code)
		}
	}
	keeps := func(f Filter, label string) bool {
		keep, _ := f.Keep(Parse(label))
		return keep
	}
	t.Run("exclude behind the source", func(t *testing.T) {
		f := mustFilter(t, "k8s:!app")
		if keeps(f, "k8s:app=x") || !keeps(f, "cni:app=x") || !keeps(f, "k8s:env=x") {
			t.Error("k8s:!app does not exclude exactly k8s:app")
		}
	})
	t.Run("only includes", func(t *testing.T) {
		f := mustFilter(t, "k8s:team")
		if !keeps(f, "reserved:host") || !keeps(f, "k8s:"+KeyNamespace+"=x") || !keeps(f, "k8s:team=x") || keeps(f, "k8s:env=x") {
			t.Error("an include loses what built-in selectors need")
		}
	})
	t.Run("repetition is no list", func(t *testing.T) {
		if !keeps(mustFilter(t, "k8s:a{1,3}$"), "k8s:aaa=x") {
			t.Error("a{1,3} does not match aaa")
		}
	})
}

// A file and command-line entries that say the same decide the same.
func TestScenario_K03_FileEqualsFlag(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.SampledFrom([]string{"a", "ab", "a.b", "a.b/c", "b"})
		var flags, file []string
		flags = append(flags, "reserved:.*")
		file = append(file, `{"source":"reserved","prefix":".*"}`)
		for range rapid.IntRange(0, 4).Draw(t, "entries") {
			p, invert := prefix.Draw(t, "prefix"), rapid.Bool().Draw(t, "invert")
			bang := ""
			if invert {
				bang = "!"
			}
			flags = append(flags, "k8s:"+bang+regexp.QuoteMeta(p))
			file = append(file, fmt.Sprintf(`{"source":"k8s","prefix":%q,"invert":%v}`, p, invert))
		}
		fromFile, err := ParseFilterFile(strings.NewReader(`{"version":1,"valid-prefixes":[` + strings.Join(file, ",") + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		fromFlags, err := buildFilter(nil, flags)
		if err != nil {
			t.Fatal(err)
		}
		l := Label{Source: rapid.SampledFrom([]string{"k8s", "cni", "reserved"}).Draw(t, "source"),
			Key: rapid.OneOf(prefix, rapid.StringMatching(`[ab./]{1,4}`)).Draw(t, "key")}
		a, _ := fromFile.Keep(l)
		if b, _ := fromFlags.Keep(l); a != b {
			t.Fatalf("file keeps %v: %v, flags: %v (%q)", l, a, b, flags)
		}
	})
}

// joinKey is how a store joins parts of a key: by "/", every run of "/" made
// one, none at the end.
func joinKey(parts ...string) string {
	joined := regexp.MustCompile(`/+`).ReplaceAllString(strings.Join(parts, "/"), "/")
	return strings.TrimSuffix(joined, "/")
}

const valuePrefix = "cilium/state/identities/v1/value/"

// splitKey is the inverse: the node is what follows the last "/".
func splitKey(key string) (text, node string) {
	rest := strings.TrimPrefix(key, valuePrefix)
	i := strings.LastIndexByte(rest, '/')
	return rest[:i], rest[i+1:]
}

// Keys with "/", values with "=" and ":", keys that end in "/": either the set
// is refused, or the key of its reference gives back exactly the labels and the
// node.
func TestScenario_K09_SlashesInKeys(t *testing.T) {
	accepted := [][]string{
		{"k8s:example.com/role=x"}, {"k8s:a/b=c"}, {"k8s:a=b:c"}, {"k8s:a=b=c"}, {"k8s:a/=b"}, {"k8s:a=b/"}, {"k8s:/a=/b"},
		{"k8s:a=node-1"}, {"k8s:a=b", "k8s:b=/node-1"}, {"k8s:.=.."}, {"cidr:10.0.0.0/8"},
	}
	for _, ss := range accepted {
		s, err := ParseSet(ss...)
		if err != nil {
			t.Errorf("ParseSet(%q): %v", ss, err)
			continue
		}
		if text, node := splitKey(joinKey(valuePrefix, s.Text(), "node-1")); text != s.Text() || node != "node-1" {
			t.Errorf("%q on node-1 is read back as %q on %q", s, text, node)
		}
	}
	for _, ss := range [][]string{{"k8s:a=b;c"}, {"k8s:a=x//y"}, {"k8s://=x"}, {"k8s:a;/node-1/k8s:b=c"}, {"a/b:c=d"}} {
		if s, err := ParseSet(ss...); err == nil {
			t.Errorf("ParseSet(%q) = %q, want a refusal", ss, s)
		}
	}
}

// No two pairs of labels and node have one key.
func TestScenario_K09_KeysAreInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node := rapid.SampledFrom([]string{"n", "n-1", "k8s.n", "a=b", "k8s:a=b;"})
		sets := rapid.SliceOfN(rapid.Custom(anyLabel), 1, 3)
		a, errA := NewSet(sets.Draw(t, "a")...)
		b, errB := NewSet(sets.Draw(t, "b")...)
		if errA != nil || errB != nil {
			return
		}
		nodeA, nodeB := node.Draw(t, "node a"), node.Draw(t, "node b")
		keyA, keyB := joinKey(valuePrefix, a.Text(), nodeA), joinKey(valuePrefix, b.Text(), nodeB)
		if text, n := splitKey(keyA); text != a.Text() || n != nodeA {
			t.Fatalf("key %q is read back as %q, %q", keyA, text, n)
		}
		if same := a == b && nodeA == nodeB; same != (keyA == keyB) {
			t.Fatalf("pairs equal: %v, keys equal: %v (%q, %q)", same, keyA == keyB, keyA, keyB)
		}
	})
}

// Reserved labels mixed with others come only from the system itself; keys of
// the system's name space may be set by who runs the allocator.
func TestScenario_K10_CheckPublic(t *testing.T) {
	for _, tt := range []struct {
		labels  []string
		refused bool
	}{
		{[]string{"reserved:host", "k8s:x=y"}, true},
		{[]string{"k8s:x=y", "$init"}, true},
		{[]string{"k8s:z=y", "cidr:10.0.0.0/8", "reserved:world"}, true},
		{[]string{"reserved:host"}, false},
		{[]string{"reserved:kube-apiserver", "reserved:remote-node"}, false},
		{[]string{"k8s:host=x"}, false},
		{[]string{"k8s:" + KeyNamespace + "=shop", "k8s:" + KeyCluster + "=other"}, false},
	} {
		s, err := ParseSet(tt.labels...)
		if err != nil {
			t.Fatal(err)
		}
		err = CheckPublic(s)
		var e *Error
		if refused := errors.As(err, &e) && e.Code == CodeReservedMixed; refused != tt.refused || (err != nil) != tt.refused {
			t.Errorf("CheckPublic(%q) = %v, want refused %v", tt.labels, err, tt.refused)
		}
	}
}

// Zone labels that arrive late do not count by default, so nothing changes.
func TestScenario_E03_LateZoneLabels(t *testing.T) {
	early := []Label{Parse("k8s:app=web"), Parse("k8s:" + KeyNamespace + "=shop")}
	derive := func(f Filter, zone string) Set {
		late := append([]Label{Parse("k8s:topology.kubernetes.io/zone=" + zone)}, early...)
		s, err := NewRelevance(f).Derive(late)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before, err := NewRelevance(DefaultFilter()).Derive(early)
	if err != nil {
		t.Fatal(err)
	}
	withoutFilter := map[Set]bool{}
	for _, zone := range []string{"z1", "z2", "z3"} {
		if after := derive(DefaultFilter(), zone); after != before {
			t.Errorf("zone %s changes the set to %q", zone, after)
		}
		withoutFilter[derive(Filter{}, zone)] = true
	}
	if len(withoutFilter) != 3 {
		t.Errorf("without the filter: %d sets, want one per zone", len(withoutFilter))
	}
}

// Labels that differ from pod to pod do not count by default: one set, with the
// text that Cilium 1.20.2 stores.
func TestScenario_E04_PerPodLabels(t *testing.T) {
	const want = "k8s:app=web;k8s:io.cilium.k8s.policy.cluster=default;k8s:io.kubernetes.pod.namespace=shop;"
	perPod := []string{
		"pod-template-hash", "pod-template-generation", "controller-revision-hash", "controller-uid",
		"batch.kubernetes.io/controller-uid", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index",
		"batch.kubernetes.io/job-completion-index", "annotation", "annotation.x", "annotations/y", "etcd_node",
		"topology.kubernetes.io/zone", "kubernetes.io/hostname", "io.kubernetes.pod.name", "beta.kubernetes.io/arch",
		"failure-domain.beta.kubernetes.io/zone", "k8s.io/x",
	}
	for _, key := range perPod {
		sets := map[Set]bool{}
		for i := range 500 {
			s, err := NewRelevance(DefaultFilter()).Derive([]Label{
				{SourceK8s, key, fmt.Sprint(i)}, {SourceK8s, "app", "web"}, {SourceK8s, KeyCluster, "default"}, {SourceK8s, KeyNamespace, "shop"},
			})
			if err != nil {
				t.Fatal(err)
			}
			sets[s] = true
		}
		if len(sets) != 1 {
			t.Errorf("%s: %d sets, want 1", key, len(sets))
		}
		for s := range sets {
			if s.Text() != want {
				t.Errorf("%s: text %q, want %q", key, s, want)
			}
		}
	}
	t.Run("include brings a key back where it is longer", func(t *testing.T) {
		f := mustFilter(t, "kubernetes.io/arch", ".*")
		if keep, why := f.Keep(Parse("k8s:kubernetes.io/arch=arm64")); !keep {
			t.Errorf("dropped by %q", why)
		}
	})
	t.Run("the list is pinned", func(t *testing.T) {
		if DefaultsRelease != "1.20.2" || len(DefaultEntries()) != 21 {
			t.Error("a newer list renumbers workloads: it has to be opted into, beside this one")
		}
	})
}
