// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"testing"
	"time"

	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
)

// A first start that was cut short before the cluster was born leaves a store
// with an election key at most: the next one goes on. A store that knows
// identities and has no cluster is refused.
func TestCheckFolder_whoseStoreItIs(t *testing.T) {
	for _, c := range []struct {
		name, key, value string
		born, refused    bool
	}{
		{name: "cut short", key: "signet/v1/default/election/1f", value: `{"who":"dev"}`, born: true},
		{name: "an identity and no cluster", key: "cilium/state/identities/v1/id/300", value: "k8s:app=web;", refused: true},
		{name: "a lineage and no cluster", key: "signet/v1/default/lineage", value: `{"counter":1}`, refused: true},
		{name: "its own", key: "signet/v1/ids/0", value: "default"},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := fake.NewStore(fake.NewModel(fake.Limits{}, 1), func() time.Duration { return 0 })
			defer store.Close()
			put := kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: c.key, Value: []byte(c.value)}}}
			if _, err := store.Txn(t.Context(), put); err != nil {
				t.Fatal(err)
			}
			d := &Dev{DataDir: "d", Cluster: Cluster{Name: "default", BasePrefix: "cilium"}}
			err := d.checkFolder(t.Context(), store)
			var refused *NoClusterError
			if errors.As(err, &refused) != c.refused || !c.refused && err != nil || d.NewCluster != c.born {
				t.Errorf("error %v, new cluster %v", err, d.NewCluster)
			}
		})
	}
}
