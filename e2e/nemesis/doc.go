// SPDX-License-Identifier: Apache-2.0

// Package nemesis runs Signet on real processes under faults and judges what
// happened: three etcd members, three operators and five agents, each with
// links of its own to each member, while clients allocate, release and read.
//
// Three judges look at a run: the recorder's History (every revision of the
// store), the linearizability of what the clients were answered (per label set
// and per number), and the state after the faults have stopped (check, agents,
// references). A run is planned from a seed:
//
//	go test ./e2e/nemesis -run TestNemesis -v
//	SIGNET_NEMESIS=2m SIGNET_NEMESIS_SEED=7 go test ./e2e/nemesis -run TestNemesis -v
//
// SIGNET_NEMESIS is how long faults go on, SIGNET_NEMESIS_SEED repeats a plan
// (what is planned, not how processes interleave), SIGNET_NEMESIS_ARTIFACTS is
// the folder for the picture of a history that is not linearizable.
package nemesis
