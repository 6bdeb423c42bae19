// SPDX-License-Identifier: Apache-2.0

// Package server is the gRPC face of an operator replica: it checks what comes
// in, knows who asks, and hands the rest to a Backend.
//
// A call passes these stations:
//
//	metrics ─▶ panic guard ─▶ who calls ─▶ deadline ─▶ handler: authorize, check, then
//	                                                   leader: Backend
//	                                                   follower: forward (once), or read locally
//
// Who calls is the certificate's subject: the common name is the caller's
// name, the organization its role (Role). On a unix socket or on loopback
// without TLS there is no certificate, and the caller is local: it may do
// everything. Anywhere else plain text is refused before the first byte.
//
// A follower forwards writes and linearizable reads to the leader over one
// kept connection, and says for whom in metadata that only an operator's
// certificate makes believable. A forwarded call is never forwarded again, so
// that two replicas with different ideas of the leader do not play ping-pong.
//
// Reserved and well-known label sets have their number everywhere without a
// store: they are answered here, by the same lookup for Allocate, GetIdentity
// and ListIdentities, so that whatever is listed can be looked up.
//
// Every refusal is a refusal value: a gRPC code, a stable reason, the field at
// fault and one sentence. It becomes a status with details, a metric and a
// count in Status.
package server
