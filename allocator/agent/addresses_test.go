// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPoolTakesTheLowestFree(t *testing.T) {
	for _, c := range []struct {
		prefixes, used, want string
	}{
		{"10.244.0.0/16", "", "10.244.0.1"},
		{"10.244.0.0/29", "10.244.0.1 10.244.0.2 10.244.0.4", "10.244.0.3"},
		{"10.244.0.252/30", "10.244.0.253", "10.244.0.254"},
		{"10.244.0.252/30", "10.244.0.253 10.244.0.254", ""},
		{"10.244.0.252/30 10.245.0.0/30", "10.244.0.253 10.244.0.254", "10.245.0.1"},
		{"10.244.0.6/31", "10.244.0.6", "10.244.0.7"},
		{"10.244.0.9/32", "", "10.244.0.9"},
		{"10.244.0.254/23", "10.244.0.254", "10.244.0.1"},
		{"2001:db8::/126", "", "2001:db8::1"},
		{"2001:db8::/126", "2001:db8::1 2001:db8::2", "2001:db8::3"},
	} {
		p := newAddressPool(prefixes(c.prefixes))
		for _, s := range strings.Fields(c.used) {
			p.claim(addr(s))
		}
		got, ok := p.take(nowhere)
		if want := c.want; ok != (want != "") || ok && got.String() != want {
			t.Errorf("%s without %q: %s, want %q", c.prefixes, c.used, got, want)
		}
	}
}

func prefixes(s string) []netip.Prefix {
	var out []netip.Prefix
	for _, f := range strings.Fields(s) {
		out = append(out, netip.MustParsePrefix(f))
	}
	return out
}

// nowhere: no address is taken elsewhere.
func nowhere(netip.Addr) bool { return false }

func TestPoolSkipsZeroAndLastByte(t *testing.T) {
	p := newAddressPool(prefixes("10.244.0.0/22"))
	seen := map[netip.Addr]bool{}
	for {
		a, ok := p.take(nowhere)
		if !ok {
			break
		}
		if b := a.As4(); b[3] == 0 || b[3] == 255 || seen[a] {
			t.Fatalf("took %s", a)
		}
		seen[a] = true
	}
	if len(seen) != 4*254 {
		t.Errorf("%d addresses", len(seen))
	}
	p.free(addr("10.244.2.9"))
	p.free(addr("10.244.1.9"))
	for _, want := range []string{"10.244.1.9", "10.244.2.9"} {
		if a, _ := p.take(nowhere); a != addr(want) {
			t.Errorf("took %s, want %s", a, want)
		}
	}
}

func TestPoolProperty(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		prefix := netip.MustParsePrefix("10.244.0.16/28")
		p := newAddressPool([]netip.Prefix{prefix})
		used := map[netip.Addr]bool{}
		r.Repeat(map[string]func(*rapid.T){
			"take": func(r *rapid.T) {
				want := netip.Addr{}
				for a := prefix.Addr().Next(); a != addr("10.244.0.31"); a = a.Next() {
					if !used[a] {
						want = a
						break
					}
				}
				got, ok := p.take(nowhere)
				if ok != want.IsValid() || got != want {
					r.Fatalf("took %s, want %s", got, want)
				}
				if ok {
					used[got] = true
				}
			},
			"claim": func(r *rapid.T) {
				a := addr("10.244.0.17")
				for range rapid.IntRange(0, 13).Draw(r, "offset") {
					a = a.Next()
				}
				p.claim(a)
				used[a] = true
			},
			"free": func(r *rapid.T) {
				for a := range used {
					p.free(a)
					delete(used, a)
					break
				}
			},
		})
	})
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"10.0.0.1", "10.0.0.1/32", "10.0.0.0/24", "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "", "web", "10.0.0.256"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseAddress(s)
		if err != nil {
			return
		}
		if !a.IsValid() || a.Zone() != "" || a.Is4In6() {
			t.Fatalf("%q gives %s", s, a)
		}
		if again, err := parseAddress(a.String()); err != nil || again != a {
			t.Fatalf("%q gives %s and that gives %s, %v", s, a, again, err)
		}
	})
}

// What is taken elsewhere is passed over, and offered again once it is not.
func TestPoolPassesOverWhatIsTakenElsewhere(t *testing.T) {
	p := newAddressPool(prefixes("10.244.0.0/29"))
	foreign := map[netip.Addr]bool{addr("10.244.0.1"): true, addr("10.244.0.3"): true}
	elsewhere := func(a netip.Addr) bool { return foreign[a] }
	for _, want := range []string{"10.244.0.2", "10.244.0.4", "10.244.0.5", "10.244.0.6", ""} {
		got, ok := p.take(elsewhere)
		if ok != (want != "") || ok && got.String() != want {
			t.Fatalf("%s, want %q", got, want)
		}
	}
	delete(foreign, addr("10.244.0.3"))
	if got, _ := p.take(elsewhere); got != addr("10.244.0.3") {
		t.Errorf("%s, want what has become free", got)
	}
}
