// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Txn implements Store. A transaction without any write is a linearizable read.
func (e *Etcd) Txn(ctx context.Context, t Txn) (TxnResult, error) {
	if err := ctx.Err(); err != nil {
		return TxnResult{}, err
	}
	writes := hasWrites(t.Then) || hasWrites(t.Else)
	then, otherwise := t.Then, t.Else
	if len(then)+len(otherwise) == 0 && len(t.If) > 0 {
		// etcd serves a transaction without any action from the member's own,
		// perhaps stale, state; one read makes it linearizable.
		probe := Action{Key: t.If[0].Key, KeysOnly: true, Limit: 1}
		then, otherwise = []Action{probe}, []Action{probe}
	}
	compares, err := toCompares(t.If)
	if err != nil {
		return TxnResult{}, err
	}
	resp, err := e.client.Txn(ctx).If(compares...).Then(toOps(then)...).Else(toOps(otherwise)...).Commit()
	if err != nil {
		return TxnResult{}, classifyTxn(err, writes)
	}
	out := TxnResult{Succeeded: resp.Succeeded, Revision: resp.Header.Revision}
	branch := t.Else
	if resp.Succeeded {
		branch = t.Then
	}
	out.Reads = make([][]KV, len(branch))
	for i := range branch {
		if r := resp.Responses[i].GetResponseRange(); r != nil {
			out.Reads[i] = fromPB(r.Kvs, branch[i].KeysOnly)
		}
	}
	return out, nil
}

func hasWrites(actions []Action) bool {
	for _, a := range actions {
		if a.Put || a.Delete {
			return true
		}
	}
	return false
}

func toCompares(compares []Compare) ([]clientv3.Cmp, error) {
	out := make([]clientv3.Cmp, len(compares))
	for i, c := range compares {
		if c.Op != '=' && c.Op != '>' && c.Op != '<' {
			return nil, fmt.Errorf("compare of key %q: the operator %q is unknown", c.Key, c.Op)
		}
		op := string(c.Op)
		switch c.Target {
		case CompareCreate:
			out[i] = clientv3.Compare(clientv3.CreateRevision(c.Key), op, c.Revision)
		case CompareMod:
			out[i] = clientv3.Compare(clientv3.ModRevision(c.Key), op, c.Revision)
		case CompareValue:
			out[i] = clientv3.Compare(clientv3.Value(c.Key), op, string(c.Value))
		default:
			return nil, fmt.Errorf("compare of key %q: the target %d is unknown", c.Key, c.Target)
		}
		if c.RangeEnd != "" {
			out[i] = out[i].WithRange(c.RangeEnd)
		}
	}
	return out, nil
}

func toOps(actions []Action) []clientv3.Op {
	out := make([]clientv3.Op, len(actions))
	for i, a := range actions {
		switch {
		case a.Put && a.Lease != 0:
			out[i] = clientv3.OpPut(a.Key, string(a.Value), clientv3.WithLease(clientv3.LeaseID(a.Lease)))
		case a.Put:
			out[i] = clientv3.OpPut(a.Key, string(a.Value))
		case a.Delete && a.RangeEnd != "":
			out[i] = clientv3.OpDelete(a.Key, clientv3.WithRange(a.RangeEnd))
		case a.Delete:
			out[i] = clientv3.OpDelete(a.Key)
		default:
			out[i] = clientv3.OpGet(a.Key, readOptions(a.RangeEnd, a.Limit, a.KeysOnly)...)
		}
	}
	return out
}

func readOptions(end string, limit int64, keysOnly bool) []clientv3.OpOption {
	var opts []clientv3.OpOption
	if end != "" {
		opts = append(opts, clientv3.WithRange(end))
	}
	if limit > 0 {
		opts = append(opts, clientv3.WithLimit(limit))
	}
	if keysOnly {
		opts = append(opts, clientv3.WithKeysOnly())
	}
	return opts
}

// fromPB reads keys. Before 3.7 etcd filled in leases for keysOnly too.
func fromPB(kvs []*mvccpb.KeyValue, keysOnly bool) []KV {
	out := make([]KV, len(kvs))
	for i, kv := range kvs {
		if out[i] = kvFromPB(kv); keysOnly {
			out[i].Value, out[i].Lease = nil, 0
		}
	}
	return out
}

func kvFromPB(kv *mvccpb.KeyValue) KV {
	return KV{
		Key:            string(kv.Key),
		Value:          kv.Value,
		CreateRevision: kv.CreateRevision,
		ModRevision:    kv.ModRevision,
		Version:        kv.Version,
		Lease:          kv.Lease,
	}
}
