// SPDX-License-Identifier: Apache-2.0

package kvstore

import "github.com/signet-identity/signet/allocator"

// Cost is what an Op adds to a Work transaction. etcd limits the compares, the
// actions of Then and those of Else (MaxTxnOps each) and the bytes of a
// request (1.5 MiB by default); FenceCompares and FenceReads come on top.
type Cost struct {
	Compares int // in If
	Writes   int // in Then
	Reads    int // in Else; an upper bound, as ops that share a key read it once
	Bytes    int // of the request; an estimate from above
}

// elementBytes is about what an element of a request takes beside its texts.
const elementBytes = 32

// Cost is what op costs. An op that Encode refuses may have any cost.
func (l Layout) Cost(op allocator.Op) Cost {
	cost := Cost{Compares: len(op.Guards), Writes: len(op.Writes)}
	for _, g := range op.Guards {
		if c, err := l.compare(g); err == nil {
			cost.Bytes += elementBytes + len(c.Key) + len(c.RangeEnd) + len(c.Value)
		}
	}
	for _, w := range op.Writes {
		if a, err := l.write(w); err == nil {
			cost.Bytes += elementBytes + len(a.Key) + len(a.Value)
		}
	}
	if keys, err := l.reads([]allocator.Op{op}); err == nil {
		cost.Reads = len(keys.actions)
		for _, a := range keys.actions {
			cost.Bytes += elementBytes + len(a.Key) + len(a.RangeEnd)
		}
	}
	return cost
}
