// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"errors"
	"slices"
)

// ErrRanAhead: a watch was closed since too many of its events were held back
// while another watch lagged; it is opened again.
var ErrRanAhead = errors.New("a watch ran too far ahead of the others")

// MirrorIndex maps each key of a consumer's state to its mod revision. It turns
// batches, Resets among them, into the changes that they mean.
type MirrorIndex map[string]int64

// Apply brings the index to batch.Revision and returns what changed against it:
// the batch's events without those that it already had; for a Reset, a put for
// each key that is new or changed, and, first, a deletion (with the batch's
// revision) for each key that is gone.
func (x MirrorIndex) Apply(batch MirrorBatch) []Event {
	var changes []Event
	if batch.Reset {
		changes = x.gone(batch)
	}
	for _, ev := range batch.Events {
		have, known := x[ev.KV.Key]
		switch {
		case ev.Delete && known:
			delete(x, ev.KV.Key)
		case ev.Delete, known && (have == ev.KV.ModRevision || !batch.Reset && have > ev.KV.ModRevision):
			continue
		default:
			x[ev.KV.Key] = ev.KV.ModRevision
		}
		changes = append(changes, ev)
	}
	return changes
}

// gone takes the keys out that a Reset does not name.
func (x MirrorIndex) gone(batch MirrorBatch) []Event {
	named := make(map[string]bool, len(batch.Events))
	for _, ev := range batch.Events {
		named[ev.KV.Key] = true
	}
	var deleted []string
	for key := range x {
		if !named[key] {
			deleted = append(deleted, key)
		}
	}
	slices.Sort(deleted)
	events := make([]Event, 0, len(deleted))
	for _, key := range deleted {
		delete(x, key)
		events = append(events, Event{Delete: true, KV: KV{Key: key, ModRevision: batch.Revision}})
	}
	return events
}
