// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"errors"

	"github.com/signet-identity/signet/allocator"
)

// DecodeBatch turns a mirror's batch into the core's. Keys of no table of
// Signet's are passed over. A key that stands, and whose text or value is
// malformed, is returned as a *KeyError or *MalformedError; if its key can be
// read it counts as deleted, just as a list leaves it out, so that a view that
// followed is equal to one that began anew. The deletion of a key that cannot be
// read ends the fault, and is none.
func DecodeBatch(l Layout, b MirrorBatch) (allocator.Batch, []error) {
	out := allocator.Batch{Revision: b.Revision, Reset: b.Reset, Records: make([]allocator.Record, 0, len(b.Events))}
	var malformed []error
	for _, ev := range b.Events {
		if ev.Delete {
			out.Deleted = decodeDeleted(l, ev.KV, out.Deleted)
			continue
		}
		record, err := l.Decode(ev.KV)
		if err == nil {
			out.Records = append(out.Records, record)
			continue
		}
		if unknownKey(err) {
			continue
		}
		malformed = append(malformed, err)
		if !b.Reset {
			out.Deleted = decodeDeleted(l, ev.KV, out.Deleted)
		}
	}
	return out, malformed
}

func unknownKey(err error) bool {
	var bad *KeyError
	return errors.As(err, &bad) && bad.Unknown
}

func decodeDeleted(l Layout, kv KV, deleted []allocator.Deleted) []allocator.Deleted {
	if key, err := l.Parse(kv.Key); err == nil {
		deleted = append(deleted, allocator.Deleted{Key: key, Revision: kv.ModRevision})
	}
	return deleted
}
