// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// maxID is the longest endpoint id in bytes; it is part of a stored value.
const maxID = 253

// maxMeta bounds each Kubernetes name, and how many ports an endpoint names.
const (
	maxMeta  = 253
	maxPorts = 256
)

func checkID(id string) error {
	switch {
	case id == "":
		return refuse(allocator.InvalidArgument, "id", "the endpoint has no id; give one, such as shop/web-0")
	case len(id) > maxID:
		return refuse(allocator.InvalidArgument, "id", "the endpoint's id is %d bytes long, at most %d are allowed", len(id), maxID)
	case !printable(id):
		return refuse(allocator.InvalidArgument, "id", "the endpoint's id %s holds characters that cannot be printed", labels.Quote(id))
	}
	return nil
}

func printable(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}

// specIn reads what a caller wants. The error is an *allocator.Error or *labels.Error.
func specIn(in *signetv1.Endpoint) (Spec, error) {
	if err := checkID(in.GetId()); err != nil {
		return Spec{}, err
	}
	ls, err := labels.ParseSet(in.GetLabels()...)
	if err != nil {
		return Spec{}, err
	}
	if err := checkLabels(ls); err != nil {
		return Spec{}, err
	}
	addrs, err := parseAddresses(in.GetAddresses())
	if err != nil {
		return Spec{}, err
	}
	meta, err := metaIn(in)
	return Spec{ID: in.GetId(), Labels: ls, Addresses: addrs, Meta: meta}, err
}

// checkLabels refuses reserved labels that no endpoint of a node can have.
func checkLabels(ls labels.Set) error {
	if err := labels.CheckPublic(ls); err != nil {
		return err
	}
	if !labels.HasReserved(ls) {
		return nil
	}
	switch n, _ := identity.ReservedForLabels(ls); n {
	case identity.Init, identity.Health, identity.Ingress, identity.Unmanaged:
		return nil
	}
	return refuse(allocator.InvalidArgument, "labels",
		"an endpoint cannot be %s; of the reserved labels it may have init, health, ingress or unmanaged", labels.Quote(ls.Text()))
}

func metaIn(in *signetv1.Endpoint) (Meta, error) {
	m := Meta{K8sNamespace: in.GetK8SNamespace(), K8sPodName: in.GetK8SPodName(), K8sServiceAccount: in.GetK8SServiceAccount()}
	for field, s := range map[string]string{"k8s_namespace": m.K8sNamespace, "k8s_pod_name": m.K8sPodName, "k8s_service_account": m.K8sServiceAccount} {
		if len(s) > maxMeta || !printable(s) {
			return Meta{}, refuse(allocator.InvalidArgument, field, "%s is longer than %d bytes or holds characters that cannot be printed", field, maxMeta)
		}
	}
	if len(in.GetNamedPorts()) > maxPorts {
		return Meta{}, refuse(allocator.InvalidArgument, "named_ports", "the endpoint names %d ports, at most %d are allowed", len(in.GetNamedPorts()), maxPorts)
	}
	for _, p := range in.GetNamedPorts() {
		if p.GetPort() == 0 || p.GetPort() > 65535 || p.GetName() == "" || len(p.GetName()) > maxMeta || !printable(p.GetName()) {
			return Meta{}, refuse(allocator.InvalidArgument, "named_ports", "port %s=%d is none; a port has a name and a number from 1 to 65535",
				labels.Quote(p.GetName()), p.GetPort())
		}
		switch p.GetProtocol() {
		case "TCP", "UDP", "SCTP":
		default:
			return Meta{}, refuse(allocator.InvalidArgument, "named_ports", "port %s has protocol %s; write TCP, UDP or SCTP",
				labels.Quote(p.GetName()), labels.Quote(p.GetProtocol()))
		}
		m.NamedPorts = append(m.NamedPorts, allocator.NamedPort{Name: p.GetName(), Port: uint16(p.GetPort()), Protocol: p.GetProtocol()})
	}
	slices.SortFunc(m.NamedPorts, func(a, b allocator.NamedPort) int { return strings.Compare(a.Name, b.Name) }) // as Cilium stores them
	return m, nil
}

func portsOut(ports []allocator.NamedPort) []*signetv1.NamedPort {
	var out []*signetv1.NamedPort
	for _, p := range ports {
		out = append(out, &signetv1.NamedPort{Name: p.Name, Port: uint32(p.Port), Protocol: p.Protocol})
	}
	return out
}

// endpointOut is a view as it goes over the socket.
func endpointOut(node string, v *View) *signetv1.Endpoint {
	out := &signetv1.Endpoint{Id: v.ID, Labels: v.Labels.Strings(), Number: uint32(v.Number), Node: node,
		State: string(v.State), Reason: v.Reason, Created: v.Created, NamedPorts: portsOut(v.Meta.NamedPorts),
		K8SNamespace: v.Meta.K8sNamespace, K8SPodName: v.Meta.K8sPodName, K8SServiceAccount: v.Meta.K8sServiceAccount}
	for _, a := range v.Addresses {
		out.Addresses = append(out.Addresses, a.String())
	}
	return out
}

// lookupLimit bounds how long a listing waits for labels that are not at hand.
const lookupLimit = 3 * time.Second

// namer gives the labels of numbers, nothing for raw. Numbers that cannot be
// looked up in time stay without.
func (a *Agent) namer(ctx context.Context, raw bool) func(identity.Number) []string {
	known := make(map[identity.Number][]string)
	late := time.Now().Add(lookupLimit)
	return func(n identity.Number) []string {
		if raw || n == 0 {
			return nil
		}
		if names, ok := known[n]; ok {
			return names
		}
		ctx, cancel := context.WithDeadline(ctx, late)
		defer cancel()
		if i, err := a.cfg.Client.Lookup(ctx, n); err == nil {
			known[n] = i.Labels.Strings()
		} else {
			known[n] = nil
		}
		return known[n]
	}
}
