// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/kvstore"
)

// Defaults of Config.
const (
	DefaultPresenceTTL = 15 * time.Second
	DefaultStateDir    = "/var/lib/signet"
	DefaultSocket      = "/run/signet/agent.sock"
	DefaultPrefix      = "10.244.0.0/16"
)

// Config is what an agent is made of. The agent closes none of it.
type Config struct {
	Node   string         // the node's name, an RFC 1123 subdomain
	Layout kvstore.Layout // names the cluster
	Store  kvstore.Store
	// PresenceStore carries the presence alone, so that renewals never wait
	// behind other work; nil: Store.
	PresenceStore kvstore.Store
	// Client talks to the operators; its holder is Node.
	Client   *client.Client
	Datapath Datapath

	StateDir string // 0700: lock, instance, checkpoint; default DefaultStateDir
	Socket   string // unix socket of the EndpointService; default DefaultSocket

	Addresses []netip.Addr   // the node's own addresses; the first one is published as host
	Prefixes  []netip.Prefix // whose addresses the node may publish; default DefaultPrefix

	PresenceTTL time.Duration // default DefaultPresenceTTL
	// SurplusGrace is how long a reference or address stands that the operator
	// lists and this node does not use; default two presence TTLs.
	SurplusGrace time.Duration
	// CallTimeout bounds one call to the operators; what fails is tried again. Default 3 s.
	CallTimeout time.Duration
	// PutTimeout is for PutEndpoint calls that bring no deadline; default 10 s.
	PutTimeout time.Duration
	// WaitLimit is from when an endpoint that waits is a finding; default 30 s.
	WaitLimit time.Duration

	Version    string
	Logger     *slog.Logger          // nil: nothing is logged
	Registerer prometheus.Registerer // nil: no metrics
	Now        func() time.Time      // for ages; nil: time.Now
}

func (c Config) withDefaults() (Config, error) {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&c.PresenceTTL, DefaultPresenceTTL)
	set(&c.SurplusGrace, 2*c.PresenceTTL)
	set(&c.CallTimeout, 3*time.Second)
	set(&c.PutTimeout, 10*time.Second)
	set(&c.WaitLimit, 30*time.Second)
	if c.StateDir == "" {
		c.StateDir = DefaultStateDir
	}
	if c.Socket == "" {
		c.Socket = DefaultSocket
	}
	if len(c.Prefixes) == 0 {
		c.Prefixes = []netip.Prefix{netip.MustParsePrefix(DefaultPrefix)}
	}
	if c.PresenceStore == nil {
		c.PresenceStore = c.Store
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c, c.check()
}

func (c Config) check() error {
	if err := allocator.CheckNode(c.Node); err != nil {
		return err
	}
	if c.Store == nil || c.Client == nil || c.Datapath == nil || c.Layout.Cluster() == "" {
		return fmt.Errorf("an agent needs a layout, a store, a client and a datapath")
	}
	if holder := c.Client.Holder(); holder != c.Node {
		return fmt.Errorf("the client allocates for holder %q and the node is %q; give both one name", holder, c.Node)
	}
	for i, p := range c.Prefixes {
		if !p.IsValid() || p.Addr().Is4In6() || p != p.Masked() {
			return refuse(allocator.InvalidArgument, "prefixes", "prefix %s is none in canonical form; write one such as 10.244.0.0/16", p)
		}
		for _, q := range c.Prefixes[:i] {
			if p.Overlaps(q) {
				return refuse(allocator.InvalidArgument, "prefixes", "the prefixes %s and %s overlap; drop one", q, p)
			}
		}
	}
	return nil
}

// presence is what the node says of itself.
func (c Config) presence(instance string) allocator.Presence {
	v := allocator.Presence{Node: c.Node, Version: c.Version, Instance: instance, Addresses: []string{}, Prefixes: []string{}}
	for _, a := range c.Addresses {
		v.Addresses = append(v.Addresses, a.String())
	}
	for _, p := range c.Prefixes {
		v.Prefixes = append(v.Prefixes, p.String())
	}
	return v
}
