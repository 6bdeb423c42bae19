// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/signet-identity/signet/allocator/identity"
)

// The functions named bad… return why an element cannot stand in a key, or "".

// badText checks label set text inside a reference key or a lock key. Cilium's
// key builder collapses every run of slashes, so text with a run, or with a
// slash at an end, would share its key with other text.
func badText(text string) string {
	switch {
	case text == "":
		return "the label set is empty"
	case strings.Contains(text, "//"):
		return "the label set has two slashes in a row"
	case text[0] == '/' || text[len(text)-1] == '/':
		return "the label set begins or ends with a slash"
	}
	return ""
}

// badElement checks a name that is one element of a key.
func badElement(name string) string {
	switch {
	case name == "":
		return "is empty"
	case strings.Contains(name, "/"):
		return "holds a slash"
	}
	return ""
}

// badLease checks a lease in lower-case hex without leading zeros.
func badLease(name string) string {
	n, err := strconv.ParseUint(name, 16, 63)
	if err != nil || n == 0 || strconv.FormatUint(n, 16) != name {
		return "the last element is no lease in lower-case hex"
	}
	return ""
}

// badAddress checks an address as Cilium spells it in a key: an address, or an
// address, a slash and the length of its mask. Cilium writes an IPv4 address
// that carries a 16-byte mask with that mask's length, up to 128.
func badAddress(name string) string {
	text, length, hasLength := strings.Cut(name, "/")
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" || a.Is4In6() || a.String() != text {
		return "the last element is no address in its shortest form"
	}
	if !hasLength {
		return ""
	}
	n, reason := parseDecimal(length)
	if reason != "" || n > 128 {
		return "the mask's length is no number up to 128"
	}
	return ""
}

// parseDecimal reads an unsigned decimal of 32 bits without sign or padding.
func parseDecimal(s string) (identity.Number, string) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0, "it is no plain decimal of 32 bits"
	}
	return identity.Number(n), ""
}

// parseNumber reads an identity's number; 0 is none.
func parseNumber(s string) (identity.Number, string) {
	n, reason := parseDecimal(s)
	if reason == "" && n == 0 {
		reason = "0 is no identity's number"
	}
	return n, reason
}
