// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/signet-identity/signet/kvstore"
)

// The scripts run this very program: the test binary becomes it when it is
// called by the name signet.
func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"signet": main}) }

// limit bounds each wait of a script.
const limit = 60 * time.Second

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			// Nothing of the machine's own configuration reaches a script.
			e.Setenv("USER", "alice")
			e.Setenv("HOME", e.WorkDir)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"dev":         startDev,
			"beside":      startBeside,
			"etcd":        startEtcd,
			"start":       startProcess,
			"stop":        stopProcess,
			"crash":       crashProcess,
			"code":        exitCode,
			"keys":        storeKeys,
			"put":         putKey,
			"event":       awaitEvent,
			"ports":       freePorts,
			"certs":       makeCertificates,
			"revoke":      revokePresence,
			"as":          asNobody,
			"field":       jsonField,
			"megabyte":    megabyteOfLabels,
			"fetch":       fetch,
			"notify":      awaitNotify,
			"notify-open": openNotify,
			"exists-soon": func(ts *testscript.TestScript, _ bool, args []string) {
				for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
					if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
						return
					}
					if time.Now().After(end) {
						ts.Fatalf("%s did not appear", args[0])
					}
				}
			},
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Geteuid() == 0, nil
			case "bpf":
				return bpfWorks(), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}

// storeKeys lists the keys under a prefix, in order: keys PREFIX.
func storeKeys(ts *testscript.TestScript, neg bool, args []string) {
	store := openStore(ts)
	defer store.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	prefix := args[0]
	r, err := store.Range(ctx, kvstore.RangeRequest{Key: prefix, RangeEnd: kvstore.PrefixEnd(prefix)})
	ts.Check(err)
	if neg && len(r.KVs) > 0 {
		ts.Fatalf("%s holds %d keys, the first %s", prefix, len(r.KVs), r.KVs[0].Key)
	}
	for _, kv := range r.KVs {
		fmt.Fprintf(ts.Stdout(), "%s = %s\n", kv.Key, kv.Value)
	}
}

func openStore(ts *testscript.TestScript) *kvstore.Etcd {
	store, err := kvstore.NewEtcd(context.Background(), kvstore.EtcdConfig{Endpoints: []string{ts.Getenv("ETCD")}})
	ts.Check(err)
	return store
}

// revokePresence revokes the lease of a node's presence: revoke NODE.
func revokePresence(ts *testscript.TestScript, _ bool, args []string) {
	store := openStore(ts)
	defer store.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	key := "signet/v1/default/nodes/" + args[0]
	r, err := store.Range(ctx, kvstore.RangeRequest{Key: key})
	ts.Check(err)
	if len(r.KVs) != 1 || r.KVs[0].Lease == 0 {
		ts.Fatalf("%s: %+v", key, r.KVs)
	}
	ts.Check(store.Revoke(ctx, r.KVs[0].Lease))
	ts.Setenv("LEASE", fmt.Sprintf("%x", r.KVs[0].Lease))
}
