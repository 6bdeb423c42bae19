// SPDX-License-Identifier: Apache-2.0

// Package client talks to Signet's operators and keeps what the caller uses.
//
//	c, err := client.Dial(ctx, client.Config{Servers: []string{"127.0.0.1:7472"}, Holder: "pin-ci"})
//	a, err := c.Allocate(ctx, set)   // a.Number; pinned until Release
//	err = c.Release(ctx, set)
//
// Any server takes any call; the client keeps to one while it answers and goes
// round the others when it does not. Calls that found no server are repeated
// with backoff and jitter until the deadline, for all calls are idempotent:
// Allocate again gives the same number and hold, Release again finds nothing.
//
// # Pins and cache
//
// A label set that the caller allocated is pinned: it is answered from memory,
// counted, and given back when the count is zero. Pins are not part of the
// cache and are never evicted. What was only looked up is in a bounded LRU,
// and nothing hangs on its evictions: an evicted entry is looked up again. An
// entry from a server's answer counts for CacheTTL only, which is shorter than
// any quarantine, so that a number never shows labels of its life before;
// entries that a mirror feeds (Learn, Drop, Apply) count until the mirror
// takes them back.
//
// While no server answers, pinned sets are served and everything else waits
// for its deadline and gets an *Error with code Unavailable: the client never
// makes a number up.
//
// # Unknown outcomes
//
// One call per label set is in flight; others for the same set join it, each
// with its own deadline. A Release whose answer was lost is remembered: it may
// still land. The next Allocate of that set carries the hold that was given
// up, so that the operator can put it out of the late Release's reach. Flush
// settles what is remembered.
package client
