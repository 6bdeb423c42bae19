// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"strings"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/kvstore"
)

// OtherClusterError says that a data folder is another cluster's.
type OtherClusterError struct {
	DataDir string
	Have    []allocator.Cluster // name and id
	Want    Cluster
}

// Error names the folder, both clusters and the way out.
func (e *OtherClusterError) Error() string {
	have := make([]string, len(e.Have))
	for i, c := range e.Have {
		have[i] = fmt.Sprintf("%q (id %d)", c.Name, c.ID)
	}
	return fmt.Sprintf("the data folder %s belongs to cluster %s, not to %q (id %d): start it with --cluster-name %s --cluster-id %d, or choose another folder with --data-dir",
		e.DataDir, strings.Join(have, ", "), e.Want.Name, e.Want.ID, e.Have[0].Name, e.Have[0].ID)
}

// NoClusterError says that a data folder has a store without a cluster.
type NoClusterError struct{ DataDir string }

// Error names the folder and the way out.
func (e *NoClusterError) Error() string {
	return fmt.Sprintf("the data folder %s has a store whose cluster's record is gone: remove the folder, or start once with --new-cluster", e.DataDir)
}

// checkFolder finds out whose the store is before anything is written to it.
// Errors: *OtherClusterError, *NoClusterError. What else can differ, the
// operator refuses.
func (d *Dev) checkFolder(ctx context.Context, store kvstore.Store) error {
	if d.NewCluster {
		return nil
	}
	layout, err := kvstore.NewLayout(d.Cluster.BasePrefix, d.Cluster.Name)
	if err != nil {
		return err
	}
	have, err := clusters(ctx, layout, store)
	if err != nil {
		return err
	}
	for _, c := range have {
		if c.Name == d.Cluster.Name && c.ID == d.Cluster.ID {
			return nil
		}
	}
	if len(have) == 0 {
		if d.NewCluster, err = unborn(ctx, layout, store); err != nil || d.NewCluster {
			return err
		}
		return &NoClusterError{DataDir: d.DataDir}
	}
	return &OtherClusterError{DataDir: d.DataDir, Have: have, Want: d.Cluster}
}

// unborn says whether no leader has ever written to the store: the first start
// was cut short, and the cluster can be born now.
func unborn(ctx context.Context, layout kvstore.Layout, store kvstore.Store) (bool, error) {
	lineage, err := layout.Key(allocator.LineageKey())
	if err != nil {
		return false, err
	}
	for _, span := range []kvstore.Span{{Key: lineage}, kvstore.PrefixSpan(layout.Masters()), kvstore.PrefixSpan(layout.References())} {
		r, err := store.Range(ctx, kvstore.RangeRequest{Key: span.Key, RangeEnd: span.End, Limit: 1})
		if err != nil || len(r.KVs) > 0 {
			return false, err
		}
	}
	return true, nil
}

// clusters are the clusters of a store by id, as its table of ids names them.
func clusters(ctx context.Context, layout kvstore.Layout, store kvstore.Store) ([]allocator.Cluster, error) {
	first, err := layout.Key(allocator.ClusterIDKey(0))
	if err != nil {
		return nil, err
	}
	table := kvstore.PrefixSpan(strings.TrimSuffix(first, "0"))
	r, err := store.Range(ctx, kvstore.RangeRequest{Key: table.Key, RangeEnd: table.End})
	if err != nil {
		return nil, err
	}
	var out []allocator.Cluster
	for _, kv := range r.KVs {
		if key, err := layout.Parse(kv.Key); err == nil {
			out = append(out, allocator.Cluster{Name: string(kv.Value), ID: uint32(key.Number)})
		}
	}
	return out, nil
}
