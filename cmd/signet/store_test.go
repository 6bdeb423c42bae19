// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/signet-identity/signet/kvstore"
)

// putKey writes a key as a person would: put KEY VALUE; without VALUE it is deleted.
func putKey(ts *testscript.TestScript, _ bool, args []string) {
	store := openStore(ts)
	defer store.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	a := kvstore.Action{Delete: true, Key: args[0]}
	if len(args) > 1 {
		a = kvstore.Action{Put: true, Key: args[0], Value: []byte(args[1])}
	}
	_, err := store.Txn(ctx, kvstore.Txn{Then: []kvstore.Action{a}})
	ts.Check(err)
}
