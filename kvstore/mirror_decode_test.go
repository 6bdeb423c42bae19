// SPDX-License-Identifier: Apache-2.0

package kvstore_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/kvstore"
)

func TestDecodeBatch(t *testing.T) {
	l, err := kvstore.NewLayout("", "default")
	if err != nil {
		t.Fatal(err)
	}
	put := func(key, value string, mod int64) kvstore.Event {
		return kvstore.Event{KV: kvstore.KV{Key: key, Value: []byte(value), CreateRevision: mod - 1, ModRevision: mod, Lease: 7}}
	}
	gone := func(key string, mod int64) kvstore.Event {
		return kvstore.Event{Delete: true, KV: kvstore.KV{Key: key, ModRevision: mod}}
	}
	const ids = "cilium/state/identities/v1/id/"
	events := []kvstore.Event{
		put(ids+"1001", "k8s:app=web;", 5),
		put(ids+"nonsense", "k8s:app=web;", 5),
		put("signet/v1/default/idle/1002", "no json", 5),
		put("elsewhere/1", "x", 5),
	}
	master := allocator.Record{Key: allocator.MasterKey(1001), Value: allocator.LabelSet("k8s:app=web;"), CreateRevision: 4, ModRevision: 5, Lease: 7}
	for name, tc := range map[string]struct {
		in        kvstore.MirrorBatch
		want      allocator.Batch
		malformed int
	}{
		"empty":   {kvstore.MirrorBatch{Revision: 3}, allocator.Batch{Revision: 3, Records: []allocator.Record{}}, 0},
		"a reset": {kvstore.MirrorBatch{Revision: 5, Reset: true, Events: events}, allocator.Batch{Revision: 5, Reset: true, Records: []allocator.Record{master}}, 2},
		"puts": {kvstore.MirrorBatch{Revision: 5, Events: events}, allocator.Batch{Revision: 5, Records: []allocator.Record{master},
			Deleted: []allocator.Deleted{{Key: allocator.IdleKey(1002), Revision: 5}}}, 2},
		"deletions": {kvstore.MirrorBatch{Revision: 6, Events: []kvstore.Event{gone(ids+"1001", 6), gone(ids+"nonsense", 6), gone("elsewhere/1", 6)}},
			allocator.Batch{Revision: 6, Records: []allocator.Record{}, Deleted: []allocator.Deleted{{Key: allocator.MasterKey(1001), Revision: 6}}}, 0},
	} {
		got, malformed := kvstore.DecodeBatch(l, tc.in)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		if len(malformed) != tc.malformed {
			t.Errorf("%s: malformed %v", name, malformed)
		}
	}
}
