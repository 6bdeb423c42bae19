// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"sort"

	"github.com/signet-identity/signet/allocator/identity"
)

// winner is the master that counts when foreign writers made several: of those
// in the own range the oldest one that is referenced, else the oldest; nil when
// none is in the range.
func (s *set) winner(space identity.Space) *master {
	var best *master
	for _, m := range s.masters {
		if space.Contains(m.number) && (best == nil || s.better(m, best)) {
			best = m
		}
	}
	return best
}

func (s *set) better(a, b *master) bool {
	if ra, rb := s.referenced(a.number), s.referenced(b.number); ra != rb {
		return ra
	}
	return a.create < b.create
}

func (s *set) referenced(n identity.Number) bool {
	for _, r := range s.refs {
		if r.number == n {
			return true
		}
	}
	return false
}

// holders lists the set's references to number n, sorted by name.
func (s *set) holders(n identity.Number) []Holder {
	out := make([]Holder, 0, len(s.refs))
	for name, r := range s.refs {
		if r.number == n {
			out = append(out, Holder{Name: name, Hold: r.mod, Lease: r.lease})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}
