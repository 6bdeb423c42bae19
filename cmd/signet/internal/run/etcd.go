// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/signet-identity/signet/kvstore"
)

// stores are the two clients of one process: vital carries a lease whose
// renewals must never wait behind the work of the other.
type stores struct{ work, vital *kvstore.Etcd }

// open makes the clients and waits until etcd answers.
func (e *Etcd) open(ctx context.Context, log *slog.Logger) (*stores, error) {
	tls, err := kvstore.LoadTLS(e.CA, e.Cert, e.Key)
	if err != nil {
		return nil, err
	}
	cfg := kvstore.EtcdConfig{Endpoints: e.Endpoints, TLS: tls, Logger: log}
	s := &stores{}
	if s.work, err = kvstore.NewEtcd(context.Background(), cfg); err != nil {
		return nil, err
	}
	if s.vital, err = kvstore.NewEtcd(context.Background(), cfg); err != nil {
		s.close()
		return nil, err
	}
	if err := e.wait(ctx, s.work, log); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (e *Etcd) wait(ctx context.Context, s *kvstore.Etcd, log *slog.Logger) error {
	limit, wait := "none", ctx
	if e.WaitTimeout > 0 {
		limited, cancel := context.WithTimeout(ctx, e.WaitTimeout)
		defer cancel()
		limit, wait = e.WaitTimeout.String(), limited
	}
	log.Info("waiting for etcd", "endpoints", e.Endpoints, "limit", limit)
	err := s.WaitReady(wait)
	var late *kvstore.NotReadyError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &late):
		return fmt.Errorf("%w; start etcd, or name where it serves with --etcd-endpoints", err)
	case err != nil:
		return err
	}
	log.Info("etcd answers", "endpoints", e.Endpoints)
	return nil
}

// OpenStore opens etcd for a command that reads it; the caller closes it.
func (e *Etcd) OpenStore(ctx context.Context, log *slog.Logger) (*kvstore.Etcd, error) {
	tls, err := kvstore.LoadTLS(e.CA, e.Cert, e.Key)
	if err != nil {
		return nil, err
	}
	s, err := kvstore.NewEtcd(ctx, kvstore.EtcdConfig{Endpoints: e.Endpoints, TLS: tls, Logger: log})
	if err != nil {
		return nil, err
	}
	if err := e.wait(ctx, s, log); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *stores) close() {
	for _, etcd := range []*kvstore.Etcd{s.work, s.vital} {
		if etcd != nil {
			_ = etcd.Close()
		}
	}
}

// part closes the clients when it is stopped, after everything that uses them.
func (s *stores) part() *part {
	return &part{name: "etcd clients", failed: make(chan error), stop: func(context.Context) { s.close() }}
}
