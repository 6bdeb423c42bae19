// SPDX-License-Identifier: Apache-2.0

// Package agent is the node service: it gives the endpoints of one node their
// numbers, keeps the node's address map right, and speaks for the node.
//
// Four layers, from pure to wired:
//
//	table       endpoints, addresses and label sets as one state machine:
//	            inputs in, effects out, no I/O, no clock          (table*.go)
//	view        what the store says of other nodes' addresses and
//	            of dead numbers                                   (view.go)
//	engine      runs the table: effects to workers, their results
//	            back as inputs, retries with backoff              (engine*.go)
//	Agent       presence, session, mirror, checkpoint, socket     (agent.go)
//
// Rules that the layers keep together:
//
//   - Make before break. An address moves to a new number in the order: number
//     allocated, address map, published address; only then is the old label
//     set's reference released. On the way out: address withdrawn, address
//     map, reference released.
//   - A reference is used as long as an endpoint wants its label set, or an
//     address stands with its number in the map or in the store.
//   - What the checkpoint names is in the map before anything is pruned, and
//     pruning waits for the mirror.
//   - A stop is not a leave: maps and presence stay as they are.
package agent
