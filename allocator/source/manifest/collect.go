// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// workload is an object that pods are made for.
type workload struct {
	origin         Origin
	kind           string
	namespace      string
	name           string
	labels         map[string]string
	serviceAccount string
	ports          []Port
	podIPs         []netip.Addr // of a Pod that runs
	replicas       int
	ordinal        int    // number of the first pod of a StatefulSet
	indexed        bool   // an indexed Job
	revision       string // fingerprint of the template
}

func (w workload) key() string { return w.kind + " " + w.namespace + "/" + w.name }

// collector gathers objects over all files before pods are made.
type collector struct {
	workloads  []workload
	at         map[string]int // key of a manifest's workload → index in workloads
	namespaces map[string]map[string]string
	skipped    []Skip
}

func newCollector() *collector {
	return &collector{at: map[string]int{}, namespaces: map[string]map[string]string{}}
}

func (c *collector) file(f File) error {
	docs, err := split(f)
	if err != nil {
		return err
	}
	for _, d := range docs {
		var shape struct {
			Kind      string
			Workloads json.RawMessage
		}
		if json.Unmarshal(d.json, &shape) == nil && shape.Kind == "" && len(shape.Workloads) > 0 {
			if err := c.templates(d); err != nil {
				return err
			}
			continue
		}
		c.object(d, "")
	}
	return nil
}

// object takes one object, or each of a List; listKind names the kind of items
// that do not say their own.
func (c *collector) object(d document, listKind string) {
	var h header
	var o object
	headerErr := json.Unmarshal(d.json, &h)
	if listKind != "" && h.Kind == "" {
		kind, apiVersion, _ := strings.Cut(listKind, " ")
		h.Kind, h.APIVersion = kind, apiVersion
	}
	err := json.Unmarshal(d.json, &o)
	if headerErr != nil {
		err = headerErr
	}
	switch reason := h.usable(); {
	case h.isList() && err == nil:
		itemKind := strings.TrimSuffix(h.Kind, "List") + " " + h.APIVersion
		for i, raw := range o.Items {
			c.object(document{origin: Origin{File: d.origin.File, Document: d.origin.Document, Item: i + 1}, json: raw}, itemKind)
		}
	case reason != "" && !h.isList():
		c.skip(d.origin, h, reason)
	case err != nil:
		c.skip(d.origin, h, decodeReason(err))
	case h.nameless():
		c.skip(d.origin, h, "it has no name")
	case h.Kind == "Namespace":
		c.namespace(h.Metadata.Name, o.Metadata.Labels)
	default:
		c.workload(d.origin, h, o)
	}
}

func (c *collector) skip(origin Origin, h header, reason string) {
	name := h.Metadata.Name
	if name == "" {
		name = h.Metadata.GenerateName
	}
	c.skipped = append(c.skipped, Skip{Origin: origin, Kind: h.Kind, Namespace: h.Metadata.Namespace, Name: name, Reason: reason})
}

func (c *collector) namespace(name string, own map[string]string) {
	if c.namespaces[name] == nil {
		c.namespaces[name] = map[string]string{}
	}
	maps.Copy(c.namespaces[name], own)
}

func (c *collector) workload(origin Origin, h header, o object) {
	read := func() (workload, string) { return controlled(h, o) }
	if h.Kind == "Pod" {
		read = func() (workload, string) { return bare(o) }
	}
	w, reason := read()
	if reason == "" && w.replicas <= 0 {
		reason = fmt.Sprintf("it has %d replicas", w.replicas)
	}
	if reason != "" {
		c.skip(origin, h, reason)
		return
	}
	w.origin, w.kind, w.namespace, w.name = origin, h.Kind, h.Metadata.Namespace, h.Metadata.Name
	if w.namespace == "" {
		w.namespace = DefaultNamespace
	}
	if w.name == "" { // each object with a generated name is one of its own
		w.name = h.Metadata.GenerateName + strconv.Itoa(len(c.workloads))
	}
	if i, again := c.at[w.key()]; again {
		old := c.workloads[i]
		c.skipped = append(c.skipped, Skip{Origin: old.origin, Kind: old.kind, Namespace: old.namespace, Name: old.name,
			Reason: "the same object stands again in " + origin.String()})
		c.workloads[i] = w
		return
	}
	c.at[w.key()] = len(c.workloads)
	c.workloads = append(c.workloads, w)
}

// result makes the pods.
func (c *collector) result() (Result, error) {
	r := Result{Namespaces: c.namespaces, Workloads: len(c.workloads), Skipped: c.skipped}
	used := make(map[string]bool)
	for _, w := range c.workloads {
		if w.replicas > MaxPods-len(r.Pods) {
			return Result{}, &Error{Origin: w.origin, Reason: fmt.Sprintf(
				"%s asks for %d replicas; all files together may have %d pods", w.key(), w.replicas, MaxPods)}
		}
		for i := range w.replicas {
			p := w.pod(i)
			p.Name = unused(used, p.Namespace, p.Name)
			r.Pods = append(r.Pods, p)
		}
	}
	return r, nil
}

// pod makes replica i, with the labels that the controller adds.
func (w workload) pod(i int) Pod {
	p := Pod{
		Namespace: w.namespace, Name: w.name + "-" + strconv.Itoa(i), ServiceAccount: w.serviceAccount,
		Owner: Owner{Kind: w.kind, Name: w.name}, Labels: maps.Clone(w.labels), Ports: slices.Clone(w.ports), Origin: w.origin,
	}
	if p.ServiceAccount == "" {
		p.ServiceAccount = DefaultServiceAccount
	}
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	switch w.kind {
	case "Pod":
		p.Name, p.PodIPs = w.name, w.podIPs
	case "Deployment":
		p.Labels["pod-template-hash"] = w.revision
	case "DaemonSet":
		p.Labels["controller-revision-hash"] = w.revision
		p.Labels["pod-template-generation"] = "1"
	case "StatefulSet":
		ordinal := strconv.Itoa(w.ordinal + i)
		p.Name = w.name + "-" + ordinal
		p.Labels["controller-revision-hash"] = w.name + "-" + w.revision
		p.Labels["statefulset.kubernetes.io/pod-name"] = p.Name
		p.Labels["apps.kubernetes.io/pod-index"] = ordinal
	case "Job", "CronJob":
		w.jobPod(&p, i)
	}
	return p
}

// jobPod adds the labels of a Job's pod. A CronJob's pods belong to its first
// run, a Job named <cron job>-0.
func (w workload) jobPod(p *Pod, i int) {
	job := w.name
	if w.kind == "CronJob" {
		job += "-0"
		p.Name = job + "-" + strconv.Itoa(i)
	}
	uid := uidFor(w.namespace + "/" + job)
	p.Labels["batch.kubernetes.io/job-name"] = job
	p.Labels["job-name"] = job
	p.Labels["batch.kubernetes.io/controller-uid"] = uid
	p.Labels["controller-uid"] = uid
	if w.indexed {
		p.Labels["batch.kubernetes.io/job-completion-index"] = strconv.Itoa(i)
	}
}

// unused returns name, or name with the first free suffix when a pod of the
// namespace has it already, and takes it.
func unused(used map[string]bool, namespace, name string) string {
	free := name
	for n := 2; used[namespace+"/"+free]; n++ {
		free = fmt.Sprintf("%s-%d", name, n)
	}
	used[namespace+"/"+free] = true
	return free
}

// fingerprint stands for the hashes that controllers make of a template.
func fingerprint(template []byte) string {
	sum := sha256.Sum256(template)
	return hex.EncodeToString(sum[:5])
}

// uidFor makes a UID that is the same each time.
func uidFor(name string) string {
	sum := sha256.Sum256([]byte(name))
	h := hex.EncodeToString(sum[:16])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}
