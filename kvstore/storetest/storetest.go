// SPDX-License-Identifier: Apache-2.0

// Package storetest is the suite that every kvstore.Store passes, so that
// tests against the modelled store say something about etcd.
package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/signet-identity/signet/kvstore"
)

// Fixture is a Store under test.
type Fixture struct {
	Store kvstore.Store
	// Compact compacts at a revision.
	Compact func(t *testing.T, rev int64)
	// Pass lets at least d go by on the clock that leases follow.
	Pass func(t *testing.T, d time.Duration)
}

// Patience bounds every wait of the suite.
const Patience = 20 * time.Second

// Run runs the suite. Each case uses keys of its own under prefix.
func Run(t *testing.T, f Fixture, prefix string) {
	for name, test := range map[string]func(*testing.T, *caseOf){
		"transactions branch and read":      testTransactions,
		"revisions move with writes only":   testRevisions,
		"reads see the writes before them":  testReadOwnWrites,
		"range compares":                    testRangeCompares,
		"value compares":                    testValueCompares,
		"limits":                            testLimits,
		"one key twice":                     testDuplicateKey,
		"unknown lease":                     testUnknownLease,
		"history":                           testHistory,
		"pages of a list":                   testPages,
		"leases":                            testLeases,
		"leases end":                        testLeaseEnds,
		"watch from the past":               testWatchPast,
		"watch keeps revisions whole":       testWatchWhole,
		"watch reports progress":            testWatchProgress,
		"watch beyond the head":             testWatchFuture,
		"watch overtaken by compaction":     testWatchCompacted,
		"watch ends with its context":       testWatchEnds,
		"cancelled before it was sent":      testCancelled,
		"fence: oldest candidate writes":    testFenceOldest,
		"fence: barrier":                    testFenceBarrier,
		"fence: refusals show what is":      testFenceObserved,
		"fence: a read writes nothing":      testFencedRead,
		"fence: settle reads what is there": testSettle,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), Patience)
			defer cancel()
			test(t, &caseOf{Fixture: f, ctx: ctx, prefix: fmt.Sprintf("%s/%s/", prefix, name)})
		})
	}
}

// caseOf is what a case works with.
type caseOf struct {
	Fixture
	ctx    context.Context
	prefix string
}

func (c *caseOf) key(name string) string { return c.prefix + name }

func (c *caseOf) end() string { return kvstore.PrefixEnd(c.prefix) }

func (c *caseOf) txn(t *testing.T, txn kvstore.Txn) kvstore.TxnResult {
	t.Helper()
	r, err := c.Store.Txn(c.ctx, txn)
	if err != nil {
		t.Fatalf("Txn: %v", err)
	}
	return r
}

// put writes a key and returns the revision.
func (c *caseOf) put(t *testing.T, name, value string) int64 {
	t.Helper()
	return c.txn(t, kvstore.Txn{Then: []kvstore.Action{c.putAction(name, value)}}).Revision
}

func (c *caseOf) putAction(name, value string) kvstore.Action {
	return kvstore.Action{Put: true, Key: c.key(name), Value: []byte(value)}
}

func (c *caseOf) delete(t *testing.T, name string) int64 {
	t.Helper()
	return c.txn(t, kvstore.Txn{Then: []kvstore.Action{{Delete: true, Key: c.key(name)}}}).Revision
}

// get reads a key; nil: absent.
func (c *caseOf) get(t *testing.T, name string) *kvstore.KV {
	t.Helper()
	r := c.list(t, kvstore.RangeRequest{Key: c.key(name)})
	if len(r.KVs) == 0 {
		return nil
	}
	return &r.KVs[0]
}

func (c *caseOf) list(t *testing.T, r kvstore.RangeRequest) kvstore.RangeResult {
	t.Helper()
	got, err := c.Store.Range(c.ctx, r)
	if err != nil {
		t.Fatalf("Range(%+v): %v", r, err)
	}
	return got
}

func (c *caseOf) grant(t *testing.T, ttl time.Duration) int64 {
	t.Helper()
	id, err := c.Store.Grant(c.ctx, ttl)
	if err != nil {
		t.Fatalf("Grant: %v", err)
	}
	return id
}

// text renders keys and values relative to the case's prefix.
func (c *caseOf) text(kvs []kvstore.KV) string {
	s := ""
	for _, kv := range kvs {
		s += fmt.Sprintf("%s=%s ", kv.Key[len(c.prefix):], kv.Value)
	}
	return s
}
