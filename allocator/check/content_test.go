// SPDX-License-Identifier: Apache-2.0

package check

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

const (
	ids       = "cilium/state/identities/v1/id/"
	refs      = "cilium/state/identities/v1/value/"
	locks     = "cilium/state/identities/v1/locks/"
	addresses = "cilium/state/ip/v1/default/"
	own       = "signet/v1/default/"

	web = "k8s:app=web;"
	db  = "k8s:app=db;k8s:path=a/b;"
	old = "k8s:app=old;"
)

func newLayout(t testing.TB) kvstore.Layout {
	t.Helper()
	l, err := kvstore.NewLayout("", "default")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newSpace(t testing.TB, name string, id uint32) identity.Space {
	t.Helper()
	s, err := identity.NewSpace(name, id, 255, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// content is a store made by hand.
type content struct {
	kvs map[string]kvstore.KV
	rev int64
}

func (c *content) put(key, value string) { c.lease(key, value, 0) }

func (c *content) lease(key, value string, lease int64) {
	c.rev++
	c.kvs[key] = kvstore.KV{Key: key, Value: []byte(value), CreateRevision: c.rev, ModRevision: c.rev, Version: 1, Lease: lease}
}

func (c *content) del(key string) { delete(c.kvs, key) }

func (c *content) list() []kvstore.KV {
	out := make([]kvstore.KV, 0, len(c.kvs))
	for _, key := range slices.Sorted(maps.Keys(c.kvs)) {
		out = append(out, c.kvs[key])
	}
	return out
}

func presence(node string) string {
	return `{"node":"` + node + `","addresses":[],"prefixes":[],"version":"v0","ttl_s":15,"instance":"u"}`
}

func address(ip string, number int, metadata string) string {
	return `{"IP":"` + ip + `","Mask":null,"HostIP":"192.168.0.1","ID":` + strconv.Itoa(number) + `,"Key":0,"Metadata":"` + metadata + `"}`
}

func mark(rev, served int) string {
	return `{"since":{"revision":` + strconv.Itoa(rev) + `,"served_s":` + strconv.Itoa(served) + `}}`
}

func tombstone(labels, quarantine string, freed int) string {
	return `{"labels":"` + labels + `","born":{"revision":1,"served_s":0},"freed":{"revision":` + strconv.Itoa(freed) +
		`,"served_s":5},"quarantine":"` + quarantine + `"}`
}

// sound is a store in which everything is as it should be: two identities in
// use, an idle one, a freed number, a node, a pin, an operator.
func sound() *content {
	c := &content{kvs: map[string]kvstore.KV{}, rev: 1}
	c.put(own+"cluster", `{"name":"default","id":0,"max_connected_clusters":255,"local_bits":16,"format":1}`)
	c.put("signet/v1/ids/0", "default")
	c.put("signet/v1/ids/7", "elsewhere")
	c.put(own+"lineage", `{"counter":7,"served_s":30,"terms":[{"nonce":"a","first":1,"last":4},{"nonce":"b","first":5,"last":7}]}`)
	c.lease(own+"election/1f", `{"who":"op-1","address":"h:1","version":"v0","ttl_s":5,"barrier":0}`, 0x1f)
	c.lease(own+"mirrors/peer/election/2f", `{}`, 0x2f)
	c.lease(own+"nodes/n1", presence("n1"), 0x3f)
	c.put(ids+"300", web)
	c.put(refs+web+"/n1", "300")
	c.put(refs+web+"/k8s.n2", "300")
	c.put(ids+"301", db)
	c.put(refs+db+"/pin-me", "301")
	c.put(ids+"302", old)
	c.put(own+"idle/302", mark(9, 20))
	c.put(own+"tombstones/303", tombstone("k8s:app=older;", "pending", 9))
	c.put(addresses+"10.0.0.1", address("10.0.0.1", 300, "signet:default:n1:ep:1"))
	c.put(own+"settings/gc", "paused")
	c.put("cilium/.heartbeat", "not judged")
	c.put("elsewhere", "\xff")
	return c
}
