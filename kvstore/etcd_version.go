// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"fmt"
	"strconv"
	"strings"
)

// serverFault is a known fault of etcd that touches what Signet relies on.
type serverFault struct {
	what  string
	fixed map[string]int // by release series: the first patch without it
	since string         // first series that never had it
}

// serverFaults lists the worst fault first; sources are etcd's change logs.
func serverFaults() []serverFault {
	return []serverFault{
		{
			what:  "an answer to a progress request may overtake events, so a reader may miss changes",
			fixed: map[string]int{"3.4": 25, "3.5": 8},
			since: "3.6",
		},
		{
			what:  "a member whose process was paused may serve stale reads",
			fixed: map[string]int{"3.4": 42, "3.5": 28, "3.6": 9},
			since: "3.7",
		},
	}
}

// ServerFault names the worst known fault of an etcd version and the first
// release of its series without it; "" if none is known, or if the version is
// not readable.
func ServerFault(version string) string {
	major, minor, patch, ok := splitVersion(version)
	if !ok {
		return ""
	}
	series := fmt.Sprintf("%d.%d", major, minor)
	for _, f := range serverFaults() {
		if fixed, listed := f.fixed[series]; listed && patch < fixed {
			return fmt.Sprintf("%s; fixed in %s.%d", f.what, series, fixed)
		}
		if major == 3 && minor < 4 {
			return fmt.Sprintf("%s; fixed in %s", f.what, f.since)
		}
	}
	return ""
}

// splitVersion reads major.minor.patch, with or without a suffix after a dash or plus.
func splitVersion(version string) (major, minor, patch int, ok bool) {
	if at := strings.IndexAny(version, "-+"); at >= 0 {
		version = version[:at]
	}
	parts := strings.Split(version, ".")
	if len(parts) != 3 {
		return 0, 0, 0, false
	}
	var n [3]int
	for i, p := range parts {
		v, err := strconv.Atoi(p)
		if err != nil || v < 0 {
			return 0, 0, 0, false
		}
		n[i] = v
	}
	return n[0], n[1], n[2], true
}
