// SPDX-License-Identifier: Apache-2.0

// Package harness runs the shipped binary for the suites on real processes: it
// builds it, starts operators and agents around an etcd, stops, pauses and
// kills them, and has a recorder that watches the store from revision 1 and
// judges its whole history. It is for tests only.
package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BinaryVariable names the environment variable with a signet that is built
// already; without it the suite builds its own.
const BinaryVariable = "SIGNET_BINARY"

// Main is TestMain for a suite two folders below the module: it builds the
// binary, says where it is, runs the tests and ends the process.
func Main(m *testing.M, built func(binary string)) {
	os.Exit(runMain(m, built))
}

func runMain(m *testing.M, built func(binary string)) int {
	if b := os.Getenv(BinaryVariable); b != "" {
		built(b)
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "signet-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "signet")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/signet").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building signet: %v\n%s", err, out)
		return 1
	}
	built(binary)
	return m.Run()
}
