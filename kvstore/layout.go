// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"strconv"
	"strings"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
)

// DefaultBase is the base prefix of Cilium's own tables.
const DefaultBase = "cilium"

// signetRoot is where the tables that Cilium does not know begin.
const signetRoot = "signet/v1/"

// clusterIDsName is the element under signetRoot that holds the table of
// cluster ids; no cluster may bear this name.
const clusterIDsName = "ids"

// Layout spells and parses the keys of one cluster (DESIGN.md section 4). The
// tables under the base prefix are byte for byte Cilium's; the others lie
// under signet/v1/<cluster>/, called S below.
type Layout struct {
	base    string
	cluster string

	ids       string // <base>/state/identities/v1/id/
	values    string // <base>/state/identities/v1/value/
	locks     string // <base>/state/identities/v1/locks/
	addresses string // <base>/state/ip/v1/default/
	own       string // S/
}

// NewLayout makes the layout of a cluster. An empty base is DefaultBase.
func NewLayout(base, cluster string) (Layout, error) {
	if base == "" {
		base = DefaultBase
	}
	if JoinKey(base) != base || strings.HasPrefix(base, "/") {
		return Layout{}, &KeyError{Key: base, Reason: "a base prefix neither begins nor ends with a slash and has no two in a row"}
	}
	if strings.HasPrefix(base+"/", signetRoot) {
		return Layout{}, &KeyError{Key: base, Reason: "a base prefix must lie outside " + signetRoot}
	}
	if reason := badElement(cluster); reason != "" {
		return Layout{}, &KeyError{Key: cluster, Reason: "the cluster's name " + reason}
	}
	if cluster == clusterIDsName {
		return Layout{}, &KeyError{Key: cluster, Reason: "the cluster's name is the one of the table of cluster ids"}
	}
	identities := base + "/state/identities/v1/"
	return Layout{
		base:      base,
		cluster:   cluster,
		ids:       identities + "id/",
		values:    identities + "value/",
		locks:     identities + "locks/",
		addresses: base + "/state/ip/v1/default/",
		own:       signetRoot + cluster + "/",
	}, nil
}

// Base is the base prefix of Cilium's tables, without a slash at the end.
func (l Layout) Base() string { return l.base }

// Cluster is the cluster's name.
func (l Layout) Cluster() string { return l.cluster }

// How the tables under S/ begin, and the keys that stand alone there.
const (
	nodesTable      = "nodes/"
	goneTable       = "gone/"
	knownTable      = "known/"
	idleTable       = "idle/"
	tombstonesTable = "tombstones/"
	settingsTable   = "settings/"
	policiesTable   = "policies/"
	electionTable   = "election/"

	lineageName  = "lineage"
	clusterName  = "cluster"
	recoveryName = "recovery"
)

// Key spells k. It refuses a key that would not parse back to k, so that two
// different keys never share one spelling.
func (l Layout) Key(k allocator.Key) (string, error) {
	s, reason := l.spell(k)
	if reason == "" {
		if back, why := l.parse(s); why != nil {
			reason = why.Reason
		} else if back != k {
			reason = "its spelling " + strconv.Quote(s) + " would be read back as " + back.String()
		}
	}
	if reason != "" {
		return "", &KeyError{Key: k.String(), Reason: reason}
	}
	return s, nil
}

// spell joins the elements of k; Key checks the result.
func (l Layout) spell(k allocator.Key) (key, reason string) {
	switch k.Kind {
	case allocator.KindMaster:
		return l.ids + decimal(k.Number), ""
	case allocator.KindReference:
		return l.values + k.Labels + "/" + k.Name, ""
	case allocator.KindAddress:
		return l.addresses + k.Name, ""
	case allocator.KindPresence:
		return l.own + nodesTable + k.Name, ""
	case allocator.KindGone:
		return l.own + goneTable + k.Name, ""
	case allocator.KindKnown:
		return l.own + knownTable + k.Name, ""
	case allocator.KindIdle:
		return l.own + idleTable + decimal(k.Number), ""
	case allocator.KindTombstone:
		return l.own + tombstonesTable + decimal(k.Number), ""
	case allocator.KindLineage:
		return l.own + lineageName, ""
	case allocator.KindCluster:
		return l.own + clusterName, ""
	case allocator.KindRecovery:
		return l.own + recoveryName, ""
	case allocator.KindSetting:
		return l.own + settingsTable + k.Name, ""
	case allocator.KindPolicy:
		return l.own + policiesTable + k.Name, ""
	case allocator.KindElection:
		return l.own + electionTable + k.Name, ""
	case allocator.KindClusterID:
		return signetRoot + clusterIDsName + "/" + decimal(k.Number), ""
	case allocator.KindLock:
		return l.locks + k.Labels + "/" + k.Name, ""
	case allocator.KindNumberLock:
		return l.locks + "id/" + decimal(k.Number) + "/" + k.Name, ""
	}
	return "", "no table has the kind " + k.Kind.String()
}

// Parse reads a stored key: the exact inverse of Key. Its error is a *KeyError.
func (l Layout) Parse(key string) (allocator.Key, error) {
	k, err := l.parse(key)
	if err != nil {
		return allocator.Key{}, err
	}
	return k, nil
}

func (l Layout) parse(key string) (allocator.Key, *KeyError) {
	fail := func(reason string) (allocator.Key, *KeyError) {
		return allocator.Key{}, &KeyError{Key: key, Reason: reason}
	}
	var k allocator.Key
	var reason string
	if rest, ok := strings.CutPrefix(key, l.ids); ok {
		k.Kind = allocator.KindMaster
		k.Number, reason = parseNumber(rest)
	} else if rest, ok := strings.CutPrefix(key, l.values); ok {
		k, reason = parseReference(rest)
	} else if rest, ok := strings.CutPrefix(key, l.addresses); ok {
		k = allocator.AddressKey(rest)
		reason = badAddress(rest)
	} else if rest, ok := strings.CutPrefix(key, l.own); ok {
		return l.parseOwn(key, rest)
	} else if rest, ok := strings.CutPrefix(key, l.locks); ok {
		k, reason = parseLock(rest)
	} else if rest, ok := strings.CutPrefix(key, signetRoot+clusterIDsName+"/"); ok {
		k.Kind = allocator.KindClusterID
		k.Number, reason = parseDecimal(rest)
	} else {
		return allocator.Key{}, &KeyError{Key: key, Reason: "it lies in no table of Signet", Unknown: true}
	}
	if reason != "" {
		return fail(reason)
	}
	return k, nil
}

// parseOwn parses what follows S/.
func (l Layout) parseOwn(key, rest string) (allocator.Key, *KeyError) {
	var k allocator.Key
	var reason string
	at := strings.IndexByte(rest, '/') + 1
	table, name := rest[:at], rest[at:]
	switch table {
	case "":
		k.Kind = ownSingle(rest)
	case idleTable:
		k.Kind = allocator.KindIdle
		k.Number, reason = parseNumber(name)
	case tombstonesTable:
		k.Kind = allocator.KindTombstone
		k.Number, reason = parseNumber(name)
	case electionTable:
		k, reason = allocator.Key{Kind: allocator.KindElection, Name: name}, badLease(name)
	default:
		k.Kind = ownNamed(table)
		if k.Name = name; badElement(name) != "" {
			reason = "the name " + badElement(name)
		}
	}
	if k.Kind == 0 {
		return allocator.Key{}, &KeyError{Key: key, Reason: "it lies in no table of Signet", Unknown: true}
	}
	if reason != "" {
		return allocator.Key{}, &KeyError{Key: key, Reason: reason}
	}
	return k, nil
}

// ownSingle is the kind of the key S/<name>; 0: none.
func ownSingle(name string) allocator.Kind {
	switch name {
	case lineageName:
		return allocator.KindLineage
	case clusterName:
		return allocator.KindCluster
	case recoveryName:
		return allocator.KindRecovery
	}
	return 0
}

// ownNamed is the kind of the table S/<table> whose keys end in a name; 0: none.
func ownNamed(table string) allocator.Kind {
	switch table {
	case nodesTable:
		return allocator.KindPresence
	case goneTable:
		return allocator.KindGone
	case knownTable:
		return allocator.KindKnown
	case settingsTable:
		return allocator.KindSetting
	case policiesTable:
		return allocator.KindPolicy
	}
	return 0
}

// parseReference splits at the last slash: label text may hold slashes, a
// holder none.
func parseReference(rest string) (allocator.Key, string) {
	at := strings.LastIndexByte(rest, '/')
	if at < 0 {
		return allocator.Key{}, "a reference names a label set and a holder"
	}
	text, holder := rest[:at], rest[at+1:]
	if reason := badText(text); reason != "" {
		return allocator.Key{}, reason
	}
	if holder == "" {
		return allocator.Key{}, "the holder is empty"
	}
	return allocator.ReferenceKey(text, holder), ""
}

func parseLock(rest string) (allocator.Key, string) {
	at := strings.LastIndexByte(rest, '/')
	if at < 0 {
		return allocator.Key{}, "a lock names what it locks and a lease"
	}
	what, lease := rest[:at], rest[at+1:]
	if reason := badLease(lease); reason != "" {
		return allocator.Key{}, reason
	}
	if number, ok := strings.CutPrefix(what, "id/"); ok {
		n, reason := parseNumber(number)
		return allocator.Key{Kind: allocator.KindNumberLock, Number: n, Name: lease}, reason
	}
	return allocator.Key{Kind: allocator.KindLock, Labels: what, Name: lease}, badText(what)
}

func decimal(n identity.Number) string { return strconv.FormatUint(uint64(n), 10) }
