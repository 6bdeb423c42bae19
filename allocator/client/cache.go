// SPDX-License-Identifier: Apache-2.0

package client

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

// cache is the bounded memory of identities that are not pinned. byNumber is
// the truth; byLabels only points into it and is checked against it, so that
// it does not matter which of the two forgets first, or how.
type cache struct {
	byNumber *lru.Cache[identity.Number, cached]
	byLabels *lru.Cache[labels.Set, identity.Number]
	ttl      time.Duration
	now      func() time.Time
}

type cached struct {
	set   labels.Set
	until time.Time // zero: until a mirror says otherwise
}

func newCache(size int, ttl time.Duration, now func() time.Time) *cache {
	byNumber, _ := lru.New[identity.Number, cached](size) // fails for a size below 1 only
	byLabels, _ := lru.New[labels.Set, identity.Number](size)
	return &cache{byNumber: byNumber, byLabels: byLabels, ttl: ttl, now: now}
}

// learn takes an identity from a mirror: it counts until drop.
func (c *cache) learn(i Identity) { c.put(i, time.Time{}) }

// answer takes an identity from a server's answer: it counts for the TTL. What
// a mirror said stays.
func (c *cache) answer(i Identity) {
	if have, ok := c.byNumber.Peek(i.Number); ok && have.set == i.Labels && have.until.IsZero() {
		return
	}
	c.put(i, c.now().Add(c.ttl))
}

func (c *cache) put(i Identity, until time.Time) {
	c.byNumber.Add(i.Number, cached{set: i.Labels, until: until})
	c.byLabels.Add(i.Labels, i.Number)
}

func (c *cache) drop(n identity.Number) { c.byNumber.Remove(n) }

func (c *cache) purge() {
	c.byNumber.Purge()
	c.byLabels.Purge()
}

func (c *cache) number(n identity.Number) (Identity, bool) {
	have, ok := c.byNumber.Get(n)
	if !ok {
		return Identity{}, false
	}
	if !have.until.IsZero() && c.now().After(have.until) {
		c.byNumber.Remove(n)
		return Identity{}, false
	}
	return Identity{Number: n, Labels: have.set}, true
}

func (c *cache) labels(set labels.Set) (Identity, bool) {
	n, ok := c.byLabels.Get(set)
	if !ok {
		return Identity{}, false
	}
	i, ok := c.number(n)
	if !ok || i.Labels != set {
		return Identity{}, false
	}
	return i, true
}

func (c *cache) len() int { return c.byNumber.Len() }
