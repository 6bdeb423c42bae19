// SPDX-License-Identifier: Apache-2.0

// Package cluster proves Signet on real processes: a real etcd, several
// operators and agents as the shipped binary, killed and restarted, with a
// recorder that watches the store from revision 1 and judges its whole history.
package cluster
