// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// templateList is the second shape of input: pod templates and namespaces.
type templateList struct {
	Workloads  []json.RawMessage            `json:"workloads"`
	Namespaces map[string]map[string]string `json:"namespaces"`
}

type template struct {
	Namespace      string            `json:"namespace"`
	Kind           string            `json:"kind"`
	Name           string            `json:"name"`
	ServiceAccount string            `json:"serviceAccount"`
	Labels         map[string]string `json:"labels"`
	Ports          []string          `json:"ports"`
	Replicas       *int              `json:"replicas"`
}

// templates takes a template list. Each entry is a workload of its own, even
// when another has its kind and name (they come from different projects), and
// has at least one pod, since the list is there to show its label set.
func (c *collector) templates(d document) error {
	var list templateList
	if err := json.Unmarshal(d.json, &list); err != nil {
		return &Error{Origin: d.origin, Reason: decodeReason(err)}
	}
	for name, own := range list.Namespaces {
		c.namespace(name, own)
	}
	for i, raw := range list.Workloads {
		origin := Origin{File: d.origin.File, Document: d.origin.Document, Item: i + 1}
		var t template
		reason := ""
		if err := json.Unmarshal(raw, &t); err != nil {
			reason = decodeReason(err)
		}
		w, why := t.workload(origin)
		if reason == "" {
			reason = why
		}
		if reason != "" {
			c.skipped = append(c.skipped, Skip{Origin: origin, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name, Reason: reason})
			continue
		}
		c.workloads = append(c.workloads, w)
	}
	return nil
}

func (t template) workload(origin Origin) (workload, string) {
	if _, known := groups[t.Kind]; !known || t.Kind == "Namespace" {
		return workload{}, fmt.Sprintf("kind %q is not one that has pods", t.Kind)
	}
	if t.Name == "" {
		return workload{}, "it has no name"
	}
	w := workload{
		origin: origin, kind: t.Kind, namespace: t.Namespace, name: t.Name, labels: t.Labels,
		serviceAccount: t.ServiceAccount, replicas: max(1, orOne(t.Replicas)),
	}
	if w.namespace == "" {
		w.namespace = DefaultNamespace
	}
	w.revision = fingerprint([]byte(w.key() + strings.Join(t.Ports, " ")))
	for _, text := range t.Ports {
		protocol, digits, _ := strings.Cut(text, "/")
		number, err := strconv.Atoi(digits)
		if err != nil {
			return workload{}, fmt.Sprintf("port %q is not written as TCP/80", text)
		}
		port, reason := newPort("", protocol, number)
		if reason != "" {
			return workload{}, reason
		}
		w.ports = append(w.ports, port)
	}
	w.ports = slices.Clip(w.ports)
	return w, ""
}
