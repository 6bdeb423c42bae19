// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
)

func newTestLayout(t testing.TB) Layout {
	t.Helper()
	l, err := NewLayout("", "default")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLayoutSpellsTheTableOfKeys(t *testing.T) {
	l := newTestLayout(t)
	const text = "k8s:app=web;k8s:path=a/b;"
	for _, c := range []struct {
		key  allocator.Key
		want string
	}{
		{allocator.MasterKey(256), "cilium/state/identities/v1/id/256"},
		{allocator.ReferenceKey(text, "node-1"), "cilium/state/identities/v1/value/k8s:app=web;k8s:path=a/b;/node-1"},
		{allocator.AddressKey("10.0.0.1"), "cilium/state/ip/v1/default/10.0.0.1"},
		{allocator.AddressKey("10.0.0.0/24"), "cilium/state/ip/v1/default/10.0.0.0/24"},
		{allocator.AddressKey("fd00::1"), "cilium/state/ip/v1/default/fd00::1"},
		{allocator.PresenceKey("node-1"), "signet/v1/default/nodes/node-1"},
		{allocator.GoneKey("node-1"), "signet/v1/default/gone/node-1"},
		{allocator.KnownKey("node-1"), "signet/v1/default/known/node-1"},
		{allocator.IdleKey(256), "signet/v1/default/idle/256"},
		{allocator.TombstoneKey(256), "signet/v1/default/tombstones/256"},
		{allocator.LineageKey(), "signet/v1/default/lineage"},
		{allocator.ClusterKey(), "signet/v1/default/cluster"},
		{allocator.ClusterIDKey(0), "signet/v1/ids/0"},
		{allocator.ClusterIDKey(7), "signet/v1/ids/7"},
		{allocator.Key{Kind: allocator.KindRecovery}, "signet/v1/default/recovery"},
		{allocator.Key{Kind: allocator.KindSetting, Name: "gc"}, "signet/v1/default/settings/gc"},
		{allocator.Key{Kind: allocator.KindPolicy, Name: "web"}, "signet/v1/default/policies/web"},
		{allocator.Key{Kind: allocator.KindElection, Name: "694d71ddacfda227"}, "signet/v1/default/election/694d71ddacfda227"},
		{allocator.Key{Kind: allocator.KindLock, Labels: text, Name: "1f"}, "cilium/state/identities/v1/locks/k8s:app=web;k8s:path=a/b;/1f"},
		{allocator.Key{Kind: allocator.KindNumberLock, Number: 256, Name: "1f"}, "cilium/state/identities/v1/locks/id/256/1f"},
	} {
		got, err := l.Key(c.key)
		if err != nil || got != c.want {
			t.Errorf("Key(%v) = %q, %v; want %q", c.key, got, err, c.want)
			continue
		}
		if back, err := l.Parse(got); err != nil || back != c.key {
			t.Errorf("Parse(%q) = %v, %v; want %v", got, back, err, c.key)
		}
	}
}

func TestKeyRefusesWhatWouldNotParseBack(t *testing.T) {
	l := newTestLayout(t)
	for name, k := range map[string]allocator.Key{
		"no kind":                   {},
		"number 0":                  allocator.MasterKey(0),
		"idle number 0":             allocator.IdleKey(0),
		"no label set":              allocator.ReferenceKey("", "n"),
		"no holder":                 allocator.ReferenceKey("k8s:a=b;", ""),
		"holder with a slash":       allocator.ReferenceKey("k8s:a=b;", "x/n"),
		"two slashes in a row":      allocator.ReferenceKey("k8s:a=x//y;", "n"),
		"text that ends in a slash": allocator.ReferenceKey("k8s:a=b;/", "n"),
		"text that begins with one": allocator.ReferenceKey("/k8s:a=b;", "n"),
		"text of a number lock":     {Kind: allocator.KindLock, Labels: "id/5", Name: "1f"},
		"lease in capitals":         {Kind: allocator.KindElection, Name: "1F"},
		"lease with a zero":         {Kind: allocator.KindElection, Name: "01f"},
		"lease 0":                   {Kind: allocator.KindElection, Name: "0"},
		"lease beyond 63 bits":      {Kind: allocator.KindElection, Name: "8000000000000000"},
		"node with a slash":         allocator.PresenceKey("a/b"),
		"no node":                   allocator.PresenceKey(""),
		"no address":                allocator.AddressKey("localhost"),
		"long form of an address":   allocator.AddressKey("fd00:0::1"),
		"mapped address":            allocator.AddressKey("::ffff:10.0.0.1"),
		"zone":                      allocator.AddressKey("fe80::1%eth0"),
		"mask beyond 128":           allocator.AddressKey("fd00::/129"),
		"mask with a zero":          allocator.AddressKey("10.0.0.0/024"),
		"field of another kind":     {Kind: allocator.KindLineage, Name: "x"},
		"number of another kind":    {Kind: allocator.KindPresence, Name: "n", Number: 3},
	} {
		var want *KeyError
		if got, err := l.Key(k); !errors.As(err, &want) {
			t.Errorf("%s: Key = %q, %v; want a KeyError", name, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	l := newTestLayout(t)
	for key, unknown := range map[string]bool{
		"cilium/state/identities/v1/id/":             false,
		"cilium/state/identities/v1/id/abc":          false,
		"cilium/state/identities/v1/id/007":          false,
		"cilium/state/identities/v1/id/+7":           false,
		"cilium/state/identities/v1/id/4294967296":   false,
		"cilium/state/identities/v1/value/n3":        false,
		"cilium/state/identities/v1/value//n3":       false,
		"cilium/state/identities/v1/locks/id/x/1f":   false,
		"cilium/state/ip/v1/default/":                false,
		"signet/v1/default/idle/x":                   false,
		"signet/v1/default/nodes/":                   false,
		"signet/v1/default/nodes/a/b":                false,
		"signet/v1/ids/x":                            false,
		"":                                           true,
		"cilium/state/nodes/v1/default/n1":           true,
		"cilium/state/ip/v1/other/10.0.0.1":          true,
		"signet/v1/other/lineage":                    true,
		"signet/v1/default/lineage2":                 true,
		"signet/v1/default/mirrors/peer/election/1f": true,
		"cilium/.heartbeat":                          true,
		"/cilium/state/identities/v1/id/5":           true,
		"cilium/state/identities/v1/identities":      true,
		"cilium/state/identities/v1/value":           true,
		"cilium/cache/identities/v1/remote/id/5":     true,
	} {
		var err *KeyError
		if k, got := l.Parse(key); !errors.As(got, &err) {
			t.Errorf("Parse(%q) = %v, %v; want a KeyError", key, k, got)
		} else if err.Unknown != unknown || err.Key != key || err.Reason == "" {
			t.Errorf("Parse(%q): %+v; want Unknown %v", key, err, unknown)
		}
	}
}

func TestNewLayoutRefuses(t *testing.T) {
	for _, c := range []struct{ base, cluster string }{
		{"", ""}, {"", "a/b"}, {"", "ids"},
		{"/cilium", "default"}, {"cilium/", "default"}, {"a//b", "default"},
		{"signet/v1", "default"}, {"signet/v1/default", "default"},
	} {
		var want *KeyError
		if _, err := NewLayout(c.base, c.cluster); !errors.As(err, &want) {
			t.Errorf("NewLayout(%q, %q) = %v; want a KeyError", c.base, c.cluster, err)
		}
	}
	l, err := NewLayout("net/cilium", "east")
	if err != nil || l.Masters() != "net/cilium/state/identities/v1/id/" || l.Own() != "signet/v1/east/" {
		t.Errorf("NewLayout with a long base: %+v, %v", l, err)
	}
}

// genKey draws keys of every kind; many have awkward texts, some cannot be spelled.
func genKey() *rapid.Generator[allocator.Key] {
	text := rapid.OneOf(
		rapid.StringMatching(`(k8s:[a-z/.]{1,4}=[a-z/=:]{0,3};){1,3}`),
		rapid.StringMatching(`[a;/=:id5]{0,8}`),
	)
	name := rapid.OneOf(rapid.StringMatching(`[a-z0-9.-]{1,8}`), rapid.StringMatching(`[a/;=]{0,4}`),
		rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.0/8", "fd00::1", "1f", "694d71ddacfda227"}))
	return rapid.Custom(func(t *rapid.T) allocator.Key {
		k := allocator.Key{Kind: allocator.Kind(rapid.IntRange(0, int(allocator.KindNumberLock)+1).Draw(t, "kind"))}
		if rapid.Bool().Draw(t, "number") {
			k.Number = identity.Number(rapid.Uint32().Draw(t, "n"))
		}
		if rapid.Bool().Draw(t, "labels") {
			k.Labels = text.Draw(t, "text")
		}
		if rapid.Bool().Draw(t, "name") {
			k.Name = name.Draw(t, "name")
		}
		return k
	})
}

// K-09: every key that can be spelled parses back, so no two share a spelling.
func TestK09KeysNeverCollide(t *testing.T) {
	l := newTestLayout(t)
	spelled := map[string]allocator.Key{}
	rapid.Check(t, func(rt *rapid.T) {
		k := genKey().Draw(rt, "key")
		s, err := l.Key(k)
		if err != nil {
			return
		}
		if other, seen := spelled[s]; seen && other != k {
			rt.Fatalf("%q spells %#v and %#v", s, k, other)
		}
		spelled[s] = k
		if back, err := l.Parse(s); err != nil || back != k {
			rt.Fatalf("Parse(%q) = %#v, %v; want %#v", s, back, err, k)
		}
	})
}

// K-09, the scenario's own examples: slashes and signs in labels, a node's name
// that is part of a label, one set's text plus a holder that equals another's.
func TestK09SlashesInLabels(t *testing.T) {
	l := newTestLayout(t)
	seen := map[string]allocator.Key{}
	for _, text := range []string{
		"k8s:example.com/role=db;", "k8s:a/b=c;", "k8s:a=b=c:d;", "k8s:role/=x;", "k8s:role=x/;",
		"k8s:a=b;", "k8s:a=b;/n1", "k8s:a=b;/n1/n1", "k8s:a=/n1;", "k8s:n1=n1/n1;",
	} {
		for _, holder := range []string{"n1", "k8s.n1", "pin-n1", "a", "id"} {
			k := allocator.ReferenceKey(text, holder)
			s, err := l.Key(k)
			if err != nil {
				t.Fatalf("Key(%v): %v", k, err)
			}
			if other, taken := seen[s]; taken {
				t.Errorf("%q spells %v and %v", s, k, other)
			}
			seen[s] = k
			if back, err := l.Parse(s); err != nil || back != k {
				t.Errorf("Parse(%q) = %v, %v; want %v", s, back, err, k)
			}
		}
	}
}

func TestPrefixCoversExactlyItsReferences(t *testing.T) {
	l := newTestLayout(t)
	prefix, err := l.Prefix(allocator.Key{Kind: allocator.KindReference, Labels: "k8s:a=b;"})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"k8s:a=b;": true, "k8s:a=b;k8s:c=d;": false, "k8s:a=bc;": false, "k8s:a=;": false} {
		key, err := l.Key(allocator.ReferenceKey(text, "n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := key >= prefix && key < PrefixEnd(prefix); got != want {
			t.Errorf("the prefix of k8s:a=b; covers a reference of %s: %v", text, got)
		}
	}
	for name, k := range map[string]allocator.Key{
		"with a holder":  allocator.ReferenceKey("k8s:a=b;", "n"),
		"without labels": {Kind: allocator.KindReference},
		"a master":       allocator.MasterKey(5),
		"lock of 0":      {Kind: allocator.KindNumberLock},
	} {
		if got, err := l.Prefix(k); err == nil {
			t.Errorf("%s: Prefix = %q, want an error", name, got)
		}
	}
}

func TestPrefixEnd(t *testing.T) {
	for prefix, want := range map[string]string{"a": "b", "a/": "a0", "a\xff": "b", "\xff\xff": "\x00", "": "\x00"} {
		if got := PrefixEnd(prefix); got != want {
			t.Errorf("PrefixEnd(%q) = %q, want %q", prefix, got, want)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		prefix := rapid.StringMatching(`[a-c/\x{7e}]{1,3}`).Draw(rt, "prefix")
		key := rapid.StringMatching(`[a-c/\x{7e}]{0,6}`).Draw(rt, "key")
		in := key >= prefix && key < PrefixEnd(prefix)
		if in != strings.HasPrefix(key, prefix) {
			rt.Fatalf("%q in the range of %q: %v", key, prefix, in)
		}
	})
}

func TestMirroredPrefixesDoNotOverlap(t *testing.T) {
	l := newTestLayout(t)
	for name, prefixes := range map[string][]string{"leader": l.LeaderPrefixes(), "agent": l.AgentPrefixes()} {
		for i, a := range prefixes {
			if !strings.HasSuffix(a, "/") {
				t.Errorf("%s: %q does not end in a slash", name, a)
			}
			for j, b := range prefixes {
				if i != j && strings.HasPrefix(a, b) {
					t.Errorf("%s: %q lies under %q", name, a, b)
				}
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	l := newTestLayout(f)
	for _, s := range []string{
		"cilium/state/identities/v1/id/256", "cilium/state/identities/v1/value/k8s:a=b;/n", "signet/v1/default/lineage",
		"cilium/state/identities/v1/locks/id/5/1f", "cilium/state/ip/v1/default/10.0.0.0/8", "signet/v1/ids/1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := l.Parse(s)
		if err != nil {
			return
		}
		if back, err := l.Key(k); err != nil || back != s {
			t.Fatalf("Parse(%q) = %#v, which is spelled %q, %v", s, k, back, err)
		}
	})
}
