// SPDX-License-Identifier: Apache-2.0

// Package run wires the parts of Signet into processes: an operator, an agent,
// or both beside an embedded etcd (dev). Each part is started by its own
// function and stopped by its own stop, in the reverse order and in bounded time.
package run
