// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/x509"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/labels"
)

// Role is what a caller may do. It stands in the organization (O) of the
// certificate's subject.
type Role string

// The roles.
const (
	// RoleOperator may do everything, and forward for others.
	RoleOperator Role = "signet:operator"
	// RoleNode may read, and act for the node that its common name names.
	RoleNode Role = "signet:node"
	// RoleClient may read, and hold references as pin-<name>. A certificate
	// without one of the other roles has this one.
	RoleClient Role = "signet:client"
	// RoleLocal is a caller without a certificate: on a unix socket, or on
	// loopback in plain text. It may do everything.
	RoleLocal Role = "local"
)

// Caller is who asks.
type Caller struct {
	Name string // the common name of the certificate's subject; "" for RoleLocal
	Role Role
	// Forwarded says that another replica passed the call on.
	Forwarded bool
}

// Metadata of forwarded calls.
const (
	headerForwarded  = "signet-forwarded"
	headerCallerName = "signet-caller-name-bin" // may hold any UTF-8
	headerCallerRole = "signet-caller-role-bin"
)

type callerKey struct{}

// CallerFrom is the caller that the server found for a handler's context.
func CallerFrom(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

func withCaller(ctx context.Context) (context.Context, error) {
	direct := directCaller(ctx)
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md.Get(headerForwarded)) == 0 {
		return context.WithValue(ctx, callerKey{}, direct), nil
	}
	if !direct.everything() {
		return nil, denied(reasonRole, headerForwarded, "%s %q may not forward calls; only a certificate with the organization %s may",
			direct.Role, direct.Name, RoleOperator)
	}
	c := Caller{Name: first(md, headerCallerName), Role: Role(first(md, headerCallerRole)), Forwarded: true}
	if !c.known() {
		return nil, invalid(reasonField, headerCallerRole, "the forwarding replica names the role %q, which is none", c.Role)
	}
	return context.WithValue(ctx, callerKey{}, c), nil
}

func first(md metadata.MD, key string) string {
	if v := md.Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}

func directCaller(ctx context.Context) Caller {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Caller{Role: RoleClient}
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return Caller{Role: RoleLocal}
	}
	if len(info.State.VerifiedChains) == 0 {
		return Caller{Role: RoleClient}
	}
	return certificateCaller(info.State.VerifiedChains[0][0])
}

func certificateCaller(cert *x509.Certificate) Caller {
	c := Caller{Name: cert.Subject.CommonName, Role: RoleClient}
	for _, o := range cert.Subject.Organization {
		switch Role(o) {
		case RoleOperator:
			c.Role = RoleOperator
			return c
		case RoleNode:
			c.Role = RoleNode
		}
	}
	return c
}

func (c Caller) known() bool {
	return c.Role == RoleOperator || c.Role == RoleNode || c.Role == RoleClient || c.Role == RoleLocal
}

func (c Caller) everything() bool { return c.Role == RoleOperator || c.Role == RoleLocal }

// mayHold checks that the caller may take and give references of holder.
func (c Caller) mayHold(holder string) error {
	kind, name, err := allocator.ParseHolder(holder)
	if err != nil {
		return err
	}
	switch {
	case c.everything():
		return nil
	case c.Role == RoleNode && kind != allocator.HolderPin && name == c.Name:
		return nil
	case c.Role == RoleNode:
		return denied(reasonOtherHolder, "holder", "node %q may hold references as %q and %q only, not as %q",
			c.Name, c.Name, "k8s."+c.Name, holder)
	case kind == allocator.HolderPin:
		return nil
	}
	return denied(reasonOtherHolder, "holder", "client %q may hold references as pin-<name> only, not as %q", c.Name, holder)
}

// mayBe checks that the caller may speak for the node.
func (c Caller) mayBe(node string) error {
	if err := allocator.CheckNode(node); err != nil {
		return err
	}
	if c.everything() || c.Role == RoleNode && c.Name == node {
		return nil
	}
	return denied(reasonOtherHolder, "node", "%s %q may not act for node %q; a node's certificate names the node it may act for",
		c.Role, c.Name, node)
}

// mayLabel checks that the caller may name workloads with these labels: keys
// that the system derives from Kubernetes (labels.SystemPrefix and the pod's
// namespace) come from nodes and operators only, so that a tenant cannot
// disguise a workload as another's.
func (c Caller) mayLabel(s labels.Set) error {
	if c.Role != RoleClient {
		return nil
	}
	for l := range s.All() {
		if l.Key == labels.KeyNamespace || strings.HasPrefix(l.Key, labels.SystemPrefix) {
			return denied(reasonSystemLabel, printable(l.String()),
				"label %s: its key belongs to the system, and client %q may not set it; only nodes and operators may", labels.Quote(l.String()), c.Name)
		}
	}
	return nil
}

// mayRun checks that the caller may do what people on call do.
func (c Caller) mayRun(what string) error {
	if c.everything() {
		return nil
	}
	return denied(reasonRole, "", "%s %q may not %s; it takes a certificate with the organization %s", c.Role, c.Name, what, RoleOperator)
}
