// SPDX-License-Identifier: Apache-2.0

// Package ipcache keeps the maps from address to identity equal to what the
// node wants: it is the one writer of the exact hash, the LPM trie and the rows.
//
// The caller states entries (address, number, source) with Upsert and Delete;
// the package decides by source which entry of an address counts, gives each
// number a row, and brings the maps there: row first, then address; on the way
// out address, grace, row cleared, index quarantined, reused. What fails is
// tried again, entry by entry, without holding up the others.
//
// The same engine drives the kernel (Open) and plain memory (NewMemory), so
// that both behave alike and one suite tests both.
//
// The layers, each testable alone:
//
//	desired   which entry of an address counts                    (pure)
//	rowTable  which row a number has, and when it may be reused   (pure)
//	engine    desired × realised → writes, retries, drift         (I/O through datapath/maps)
package ipcache
