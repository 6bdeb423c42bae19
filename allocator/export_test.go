// SPDX-License-Identifier: Apache-2.0

package allocator

// PoolUsed is how many numbers of the own range the core counts as taken.
func (c *Core) PoolUsed() uint64 { return c.t.pool.used }

// Holds is every reference that the core knows, and its hold.
func (c *Core) Holds() map[Key]int64 {
	out := map[Key]int64{}
	for text, s := range c.t.sets {
		for holder, r := range s.refs {
			out[ReferenceKey(text, holder)] = r.mod
		}
	}
	return out
}
