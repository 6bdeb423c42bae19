// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/signet-identity/signet/allocator/labels"
)

// Derived is the label set of a pod's identity and how it came about.
type Derived struct {
	Set labels.Set
	// Stripped are labels of the pod that only the system may set; they were
	// removed and replaced by the system's own. Each is worth a count and a log
	// line, since someone tried to be what they are not.
	Stripped []labels.Label
	// Dropped are labels that the filter does not count.
	Dropped []labels.Label
}

// DeriveError says that a pod's labels make no label set.
type DeriveError struct {
	Pod Pod
	Err error // a *labels.Error
}

// Error names file, object and label.
func (e *DeriveError) Error() string {
	return fmt.Sprintf("%s: %s %s, pod %s/%s: %v", e.Pod.Origin, e.Pod.Owner.Kind, e.Pod.Owner.Name, e.Pod.Namespace, e.Pod.Name, e.Err)
}

// Unwrap returns the labels' error.
func (e *DeriveError) Unwrap() error { return e.Err }

// Derive returns the label set of a pod: what Cilium's operator would derive.
// namespaceLabels are those of the pod's namespace (Result.NamespaceLabels),
// clusterName is the cluster's. Labels that name the pod's ports are not part
// of it; see NamedPortLabels. The error is a *DeriveError.
func Derive(p Pod, namespaceLabels map[string]string, clusterName string, relevance labels.Relevance) (Derived, error) {
	all, stripped := PodLabels(p, namespaceLabels, clusterName)
	d := Derived{Stripped: stripped}
	for _, decision := range relevance.Explain(all) {
		if !decision.Kept {
			d.Dropped = append(d.Dropped, decision.Label)
		}
	}
	set, err := relevance.Derive(all)
	if err != nil {
		return d, &DeriveError{Pod: p, Err: err}
	}
	d.Set = set
	return d, nil
}

// PodLabels returns all labels of a pod before the filter, sorted by key: its
// own without those that only the system may set (returned apart), its
// namespace and the namespace's labels, its cluster, and its service account
// unless that is empty.
func PodLabels(p Pod, namespaceLabels map[string]string, clusterName string) (all, stripped []labels.Label) {
	kept, removed := StripSystemLabels(p.Labels)
	own := maps.Clone(kept)
	for key, value := range namespaceLabels {
		own[labels.NamespaceLabelPrefix+key] = value
	}
	own[labels.KeyNamespace] = p.Namespace
	own[labels.KeyCluster] = clusterName
	if p.ServiceAccount != "" {
		own[labels.KeyServiceAccount] = p.ServiceAccount
	}
	return kubernetesLabels(own), kubernetesLabels(removed)
}

// StripSystemLabels splits a pod's labels into those that its author may set
// and those that only the system may: every key under labels.SystemPrefix,
// labels.KeyNamespace, and keys that read like a label of the source
// "reserved" (Kubernetes knows no such key).
func StripSystemLabels(own map[string]string) (kept, stripped map[string]string) {
	kept, stripped = make(map[string]string, len(own)), map[string]string{}
	for key, value := range own {
		if strings.HasPrefix(key, labels.SystemPrefix) || key == labels.KeyNamespace ||
			strings.HasPrefix(key, labels.SourceReserved+":") {
			stripped[key] = value
		} else {
			kept[key] = value
		}
	}
	return kept, stripped
}

func kubernetesLabels(m map[string]string) []labels.Label {
	ls := make([]labels.Label, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		ls = append(ls, labels.Label{Source: labels.SourceK8s, Key: key, Value: m[key]})
	}
	return ls
}

// maxPortsValue is the longest value of a named-ports label, in bytes: the
// longest that Kubernetes allows for a label.
const maxPortsValue = 63

// NamedPortLabels are the labels by which a Cilium agent (not its operator)
// makes the named ports of a new pod part of its identity: name.PROTOCOL.number
// joined by "_" and sorted, in as many labels as the length of a value asks
// for. They are added after the filter. The order of ports plays no part; of
// two ports with one name the lower (protocol, number) counts.
func NamedPortLabels(ports []Port) []labels.Label {
	sorted := slices.Clone(ports)
	slices.SortFunc(sorted, func(a, b Port) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		if c := strings.Compare(a.Protocol, b.Protocol); c != 0 {
			return c
		}
		return int(a.Number) - int(b.Number)
	})
	sorted = slices.CompactFunc(sorted, func(a, b Port) bool { return a.Name == b.Name })
	var values []string
	for _, p := range sorted {
		if p.Name == "" {
			continue
		}
		text := fmt.Sprintf("%s.%s.%d", p.Name, p.Protocol, p.Number)
		last := len(values) - 1
		if last >= 0 && len(values[last])+len("_")+len(text) <= maxPortsValue {
			values[last] += "_" + text
		} else {
			values = append(values, text)
		}
	}
	ls := make([]labels.Label, len(values))
	for i, value := range values {
		key := labels.KeyNamedPorts
		if i > 0 {
			key = fmt.Sprintf("%s-%d", labels.KeyNamedPorts, i)
		}
		ls[i] = labels.Label{Source: labels.SourceGenerated, Key: key, Value: value}
	}
	return ls
}
