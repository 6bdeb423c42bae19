// SPDX-License-Identifier: Apache-2.0

package allocator

import "time"

// seen is a moment on the leader's monotonic clock; the zero value is never.
type seen struct {
	at  time.Duration
	set bool
}

// requestKind says what a request in a queue wants.
type requestKind uint8

const (
	wantReference requestKind = iota + 1 // Allocate
	wantRelease
	wantPurge // internal: a gone or leaving node's reference or address goes
	wantPublish
	wantWithdraw
	wantLeave
	wantForget
	wantAnnounced // recovery: a node's reference is rebuilt
)

// request is one caller's wish, or the core's own (id 0), in the queue of a
// label set, an address or a node.
type request struct {
	id      uint64
	kind    requestKind
	text    string // label set text, or the address's key
	holder  string
	hold    int64 // Release: the hold to give back; 0: any
	lost    int64 // Release: the hold that an operation without an answer was to take
	givenUp int64
	claim   AddressClaim
	tries   int
	fenced  bool     // a fenced read that began after it came in says that this replica leads
	pair    HeldPair // what a node announced
	hello   *helloWait

	group *group // publish and withdraw: the request it is part of
	index int
}

// group collects the results of a PublishRequest's items.
type group struct {
	id      uint64
	left    int
	results []PublishResult
}

// helloWait collects the pairs of one hello in a recovery window.
type helloWait struct {
	id   uint64
	node string
	left int
}

// maxTries bounds how often one request is decided anew because the store
// changed under it.
const maxTries = 32

// Reply answers one request: Value is an Allocation, Released, Published, Left
// or nil, unless Err is set.
type Reply struct {
	ID    uint64
	Value any
	Err   *Error
}
