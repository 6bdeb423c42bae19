// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"encoding/json"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/signet-identity/signet/allocator/labels"
)

type vector struct {
	ID, Group, Op   string
	Input, Expected json.RawMessage
}

// group returns the vectors of a group; there has to be at least one.
func group(t *testing.T, name string) []vector {
	t.Helper()
	data, err := os.ReadFile("../labels/testdata/cilium-1.20.2.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	var found []vector
	for _, v := range file.Vectors {
		if v.Group == name {
			found = append(found, v)
		}
	}
	if len(found) == 0 {
		t.Fatalf("group %q has no vectors", name)
	}
	return found
}

// runVectors compares f's answer with each vector of the group.
func runVectors[In, Out any](t *testing.T, name string, f func(t *testing.T, in In) Out) {
	t.Run(name, func(t *testing.T) {
		for _, v := range group(t, name) {
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
	})
}

func decode(t *testing.T, raw json.RawMessage, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("vector %s: %v", raw, err)
	}
}

func parseAll(ss []string) []labels.Label {
	ls := make([]labels.Label, len(ss))
	for i, s := range ss {
		ls[i] = labels.Parse(s)
	}
	return ls
}

func TestVectorsReservedID(t *testing.T) {
	for _, v := range group(t, "reserved-id") {
		t.Run(v.ID, func(t *testing.T) {
			if v.Op == "numeric_identity_string" {
				var in Number
				var want string
				decode(t, v.Input, &in)
				decode(t, v.Expected, &want)
				if in.Name() != want || in.String() != want {
					t.Errorf("Name = %q, String = %q, want %q", in.Name(), in.String(), want)
				}
				return
			}
			var in string
			var want struct {
				ID     Number
				String string
			}
			decode(t, v.Input, &in)
			decode(t, v.Expected, &want)
			n, ok := ReservedByName(in)
			if n != want.ID || n.Name() != want.String || ok != (want.ID != 0) {
				t.Errorf("ReservedByName(%q) = %d (%s), %v; want %d (%s)", in, n, n.Name(), ok, want.ID, want.String)
			}
		})
	}
}

func TestVectorsLookup(t *testing.T) {
	type input struct {
		Labels               []string
		PolicyCIDRMatchNodes bool
		UserReserved         map[string]string
	}
	runVectors(t, "reserved-lookup", func(t *testing.T, in input) *Number {
		lk := Lookup{NodesByAddress: in.PolicyCIDRMatchNodes, UserReserved: map[string]Number{}}
		for number, name := range in.UserReserved {
			n, err := ParseNumber(number)
			if err != nil {
				t.Fatal(err)
			}
			lk.UserReserved[name] = n
		}
		n, ok := lk.ForLabels(parseAll(in.Labels))
		if !ok {
			return nil
		}
		return &n
	})
	runVectors(t, "scope", func(_ *testing.T, in input) string { return ScopeForLabels(parseAll(in.Labels)).String() })
}

func TestVectorsSpace(t *testing.T) {
	type input struct {
		MaxConnectedClusters, ClusterID uint32
		Identity                        Number
	}
	space := func(in input) Space {
		return Space{ClusterName: "c", ClusterID: in.ClusterID, MaxConnectedClusters: in.MaxConnectedClusters}
	}
	runVectors(t, "cluster-id-of", func(_ *testing.T, in input) uint32 { return space(in).ClusterIDOf(in.Identity) })
	type split struct{ Shift, ClusterIDBits int }
	runVectors(t, "cluster-bits", func(_ *testing.T, in input) split {
		return split{Shift: space(in).LocalBits(), ClusterIDBits: 24 - space(in).LocalBits()}
	})
	type bounds struct{ Min, Max Number }
	runVectors(t, "alloc-range", func(_ *testing.T, in input) bounds { return bounds{space(in).Min(), space(in).Max()} })
	runVectors(t, "remote-id-valid", func(_ *testing.T, in input) bool {
		in.MaxConnectedClusters = 255
		return space(in).Contains(in.Identity)
	})
}

func TestVectorsCluster(t *testing.T) {
	type failed struct{ Error bool }
	runVectors(t, "cluster-name", func(_ *testing.T, in string) failed { return failed{CheckClusterName(in) != nil} })
	type info struct {
		ID                   uint32
		Name                 string
		MaxConnectedClusters uint32
	}
	type verdict struct{ MaxClustersError, Error, StrictError bool }
	runVectors(t, "cluster-info", func(_ *testing.T, in info) verdict {
		bad := CheckClusterName(in.Name) != nil || checkClusterID(in.Name, in.ID, in.MaxConnectedClusters) != nil
		s := Space{ClusterName: in.Name, ClusterID: in.ID, MaxConnectedClusters: in.MaxConnectedClusters}
		sizeErr := CheckMaxConnectedClusters(in.MaxConnectedClusters) != nil
		if _, err := NewSpace(in.Name, in.ID, in.MaxConnectedClusters, false); (err != nil) != (bad || sizeErr) {
			t.Errorf("NewSpace(%+v) = %v", in, err)
		}
		return verdict{MaxClustersError: sizeErr, Error: bad, StrictError: bad || s.CheckMesh() != nil}
	})
	type mark struct {
		ID             uint32
		IPAM, Chaining string
	}
	runVectors(t, "cluster-id-0x80", func(_ *testing.T, in mark) failed {
		return failed{Space{ClusterID: in.ID}.CheckMark(in.IPAM, in.Chaining) != nil}
	})
}

func TestNumberText(t *testing.T) {
	for _, n := range []Number{0, 1, 255, 256, 65535, 65536, 1<<24 - 1, 1 << 24, 1<<32 - 1} {
		if got, want := n.String(), strconv.Itoa(int(n)); got != want {
			t.Errorf("String = %q, want %q", got, want)
		}
	}
}
