// SPDX-License-Identifier: Apache-2.0

// Package labels says what a label set is and how it is written.
//
// A label is source:key=value. A label set is a non-empty collection of labels
// with distinct keys. Its text is the one form that is stored:
//
//	k8s:app=web;k8s:io.kubernetes.pod.namespace=shop;
//
// Labels are sorted by the bytes of their keys (the source plays no part),
// "=" and the last ";" always stand there, and nothing is escaped. The text is
// byte for byte what Cilium 1.20 stores for the same labels, so two writers of
// the same labels agree on one master.
//
// Three readers exist, from lenient to strict:
//
//   - Parse and Decode take whatever Cilium takes and never fail.
//   - NewSet and ParseSet take labels from people and programs and refuse what
//     cannot be stored without loss, naming the label and the way out.
//   - ParseText takes text found in a store and refuses everything that Set.Text
//     would not have written.
//
// Filter decides which labels count for an identity, Relevance turns labels
// into the label set of an identity, Selector finds label sets.
package labels
