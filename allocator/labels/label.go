// SPDX-License-Identifier: Apache-2.0

package labels

import "strings"

// Sources that Cilium knows. Any matches every source and belongs to
// selectors; Unspec stands for "no source was given".
const (
	SourceK8s       = "k8s"
	SourceReserved  = "reserved"
	SourceCIDR      = "cidr"
	SourceCIDRGroup = "cidrgroup"
	SourceFQDN      = "fqdn"
	SourceNode      = "node"
	SourceGenerated = "gen"
	SourceCNI       = "cni"
	SourceDirectory = "directory"
	SourceAny       = "any"
	SourceUnspec    = "unspec"
)

// Keys that the system itself sets on the labels of a pod.
const (
	// KeyNamespace holds the name of the pod's namespace.
	KeyNamespace = "io.kubernetes.pod.namespace"
	// SystemPrefix starts the keys that only the system may set on a pod.
	SystemPrefix = "io.cilium.k8s"
	// KeyCluster holds the name of the pod's cluster.
	KeyCluster = "io.cilium.k8s.policy.cluster"
	// KeyServiceAccount holds the name of the pod's service account.
	KeyServiceAccount = "io.cilium.k8s.policy.serviceaccount"
	// NamespaceLabelPrefix, followed by a label key of the namespace, holds that label's value.
	NamespaceLabelPrefix = "io.cilium.k8s.namespace.labels."
	// KeyNamedPorts holds the named ports of a pod; source SourceGenerated.
	KeyNamedPorts = "io.cilium.k8s.named-ports"
	// KeyFixedIdentity holds the name of a user-reserved identity.
	KeyFixedIdentity = "io.cilium.fixed-identity"
)

// Label is one property of a workload and where it came from.
type Label struct {
	Source string
	Key    string
	Value  string
}

// String is the form people read: source:key=value, without "=" when the value is empty.
func (l Label) String() string {
	if l.Value == "" {
		return l.Source + ":" + l.Key
	}
	return l.Source + ":" + l.Key + "=" + l.Value
}

// Text is the stored form: source:key=value; with "=" and ";" always there.
func (l Label) Text() string {
	return l.Source + ":" + l.Key + "=" + l.Value + ";"
}

// Matches reports whether l is what the query names: the same key, and the
// same source unless the query's source is "any". The values are not compared.
// A cidr query matches every cidr label whose prefix it contains.
func (l Label) Matches(query Label) bool {
	if query.Source != SourceAny && query.Source != l.Source {
		return false
	}
	if l.Key == query.Key {
		return true
	}
	return query.Source == SourceCIDR && cidrContains(query.Key, l.Key)
}

// Parse reads one label as Cilium does; it never fails. The source ends at the
// first ":", the key at the first "=". A missing or empty source becomes
// "unspec"; a leading "$" stands for the source "reserved".
func Parse(s string) Label { return parseWithDefault(s, SourceUnspec) }

// ParseSelect reads one label as Parse does, but a missing source becomes
// "any": what is read says which labels to look for.
func ParseSelect(s string) Label { return parseWithDefault(s, SourceAny) }

func parseWithDefault(s, source string) Label {
	src, rest := cutSource(s)
	if src == "" {
		src = source
	}
	key, value, _ := strings.Cut(rest, "=")
	if key == "" && src == SourceReserved {
		// "reserved:=host" is an old spelling of "reserved:host".
		key, value = value, ""
	}
	return Label{Source: src, Key: key, Value: value}
}

// cutSource splits s into its source (empty when there is none) and the rest.
func cutSource(s string) (source, rest string) {
	if after, found := strings.CutPrefix(s, "$"); found {
		return SourceReserved, after
	}
	before, after, found := strings.Cut(s, ":")
	if !found {
		return "", s
	}
	return before, after
}
