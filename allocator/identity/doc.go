// SPDX-License-Identifier: Apache-2.0

// Package identity says what a number is: how one is read and written, which
// numbers are reserved, which range belongs to a cluster, and where the search
// for a new number starts.
//
// A number has 32 bits. The top byte is its scope: 0 for numbers that hold in
// a whole mesh, 1 and 2 for numbers that mean something on one node only and
// are never stored. Of the other 24 bits the upper 8 (or 9) are the cluster's
// id and the lower 16 (or 15) are local to the cluster; a cluster alone on its
// store may use all 24 (wide). Numbers below 256 are reserved in every cluster.
// The layout is that of Cilium 1.20.
package identity
