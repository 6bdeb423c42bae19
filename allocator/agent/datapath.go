// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/netip"
	"time"

	"github.com/signet-identity/signet/allocator/identity"
)

// Source says where a map entry comes from. When both name one address,
// SourceEndpoint counts.
type Source uint8

// The sources.
const (
	SourceRemote   Source = iota + 1 // published in the store
	SourceEndpoint                   // an endpoint of this node
)

// Entry is one wanted address.
type Entry struct {
	Prefix netip.Prefix
	Number identity.Number
	Source Source
	Dead   bool // the number is dead: the address is known and denied
}

// Realised is one entry as the address map holds it.
type Realised struct {
	Prefix netip.Prefix
	Row    uint32
	Number identity.Number
	Dead   bool // denied
}

// Progress tells how far the maps follow the calls, in changes.
type Progress struct {
	Last uint64 // the newest change
	// Cleared: nothing that a change up to here replaced or removed is left in
	// the maps, deferred clearing included.
	Cleared uint64
}

// DatapathStatus is one look at the address map, in entries.
type DatapathStatus struct {
	Kind     string // ebpf or memory
	Detail   string // where the maps are pinned, or why the datapath is memory
	Entries  int    // what the map holds
	Wanted   int    // what it should hold
	Capacity int
	Pending  int // not yet as wanted
	Failing  int // pending with at least one failed try
	// LastSuccess is the end of the last pass that left nothing failing.
	LastSuccess time.Time
	LastError   string
}

// Datapath is the address map as the agent drives it; datapath/ipcache is the
// real one. All methods may be called from several goroutines, and none but
// Run, Reconcile, List and Destroy may take long.
type Datapath interface {
	// Upsert states an entry of a source, or replaces the one it stated before.
	Upsert(Entry) error
	// Delete takes a source's entry back.
	Delete(netip.Prefix, Source) error
	// Synced says that what is wanted is complete: before it, entries of an
	// earlier run that nobody stated are kept.
	Synced()
	// Run realises what is stated until ctx ends.
	Run(ctx context.Context) error
	// Reconcile tries everything that is pending now; an error says that
	// something is left, which Failing names.
	Reconcile(ctx context.Context) error
	// Failing is why each entry that is not realised is not.
	Failing() map[netip.Prefix]error
	// List reads what the map holds.
	List() ([]Realised, error)
	Progress() Progress
	Status() DatapathStatus
	// Destroy removes maps and pins: the node leaves.
	Destroy() error
}
