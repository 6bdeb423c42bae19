// SPDX-License-Identifier: Apache-2.0

package nemesis

import (
	"os"
	"testing"

	"github.com/signet-identity/signet/e2e/harness"
)

var binary string

// TestMain is also the main of an etcd member: the test binary runs itself again.
func TestMain(m *testing.M) {
	if config := os.Getenv(memberVariable); config != "" {
		os.Exit(runMember(config))
	}
	harness.Main(m, func(b string) { binary = b })
}

// needNemesis skips what takes minutes and both cores, unless it is asked for.
func needNemesis(t *testing.T) {
	t.Helper()
	if os.Getenv("SIGNET_NEMESIS") == "" {
		t.Skip("SIGNET_NEMESIS is not set; make test-all runs this for two minutes, make soak for an hour")
	}
}
