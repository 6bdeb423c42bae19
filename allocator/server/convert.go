// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"net/netip"

	"google.golang.org/grpc/codes"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

func positionOut(p allocator.Position) *signetv1.Position {
	return &signetv1.Position{Nonce: p.Nonce, Counter: p.Counter, Revision: p.Revision}
}

func positionIn(p *signetv1.Position) allocator.Position {
	return allocator.Position{Nonce: p.GetNonce(), Counter: p.GetCounter(), Revision: p.GetRevision()}
}

func timeOut(t allocator.Time) *signetv1.Time {
	if t == (allocator.Time{}) {
		return nil
	}
	return &signetv1.Time{Revision: t.Revision, ServedS: t.ServedS}
}

var statesOut = map[allocator.State]signetv1.State{
	allocator.Live:        signetv1.State_STATE_LIVE,
	allocator.IdleState:   signetv1.State_STATE_IDLE,
	allocator.Quarantined: signetv1.State_STATE_QUARANTINED,
	allocator.Free:        signetv1.State_STATE_FREE,
}

func identityOut(space identity.Space, i allocator.Identity, at allocator.Position) *signetv1.Identity {
	out := &signetv1.Identity{
		Number:         uint32(i.Number),
		Labels:         labelsOut(i.Labels),
		Text:           printableMessage(i.Labels),
		Scope:          signetv1.Scope_SCOPE_CLUSTER,
		State:          statesOut[i.State],
		CreateRevision: i.CreateRevision,
		Revision:       i.Revision,
		Lineage:        positionOut(at),
	}
	if space.ClusterIDOf(i.Number) == space.ClusterID {
		out.Cluster = space.ClusterName
	} else {
		out.Scope = signetv1.Scope_SCOPE_REMOTE
	}
	for _, h := range i.Holders {
		out.Holders = append(out.Holders, &signetv1.Holder{Holder: h.Name, Hold: h.Hold})
	}
	return out
}

// labelsOut reads stored text leniently: what someone else wrote into the
// store is shown as far as it can be, and never hides its neighbours.
func labelsOut(text string) []string {
	ls := labels.Decode(text)
	out := make([]string, len(ls))
	for i, l := range ls {
		out[i] = printableMessage(l.String())
	}
	return out
}

// reservedOut is the identity of a reserved number; s is what LabelsOf gives.
func reservedOut(n identity.Number, s labels.Set) *signetv1.Identity {
	return &signetv1.Identity{
		Number: uint32(n), Labels: s.Strings(), Text: s.Text(),
		Scope: signetv1.Scope_SCOPE_RESERVED, State: signetv1.State_STATE_LIVE,
	}
}

func pairsIn(in []*signetv1.HeldPair) ([]allocator.HeldPair, error) {
	out := make([]allocator.HeldPair, len(in))
	for i, p := range in {
		set, err := labels.ParseText(p.GetText())
		if err != nil {
			return nil, err
		}
		if p.GetNumber() == 0 {
			return nil, invalid(reasonNumberRange, "pairs.number", "held pair %s: 0 is no number", labels.Quote(p.GetText()))
		}
		out[i] = allocator.HeldPair{Labels: set.Text(), Number: identity.Number(p.GetNumber()), Hold: p.GetHold(),
			CreateRevision: p.GetCreateRevision(), Counter: p.GetCounter()}
	}
	return out, nil
}

func pairsOut(in []allocator.HeldPair) []*signetv1.HeldPair {
	out := make([]*signetv1.HeldPair, len(in))
	for i, p := range in {
		out[i] = &signetv1.HeldPair{Text: printableMessage(p.Labels), Number: uint32(p.Number), Hold: p.Hold,
			CreateRevision: p.CreateRevision, Counter: p.Counter}
	}
	return out
}

func nodeOut(n allocator.NodeInfo) *signetv1.Node {
	out := &signetv1.Node{Name: n.Name, State: "gone", References: uint32(n.References),
		Published: uint32(n.Addresses), GoneSince: timeOut(n.GoneSince)}
	if n.Acknowledged != (allocator.Position{}) {
		out.Acknowledged = positionOut(n.Acknowledged)
	}
	if p := n.Presence; p != nil {
		out.State, out.Addresses, out.Version, out.Instance = "present", p.Addresses, p.Version, p.Instance
	}
	return out
}

// claimIn reads one address that a node publishes.
func claimIn(in *signetv1.EndpointAddress) (allocator.AddressClaim, error) {
	ip, mask, err := addressIn("address", in.GetAddress())
	if err != nil {
		return allocator.AddressClaim{}, err
	}
	set, err := labels.ParseText(in.GetText())
	if err != nil {
		return allocator.AddressClaim{}, err
	}
	if in.GetNumber() == 0 {
		return allocator.AddressClaim{}, invalid(reasonNumberRange, "number", "address %s: 0 is no number", in.GetAddress())
	}
	host, err := netip.ParseAddr(in.GetHostIp())
	if err != nil || host.Zone() != "" {
		return allocator.AddressClaim{}, invalid(reasonField, "host_ip", "address %s: host_ip %q is no IP address; give the node's own",
			in.GetAddress(), printable(in.GetHostIp()))
	}
	ports, err := portsIn(in.GetNamedPorts())
	if err != nil {
		return allocator.AddressClaim{}, err
	}
	return allocator.AddressClaim{Labels: set.Text(), EndpointID: in.GetEndpointId(), Address: allocator.Address{
		IP: ip, Mask: mask, HostIP: host.Unmap().String(), ID: in.GetNumber(), K8sNamespace: in.GetK8SNamespace(),
		K8sPodName: in.GetK8SPodName(), K8sServiceAccount: in.GetK8SServiceAccount(), NamedPorts: ports,
	}}, nil
}

// addressIn reads "10.0.0.1" or "10.0.0.0/24" into the two fields of a stored
// pair: a host has no mask, not even a full one.
func addressIn(field, s string) (ip string, mask []byte, err error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return a.Unmap().String(), nil, nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return "", nil, invalid(reasonField, field, "%q is no IP address or prefix; write 10.0.0.1, 10.0.0.0/24 or 2001:db8::1", printable(s))
	}
	if p != p.Masked() {
		return "", nil, invalid(reasonField, field, "prefix %s has bits set behind its length; write %s", p, p.Masked())
	}
	if p.IsSingleIP() {
		return p.Addr().String(), nil, nil
	}
	return p.Addr().String(), net.CIDRMask(p.Bits(), p.Addr().BitLen()), nil
}

// addressKey is how the store's key spells the address.
func addressKey(s string) (string, error) {
	ip, mask, err := addressIn("withdraw", s)
	if err != nil || mask == nil {
		return ip, err
	}
	p, err := netip.ParsePrefix(s)
	return p.String(), err
}

func portsIn(in []*signetv1.NamedPort) ([]allocator.NamedPort, error) {
	var out []allocator.NamedPort
	for _, p := range in {
		if p.GetPort() == 0 || p.GetPort() > 65535 {
			return nil, invalid(reasonField, "named_ports", "port %d of %q is outside 1 to 65535", p.GetPort(), printable(p.GetName()))
		}
		switch p.GetProtocol() {
		case "TCP", "UDP", "SCTP":
		default:
			return nil, invalid(reasonField, "named_ports", "protocol %q of port %q is none of TCP, UDP, SCTP",
				printable(p.GetProtocol()), printable(p.GetName()))
		}
		out = append(out, allocator.NamedPort{Name: p.GetName(), Port: uint16(p.GetPort()), Protocol: p.GetProtocol()})
	}
	return out, nil
}

func publishResult(address string, err error) *signetv1.PublishResult {
	if err == nil {
		return &signetv1.PublishResult{Address: address, Code: uint32(codes.OK)}
	}
	st := itemStatus(err)
	return &signetv1.PublishResult{Address: address, Code: st.Code, Message: st.Message}
}

// itemStatus is the failure of one item of a batch.
func itemStatus(err error) *signetv1.Status {
	if r := refuse(err); r != nil {
		return &signetv1.Status{Code: uint32(r.code), Message: r.message}
	}
	return &signetv1.Status{Code: uint32(codes.Internal), Message: printableMessage(err.Error())}
}
