// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"context"
	"net/netip"
	"time"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/bpf"
)

// Source says where an entry comes from. When several sources name one
// address, the greater source counts.
type Source uint8

// The sources, weakest first.
const (
	SourceCIDR     Source = iota + 1 // a CIDR of a policy
	SourceRemote                     // another node's endpoint, from the store
	SourceNode                       // a node's own address
	SourceEndpoint                   // an endpoint of this node
)

// Entry is one wanted address. A Prefix of full length (/32, /128) is a host.
// The prefix must be canonical: no host bits, no zone, no IPv4-in-IPv6 form.
type Entry struct {
	Prefix netip.Prefix
	Number identity.Number // not zero, unless Dead
	Source Source
	Dead   bool // the number is dead: the address is known and denied
}

// Row flags, as in the header of a row.
const (
	FlagValid   uint32 = bpf.RowValid   // the row is in use
	FlagDeny    uint32 = bpf.RowDenied  // whoever has this row is denied
	FlagCleared uint32 = bpf.RowCleared // no longer in use, not yet to be reused
)

// Realised is one entry as a map really holds it.
type Realised struct {
	Table  string          // the map's name: signet_ipcache or signet_ipcache_lpm
	Prefix netip.Prefix    // invalid when the key is none of ours
	Row    uint32          // row index
	Number identity.Number // from the row's header
	Flags  uint32          // from the row's header
	Proven bool            // the check word belongs to the key
}

// DriftKind says in which way a map differs from the desired table.
type DriftKind string

// The kinds of drift.
const (
	DriftMissing DriftKind = "missing" // wanted, not in the map
	DriftExtra   DriftKind = "extra"   // in the map, wanted by nobody
	DriftWrong   DriftKind = "wrong"   // in the map with another row or check word
	DriftRow     DriftKind = "row"     // a row's header is not what it should be
	DriftPin     DriftKind = "pin"     // a pin is gone or is another map
)

// DriftItem is one difference.
type DriftItem struct {
	Kind    DriftKind
	Table   string       // the map's name
	Prefix  netip.Prefix // of an address entry with a readable key
	Row     uint32       // the row found; for DriftRow the row's index
	Pending bool         // already known and being worked on: not a surprise
}

// Drift is what Verify found; empty when the maps equal the desired table.
type Drift struct{ Items []DriftItem }

// DriftCount counts differences per kind.
type DriftCount map[DriftKind]uint64

// TableStatus is the filling of one address map, in entries.
type TableStatus struct {
	Name     string
	Entries  int // realised: what the map holds
	Wanted   int // what it should hold
	Capacity int
}

// RowStatus is the filling of the rows map, in rows (the two fixed ones
// not counted).
type RowStatus struct {
	Used       int // pointed to by an address
	Clearing   int // without an address, in grace
	Quarantine int // cleared, not yet to be reused
	Capacity   int
}

// Status is one look at the datapath.
type Status struct {
	Kind        string // "ebpf" or "memory"
	Reason      string // why memory; empty for ebpf
	PinPath     string // folder of the pins; empty for memory
	Tables      []TableStatus
	Rows        RowStatus
	Synced      bool // Synced was called: stale entries may be pruned
	Degraded    bool // an entry cannot be realised at present, or the last pass failed
	Pending     int  // entries whose map content is not what is wanted
	Failing     int  // pending entries with at least one failed try
	Failures    uint64
	Writes      uint64 // map writes and deletes that succeeded
	Drift       DriftCount
	LastError   string
	LastSuccess time.Time // end of the last pass that left nothing failing
	LastVerify  time.Time // end of the last complete comparison
}

// Pending is one entry that waits to be realised.
type Pending struct {
	Prefix   netip.Prefix
	Number   identity.Number // zero when it is to be removed or denied
	Remove   bool
	Attempts int
	Next     time.Time // when it is tried again
	Err      error     // of the last try; nil before the first
}

// Progress tells how far the maps follow the calls. Every Upsert and Delete
// gets the next sequence number.
type Progress struct {
	Last    uint64 // the newest change
	Applied uint64 // every change up to here is in the maps, deferred clearing included
	// Cleared: nothing that a change up to here replaced or removed is left in
	// the maps, deferred clearing included. Unlike Applied it does not wait for
	// additions that find no room: it is what an acknowledgement may rest on.
	Cleared uint64
}

// Verdict is the outcome of a lookup.
type Verdict uint8

// The verdicts, with the values that the C side uses.
const (
	Miss Verdict = iota // no entry: world
	Hit                 // an entry with a live number
	Deny                // a known address that is denied, or an entry that does not prove itself
)

// Result is what a lookup of one address gives.
type Result struct {
	Verdict Verdict
	Number  identity.Number
	Flags   uint32
	Row     uint32
}

// Datapath is the address side of the datapath. All methods may be called
// from several goroutines.
type Datapath interface {
	// Upsert states an entry of a source, or replaces the one it stated
	// before. It only notes it; Run, Tick or Reconcile writes it. Errors:
	// *EntryError, ErrClosed.
	Upsert(Entry) error
	// Delete takes a source's entry back; the next weaker source's entry
	// counts from then on. Taking back what is not there is no error.
	Delete(netip.Prefix, Source) error
	// Synced says that the desired table is complete. Before it, what the maps
	// already hold is neither removed nor changed (but by SourceEndpoint,
	// which nothing can outrank); new addresses are added.
	Synced()

	// Run works until ctx ends: after changes, for retries, for deferred
	// clearing, and for the periodic comparison. It returns nil then.
	Run(ctx context.Context) error
	// Reconcile tries everything that is pending now, without regard to
	// backoff. The error joins what is left failing.
	Reconcile(ctx context.Context) error
	// Tick does what is due at now; Run calls it.
	Tick(ctx context.Context, now time.Time) error
	// Verify compares maps and desired table, entry by entry.
	Verify() (Drift, error)
	// Repair is Verify, counting surprises per kind, and putting them right.
	Repair(ctx context.Context) (Drift, error)

	// List reads what the maps really hold, sorted by prefix.
	List() ([]Realised, error)
	// Lookup asks for one address as a program would: through the loaded
	// program for ebpf, by the same steps in Go for memory.
	Lookup(netip.Addr) (Result, error)
	// Pending lists what waits to be realised, sorted by prefix.
	Pending() []Pending
	Progress() Progress
	Status() Status

	// Close lets go of the maps and keeps the pins: the next Open finds them.
	Close() error
	// Destroy removes the pins and closes: the node leaves.
	Destroy() error
}
