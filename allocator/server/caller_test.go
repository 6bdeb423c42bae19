// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

func TestCertificateNamesTheRole(t *testing.T) {
	cases := []struct {
		organizations []string
		want          Role
	}{
		{nil, RoleClient},
		{[]string{"acme"}, RoleClient},
		{[]string{"local"}, RoleClient}, // nobody becomes local by certificate
		{[]string{"signet:client"}, RoleClient},
		{[]string{"signet:node"}, RoleNode},
		{[]string{"acme", "signet:node", "signet:operator"}, RoleOperator},
	}
	for _, c := range cases {
		got := certificateCaller(&x509.Certificate{Subject: pkix.Name{CommonName: "n", Organization: c.organizations}})
		if got != (Caller{Name: "n", Role: c.want}) {
			t.Errorf("organization %v: %+v, want %s", c.organizations, got, c.want)
		}
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	operator, local := Caller{Name: "op", Role: RoleOperator}, Caller{Role: RoleLocal}
	node, client := Caller{Name: "node-a", Role: RoleNode}, Caller{Name: "ci", Role: RoleClient}
	none := Caller{}
	cases := []struct {
		name  string
		do    func(Caller) error
		allow []Caller
	}{
		{"hold as itself", func(c Caller) error { return c.mayHold("node-a") }, []Caller{operator, local, node}},
		{"hold as its pods", func(c Caller) error { return c.mayHold("k8s.node-a") }, []Caller{operator, local, node}},
		{"hold as another", func(c Caller) error { return c.mayHold("node-b") }, []Caller{operator, local}},
		{"hold as another's pods", func(c Caller) error { return c.mayHold("k8s.node-b") }, []Caller{operator, local}},
		{"hold a pin", func(c Caller) error { return c.mayHold("pin-x") }, []Caller{operator, local, client, none}},
		{"hold a pin of a node's name", func(c Caller) error { return c.mayHold("pin-node-a") }, []Caller{operator, local, client, none}},
		{"be itself", func(c Caller) error { return c.mayBe("node-a") }, []Caller{operator, local, node}},
		{"be another", func(c Caller) error { return c.mayBe("node-b") }, []Caller{operator, local}},
		{"step down", func(c Caller) error { return c.mayRun("step down") }, []Caller{operator, local}},
	}
	for _, c := range cases {
		for _, caller := range []Caller{operator, local, node, client, none} {
			want := false
			for _, a := range c.allow {
				want = want || a == caller
			}
			err := c.do(caller)
			if want != (err == nil) || err != nil && status.Code(toStatus(err)) != codes.PermissionDenied {
				t.Errorf("%s %q to %s: %v, allowed should be %v", caller.Role, caller.Name, c.name, err, want)
			}
		}
	}
}

// K-10, the API's part: keys of the system's name space come from the system only.
func TestScenario_K_10_SystemKeys(t *testing.T) {
	system := []string{"k8s:io.kubernetes.pod.namespace=b", "k8s:io.cilium.k8s.policy.cluster=other",
		"k8s:io.cilium.k8s.policy.serviceaccount=admin", "k8s:io.cilium.k8s.namespace.labels.team=x", "any-source:io.kubernetes.pod.namespace=b"}
	for _, l := range system {
		req := &signetv1.AllocateRequest{Holder: "pin-ci", Labels: []string{"k8s:app=web", l}}
		_, _, err := allocateIn(Caller{Name: "ci", Role: RoleClient}, req)
		var r *refusal
		if !errors.As(err, &r) || r.code != codes.PermissionDenied || r.reason != reasonSystemLabel || r.field != l {
			t.Errorf("a client sets %s: %v", l, err)
		}
		for _, c := range []Caller{{Name: "op", Role: RoleOperator}, {Role: RoleLocal}} {
			if _, _, err := allocateIn(c, req); err != nil {
				t.Errorf("%s sets %s: %v", c.Role, l, err)
			}
		}
		req.Holder = "node-a"
		if _, _, err := allocateIn(Caller{Name: "node-a", Role: RoleNode}, req); err != nil {
			t.Errorf("a node sets %s: %v", l, err)
		}
	}
	for _, c := range []Caller{{Name: "op", Role: RoleOperator}, {Role: RoleLocal}, {Name: "node-a", Role: RoleNode}} {
		req := &signetv1.AllocateRequest{Holder: "node-a", Labels: []string{"k8s:app=web", "reserved:host"}}
		if _, _, err := allocateIn(c, req); status.Code(toStatus(err)) != codes.InvalidArgument {
			t.Errorf("%s mixes reserved:host in: %v", c.Role, err)
		}
	}
}

func FuzzAllocateLabels(f *testing.F) {
	for _, seed := range [][2]string{{"k8s:app=web", "k8s:tier=db"}, {"reserved:host", ""}, {"reserved:host", "k8s:a=b"}, {"a=b", "x/y:c=d"},
		{"k8s:a=b;c", "k8s:a//b"}, {"cidr:10.0.0.0/8", "\xff:\xff=\xff"}, {"$host", "k8s:=v"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		req := &signetv1.AllocateRequest{Holder: "pin-f", Labels: []string{one, two}}
		in, fixed, err := allocateIn(Caller{Role: RoleLocal}, req)
		switch {
		case err != nil:
			st := status.Convert(toStatus(err))
			if st.Code() != codes.InvalidArgument || !utf8.ValidString(st.Message()) {
				t.Fatalf("%q, %q: %v", one, two, st)
			}
			if _, err := proto.Marshal(st.Proto()); err != nil {
				t.Fatalf("the refusal of %q, %q cannot be sent: %v", one, two, err)
			}
		case fixed != nil:
			if n := identity.Number(fixed.GetIdentity().GetNumber()); !n.IsReserved() {
				t.Fatalf("%q, %q got the fixed number %d", one, two, n)
			}
		default:
			back, err := labels.ParseText(in.Labels.Text())
			if err != nil || back != in.Labels || identity.CheckStorable(back) != nil {
				t.Fatalf("%q, %q became %q, which is read back as %q, %v", one, two, in.Labels, back, err)
			}
			if _, err := proto.Marshal(&signetv1.Identity{Labels: back.Strings(), Text: back.Text()}); err != nil {
				t.Fatalf("%q, %q cannot be sent: %v", one, two, err)
			}
		}
	})
}

func FuzzAddress(f *testing.F) {
	for _, s := range []string{"10.0.0.1", "10.0.0.0/24", "2001:db8::/32", "::ffff:10.0.0.1", "fe80::1%eth0", "10.0.0.1/32", "", "/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, err := addressKey(s)
		if err != nil {
			return
		}
		again, err := addressKey(key)
		if err != nil || again != key {
			t.Fatalf("%q became %q, which became %q, %v", s, key, again, err)
		}
	})
}

func FuzzPageToken(f *testing.F) {
	f.Add("after-256")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		n, err := pageTokenIn(s)
		if err == nil && s != "" && pageToken(uint32(n)) != s {
			t.Fatalf("token %q was read as %d", s, n)
		}
	})
}
