// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"net"
	"net/netip"
	"strconv"
	"unicode/utf8"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/labels"
)

// checkValue says why v cannot stand under k, or "". It is asked before each
// write and after each read, so what is written is what is read back.
func checkValue(k allocator.Key, v allocator.Value) string {
	if v == nil {
		return "it is missing"
	}
	switch k.Kind {
	case allocator.KindMaster:
		return typed(v, func(v allocator.LabelSet) string { return badLabelSet(string(v)) })
	case allocator.KindReference:
		return typed(v, func(v allocator.NumberValue) string { return checkReference(k, v) })
	case allocator.KindAddress:
		return typed(v, func(v allocator.Address) string { return checkAddress(k, v) })
	case allocator.KindPresence:
		return typed(v, func(v allocator.Presence) string { return checkPresence(k, v) })
	case allocator.KindGone, allocator.KindKnown, allocator.KindIdle:
		return typed(v, func(v allocator.Mark) string { return badTime(v.Since) })
	case allocator.KindTombstone:
		return typed(v, checkTombstone)
	case allocator.KindLineage:
		return typed(v, checkLineage)
	case allocator.KindCluster:
		return typed(v, checkCluster)
	case allocator.KindClusterID:
		return typed(v, func(v allocator.Text) string { return named("the cluster's name", string(v)) })
	case allocator.KindRecovery:
		return typed(v, func(v allocator.Recovery) string { return first(badTime(v.Since), badUTF8(v.Reason)) })
	case allocator.KindElection:
		return typed(v, func(v allocator.Candidate) string { return first(badUTF8(v.Who, v.Address, v.Version), badTTL(v.TTLS)) })
	case allocator.KindSetting, allocator.KindPolicy, allocator.KindLock, allocator.KindNumberLock:
		return typed(v, func(allocator.Raw) string { return "" })
	}
	return "no table has the kind " + k.Kind.String()
}

// typed checks that v is a T and that it passes check.
func typed[T allocator.Value](v allocator.Value, check func(T) string) string {
	t, ok := v.(T)
	if !ok {
		return "it has the type of another kind"
	}
	return check(t)
}

func first(reasons ...string) string {
	for _, r := range reasons {
		if r != "" {
			return r
		}
	}
	return ""
}

func badLabelSet(text string) string {
	if _, err := labels.ParseText(text); err != nil {
		return err.Error()
	}
	return ""
}

func checkReference(k allocator.Key, v allocator.NumberValue) string {
	if v == 0 {
		return "0 is no identity's number"
	}
	return badLabelSet(k.Labels)
}

// checkAddress compares the pair with its key as Cilium's readers do: they
// recompute the key's last element from the value and reject a mismatch.
func checkAddress(k allocator.Key, v allocator.Address) string {
	name, reason := AddressName(v)
	if reason != "" {
		return reason
	}
	if name != k.Name {
		return "the pair is that of " + name + ", not that of its key"
	}
	texts := []string{v.IP, v.HostIP, v.Metadata, v.K8sNamespace, v.K8sPodName, v.K8sServiceAccount}
	for _, p := range v.NamedPorts {
		texts = append(texts, p.Name, p.Protocol)
	}
	return badUTF8(texts...)
}

// AddressName is how Cilium spells the pair's address in the key: the address
// in its shortest form, followed for a pair with a mask by a slash and the
// mask's length. reason says why there is no such name.
func AddressName(v allocator.Address) (name, reason string) {
	a, err := netip.ParseAddr(v.IP)
	if err != nil || a.Zone() != "" {
		return "", "the field IP is no address: " + strconv.Quote(v.IP)
	}
	name = a.Unmap().String()
	if v.Mask == nil {
		return name, ""
	}
	ones, bits := net.IPMask(v.Mask).Size()
	if bits != 128 && (bits != 32 || !a.Unmap().Is4()) {
		return "", "the field Mask is no mask of this address"
	}
	return name + "/" + strconv.Itoa(ones), ""
}

func checkPresence(k allocator.Key, v allocator.Presence) string {
	if v.Node != k.Name {
		return "the presence is that of node " + strconv.Quote(v.Node) + ", not that of its key"
	}
	return first(badTTL(v.TTLS), badUTF8(v.Version, v.Instance), badUTF8(v.Addresses...), badUTF8(v.Prefixes...))
}

func checkTombstone(v allocator.Tombstone) string {
	if v.Quarantine != allocator.QuarantinePending && v.Quarantine != allocator.QuarantineDone {
		return "the quarantine state " + strconv.Quote(v.Quarantine) + " is unknown"
	}
	return first(badLabelSet(v.Labels), badTime(v.Born), badTime(v.Freed))
}

func checkLineage(v allocator.Lineage) string {
	if v.ServedS < 0 {
		return "the served time is negative"
	}
	for _, t := range v.Terms {
		if t.Last < t.First {
			return "a term ends before it begins"
		}
		if reason := badUTF8(t.Nonce); reason != "" {
			return reason
		}
	}
	return ""
}

func checkCluster(v allocator.Cluster) string { return named("the cluster's name", v.Name) }

func named(what, name string) string {
	if reason := badElement(name); reason != "" {
		return what + " " + reason
	}
	return badUTF8(name)
}

func badTime(t allocator.Time) string {
	if t.Revision < 0 || t.ServedS < 0 {
		return "a time is negative"
	}
	return ""
}

func badTTL(seconds int64) string {
	if seconds < 0 {
		return "the field ttl_s is negative"
	}
	return ""
}

// badUTF8 refuses text that JSON would replace.
func badUTF8(texts ...string) string {
	for _, t := range texts {
		if !utf8.ValidString(t) {
			return "a text is not UTF-8"
		}
	}
	return ""
}
