// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"strings"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	"github.com/signet-identity/signet/kvstore"
)

// item is a record with its key as it is stored.
type item struct {
	allocator.Record
	key string
}

// labelSet is what stands for one label set.
type labelSet struct {
	numbers []identity.Number // of its masters
	refs    []item
}

// node is what stands for one node.
type node struct {
	presence, gone *item
	refs, addrs    int
	held           map[identity.Number]bool // by references of its own
}

func (n *node) present() bool { return n.presence != nil && n.presence.Lease != 0 }

// checker is the content of a store, indexed, and what is found in it.
type checker struct {
	layout   kvstore.Layout
	prefixes []string
	codes    map[Code]CodeInfo
	revision int64
	space    identity.Space
	spaceOK  bool

	masters    map[identity.Number]item
	unreadable map[identity.Number]string // masters whose text cannot be read: their keys
	idle       map[identity.Number]item
	tombstones map[identity.Number]item
	sets       map[string]*labelSet
	nodes      map[string]*node
	references []item
	addresses  []item
	singles    []item // every other kind

	cluster, lineage *item
	keys, presences  int
	findings         []Finding
}

func newChecker(revision int64, o Options) *checker {
	c := &checker{
		layout: o.Layout, prefixes: Prefixes(o.Layout), codes: map[Code]CodeInfo{}, revision: revision,
		masters: map[identity.Number]item{}, unreadable: map[identity.Number]string{},
		idle: map[identity.Number]item{}, tombstones: map[identity.Number]item{},
		sets: map[string]*labelSet{}, nodes: map[string]*node{}, findings: []Finding{},
	}
	for _, info := range Codes() {
		c.codes[info.Code] = info
	}
	return c
}

func (c *checker) set(text string) *labelSet {
	s := c.sets[text]
	if s == nil {
		s = &labelSet{}
		c.sets[text] = s
	}
	return s
}

func (c *checker) node(name string) *node {
	n := c.nodes[name]
	if n == nil {
		n = &node{held: map[identity.Number]bool{}}
		c.nodes[name] = n
	}
	return n
}

// take indexes one key, or says why it cannot be read.
func (c *checker) take(kv kvstore.KV) {
	c.keys++
	r, err := c.layout.Decode(kv)
	if err != nil {
		c.unread(kv, err)
		return
	}
	it := item{Record: r, key: kv.Key}
	switch k := r.Key; k.Kind {
	case allocator.KindMaster:
		c.masters[k.Number] = it
		s := c.set(textOf(it))
		s.numbers = append(s.numbers, k.Number)
	case allocator.KindReference:
		c.references = append(c.references, it)
		s := c.set(k.Labels)
		s.refs = append(s.refs, it)
	case allocator.KindAddress:
		c.addresses = append(c.addresses, it)
	case allocator.KindIdle:
		c.idle[k.Number] = it
	case allocator.KindTombstone:
		c.tombstones[k.Number] = it
	case allocator.KindPresence:
		c.presences++
		c.node(k.Name).presence = &it
	case allocator.KindGone:
		c.node(k.Name).gone = &it
	default:
		c.single(it)
	}
}

func (c *checker) single(it item) {
	switch it.Key.Kind {
	case allocator.KindCluster:
		c.cluster = &it
	case allocator.KindLineage:
		c.lineage = &it
	}
	c.singles = append(c.singles, it)
}

// textOf is the label set text of a master.
func textOf(master item) string {
	text, _ := master.Value.(allocator.LabelSet)
	return string(text)
}

// unread notes a key that Decode refused.
func (c *checker) unread(kv kvstore.KV, err error) {
	var bad *kvstore.KeyError
	var malformed *kvstore.MalformedError
	switch {
	case errors.As(err, &bad) && bad.Unknown:
		if !c.isMirrorElection(kv.Key) {
			c.add(KeyUnknown, kv.Key, "The key lies in no table of Signet.")
		}
	case errors.As(err, &bad):
		c.add(KeyMalformed, kv.Key, "The key cannot be read: %s.", bad.Reason)
	case errors.As(err, &malformed):
		c.unreadValue(kv, malformed.Reason)
	default:
		c.add(ValueMalformed, kv.Key, "The key cannot be read: %v.", err)
	}
}

// unreadValue tells label set text that is at fault from other values.
func (c *checker) unreadValue(kv kvstore.KV, reason string) {
	text := ""
	switch k, _ := c.layout.Parse(kv.Key); k.Kind {
	case allocator.KindMaster:
		text = string(kv.Value)
		c.unreadable[k.Number] = kv.Key
	case allocator.KindReference:
		text = k.Labels
	default:
		c.add(ValueMalformed, kv.Key, "The value cannot be read: %s.", reason)
		return
	}
	_, err := labels.ParseText(text)
	var refused *labels.Error
	switch {
	case err == nil:
		c.add(ValueMalformed, kv.Key, "The value cannot be read: %s.", reason)
	case errors.As(err, &refused) && refused.Code == labels.CodeNotCanonical:
		c.add(LabelsNotCanonical, kv.Key, "%s.", sentence(refused.Reason))
	default:
		c.add(LabelsMalformed, kv.Key, "The label set cannot be read: %v.", err)
	}
}

// isMirrorElection recognises candidates of mirrors, which the layout spells
// and does not parse.
func (c *checker) isMirrorElection(key string) bool {
	const peer = "?" // no cluster bears this name
	before, after, _ := strings.Cut(c.layout.MirrorElection(peer), peer)
	rest, ok := strings.CutPrefix(key, before)
	if !ok {
		return false
	}
	name, candidate, ok := strings.Cut(rest, after)
	return ok && name != "" && !strings.Contains(name, "/") && candidate != "" && !strings.Contains(candidate, "/")
}

// sentence gives a text a capital letter, so that it can begin one.
func sentence(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
