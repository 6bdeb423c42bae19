// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"testing"

	"github.com/signet-identity/signet/allocator/identity"
	"pgregory.net/rapid"
)

// naivePool is what pool has to be equal to.
type naivePool struct {
	min, max identity.Number
	taken    map[identity.Number]bool
}

func (p *naivePool) next(start identity.Number) (identity.Number, bool) {
	size := uint64(p.max) - uint64(p.min) + 1
	for i := range size {
		n := p.min + identity.Number((uint64(start-p.min)+i)%size)
		if !p.taken[n] {
			return n, true
		}
	}
	return 0, false
}

func (p *naivePool) from(start identity.Number) []identity.Number {
	var out []identity.Number
	for n := max(start, p.min); n <= p.max; n++ {
		if p.taken[n] {
			out = append(out, n)
		}
	}
	return out
}

func TestPool_isTheNaiveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := identity.Number(rapid.Uint32Range(1, 300).Draw(t, "min"))
		hi := lo + identity.Number(rapid.Uint32Range(0, 200).Draw(t, "size"))
		p, naive := newPool(lo, hi), &naivePool{min: lo, max: hi, taken: map[identity.Number]bool{}}
		number := rapid.Map(rapid.Uint32Range(uint32(lo), uint32(hi)), func(n uint32) identity.Number { return identity.Number(n) })
		anyNumber := rapid.Map(rapid.Uint32Range(0, 600), func(n uint32) identity.Number { return identity.Number(n) })
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n, taken := anyNumber.Draw(t, "number"), rapid.Bool().Draw(t, "taken")
				p.take(n, taken)
				if n >= lo && n <= hi {
					naive.taken[n] = taken
				}
			},
			"fill": func(t *rapid.T) {
				for n := number.Draw(t, "from"); n <= hi; n++ {
					p.take(n, true)
					naive.taken[n] = true
				}
			},
			"next": func(t *rapid.T) {
				start := number.Draw(t, "start")
				got, ok := p.next(start)
				want, wantOK := naive.next(start)
				if ok != wantOK || ok && got != want {
					t.Fatalf("next from %d of [%d, %d]: %d %v, expected is %d %v", start, lo, hi, got, ok, want, wantOK)
				}
			},
			"walk": func(t *rapid.T) {
				start, limit := anyNumber.Draw(t, "start"), rapid.IntRange(1, 20).Draw(t, "limit")
				var got []identity.Number
				p.walk(start, func(n identity.Number) bool {
					got = append(got, n)
					return len(got) < limit
				})
				want := naive.from(start)
				want = want[:min(limit, len(want))]
				for i, n := range want {
					if i >= len(got) || got[i] != n {
						t.Fatalf("walk from %d: %v, expected is %v", start, got, want)
					}
				}
				if len(got) != len(want) {
					t.Fatalf("walk from %d: %v, expected is %v", start, got, want)
				}
			},
			"": func(t *rapid.T) {
				if want := uint64(len(naive.from(lo))); p.used != want || p.capacity() != uint64(hi-lo)+1 {
					t.Fatalf("used %d of %d, expected is %d", p.used, p.capacity(), want)
				}
			},
		})
	})
}
