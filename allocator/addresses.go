// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/signet-identity/signet/allocator/identity"
)

// OwnerMetadata is the Metadata of an address that a node of ours publishes.
func OwnerMetadata(cluster, node, endpoint string) string {
	return ownerMark + cluster + ":" + node + ":" + endpoint
}

func (c *Core) requestPublish(id uint64, r PublishRequest) {
	n := c.t.nodes[r.Node]
	if n == nil || !n.present() {
		c.fail(id, unknownNode(r.Node))
		return
	}
	g := &group{id: id, left: len(r.Put) + len(r.Withdraw), results: make([]PublishResult, len(r.Put)+len(r.Withdraw))}
	if g.left == 0 {
		c.reply(id, Published{Position: c.Position()})
		return
	}
	c.requests[id] = &request{id: id, kind: wantPublish, group: g}
	for i, claim := range r.Put {
		key, err := c.checkClaim(n, claim)
		if err != nil {
			c.settle(g, i, claim.Address.IP, err)
			continue
		}
		claim.Address.Metadata = OwnerMetadata(c.t.cluster, n.name, claim.EndpointID)
		c.enqueueAddress(&request{kind: wantPublish, text: key, holder: n.name, claim: claim, group: g, index: i})
	}
	for i, key := range r.Withdraw {
		c.enqueueAddress(&request{kind: wantWithdraw, text: key, holder: n.name, group: g, index: len(r.Put) + i})
	}
}

// AddressName is the address as it stands in the key: "10.0.0.1" for a host,
// "10.0.0.0/24" for a pair with a mask.
func AddressName(a Address) (string, error) {
	ip, err := netip.ParseAddr(a.IP)
	if err != nil {
		return "", err
	}
	if a.Mask == nil {
		return ip.String(), nil
	}
	bits := 0
	for _, b := range a.Mask {
		for ; b&0x80 != 0; b <<= 1 {
			bits++
		}
	}
	p, err := ip.Prefix(bits)
	if err != nil || len(a.Mask)*8 != ip.BitLen() {
		return "", fmt.Errorf("the mask does not fit the address %s", a.IP)
	}
	return p.String(), nil
}

// checkClaim refuses what the node may not publish.
func (c *Core) checkClaim(n *node, claim AddressClaim) (string, *Error) {
	key, err := AddressName(claim.Address)
	if err != nil {
		return "", &Error{Code: InvalidArgument, Field: claim.Address.IP, Message: fmt.Sprintf("address %q is none: %v", claim.Address.IP, err)}
	}
	ip, _ := netip.ParseAddr(claim.Address.IP)
	if !slices.ContainsFunc(n.presence.Prefixes, func(s string) bool {
		p, err := netip.ParsePrefix(s)
		return err == nil && p.Contains(ip)
	}) {
		return "", &Error{Code: PermissionDenied, Field: key, Message: fmt.Sprintf(
			"node %q may publish addresses of %v only, not %s; declare the prefix in its agent's configuration", n.name, n.presence.Prefixes, key)}
	}
	return key, nil
}

func (c *Core) enqueueAddress(r *request) {
	a := c.t.address(r.text)
	a.waiting = append(a.waiting, r)
	c.markAddress(a)
}

// decideAddress serves the oldest request that waits for an address.
func (c *Core) decideAddress(a *address) {
	for !a.busy && len(a.waiting) > 0 {
		r := a.waiting[0]
		p := &plan{}
		err := c.planAddress(a, r, p)
		if r.tries++; err == nil && r.tries > maxTries {
			err = &Error{Code: Unavailable, Field: "contention", Retry: time.Second,
				Message: fmt.Sprintf("address %s changed %d times under this request; try again", a.key, maxTries)}
		}
		if err != nil || len(p.op.Guards) == 0 {
			a.waiting = a.waiting[1:]
			c.settleAddress(r, err)
			continue
		}
		c.submitAddress(a, r, p)
	}
}

// planAddress fills the operation that serves the request. No guards mean that
// nothing is to be done.
func (c *Core) planAddress(a *address, r *request, p *plan) *Error {
	key := AddressKey(a.key)
	switch r.kind {
	case wantPublish:
		text, number := r.claim.Labels, identity.Number(r.claim.Address.ID)
		s := c.t.sets[text]
		if s == nil || s.refs[r.holder].mod == 0 || s.refs[r.holder].number != number {
			return &Error{Code: FailedPrecondition, Field: a.key, Message: fmt.Sprintf(
				"node %q holds no reference of number %d to %s; allocate first", r.holder, number, text)}
		}
		p.op.Verb = VerbPublish
		p.present(PresenceKey(r.holder))
		p.at(ReferenceKey(text, r.holder), s.refs[r.holder].mod)
		p.atOrAbsent(key, a.mod)
		if a.mod == 0 || !samePair(a.pair, r.claim.Address) {
			p.write(key, r.claim.Address)
		}
	case wantWithdraw:
		if a.mod == 0 || c.t.ownerOf(a.pair) != r.holder {
			return nil
		}
		p.op.Verb = VerbWithdraw
		p.at(key, a.mod)
		p.write(key, nil)
	case wantPurge:
		if a.mod == 0 || c.t.ownerOf(a.pair) != r.holder || !c.planPurge(p, r.holder) {
			p.op.Guards = nil
			return nil
		}
		p.op.Verb = VerbPurge
		p.at(key, a.mod)
		p.write(key, nil)
	}
	return nil
}

func samePair(a, b Address) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func (c *Core) submitAddress(a *address, r *request, p *plan) {
	a.busy = true
	free := func() { a.busy = false; c.markAddress(a) }
	drop := func() {
		a.waiting = slices.DeleteFunc(a.waiting, func(x *request) bool { return x == r })
	}
	land := func(int64) {
		drop()
		if r.kind == wantPurge {
			c.stats.PurgedAddresses++
		}
		c.settleAddress(r, nil)
	}
	c.submit(p.op, free, land, drop)
}

func (c *Core) settleAddress(r *request, err *Error) {
	if r.group != nil {
		c.settle(r.group, r.index, r.text, err)
	}
	if n := c.t.nodes[r.holder]; n != nil {
		c.markNode(n)
	}
}

// settle notes one item's result, and replies once all are there.
func (c *Core) settle(g *group, i int, address string, err *Error) {
	g.results[i] = PublishResult{Address: address, Err: err}
	if err != nil {
		c.stats.Refusals[err.Code.String()]++
	}
	if g.left--; g.left == 0 {
		c.reply(g.id, Published{Results: g.results, Position: c.Position()})
	}
}
