// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"os"
	"testing"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
)

type vector struct {
	ID       string          `json:"id"`
	Group    string          `json:"group"`
	Input    json.RawMessage `json:"input"`
	Expected json.RawMessage `json:"expected"`
}

// vectorsFile holds what Cilium 1.20.2 does, as recorded for the labels.
const vectorsFile = "../allocator/labels/testdata/cilium-1.20.2.json"

func loadVectors(t *testing.T) map[string][]vector {
	t.Helper()
	data, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors []vector `json:"vectors"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	groups := map[string][]vector{}
	for _, v := range file.Vectors {
		groups[v.Group] = append(groups[v.Group], v)
	}
	return groups
}

func read[T any](t *testing.T, data json.RawMessage) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return v
}

func TestCiliumVectors(t *testing.T) {
	groups := loadVectors(t)
	for group, check := range map[string]func(*testing.T, vector){
		"join-key":        checkJoinKey,
		"cache-prefix":    checkCachePrefix,
		"metric-scope":    checkMetricScope,
		"value-key-match": checkValueKeyMatch,
		"key-to-id":       checkKeyToID,
		"ip-key":          checkIPKey,
		"ip-json":         checkIPJSON,
		"ip-id-valid":     checkIPNumber,
	} {
		if len(groups[group]) == 0 {
			t.Errorf("no vector of group %s", group)
		}
		for _, v := range groups[group] {
			t.Run(v.ID, func(t *testing.T) { check(t, v) })
		}
	}
}

func checkJoinKey(t *testing.T, v vector) {
	if got, want := JoinKey(read[[]string](t, v.Input)...), read[string](t, v.Expected); got != want {
		t.Errorf("JoinKey(%s) = %q, want %q", v.Input, got, want)
	}
}

func checkCachePrefix(t *testing.T, v vector) {
	if got, want := newTestLayout(t).CachePrefix(read[string](t, v.Input)), read[string](t, v.Expected); got != want {
		t.Errorf("CachePrefix(%s) = %q, want %q", v.Input, got, want)
	}
}

func checkMetricScope(t *testing.T, v vector) {
	if got, want := newTestLayout(t).MetricScope(read[string](t, v.Input)), read[string](t, v.Expected); got != want {
		t.Errorf("MetricScope(%s) = %q, want %q", v.Input, got, want)
	}
}

func checkValueKeyMatch(t *testing.T, v vector) {
	in := read[struct{ Prefix, Key string }](t, v.Input)
	if got, want := OwnsReference(in.Prefix, in.Key), read[bool](t, v.Expected); got != want {
		t.Errorf("OwnsReference(%q, %q) = %v, want %v", in.Prefix, in.Key, got, want)
	}
}

// The vectors speak of keys BASE/id/<n>; our base ends before state/identities/v1.
func checkKeyToID(t *testing.T, v vector) {
	l := newTestLayout(t)
	in := read[struct{ Base, Key string }](t, v.Input)
	k, err := l.Parse("cilium/state/identities/v1" + in.Key[len(in.Base):])
	if string(v.Expected) == `"error"` {
		if err == nil {
			t.Errorf("Parse(%q) = %v, want an error", in.Key, k)
		}
		return
	}
	if want := read[uint32](t, v.Expected); err != nil || k.Kind != allocator.KindMaster || uint32(k.Number) != want {
		t.Errorf("Parse(%q) = %v, %v; want master %d", in.Key, k, err, want)
	}
}

func checkIPKey(t *testing.T, v vector) {
	in := read[struct {
		IP      string
		MaskHex *string
	}](t, v.Input)
	pair := allocator.Address{IP: in.IP}
	if in.MaskHex != nil {
		mask, err := hex.DecodeString(*in.MaskHex)
		if err != nil {
			t.Fatal(err)
		}
		pair.Mask = mask
	}
	name, reason := AddressName(pair)
	if want := read[string](t, v.Expected); name != want || reason != "" {
		t.Errorf("AddressName(%+v) = %q, %q; want %q", pair, name, reason, want)
	}
	if key, err := newTestLayout(t).Key(allocator.AddressKey(name)); err != nil {
		t.Errorf("the key %q cannot be spelled: %v", key, err)
	}
}

func checkIPJSON(t *testing.T, v vector) {
	in := read[struct {
		IP, HostIP, K8sNamespace, K8sPodName string
		ID                                   uint32
	}](t, v.Input)
	pair := allocator.Address{IP: in.IP, HostIP: in.HostIP, ID: in.ID, K8sNamespace: in.K8sNamespace, K8sPodName: in.K8sPodName}
	got, err := EncodeValue(allocator.AddressKey(in.IP), pair)
	if want := read[string](t, v.Expected); err != nil || string(got) != want {
		t.Errorf("EncodeValue = %s, %v; want %s", got, err, want)
	}
}

func checkIPNumber(t *testing.T, v vector) {
	in := read[struct{ ClusterID, Identity uint32 }](t, v.Input)
	space, err := identity.NewSpace("peer", in.ClusterID, 255, false)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := AddressNumberAllowed(space, identity.Number(in.Identity)), read[bool](t, v.Expected); got != want {
		t.Errorf("number %d from cluster %d allowed: %v, want %v", in.Identity, in.ClusterID, got, want)
	}
}

func TestAddressNamesAgreeWithNetip(t *testing.T) {
	for _, s := range []string{"10.0.0.1", "fd00::1", "::1"} {
		name, reason := AddressName(allocator.Address{IP: s})
		if reason != "" || name != netip.MustParseAddr(s).String() {
			t.Errorf("AddressName(%s) = %q, %q", s, name, reason)
		}
	}
}
