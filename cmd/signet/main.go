// SPDX-License-Identifier: Apache-2.0

// Command signet gives workloads stable numeric identities: operator, agent,
// both with an etcd in one process (dev), and the commands to use them.
package main

import (
	"os"
	"time"

	"github.com/signet-identity/signet/cmd/signet/internal/cli"
)

//go:generate go run . docs ../../docs/reference

// version is set when the binary is built.
var version = "dev"

func main() {
	os.Exit(cli.Main(cli.Env{
		Args:  os.Args,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		LookupEnv: os.LookupEnv,
		Version:   version,
		Began:     time.Now(),
	}))
}
