// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"math/bits"

	"github.com/signet-identity/signet/allocator/identity"
)

// pool knows which numbers of the own range are taken: live, remembered by a
// tombstone, or promised to an operation in flight. One bit per number.
//
// Invariant: used == number of set bits in taken.
type pool struct {
	min, max identity.Number
	taken    []uint64
	used     uint64
}

func newPool(lo, hi identity.Number) *pool {
	return &pool{min: lo, max: hi, taken: make([]uint64, (uint64(hi)-uint64(lo))/64+1)}
}

func (p *pool) contains(n identity.Number) bool { return n >= p.min && n <= p.max }

func (p *pool) capacity() uint64 { return uint64(p.max) - uint64(p.min) + 1 }

func (p *pool) has(n identity.Number) bool {
	i := uint64(n - p.min)
	return p.taken[i/64]&(1<<(i%64)) != 0
}

// take sets or clears a number's bit. Numbers outside the range are ignored.
func (p *pool) take(n identity.Number, taken bool) {
	if !p.contains(n) || p.has(n) == taken {
		return
	}
	i := uint64(n - p.min)
	p.taken[i/64] ^= 1 << (i % 64)
	if taken {
		p.used++
	} else {
		p.used--
	}
}

// start brings a start point of the whole space into the pool's part of it.
func (p *pool) start(at identity.Number) identity.Number {
	return p.min + identity.Number(uint64(at-p.min)%p.capacity())
}

// next returns the first number at or after start that is not taken, wrapping
// at max to min. It reports false when every number is taken.
func (p *pool) next(start identity.Number) (identity.Number, bool) {
	if p.used >= p.capacity() {
		return 0, false
	}
	from := uint64(start - p.min)
	if i, ok := p.clearBit(from, p.capacity()); ok {
		return p.min + identity.Number(i), true
	}
	i, ok := p.clearBit(0, from)
	return p.min + identity.Number(i), ok
}

// clearBit finds the first clear bit in [from, to).
func (p *pool) clearBit(from, to uint64) (uint64, bool) {
	for i := from; i < to; i = (i/64 + 1) * 64 {
		free := ^p.taken[i/64] >> (i % 64)
		if free == 0 {
			continue
		}
		at := i + uint64(bits.TrailingZeros64(free))
		return at, at < to
	}
	return 0, false
}

// walk calls f with each taken number at or after start, ascending, until f says stop.
func (p *pool) walk(start identity.Number, f func(identity.Number) bool) {
	if start < p.min {
		start = p.min
	}
	if start > p.max {
		return
	}
	for i := uint64(start - p.min); i < p.capacity(); {
		word := p.taken[i/64] >> (i % 64)
		if word == 0 {
			i = (i/64 + 1) * 64
			continue
		}
		i += uint64(bits.TrailingZeros64(word))
		if !f(p.min + identity.Number(i)) {
			return
		}
		i++
	}
}
