// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// NotReadyError says that etcd did not answer in the time given.
type NotReadyError struct {
	Endpoints []string
	Err       error // what the last attempt said
}

// Error implements error.
func (e *NotReadyError) Error() string {
	return fmt.Sprintf("etcd at %s does not answer: %v", strings.Join(e.Endpoints, ","), e.Err)
}

// Unwrap is the error below.
func (e *NotReadyError) Unwrap() error { return e.Err }

// WaitReady waits until etcd serves a linearizable read, and until ctx ends at
// the longest (*NotReadyError). While it waits it says so every five seconds.
// Then it warns about servers whose version has known faults.
func (e *Etcd) WaitReady(ctx context.Context) error {
	logged := time.Now()
	for {
		err := e.probe(ctx)
		if err == nil {
			break
		}
		if time.Since(logged) >= readyLogEvery {
			logged = time.Now()
			e.log.Warn("waiting for etcd", "endpoints", e.endpoints, "err", err)
		}
		select {
		case <-ctx.Done():
			return &NotReadyError{Endpoints: e.endpoints, Err: err}
		case <-time.After(readyPause):
		}
	}
	e.warnOfOldServers(ctx)
	return nil
}

// probe is one attempt. A refusal for lack of rights is an answer too.
func (e *Etcd) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyAttempt)
	defer cancel()
	_, err := e.client.Get(ctx, "health", clientv3.WithKeysOnly())
	if codeOf(err) == codes.PermissionDenied {
		return nil
	}
	return err
}

func (e *Etcd) warnOfOldServers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, versionsMaxWait)
	defer cancel()
	for _, ep := range e.endpoints {
		status, err := e.client.Status(ctx, ep)
		if err != nil {
			e.log.Warn("etcd does not tell its version", "endpoint", ep, "err", err)
			continue
		}
		if fault := ServerFault(status.Version); fault != "" {
			e.log.Warn("etcd is older than recommended", slog.String("endpoint", ep),
				slog.String("version", status.Version), slog.String("fault", fault))
		}
	}
}
