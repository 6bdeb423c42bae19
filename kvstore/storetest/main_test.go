// SPDX-License-Identifier: Apache-2.0

package storetest_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestMain keeps the number of random runs against a real etcd, which writes
// to disk at each step, moderate unless the caller asks for another one.
func TestMain(m *testing.M) {
	asked := slices.ContainsFunc(os.Args, func(arg string) bool { return strings.Contains(arg, "rapid.checks") })
	if !asked {
		if err := flag.Set("rapid.checks", "30"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
