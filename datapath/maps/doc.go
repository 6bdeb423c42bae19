// SPDX-License-Identifier: Apache-2.0

// Package maps opens, creates and pins the maps of the datapath and puts a
// small face before them, with a kernel and a memory form that give the same
// errors.
//
// A [Folder] is a 0700 folder in bpffs with a lock: one writer at a time. Its
// maps outlive the process. A pinned map that is not what this build expects is
// refused with both sets of properties; it is never replaced silently.
package maps
