// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/signet-identity/signet/kvstore"
)

// Prefixes are what Store judges: the identities with their references and
// locks, the addresses, all of S, and the table of cluster ids.
func Prefixes(l kvstore.Layout) []string {
	return []string{l.State(kvstore.MeshIdentities), l.State(kvstore.MeshAddresses), l.Own(), l.ClusterIDs()}
}

// readTries is how often Read begins anew when compaction overtakes it.
const readTries = 3

// Read reads everything under Prefixes at one revision, and returns that
// revision. Errors are those of kvstore.Store.
func Read(ctx context.Context, s kvstore.Store, l kvstore.Layout) (kvs []kvstore.KV, revision int64, err error) {
	for range readTries {
		kvs, revision, err = readOnce(ctx, s, l)
		if !errors.Is(err, kvstore.ErrCompacted) {
			break
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the store: %w", err)
	}
	return kvs, revision, nil
}

func readOnce(ctx context.Context, s kvstore.Store, l kvstore.Layout) ([]kvstore.KV, int64, error) {
	var all []kvstore.KV
	var revision int64
	for _, prefix := range Prefixes(l) {
		kvs, at, err := kvstore.ListAll(ctx, s, prefix, kvstore.PrefixEnd(prefix), revision, 0)
		if err != nil {
			return nil, 0, err
		}
		all, revision = append(all, kvs...), at
	}
	return all, revision, nil
}

// covered says whether Store judges the key.
func covered(prefixes []string, key string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}
