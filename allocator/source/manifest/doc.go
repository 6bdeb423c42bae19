// SPDX-License-Identifier: Apache-2.0

// Package manifest reads workloads from files and says which label set each of
// their pods has.
//
// Two shapes are read: Kubernetes manifests as people have them (YAML or JSON,
// many documents in a file, List kinds; Pod, Deployment, StatefulSet, DaemonSet,
// ReplicaSet, Job, CronJob, Namespace), and a list of pod templates
//
//	{"workloads": [{"namespace", "kind", "name", "serviceAccount", "labels", "ports", "replicas"}], "namespaces": {name: labels}}
//
// The package plays the parts of Kubernetes that matter for labels: it makes the
// pods of a controller and gives them the labels that the controller would add,
// fills in the service account "default", and labels every namespace with its
// name. What cannot be used is named and skipped; nothing is dropped silently.
//
// Objects are decoded only as far as labels, ports and replicas go, so that a
// manifest with fields of a newer Kubernetes is still read.
package manifest
