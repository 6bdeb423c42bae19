// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/signet-identity/signet/allocator/labels"
)

func mustSpace(t *testing.T, name string, id, size uint32, wide bool) Space {
	t.Helper()
	s, err := NewSpace(name, id, size, wide)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustSet(t *testing.T, ss ...string) labels.Set {
	t.Helper()
	s, err := labels.ParseSet(ss...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Numbers are read as what they are or refused: nothing is cut, padded or
// taken for another.
func TestScenario_P02_ParseNumber(t *testing.T) {
	good := map[string]Number{
		"0": 0, "1": 1, "255": 255, "256": 256, "65535": 65535, "65536": 65536, "65792": 65792,
		"16777215": 16777215, "16777216": 16777216, "4294967295": math.MaxUint32,
	}
	for text, want := range good {
		if n, err := ParseNumber(text); err != nil || n != want {
			t.Errorf("ParseNumber(%q) = %d, %v; want %d", text, n, err, want)
		}
	}
	bad := map[string]NumberCode{
		"": NumberSyntax, "x": NumberSyntax, "-": NumberSyntax, "+1": NumberSyntax, " 1": NumberSyntax, "1 ": NumberSyntax,
		"01": NumberSyntax, "00": NumberSyntax, "0x10": NumberSyntax, "1_000": NumberSyntax, "1e3": NumberSyntax, "1.0": NumberSyntax,
		"١": NumberSyntax, "-x": NumberSyntax,
		"-1": NumberOverflow, "-0": NumberOverflow, "4294967296": NumberOverflow, "9223372036854775808": NumberOverflow,
		"18446744073709551872": NumberOverflow, // 2^64 + 256
	}
	for text, code := range bad {
		n, err := ParseNumber(text)
		var e *NumberError
		if !errors.As(err, &e) || e.Code != code || n != 0 {
			t.Errorf("ParseNumber(%q) = %d, %v; want %v", text, n, err, code)
			continue
		}
		if !strings.Contains(err.Error(), labels.Quote(text)) {
			t.Errorf("message %q does not name %q", err, text)
		}
	}
}

func TestScenario_P02_WideTypes(t *testing.T) {
	for _, v := range []uint64{1 << 32, 1<<32 + 256, 1 << 63, math.MaxUint64} {
		if n, err := FromUint64(v); err == nil {
			t.Errorf("FromUint64(%d) = %d, want a refusal", v, n)
		}
	}
	for _, v := range []int64{-1, -256, math.MinInt64, 1 << 32, math.MaxInt64} {
		n, err := FromInt64(v)
		var e *NumberError
		if !errors.As(err, &e) || e.Code != NumberOverflow {
			t.Errorf("FromInt64(%d) = %d, %v; want overflow", v, n, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Uint32().Draw(t, "number")
		a, errA := FromUint64(uint64(v))
		b, errB := FromInt64(int64(v))
		c, errC := ParseNumber(fmt.Sprint(v))
		if errA != nil || errB != nil || errC != nil || a != Number(v) || b != a || c != a {
			t.Fatalf("%d is read as %d %v, %d %v, %d %v", v, a, errA, b, errB, c, errC)
		}
	})
}

func TestScenario_P02_Range(t *testing.T) {
	s := mustSpace(t, "", 0, 0, false)
	for n, inside := range map[Number]bool{
		0: false, 1: false, 255: false, 256: true, 65535: true, 65536: false, 65792: false, 1<<24 - 1: false, 1 << 24: false, math.MaxUint32: false,
	} {
		err := s.Check(n)
		var e *NumberError
		if inside != (err == nil) || !inside && (!errors.As(err, &e) || e.Code != NumberOutOfRange) {
			t.Errorf("Check(%d) = %v, want inside %v", n, err, inside)
		}
		if err != nil && !strings.Contains(err.Error(), "256 to 65535") {
			t.Errorf("message %q does not name the range", err)
		}
	}
}

// Reserved labels have their fixed numbers, which are never stored.
func TestScenario_D03_ReservedLabels(t *testing.T) {
	for label, want := range map[string]Number{"reserved:health": 4, "reserved:world": 2, "reserved:host": 1, "$init": 5} {
		s := mustSet(t, label)
		if n, ok := ReservedForLabels(s); !ok || n != want {
			t.Errorf("ReservedForLabels(%s) = %d, %v; want %d", label, n, ok, want)
		}
		if err := labels.CheckPublic(s); err != nil {
			t.Errorf("CheckPublic(%s): %v", label, err)
		}
		var e *StorableError
		if err := CheckStorable(s); !errors.As(err, &e) || e.Number != want {
			t.Errorf("CheckStorable(%s) = %v, want a refusal that names %d", label, err, want)
		}
	}
	if err := labels.CheckPublic(mustSet(t, "reserved:host", "k8s:x=y")); err == nil {
		t.Error("a mixed set from outside is taken")
	}
}

// No set of nothing but reserved or cidr labels may be stored, whether it has
// a number or not.
func TestCheckStorable(t *testing.T) {
	refused := [][]string{
		{"reserved:nonsense"}, {"reserved:aggregate-world"}, {"reserved:unknown"}, {"reserved:cluster"}, {"reserved:init", "reserved:health"},
		{"cidr:10.0.0.0/8", "reserved:world"}, {"cidr:10.0.0.0/8"}, {"fqdn:example.com"}, {"cidrgroup:g"}, {"reserved:ingress", "k8s:a=b"},
	}
	for _, ss := range refused {
		err := CheckStorable(mustSet(t, ss...))
		var e *StorableError
		if !errors.As(err, &e) || e.Error() == "" {
			t.Errorf("CheckStorable(%q) = %v, want a refusal", ss, err)
		}
	}
	for _, ss := range [][]string{{"k8s:app=web"}, {"any:host=x"}, {"cidr:10.0.0.0/8", "k8s:app=web"}, {"node:x=y"}} {
		if err := CheckStorable(mustSet(t, ss...)); err != nil {
			t.Errorf("CheckStorable(%q): %v", ss, err)
		}
	}
}

// A key that is a reserved word means nothing without the source "reserved".
func TestScenario_K01_ReservedWords(t *testing.T) {
	words := []string{"host", "world", "health", "init", "unmanaged", "remote-node", "kube-apiserver", "ingress", "cluster", "all"}
	for _, word := range words {
		for _, source := range []string{"k8s", "any", "cni"} {
			for _, more := range [][]string{nil, {"k8s:role=x"}} {
				s := mustSet(t, append([]string{source + ":" + word + "=v"}, more...)...)
				if n, ok := ReservedForLabels(s); ok {
					t.Errorf("%q has the reserved number %d", s, n)
				}
				if err := CheckStorable(s); err != nil {
					t.Errorf("%q: %v", s, err)
				}
				space := mustSpace(t, "", 0, 0, false)
				if n := Start(space, s.Text()); n < 256 {
					t.Errorf("%q starts at %d", s, n)
				}
			}
		}
	}
}

// Bad ids and sizes stop the start with the legal range in the message.
func TestScenario_M07_BadIDs(t *testing.T) {
	for _, text := range []string{"-1", "256", "14480", "x", "", "4294967296", "1.5"} {
		id, err := ParseClusterID(text, 255)
		var e *SpaceError
		if !errors.As(err, &e) || e.Field != "cluster-id" || !strings.Contains(err.Error(), "0 to 255") {
			t.Errorf("ParseClusterID(%q) = %d, %v; want the legal range", text, id, err)
		}
	}
	if id, err := ParseClusterID("511", 511); err != nil || id != 511 {
		t.Errorf("ParseClusterID(511, 511) = %d, %v", id, err)
	}
	tests := []struct {
		name     string
		id, size uint32
		wide     bool
		fields   []string
	}{
		{"c", 256, 255, false, []string{"cluster-id"}},
		{"c", 14480, 255, false, []string{"cluster-id"}},
		{"c", 512, 511, false, []string{"cluster-id"}},
		{"c", 1, 512, false, []string{"max-connected-clusters"}},
		{"default", 1, 255, false, []string{"cluster-id"}},
		{"", 1, 255, false, []string{"cluster-id"}},
		{"Upper", 1, 255, false, []string{"cluster-name"}},
		{strings.Repeat("a", 33), 1, 255, false, []string{"cluster-name"}},
		{"c", 3, 255, true, []string{"wide"}},
		{"-c", 300, 255, true, []string{"cluster-name", "cluster-id", "wide"}},
		{"c", math.MaxUint32, 255, false, []string{"cluster-id"}},
	}
	for _, tt := range tests {
		_, err := NewSpace(tt.name, tt.id, tt.size, tt.wide)
		var e *SpaceError
		if !errors.As(err, &e) {
			t.Errorf("NewSpace(%+v) = %v, want *SpaceError", tt, err)
			continue
		}
		for _, field := range tt.fields {
			if !strings.Contains(err.Error(), field+" ") {
				t.Errorf("NewSpace(%+v) = %q, does not name %s", tt, err, field)
			}
		}
	}
	for _, s := range []Space{mustSpace(t, "c3", 3, 255, false)} {
		if s.Contains(131073) || s.Contains(70000) || !s.Contains(196608) {
			t.Errorf("%+v takes numbers of others", s)
		}
	}
	if mustSpace(t, "", 0, 0, false).CheckMesh() == nil {
		t.Error("a cluster of id 0 may join a mesh")
	}
}

// After a change of the cluster's id no number of the old range is in the new one.
func TestScenario_M06_RangesAreDisjoint(t *testing.T) {
	for _, size := range []uint32{255, 511} {
		for id := uint32(1); id <= size; id++ {
			s := mustSpace(t, "c", id, size, false)
			if s.ClusterIDOf(s.Min()) != id || s.ClusterIDOf(s.Max()) != id {
				t.Fatalf("bounds %d, %d of id %d belong to others", s.Min(), s.Max(), id)
			}
			if s.Contains(s.Min()-1) || s.Contains(s.Max()+1) || s.Capacity() != 1<<s.LocalBits() {
				t.Fatalf("range of id %d: %d to %d, capacity %d", id, s.Min(), s.Max(), s.Capacity())
			}
			if ScopeOf(s.Max()) != ScopeGlobal {
				t.Fatalf("the range of id %d leaves the global scope", id)
			}
		}
	}
	old, now := mustSpace(t, "c", 1, 255, false), mustSpace(t, "c", 2, 255, false)
	for i := range 50 {
		text := fmt.Sprintf("k8s:app=a%d;", i)
		if n := Start(now, text); old.Contains(n) || !now.Contains(n) {
			t.Errorf("%s starts at %d", text, n)
		}
	}
}

func TestWide(t *testing.T) {
	s := mustSpace(t, "", 0, 255, true)
	if s.Min() != 256 || s.Max() != 1<<24-1 || s.LocalBits() != 24 || s.Capacity() != 1<<24-256 {
		t.Errorf("wide: %d to %d, %d bits, capacity %d", s.Min(), s.Max(), s.LocalBits(), s.Capacity())
	}
	if got := s.ClusterIDOf(1 << 20); got != 0 {
		t.Errorf("ClusterIDOf = %d, want 0", got)
	}
	if s.ClusterName != DefaultClusterName {
		t.Errorf("name = %q", s.ClusterName)
	}
}

func TestReservedNumbers(t *testing.T) {
	for n := Number(1); n <= 14; n++ {
		name := n.Name()
		if got, ok := ReservedByName(name); !ok || got != n {
			t.Errorf("ReservedByName(%q) = %d, %v", name, got, ok)
		}
		set, ok := LabelsOf(n)
		if ok == n.IsAggregate() {
			t.Errorf("LabelsOf(%s): %v", name, ok)
		}
		if ok {
			if got, found := ReservedForLabels(set); !found || got != n {
				t.Errorf("labels %q of %s give %d, %v", set, name, got, found)
			}
		}
	}
	for _, n := range []Number{0, 15, 104, 200, 256} {
		if set, ok := LabelsOf(n); ok {
			t.Errorf("LabelsOf(%d) = %q", n, set)
		}
	}
	for n, want := range map[Number][3]bool{
		0: {}, 1: {true}, 99: {true}, 100: {true, true}, 115: {true, true}, 116: {true}, 128: {true, false, true}, 255: {true, false, true}, 256: {},
	} {
		if got := [3]bool{n.IsReserved(), n.IsWellKnown(), n.IsUserReserved()}; got != want {
			t.Errorf("%d: reserved, well-known, user-reserved = %v, want %v", n, got, want)
		}
	}
	if _, ok := ReservedByName("all"); ok {
		t.Error(`"all" is reserved`)
	}
}

func TestFixedIdentity(t *testing.T) {
	lk := Lookup{UserReserved: map[string]Number{"db": 129, "cheat": 1, "far": 300}}
	for value, want := range map[string]Number{"db": 129, "cheat": 0, "far": 0, "other": 0} {
		n, ok := lk.ForLabels([]labels.Label{{Source: "k8s", Key: labels.KeyFixedIdentity, Value: value}})
		if ok != (want != 0) || ok && n != want {
			t.Errorf("fixed identity %q = %d, %v; want %d", value, n, ok, want)
		}
	}
}

func TestScope(t *testing.T) {
	for n, want := range map[Number]Scope{1: ScopeGlobal, 1<<24 - 1: ScopeGlobal, 1 << 24: ScopeLocal, 2<<24 + 5: ScopeRemoteNode, 3 << 24: 3} {
		if got := ScopeOf(n); got != want || got.String() == "" {
			t.Errorf("ScopeOf(%d) = %v, want %v", n, got, want)
		}
	}
}

// The start of the search is a fixed function: these places must never move,
// or every cluster renumbers what it collects and sees again.
func TestStartIsFixed(t *testing.T) {
	const text = "k8s:app=web;k8s:io.kubernetes.pod.namespace=shop;"
	sum := sha256.Sum256([]byte(text))
	h := new(big.Int).SetBytes(sum[:8])
	for _, s := range []Space{
		mustSpace(t, "", 0, 255, false), mustSpace(t, "c", 3, 255, false), mustSpace(t, "c", 511, 511, false), mustSpace(t, "", 0, 255, true),
	} {
		size := big.NewInt(int64(s.Max()) - int64(s.Min()) + 1)
		want := s.Min() + Number(new(big.Int).Mod(h, size).Uint64())
		if got := Start(s, text); got != want {
			t.Errorf("Start in %+v = %d, want %d", s, got, want)
		}
	}
	if got := Start(mustSpace(t, "", 0, 255, false), text); got != startOfShop {
		t.Errorf("Start = %d, want %d", got, startOfShop)
	}
}

// Starts lie in the range and spread over it.
func TestStartSpreads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]uint32{255, 511}).Draw(t, "size")
		id := rapid.Uint32Range(0, size).Draw(t, "id")
		s, err := NewSpace("c", id, size, id == 0 && rapid.Bool().Draw(t, "wide"))
		if err != nil {
			t.Fatal(err)
		}
		if n := Start(s, rapid.String().Draw(t, "text")); !s.Contains(n) {
			t.Fatalf("start %d is outside %d to %d", n, s.Min(), s.Max())
		}
	})
	s := mustSpace(t, "", 0, 255, false)
	const buckets, sets = 16, 16000
	var count [buckets]int
	for i := range sets {
		n := Start(s, fmt.Sprintf("k8s:app=a%d;", i))
		count[int(n-s.Min())*buckets/s.Capacity()]++
	}
	for i, c := range count {
		if c < sets/buckets*8/10 || c > sets/buckets*12/10 {
			t.Errorf("bucket %d holds %d of %d starts", i, c, sets)
		}
	}
}

func FuzzParseNumber(f *testing.F) {
	for _, s := range []string{"0", "256", "-1", "01", "4294967296", "", "x", "18446744073709551872"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseNumber(s)
		var e *NumberError
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("error of an unknown type: %v", err)
		}
		if (err == nil) != (n.String() == s) && s != "0" {
			t.Fatalf("ParseNumber(%q) = %d, %v", s, n, err)
		}
	})
}

func FuzzParseClusterID(f *testing.F) {
	for _, s := range []string{"0", "255", "256", "-1", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseClusterID(s, 255); err == nil && id > 255 {
			t.Fatalf("ParseClusterID(%q) = %d", s, id)
		}
	})
}

func FuzzCheckClusterName(f *testing.F) {
	for _, s := range []string{"", "a", "a-b", "-a", "A", strings.Repeat("a", 33), "ä"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if CheckClusterName(s) == nil && (s == "" || len(s) > 32 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") != "") {
			t.Fatalf("the name %q is taken", s)
		}
	})
}

// startOfShop was worked out with another language's SHA-256.
const startOfShop Number = 15861
