// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	"github.com/signet-identity/signet/kvstore"
)

// recordOf is what a space looks like in the store.
func recordOf(s identity.Space) allocator.Cluster {
	return allocator.Cluster{Name: s.ClusterName, ID: s.ClusterID, MaxConnectedClusters: s.MaxConnectedClusters,
		LocalBits: uint32(s.LocalBits()), Format: allocator.ClusterFormat}
}

// chooseSpace decides which numbers are the cluster's own, and compares the
// stored record with the configuration.
func (c *checker) chooseSpace(configured identity.Space) {
	if c.cluster == nil {
		c.space = configured
		if c.spaceOK = configured != (identity.Space{}); !c.spaceOK {
			c.guessSpace()
		}
		if len(c.masters)+len(c.tombstones)+len(c.idle) > 0 || c.lineage != nil {
			c.add(ClusterMissing, c.spell(allocator.ClusterKey()), "The store has no cluster record.")
		}
		return
	}
	have, _ := c.cluster.Value.(allocator.Cluster)
	if configured != (identity.Space{}) {
		c.space, c.spaceOK = configured, true
		if want := recordOf(configured); have != want {
			c.add(ClusterMismatch, c.cluster.key, "The store says %s; configured is %s.", clusterText(have), clusterText(want))
		}
		return
	}
	s, err := identity.NewSpace(have.Name, have.ID, have.MaxConnectedClusters, have.LocalBits == wideBits)
	if err != nil || recordOf(s) != have || have.Name != c.layout.Cluster() {
		c.add(ClusterMismatch, c.cluster.key, "The store says %s, which cannot be the record of cluster %q.", clusterText(have), c.layout.Cluster())
		return
	}
	c.space, c.spaceOK = s, true
}

// wideBits is the width of the local part in a wide cluster.
const wideBits = 24

func (c *checker) guessSpace() {
	s, err := identity.NewSpace(c.layout.Cluster(), 0, 0, false)
	c.space, c.spaceOK = s, err == nil
}

func clusterText(v allocator.Cluster) string {
	return fmt.Sprintf("cluster %q, id %d, %d connected clusters at most, %d local bits, format %d",
		v.Name, v.ID, v.MaxConnectedClusters, v.LocalBits, v.Format)
}

// spell is the stored form of a key of ours that may not be there.
func (c *checker) spell(k allocator.Key) string {
	key, err := c.layout.Key(k)
	if err != nil {
		return k.String()
	}
	return key
}

// checkRecords judges the keys that belong to no identity and no node.
func (c *checker) checkRecords() {
	for _, it := range c.singles {
		switch it.Key.Kind {
		case allocator.KindElection:
			c.checkCandidate(it)
		case allocator.KindLock, allocator.KindNumberLock:
			c.checkLock(it)
		default:
			c.checkLease(it)
		}
		if it.Key.Kind == allocator.KindRecovery {
			v, _ := it.Value.(allocator.Recovery)
			c.checkTime(it, "since", v.Since)
			c.add(RecoveryOpen, it.key, "A recovery window is open: %s.", labels.Quote(v.Reason))
		}
	}
	c.checkClusterIDs()
	c.checkLineage()
}

func (c *checker) checkCandidate(it item) {
	switch {
	case it.Lease == 0:
		c.add(CandidateLease, it.key, "The candidate has no lease.")
	case kvstore.LeaseName(it.Lease) != it.Key.Name:
		c.add(CandidateLease, it.key, "The candidate hangs on the lease %x, not on the one in its name.", it.Lease)
	}
}

func (c *checker) checkLock(it item) {
	what := "the label set " + labels.Quote(it.Key.Labels)
	if it.Key.Kind == allocator.KindNumberLock {
		what = "the number " + it.Key.Number.String()
	}
	switch {
	case it.Lease == 0:
		c.add(LockWithoutLease, it.key, "The lock of %s has no lease.", what)
	case kvstore.LeaseName(it.Lease) != it.Key.Name:
		c.add(LockWithoutLease, it.key, "The lock of %s hangs on the lease %x, not on the one in its name.", what, it.Lease)
	default:
		c.add(LockHeld, it.key, "The lock of %s is held under the lease %x.", what, it.Lease)
	}
}

// checkClusterIDs compares the table of cluster ids with the cluster's own id.
func (c *checker) checkClusterIDs() {
	if !c.spaceOK {
		return
	}
	own, bound := c.space.ClusterID, false
	for _, it := range c.singles {
		if it.Key.Kind != allocator.KindClusterID {
			continue
		}
		name, _ := it.Value.(allocator.Text)
		mine := string(name) == c.layout.Cluster()
		switch isOwn := uint32(it.Key.Number) == own; {
		case isOwn && !mine:
			bound = true
			c.add(ClusterIDTaken, it.key, "The cluster id %d is bound to %s, not to %q.", own, labels.Quote(string(name)), c.layout.Cluster())
		case isOwn:
			bound = true
		case mine:
			c.add(ClusterIDTwice, it.key, "The cluster id %d is bound to %q too, whose id is %d.", it.Key.Number, c.layout.Cluster(), own)
		}
	}
	if key := c.spell(allocator.ClusterIDKey(own)); !bound && c.cluster != nil {
		c.add(ClusterIDFree, key, "The cluster id %d is not bound to %q.", own, c.layout.Cluster())
	}
}

// checkLineage judges the record by which a restored store is recognised.
func (c *checker) checkLineage() {
	if c.lineage == nil {
		if c.cluster != nil {
			c.add(LineageMissing, c.spell(allocator.LineageKey()), "The store has a cluster record and no lineage.")
		}
		return
	}
	v, _ := c.lineage.Value.(allocator.Lineage)
	for _, reason := range brokenLineage(v) {
		c.add(LineageBroken, c.lineage.key, "%s.", reason)
	}
}

// brokenLineage lists how a lineage contradicts itself.
func brokenLineage(v allocator.Lineage) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if len(v.Terms) == 0 {
		say("It names no term")
		return out
	}
	if len(v.Terms) > allocator.MaxTerms {
		say("It names %d terms, more than %d", len(v.Terms), allocator.MaxTerms)
	}
	if last := v.Terms[len(v.Terms)-1].Last; last != v.Counter {
		say("Its counter is %d, and its newest term ends at %d", v.Counter, last)
	}
	nonces := map[string]bool{}
	for i, t := range v.Terms {
		switch {
		case t.Nonce == "":
			say("Its term from %d on has no nonce", t.First)
		case nonces[t.Nonce]:
			say("Its terms have one nonce twice: %s", labels.Quote(t.Nonce))
		}
		nonces[t.Nonce] = true
		if i > 0 && t.First <= v.Terms[i-1].Last {
			say("Its term from %d on begins before the term ahead of it ends at %d", t.First, v.Terms[i-1].Last)
		}
	}
	return out
}
