// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"strconv"
	"strings"

	"github.com/signet-identity/signet/allocator"
)

// PrefixEnd is the end of the range of all keys that begin with prefix: the
// smallest key that is greater than all of them. For a prefix without such a
// key (empty, or 0xff throughout) it is "\x00", which etcd reads as "to the end".
func PrefixEnd(prefix string) string {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return string(end[:i+1])
		}
	}
	return "\x00"
}

// Masters is the prefix of the table from number to label set.
func (l Layout) Masters() string { return l.ids }

// References is the prefix of all references.
func (l Layout) References() string { return l.values }

// Addresses is the prefix of the pairs of address and number.
func (l Layout) Addresses() string { return l.addresses }

// Own is the prefix S/ of the tables that Cilium does not know.
func (l Layout) Own() string { return l.own }

// Tombstones is the prefix of the freed numbers.
func (l Layout) Tombstones() string { return l.own + tombstonesTable }

// Presences is the prefix of the nodes' presence keys.
func (l Layout) Presences() string { return l.own + nodesTable }

// Election is the prefix of the candidates' keys.
func (l Layout) Election() string { return l.own + electionTable }

// ElectionKey is the key of the candidate with this lease.
func (l Layout) ElectionKey(lease int64) string { return l.Election() + leaseHex(lease) }

// LeaseName is the Name of an election or lock key: the lease in lower-case hex.
func LeaseName(lease int64) string { return leaseHex(lease) }

func leaseHex(lease int64) string { return strconv.FormatInt(lease, 16) }

// ClusterIDs is the prefix of the keys that bind cluster ids to names, shared
// by all clusters of a store.
func (l Layout) ClusterIDs() string { return signetRoot + clusterIDsName + "/" }

// LeaderPrefixes are what a leader and a standby mirror: masters, references,
// addresses, all of S, and the table of cluster ids. Foreign locks are not
// among them; transactions compare those.
func (l Layout) LeaderPrefixes() []string {
	return []string{l.ids, l.values, l.addresses, l.own, l.ClusterIDs()}
}

// AgentPrefixes are what a node's agent mirrors: masters, tombstones, addresses.
func (l Layout) AgentPrefixes() []string {
	return []string{l.ids, l.Tombstones(), l.addresses}
}

// Prefix is the prefix that a GuardEmpty with key k compares: all references
// of a label set, all locks of a label set, or all locks of a number.
//
// Label set text ends with a semicolon and no source begins with a slash, so
// the prefix of one well-formed set never covers another's references.
func (l Layout) Prefix(k allocator.Key) (string, error) {
	reason := ""
	out := ""
	switch k.Kind {
	case allocator.KindReference:
		out, reason = l.values+k.Labels+"/", badText(k.Labels)
	case allocator.KindLock:
		out, reason = l.locks+k.Labels+"/", badText(k.Labels)
	case allocator.KindNumberLock:
		out = l.locks + "id/" + decimal(k.Number) + "/"
		if k.Number == 0 {
			reason = "0 is no identity's number"
		}
	default:
		reason = "the kind " + k.Kind.String() + " has no prefix to compare"
	}
	if reason == "" && k.Name != "" {
		reason = "a prefix names no holder and no lease"
	}
	if reason != "" {
		return "", &KeyError{Key: k.String(), Reason: reason}
	}
	return out, nil
}

// OwnsReference says whether key is a reference of exactly the label set whose
// references lie under prefix (which ends without a slash): its last slash
// follows the prefix (CILIUM.md 1.3).
func OwnsReference(prefix, key string) bool {
	return strings.HasPrefix(key, prefix) && strings.LastIndexByte(key, '/') == len(prefix)
}

// JoinKey joins elements as Cilium's key builder does: with slashes, every run
// of slashes collapsed to one, none at the end.
func JoinKey(elements ...string) string {
	joined := strings.Join(elements, "/")
	var b strings.Builder
	b.Grow(len(joined))
	for i := 0; i < len(joined); i++ {
		if joined[i] == '/' && i > 0 && joined[i-1] == '/' {
			continue
		}
		b.WriteByte(joined[i])
	}
	return strings.TrimSuffix(b.String(), "/")
}
