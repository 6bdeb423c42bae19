// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/signet-identity/signet/allocator/agent"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/cmd/signet/internal/option"
	"github.com/signet-identity/signet/datapath/ipcache"
	"github.com/signet-identity/signet/kvstore"
)

const day = 24 * time.Hour

// Cluster says which cluster's numbers are meant.
type Cluster struct {
	Name                 string
	ID                   uint32
	MaxConnectedClusters uint32
	Wide                 bool
	BasePrefix           string
}

// AddName adds the options that name the cluster's keys.
func (c *Cluster) AddName(t *option.Table) {
	t.String(&c.Name, "cluster-name", "default", `1 to 32 lower-case letters, digits and "-"`, "name of the cluster")
	t.String(&c.BasePrefix, "base-prefix", kvstore.DefaultBase, "an etcd prefix without a slash at its ends",
		"where the tables that Cilium knows begin in etcd")
}

// AddNumbers adds the options that fix the cluster's range of numbers.
func (c *Cluster) AddNumbers(t *option.Table) {
	t.Uint32(&c.ID, "cluster-id", 0, 0, 511, "id of the cluster in a mesh; 0: it joins none")
	t.ChoiceUint32(&c.MaxConnectedClusters, "max-connected-clusters", 255, "how many clusters the mesh can have, which decides how many bits of a number are local", 255, 511)
	t.Bool(&c.Wide, "wide", false, "24 local bits instead of 16, for a cluster that joins no mesh and has no Cilium agent on its store")
}

// check refuses what cannot be a cluster before anything is started.
func (c *Cluster) check() error {
	if _, err := identity.NewSpace(c.Name, c.ID, c.MaxConnectedClusters, c.Wide); err != nil {
		return err
	}
	_, err := kvstore.NewLayout(c.BasePrefix, c.Name)
	return err
}

// Etcd says how to reach the store.
type Etcd struct {
	Endpoints     []string
	CA, Cert, Key string
	WaitTimeout   time.Duration
}

// Add adds the options.
func (e *Etcd) Add(t *option.Table) {
	t.Strings(&e.Endpoints, "etcd-endpoints", "http://127.0.0.1:2379", "URLs of etcd; http:// for loopback addresses only",
		"where etcd serves")
	t.String(&e.CA, "etcd-ca", "", "a PEM file", "authority that signed etcd's certificate; with --etcd-cert and --etcd-key, TLS toward etcd is mutual")
	t.String(&e.Cert, "etcd-cert", "", "a PEM file", "certificate toward etcd")
	t.String(&e.Key, "etcd-key", "", "a PEM file", "key of --etcd-cert")
	t.Duration(&e.WaitTimeout, "wait-timeout", 0, 0, day, "how long to wait for etcd at the start before giving up with exit code 5; 0: as long as it takes")
}

// Graces are the times of collection. Graces count served time: only while an
// operator leads.
type Graces struct {
	Presence, Election                      time.Duration // TTLs
	Node, Identity, Quarantine              time.Duration
	Forget, TombstoneRetention, SweepPeriod time.Duration
}

// AddPresence adds the time to live of a node's presence.
func (g *Graces) AddPresence(t *option.Table) {
	t.Duration(&g.Presence, "presence-ttl", agent.DefaultPresenceTTL, time.Second, time.Hour, "how long a node's presence outlives its agent")
}

// Add adds the options of an operator.
func (g *Graces) Add(t *option.Table) {
	g.AddPresence(t)
	t.Duration(&g.Election, "election-ttl", 15*time.Second, time.Second, time.Hour, "how long leadership outlives a leader that vanished; the same for all operators")
	t.Duration(&g.Node, "node-grace", 15*time.Minute, 0, 30*day, "from a node marked gone until what it holds is removed")
	t.Duration(&g.Identity, "identity-grace", 15*time.Minute, 0, 30*day, "from the last reference gone until the identity is freed")
	t.Duration(&g.Quarantine, "quarantine", time.Minute, 0, 30*day, "how long at least a freed number is kept from other labels")
	t.Duration(&g.Forget, "forget-after", day, 0, 365*day, "from a node marked gone until its acknowledgement is no longer waited for")
	t.Duration(&g.TombstoneRetention, "tombstone-retention", 7*day, 0, 365*day, "how long a freed number is remembered; at least as long as --forget-after")
	t.Duration(&g.SweepPeriod, "sweep-interval", 30*time.Second, 100*time.Millisecond, time.Hour, "time between two sweeps of the leader")
}

func (g *Graces) check() error {
	if g.TombstoneRetention < g.Forget {
		return &ConfigError{Option: "tombstone-retention", Reason: fmt.Sprintf(
			"%s is shorter than --forget-after (%s), and a node that comes back could miss that a number was freed", g.TombstoneRetention, g.Forget)}
	}
	return nil
}

// TLS is mutual TLS 1.3 on gRPC.
type TLS struct{ CA, Cert, Key string }

// Add adds the options.
func (s *TLS) Add(t *option.Table) {
	t.String(&s.CA, "tls-ca", "", "a PEM file", "authority that signed the certificates of operators, nodes and clients; with --tls-cert and --tls-key, gRPC is mutual TLS 1.3")
	t.String(&s.Cert, "tls-cert", "", "a PEM file", "own certificate on gRPC")
	t.String(&s.Key, "tls-key", "", "a PEM file", "key of --tls-cert")
}

// Given reports whether TLS is configured; an error names what is missing.
func (s *TLS) Given() (bool, error) {
	for name, file := range map[string]string{"tls-ca": s.CA, "tls-cert": s.Cert, "tls-key": s.Key} {
		if file == "" && (s.CA+s.Cert+s.Key) != "" {
			return false, &ConfigError{Option: name, Reason: "it is missing: TLS is mutual and needs --tls-ca, --tls-cert and --tls-key"}
		}
	}
	return s.CA != "", nil
}

// Node says who this node is.
type Node struct {
	Name      string
	Addresses []netip.Addr
	Prefixes  []netip.Prefix
	Socket    string
	PinPath   string
	Datapath  string
	StateDir  string
}

// Add adds the options.
func (n *Node) Add(t *option.Table) {
	t.String(&n.Name, "node-name", "", "an RFC 1123 subdomain", "name of the node; its certificate has to name it; empty: the machine's host name")
	t.Addresses(&n.Addresses, "node-address", "", "the node's own addresses, the first one is published as host; empty: those of its interfaces")
	t.Prefixes(&n.Prefixes, "pod-prefix", agent.DefaultPrefix, "ranges whose addresses the node's endpoints may have")
	t.String(&n.Socket, "socket", agent.DefaultSocket, "a path of at most 107 bytes", "unix socket of the node's workloads and of signet endpoint")
	t.Choice(&n.Datapath, "datapath", "auto", "where addresses are kept: in eBPF maps, in memory, or in eBPF maps where the kernel allows it", "auto", "ebpf", "memory")
	t.String(&n.PinPath, "pin-path", ipcache.DefaultPinPath, "a path below /sys/fs/bpf", "folder for the pins of the eBPF maps")
	t.String(&n.StateDir, "state-dir", agent.DefaultStateDir, "a path", "folder for the node's instance and checkpoint")
}

// hostname is the machine's name in lower case.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return strings.ToLower(name)
}

// Logs says what is logged, to standard error.
type Logs struct{ Level, Format string }

// Add adds the options.
func (l *Logs) Add(t *option.Table, level string) {
	t.Choice(&l.Level, "log-level", level, "least severe log lines to write", "debug", "info", "warn", "error")
	t.Choice(&l.Format, "log-format", "text", "form of the log lines", "text", "json")
}

// ConfigError is an option whose value cannot be used with the others.
type ConfigError struct {
	Option string
	Reason string
}

// Error names the option and the way out.
func (e *ConfigError) Error() string { return "--" + e.Option + ": " + e.Reason }
