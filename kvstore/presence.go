// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/signet-identity/signet/allocator"
)

// ErrNodeTaken: another instance keeps the node's presence.
var ErrNodeTaken = errors.New("the node's presence belongs to another instance")

// NodeTaken says which instance keeps the presence of a node. It is an ErrNodeTaken.
type NodeTaken struct {
	Node     string
	Instance string // empty: the key does not say
}

// Error implements error.
func (e *NodeTaken) Error() string {
	return fmt.Sprintf("node %q is kept by another instance, %q: stop the agent that runs there, or wait until its presence has lapsed",
		e.Node, e.Instance)
}

// Is makes every NodeTaken an ErrNodeTaken.
func (e *NodeTaken) Is(target error) bool { return target == ErrNodeTaken }

// PresenceConfig is what a Presence needs to know.
type PresenceConfig struct {
	// Key of the presence: "signet/v1/default/nodes/n1".
	Key string
	// Value is what the key says; TTLS is filled in. Value.Instance tells the own
	// presence from another instance's.
	Value allocator.Presence
	// TTL of the lease.
	TTL time.Duration
	// Retry is the pause after a refusal or a failed call. Default 1 s.
	Retry time.Duration
	// Audit is how often the own key is read although the watch says nothing. Default TTL.
	Audit time.Duration
}

func (c PresenceConfig) withDefaults() PresenceConfig {
	if c.Retry <= 0 {
		c.Retry = time.Second
	}
	if c.Audit <= 0 {
		c.Audit = c.TTL
	}
	c.Value.TTLS = int64((c.TTL + time.Second - 1) / time.Second)
	return c
}

// PresenceReady is what Step left to do.
type PresenceReady struct {
	Calls   []Call
	Changed bool // Status has changed in State, Lease or Err
	Wake    time.Duration
	Stopped bool // after Leave: nothing is left to do
}

// PresenceStatus is what a Presence knows.
type PresenceStatus struct {
	State string // reading, granting, putting, present, refused, leaving, left
	Lease int64  // 0: none
	// Present: the key stands under the lease as far as known, and the lease has not run out.
	Present  bool
	Revision int64         // of the own key; 0: it does not stand
	Err      error         // the last failure, an ErrNodeTaken among them; nil when all is well
	Age      time.Duration // since the last renewal that was answered was sent, or since the start
	Grants   uint64        // leases taken so far
	Lost     uint64        // times that the key or its lease was lost
}

type presenceState uint8

const (
	presenceReading  presenceState = iota // asks how the key stands, before anything is put
	presenceGranting                      // a grant is due or in flight
	presencePutting                       // puts the key under a compare of its mod revision as read
	presencePresent                       // the key stands under the own lease
	presenceRefused                       // another instance's key is there
	presenceLeaving
	presenceLeft
)

func (s presenceState) String() string {
	return [...]string{"reading", "granting", "putting", "present", "refused", "leaving", "left"}[s]
}

// Presence keeps a node's own key under a lease of its own, as a state machine
// without I/O or clock. It reads the key, takes a lease, and puts the key under
// a compare that it still is as it was read: absent, lease-less (which counts as
// absent), or of the same instance. Another instance's key is left alone until
// it is gone. Once the key or the lease is lost, whatever took it, it begins
// again with a new lease, at most one a second; it touches no other key.
type Presence struct {
	calls
	cfg   PresenceConfig
	state presenceState
	value []byte

	at        time.Duration // when the state's call is due
	request   pending       // the read, grant or put in flight
	lease     keeper
	revokes   revoker
	lastGrant time.Duration
	granted   bool

	seen  int64  // mod revision of the key as last read; 0: absent
	mod   int64  // mod revision of the own put; 0: none
	watch uint64 // of the own key
	audit pending
	next  time.Duration // when the next audit is due

	err     error
	changed bool
	heard   time.Duration
	grants  uint64
	lost    uint64
}

// NewPresence returns a presence that has not begun: the first Tick begins.
func NewPresence(cfg PresenceConfig) *Presence {
	p := &Presence{cfg: cfg.withDefaults()}
	p.setValue(p.cfg.Value)
	return p
}

func (p *Presence) setValue(v allocator.Presence) {
	v.TTLS = p.cfg.Value.TTLS
	value, err := marshal(v)
	if err != nil { // strings and numbers always marshal
		panic(err)
	}
	p.cfg.Value, p.value = v, value
}

// Status reports at time now.
func (p *Presence) Status(now time.Duration) PresenceStatus {
	return PresenceStatus{
		State: p.state.String(), Lease: p.lease.id, Err: p.err, Age: now - p.heard, Revision: p.mod,
		Present: p.mod > 0 && p.lease.id != 0 && now < p.lease.end(),
		Grants:  p.grants, Lost: p.lost,
	}
}

// presenceOf reads a presence key's value; ok is false when it is none.
func presenceOf(kv KV) (v allocator.Presence, ok bool) {
	err := json.Unmarshal(kv.Value, &v)
	return v, err == nil
}
