// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"log/slog"

	"github.com/signet-identity/signet/allocator/check"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

// CheckStore judges what a running store holds. The zero space means the one
// that the store's own cluster record names.
func CheckStore(ctx context.Context, e Etcd, c Cluster, space identity.Space, log *slog.Logger) (check.Report, error) {
	layout, err := kvstore.NewLayout(c.BasePrefix, c.Name)
	if err != nil {
		return check.Report{}, err
	}
	st, err := e.open(ctx, log)
	if err != nil {
		return check.Report{}, err
	}
	defer st.close()
	kvs, revision, err := check.Read(ctx, st.work, layout)
	if err != nil {
		return check.Report{}, err
	}
	return check.Store(kvs, revision, check.Options{Layout: layout, Space: space}), nil
}

// CheckSnapshot judges what a snapshot file of etcd holds.
func CheckSnapshot(path string, c Cluster) (check.Report, error) {
	layout, err := kvstore.NewLayout(c.BasePrefix, c.Name)
	if err != nil {
		return check.Report{}, err
	}
	kvs, revision, err := check.ReadSnapshot(path, layout)
	if err != nil {
		return check.Report{}, err
	}
	return check.Store(kvs, revision, check.Options{Layout: layout}), nil
}
