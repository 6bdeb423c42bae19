// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// header is what every object has; it is decoded first, so that an object whose
// rest is broken can still be named.
type header struct {
	APIVersion string
	Kind       string
	Metadata   struct{ Name, GenerateName, Namespace string }
}

type object struct {
	Metadata metadata
	Spec     json.RawMessage
	Status   json.RawMessage
	Items    []json.RawMessage
}

// podStatus is what is read of a Pod's status.
type podStatus struct {
	Phase  string
	PodIP  string
	PodIPs []struct{ IP string }
}

// addresses are the pod's own; the string says why they cannot be used.
func (s podStatus) addresses() ([]netip.Addr, string) {
	texts := []string{s.PodIP}
	for _, p := range s.PodIPs {
		texts = append(texts, p.IP)
	}
	var out []netip.Addr
	for _, text := range texts {
		if text == "" {
			continue
		}
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Sprintf("its status names %q as an address, and it is none", text)
		}
		if a = a.Unmap(); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out, ""
}

type metadata struct {
	Labels map[string]string
}

type podSpec struct {
	ServiceAccountName string
	ServiceAccount     string // the old name of the same field
	HostNetwork        bool
	Containers         []struct {
		Ports []struct {
			Name          string
			ContainerPort int
			Protocol      string
		}
	}
}

type podTemplate struct {
	Metadata metadata
	Spec     podSpec
}

// workloadSpec holds the fields of all controller kinds that matter here.
type workloadSpec struct {
	Replicas       *int
	Parallelism    *int
	Completions    *int
	CompletionMode string
	Suspend        bool
	Ordinals       struct{ Start int }
	Template       podTemplate
	JobTemplate    struct{ Spec *workloadSpec }
}

// groups says which API groups a kind may come from.
var groups = map[string][]string{
	"Pod":         {""},
	"Namespace":   {""},
	"Deployment":  {"apps", "extensions"},
	"ReplicaSet":  {"apps", "extensions"},
	"DaemonSet":   {"apps", "extensions"},
	"StatefulSet": {"apps"},
	"Job":         {"batch"},
	"CronJob":     {"batch"},
}

func (h header) group() string {
	group, _, found := strings.Cut(h.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}

// usable says why an object of this kind cannot be used, or nothing.
func (h header) usable() string {
	known, ok := groups[h.Kind]
	switch {
	case h.Kind == "":
		return "it has no kind"
	case h.APIVersion == "":
		return "it has no apiVersion"
	case !ok:
		return fmt.Sprintf("kind %s is none of those that are read: %s", h.Kind, strings.Join(slices.Sorted(maps.Keys(groups)), ", "))
	case !slices.Contains(known, h.group()):
		return fmt.Sprintf("kind %s of group %q is not the one of Kubernetes", h.Kind, h.group())
	}
	return ""
}

func (h header) isList() bool { return strings.HasSuffix(h.Kind, "List") }

func (h header) nameless() bool { return h.Metadata.Name == "" && h.Metadata.GenerateName == "" }

// controlled reads a controller object into a workload; the string says why it
// cannot be used.
func controlled(h header, o object) (workload, string) {
	var spec workloadSpec
	if err := decodeSpec(o.Spec, &spec); err != nil {
		return workload{}, decodeReason(err)
	}
	w := workload{ordinal: spec.Ordinals.Start, indexed: spec.CompletionMode == "Indexed", revision: fingerprint(o.Spec)}
	switch h.Kind {
	case "DaemonSet":
		w.replicas = 1 // one per node, and a file names no nodes
	case "Job", "CronJob":
		suspended := spec.Suspend
		if h.Kind == "CronJob" {
			if spec.JobTemplate.Spec == nil {
				return workload{}, "it has no spec.jobTemplate.spec"
			}
			spec = *spec.JobTemplate.Spec
			w.indexed = spec.CompletionMode == "Indexed"
		}
		if suspended || spec.Suspend {
			return workload{}, "it is suspended"
		}
		w.replicas = orOne(spec.Parallelism)
		if spec.Completions != nil {
			w.replicas = min(w.replicas, *spec.Completions)
		}
	default:
		w.replicas = orOne(spec.Replicas)
	}
	w.labels = spec.Template.Metadata.Labels
	return w, w.fill(spec.Template.Spec)
}

// bare reads a Pod object.
func bare(o object) (workload, string) {
	var spec podSpec
	if err := decodeSpec(o.Spec, &spec); err != nil {
		return workload{}, decodeReason(err)
	}
	var status podStatus
	if err := decodeSpec(o.Status, &status); err != nil {
		return workload{}, decodeReason(err)
	}
	if status.Phase == "Succeeded" || status.Phase == "Failed" {
		return workload{}, "it has ended (phase " + status.Phase + ") and keeps no address"
	}
	w := workload{labels: o.Metadata.Labels, replicas: 1}
	reason := ""
	if w.podIPs, reason = status.addresses(); reason != "" {
		return workload{}, reason
	}
	return w, w.fill(spec)
}

// fill takes over what a pod spec says.
func (w *workload) fill(spec podSpec) string {
	if spec.HostNetwork {
		return "its pods use the host's network and have the node's identity"
	}
	w.serviceAccount = spec.ServiceAccountName
	if w.serviceAccount == "" {
		w.serviceAccount = spec.ServiceAccount
	}
	for _, c := range spec.Containers {
		for _, p := range c.Ports {
			port, reason := newPort(p.Name, p.Protocol, p.ContainerPort)
			if reason != "" {
				return reason
			}
			w.ports = append(w.ports, port)
		}
	}
	return ""
}

func newPort(name, protocol string, number int) (Port, string) {
	if protocol == "" {
		protocol = "TCP"
	}
	if !slices.Contains([]string{"TCP", "UDP", "SCTP"}, protocol) {
		return Port{}, fmt.Sprintf("port %d has the protocol %q; TCP, UDP and SCTP are known", number, protocol)
	}
	if number < 1 || number > 65535 {
		return Port{}, fmt.Sprintf("port %d is not in 1 to 65535", number)
	}
	return Port{Name: name, Protocol: protocol, Number: uint16(number)}, ""
}

func orOne(n *int) int {
	if n == nil {
		return 1
	}
	return *n
}

func decodeSpec(raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	return json.Unmarshal(raw, into)
}

// decodeReason says in the manifest's words what encoding/json found.
func decodeReason(err error) string {
	var mistyped *json.UnmarshalTypeError
	if !errors.As(err, &mistyped) {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	path := strings.Split(mistyped.Field, ".")
	for i, name := range path {
		if name != "" {
			path[i] = strings.ToLower(name[:1]) + name[1:]
		}
	}
	reason := fmt.Sprintf("field %s has the wrong type: %s instead of %s", strings.Join(path, "."), mistyped.Value, mistyped.Type)
	if mistyped.Type.Kind() == reflect.String {
		reason += "; put the value in quotes"
	}
	return reason
}
