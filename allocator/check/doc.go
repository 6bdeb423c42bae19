// SPDX-License-Identifier: Apache-2.0

// Package check judges a store: it compares what stands in etcd with the
// invariants of Signet and with the grammar of its keys, and says for each
// fault what it is, where, and what to do.
//
// Four questions, four entries:
//
//   - Is this content sound? Store looks at everything that a store held at one
//     revision. Read gets that content from a running store, ReadSnapshot from
//     the file that "etcdctl snapshot save" wrote. Store is a pure function:
//     the same content gives the same Report, in the same order.
//   - Was every step sound? History is fed each change from revision 1 on and
//     judges what only a sequence shows: that a number kept its labels, that a
//     freed one waited out its quarantine, that nothing in use was collected.
//     Follow feeds it from a watch.
//   - What does a code mean? Codes lists them all; docs/check.md shows the list.
//   - What can be done? NewPlan makes steps out of the findings, a pure function
//     too; Apply does each in a transaction that compares what it was planned from.
//
// A content is what stood between two transactions, so what only the inside of
// a transaction could show is no finding. States that Signet passes through on
// its own, such as an idle mark beside a reference that just came back, are
// reported with severity info.
package check
