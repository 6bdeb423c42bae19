// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/signet-identity/signet/kvstore"
)

func (c *caseOf) putLeased(t *testing.T, name string, lease int64) int64 {
	t.Helper()
	a := c.putAction(name, "leased")
	a.Lease = lease
	return c.txn(t, kvstore.Txn{Then: []kvstore.Action{a}}).Revision
}

func testLeases(t *testing.T, c *caseOf) {
	one, two := c.grant(t, 90*time.Second), c.grant(t, 2500*time.Millisecond)
	if one <= 0 || two <= 0 || one == two {
		t.Errorf("leases %d and %d", one, two)
	}
	if ttl, err := c.Store.KeepAlive(c.ctx, one); err != nil || ttl != 90*time.Second {
		t.Errorf("KeepAlive: %v, %v", ttl, err)
	}
	if ttl, err := c.Store.KeepAlive(c.ctx, two); err != nil || ttl != 3*time.Second {
		t.Errorf("KeepAlive of a lease of 2.5 s: %v, %v", ttl, err)
	}
	c.putLeased(t, "a", one)
	c.putLeased(t, "b", one)
	c.putLeased(t, "moved", one)
	c.putLeased(t, "moved", two)
	c.putLeased(t, "freed", one)
	at := c.put(t, "freed", "no lease any more")
	if kv := c.get(t, "moved"); kv.Lease != two {
		t.Errorf("a key that was put again under another lease: %+v", kv)
	}
	if err := c.Store.Revoke(c.ctx, one); err != nil {
		t.Fatalf("Revoke: %v", err)
	}
	r := c.list(t, kvstore.RangeRequest{Key: c.prefix, RangeEnd: c.end()})
	if got := c.text(r.KVs); got != "freed=no lease any more moved=leased " || r.Revision != at+1 {
		t.Errorf("after the revocation at %d: %q, want revision %d", r.Revision, got, at+1)
	}
	if err := c.Store.Revoke(c.ctx, one); !errors.Is(err, kvstore.ErrLeaseNotFound) {
		t.Errorf("a second revocation: %v", err)
	}
	if _, err := c.Store.KeepAlive(c.ctx, one); !errors.Is(err, kvstore.ErrLeaseNotFound) {
		t.Errorf("KeepAlive of a revoked lease: %v", err)
	}
	if err := c.Store.Revoke(c.ctx, two); err != nil {
		t.Errorf("Revoke: %v", err)
	}
	if err := c.Store.Revoke(c.ctx, c.grant(t, time.Minute)); err != nil {
		t.Errorf("Revoke of a lease without keys: %v", err)
	}
}

func testLeaseEnds(t *testing.T, c *caseOf) {
	lease := c.grant(t, time.Second)
	at := c.putLeased(t, "a", lease)
	w := c.watch(t, at+1)
	c.Pass(t, 1100*time.Millisecond)
	event := w.until(t, at+1)[0]
	if !event.Delete || event.KV.Key != c.key("a") {
		t.Errorf("the lease ended with %+v", event)
	}
	if _, err := c.Store.KeepAlive(c.ctx, lease); !errors.Is(err, kvstore.ErrLeaseNotFound) {
		t.Errorf("KeepAlive of a lease that has ended: %v", err)
	}
}
