// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/signet-identity/signet/allocator"
)

const webText = "k8s:app=web;k8s:io.kubernetes.pod.namespace=shop;"

// codecCase is a value under its key, with its stored form.
type codecCase struct {
	key    allocator.Key
	value  allocator.Value
	stored string
}

func codecCases() []codecCase {
	return []codecCase{
		{allocator.MasterKey(256), allocator.LabelSet(webText), webText},
		{allocator.ReferenceKey(webText, "n1"), allocator.NumberValue(256), "256"},
		{allocator.ClusterIDKey(3), allocator.Text("east"), "east"},
		{
			allocator.AddressKey("10.0.0.1"),
			allocator.Address{IP: "10.0.0.1", HostIP: "192.168.1.5", ID: 256, Metadata: "signet:default:n1:<&>"},
			`{"IP":"10.0.0.1","Mask":null,"HostIP":"192.168.1.5","ID":256,"Key":0,"Metadata":"signet:default:n1:<&>"}`,
		},
		{
			allocator.AddressKey("10.0.0.0/8"),
			allocator.Address{IP: "10.0.0.0", Mask: []byte{255, 0, 0, 0}, NamedPorts: []allocator.NamedPort{{Name: "http", Port: 80, Protocol: "TCP"}}},
			`{"IP":"10.0.0.0","Mask":"/wAAAA==","HostIP":"","ID":0,"Key":0,"Metadata":"","NamedPorts":[{"Name":"http","Port":80,"Protocol":"TCP"}]}`,
		},
		{
			allocator.PresenceKey("n1"),
			allocator.Presence{Node: "n1", Addresses: []string{"192.168.1.5"}, Prefixes: []string{"10.0.0.0/24"}, Version: "v0", TTLS: 15, Instance: "u"},
			`{"node":"n1","addresses":["192.168.1.5"],"prefixes":["10.0.0.0/24"],"version":"v0","ttl_s":15,"instance":"u"}`,
		},
		{allocator.GoneKey("n1"), allocator.Mark{Since: allocator.Time{Revision: 9, ServedS: 4}}, `{"since":{"revision":9,"served_s":4}}`},
		{allocator.IdleKey(256), allocator.Mark{}, `{"since":{"revision":0,"served_s":0}}`},
		{
			allocator.TombstoneKey(256),
			allocator.Tombstone{Labels: "k8s:a=<&>;", Freed: allocator.Time{Revision: 8, ServedS: 2}, Quarantine: allocator.QuarantinePending},
			`{"labels":"k8s:a=<&>;","born":{"revision":0,"served_s":0},"freed":{"revision":8,"served_s":2},"quarantine":"pending"}`,
		},
		{
			allocator.LineageKey(),
			allocator.Lineage{Counter: 7, ServedS: 30, Terms: []allocator.Term{{Nonce: "x", First: 1, Last: 7}}},
			`{"counter":7,"served_s":30,"terms":[{"nonce":"x","first":1,"last":7}]}`,
		},
		{
			allocator.ClusterKey(),
			allocator.Cluster{Name: "default", MaxConnectedClusters: 255, LocalBits: 16, Format: allocator.ClusterFormat},
			`{"name":"default","id":0,"max_connected_clusters":255,"local_bits":16,"format":1}`,
		},
		{allocator.Key{Kind: allocator.KindRecovery}, allocator.Recovery{Reason: "restored", Counter: 7}, `{"since":{"revision":0,"served_s":0},"reason":"restored","counter":7}`},
		{
			allocator.Key{Kind: allocator.KindElection, Name: "1f"},
			allocator.Candidate{Who: "op-1", Address: "10.0.0.9:7472", Version: "v0", TTLS: 5, Barrier: 2},
			`{"who":"op-1","address":"10.0.0.9:7472","version":"v0","ttl_s":5,"barrier":2}`,
		},
		{allocator.Key{Kind: allocator.KindSetting, Name: "gc"}, allocator.Raw("anything \xff"), "anything \xff"},
		{allocator.Key{Kind: allocator.KindLock, Labels: "k8s:a=b;", Name: "1f"}, allocator.Raw(""), ""},
	}
}

func TestValuesRoundTrip(t *testing.T) {
	l := newTestLayout(t)
	for _, c := range codecCases() {
		data, err := EncodeValue(c.key, c.value)
		if err != nil || string(data) != c.stored {
			t.Errorf("EncodeValue(%v) = %s, %v; want %s", c.key, data, err, c.stored)
			continue
		}
		key, err := l.Key(c.key)
		if err != nil {
			t.Fatal(err)
		}
		r, err := l.Decode(KV{Key: key, Value: data, CreateRevision: 3, ModRevision: 5, Version: 2, Lease: 31})
		want := allocator.Record{Key: c.key, Value: c.value, CreateRevision: 3, ModRevision: 5, Lease: 31}
		if err != nil || !reflect.DeepEqual(r, want) {
			t.Errorf("Decode(%s) = %#v, %v; want %#v", key, r, err, want)
		}
	}
}

func TestDecodeTakesUnknownFields(t *testing.T) {
	r, err := newTestLayout(t).Decode(KV{Key: "signet/v1/default/gone/n1", Value: []byte(` {"later":[1],"since":{"revision":2,"new":1}}`)})
	if want := (allocator.Mark{Since: allocator.Time{Revision: 2}}); err != nil || r.Value != want {
		t.Errorf("Decode = %v, %v", r, err)
	}
}

func TestDecodeTakesNoPortsForNone(t *testing.T) {
	kv := KV{Key: "cilium/state/ip/v1/default/10.0.0.1", Value: []byte(`{"IP":"10.0.0.1","NamedPorts":[]}`)}
	decodedAgain(t, newTestLayout(t), kv)
}

func TestDecodeMalformed(t *testing.T) {
	l := newTestLayout(t)
	master := "cilium/state/identities/v1/id/5"
	for name, kv := range map[string]KV{
		"empty label set":            {Key: master},
		"labels that are not sorted": {Key: master, Value: []byte("k8s:b=1;k8s:a=1;")},
		"no semicolon at the end":    {Key: master, Value: []byte("k8s:a=1")},
		"no equals sign":             {Key: master, Value: []byte("k8s:a;")},
		"a label without source":     {Key: master, Value: []byte("a=1;")},
		"one key twice":              {Key: master, Value: []byte("cni:a=1;k8s:a=2;")},
		"two slashes":                {Key: master, Value: []byte("k8s:a=x//y;")},
		"not UTF-8":                  {Key: master, Value: []byte("k8s:a=\xff;")},
		"reference without number":   {Key: "cilium/state/identities/v1/value/k8s:a=b;/n1"},
		"reference with words":       {Key: "cilium/state/identities/v1/value/k8s:a=b;/n1", Value: []byte("five")},
		"reference with padding":     {Key: "cilium/state/identities/v1/value/k8s:a=b;/n1", Value: []byte("05")},
		"reference to 0":             {Key: "cilium/state/identities/v1/value/k8s:a=b;/n1", Value: []byte("0")},
		"reference of bad labels":    {Key: "cilium/state/identities/v1/value/k8s:b=1;k8s:a=1;/n1", Value: []byte("5")},
		"JSON null":                  {Key: "signet/v1/default/gone/n1", Value: []byte("null")},
		"no JSON":                    {Key: "signet/v1/default/gone/n1", Value: []byte("{")},
		"trailing text":              {Key: "signet/v1/default/gone/n1", Value: []byte("{} {}")},
		"a list":                     {Key: "signet/v1/default/gone/n1", Value: []byte("[]")},
		"negative time":              {Key: "signet/v1/default/idle/5", Value: []byte(`{"since":{"revision":-1}}`)},
		"another node's presence":    {Key: "signet/v1/default/nodes/n1", Value: []byte(`{"node":"n2"}`)},
		"unknown quarantine":         {Key: "signet/v1/default/tombstones/5", Value: []byte(`{"labels":"k8s:a=b;","quarantine":"x"}`)},
		"tombstone of bad labels":    {Key: "signet/v1/default/tombstones/5", Value: []byte(`{"labels":"a","quarantine":"done"}`)},
		"term that ends early":       {Key: "signet/v1/default/lineage", Value: []byte(`{"terms":[{"first":3,"last":2}]}`)},
		"cluster without a name":     {Key: "signet/v1/default/cluster", Value: []byte(`{}`)},
		"id of a slash":              {Key: "signet/v1/ids/5", Value: []byte("a/b")},
		"pair of another address":    {Key: "cilium/state/ip/v1/default/10.0.0.1", Value: []byte(`{"IP":"10.0.0.2"}`)},
		"pair with a mask":           {Key: "cilium/state/ip/v1/default/10.0.0.1", Value: []byte(`{"IP":"10.0.0.1","Mask":"/////w=="}`)},
		"pair with half a mask":      {Key: "cilium/state/ip/v1/default/10.0.0.1/8", Value: []byte(`{"IP":"10.0.0.1","Mask":"/wD/AA=="}`)},
		"pair with a long mask":      {Key: "cilium/state/ip/v1/default/10.0.0.0/8", Value: []byte(`{"IP":"10.0.0.0","Mask":"/wAAAAAA"}`)},
		"pair with a short mask":     {Key: "cilium/state/ip/v1/default/fd00::/8", Value: []byte(`{"IP":"fd00::","Mask":"/wAAAA=="}`)},
		"pair without an address":    {Key: "cilium/state/ip/v1/default/10.0.0.1", Value: []byte(`{"IP":"x"}`)},
	} {
		var want *MalformedError
		if r, err := l.Decode(kv); !errors.As(err, &want) {
			t.Errorf("%s: Decode = %v, %v; want a MalformedError", name, r, err)
		} else if want.Key != kv.Key || want.Reason == "" {
			t.Errorf("%s: %+v", name, want)
		}
	}
	var key *KeyError
	if _, err := l.Decode(KV{Key: "cilium/state/identities/v1/id/x", Value: []byte("k8s:a=b;")}); !errors.As(err, &key) {
		t.Errorf("Decode of a malformed key: %v", err)
	}
}

func TestEncodeValueRefuses(t *testing.T) {
	for name, c := range map[string]codecCase{
		"no value":              {key: allocator.MasterKey(5)},
		"type of another kind":  {key: allocator.MasterKey(5), value: allocator.NumberValue(5)},
		"raw under a master":    {key: allocator.MasterKey(5), value: allocator.Raw("k8s:a=b;")},
		"malformed label set":   {key: allocator.MasterKey(5), value: allocator.LabelSet("k8s:b=1;k8s:a=1;")},
		"reference to 0":        {key: allocator.ReferenceKey("k8s:a=b;", "n"), value: allocator.NumberValue(0)},
		"another node":          {key: allocator.PresenceKey("n1"), value: allocator.Presence{Node: "n2"}},
		"text JSON cannot hold": {key: allocator.Key{Kind: allocator.KindRecovery}, value: allocator.Recovery{Reason: "\xff"}},
	} {
		var want *ValueError
		if data, err := EncodeValue(c.key, c.value); !errors.As(err, &want) {
			t.Errorf("%s: EncodeValue = %q, %v; want a ValueError", name, data, err)
		}
	}
}

// Whatever Decode takes, EncodeValue and Decode give back unchanged.
func decodedAgain(t interface{ Fatalf(string, ...any) }, l Layout, kv KV) {
	r, err := l.Decode(kv)
	if err != nil {
		var key *KeyError
		var malformed *MalformedError
		if !errors.As(err, &key) && !errors.As(err, &malformed) {
			t.Fatalf("Decode(%q, %q): the error %v has no type", kv.Key, kv.Value, err)
		}
		return
	}
	data, err := EncodeValue(r.Key, r.Value)
	if err != nil {
		t.Fatalf("EncodeValue(%#v): %v", r, err)
	}
	again, err := l.Decode(KV{Key: kv.Key, Value: data})
	if err != nil || !reflect.DeepEqual(again.Value, r.Value) {
		t.Fatalf("%q is read as %#v, then as %#v, %v", kv.Value, r.Value, again.Value, err)
	}
}

func TestDecodeNeverPanics(t *testing.T) {
	l := newTestLayout(t)
	cases := codecCases()
	rapid.Check(t, func(rt *rapid.T) {
		c := rapid.SampledFrom(cases).Draw(rt, "case")
		value := []byte(c.stored)
		for range rapid.IntRange(0, 3).Draw(rt, "edits") {
			if len(value) == 0 {
				break
			}
			at := rapid.IntRange(0, len(value)-1).Draw(rt, "at")
			value = append(value[:at:at], append([]byte(rapid.SampledFrom([]string{"", "0", "\"", "-", "{}", ";", "\xff"}).Draw(rt, "with")), value[at+1:]...)...)
		}
		key, err := l.Key(c.key)
		if err != nil {
			rt.Fatal(err)
		}
		decodedAgain(rt, l, KV{Key: key, Value: value})
	})
}

func FuzzDecode(f *testing.F) {
	l := newTestLayout(f)
	for _, c := range codecCases() {
		key, err := l.Key(c.key)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(key, []byte(c.stored))
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		decodedAgain(t, l, KV{Key: key, Value: value})
	})
}
