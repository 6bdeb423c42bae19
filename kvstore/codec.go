// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
)

// EncodeValue is the stored form of v under k. It refuses, with a *ValueError,
// what Decode would not read back as the same value. A nil v has no form.
func EncodeValue(k allocator.Key, v allocator.Value) ([]byte, error) {
	if reason := checkValue(k, v); reason != "" {
		return nil, &ValueError{Key: k, Reason: reason}
	}
	return rawValue(k, v)
}

// rawValue is EncodeValue without its checks: what a guard compares with may
// be a malformed value that was found in the store.
func rawValue(k allocator.Key, v allocator.Value) ([]byte, error) {
	switch v := v.(type) {
	case allocator.LabelSet:
		return []byte(v), nil
	case allocator.NumberValue:
		return []byte(v.String()), nil
	case allocator.Text:
		return []byte(v), nil
	case allocator.Raw:
		return v, nil
	case nil:
		return nil, &ValueError{Key: k, Reason: "it is missing"}
	}
	data, err := marshal(v)
	if err != nil {
		return nil, &ValueError{Key: k, Reason: err.Error()}
	}
	return data, nil
}

// marshal writes JSON on one line, without the escapes that HTML would need:
// the store is read by people.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Decode reads one stored key. Its error is a *KeyError when the key is none
// of Signet's or malformed in itself, a *MalformedError when the label set
// text or the value is.
func (l Layout) Decode(kv KV) (allocator.Record, error) {
	k, keyErr := l.parse(kv.Key)
	if keyErr != nil {
		return allocator.Record{}, keyErr
	}
	v, err := decodeValue(k, kv.Value)
	if err != nil {
		return allocator.Record{}, &MalformedError{Key: kv.Key, Reason: err.Error()}
	}
	if reason := checkValue(k, v); reason != "" {
		return allocator.Record{}, &MalformedError{Key: kv.Key, Reason: reason}
	}
	return record(k, v, kv), nil
}

// record joins a parsed key and value with what the store knows of the key.
func record(k allocator.Key, v allocator.Value, kv KV) allocator.Record {
	return allocator.Record{
		Key:            k,
		Value:          v,
		CreateRevision: kv.CreateRevision,
		ModRevision:    kv.ModRevision,
		Lease:          kv.Lease,
	}
}

func decodeValue(k allocator.Key, data []byte) (allocator.Value, error) {
	switch k.Kind {
	case allocator.KindMaster:
		return allocator.LabelSet(data), nil
	case allocator.KindReference:
		n, reason := parseNumber(string(data))
		if reason != "" {
			return nil, errors.New("the number: " + reason)
		}
		return allocator.NumberValue(n), nil
	case allocator.KindClusterID:
		return allocator.Text(data), nil
	case allocator.KindAddress:
		return decodeAddress(data)
	case allocator.KindPresence:
		return unmarshal[allocator.Presence](data)
	case allocator.KindGone, allocator.KindKnown, allocator.KindIdle:
		return unmarshal[allocator.Mark](data)
	case allocator.KindTombstone:
		return unmarshal[allocator.Tombstone](data)
	case allocator.KindLineage:
		return unmarshal[allocator.Lineage](data)
	case allocator.KindCluster:
		return unmarshal[allocator.Cluster](data)
	case allocator.KindRecovery:
		return unmarshal[allocator.Recovery](data)
	case allocator.KindElection:
		return unmarshal[allocator.Candidate](data)
	}
	return allocator.Raw(data), nil
}

// decodeAddress reads a pair; an empty list of ports is none, as it is written.
func decodeAddress(data []byte) (allocator.Value, error) {
	v, err := unmarshal[allocator.Address](data)
	if err != nil {
		return nil, err
	}
	a := v.(allocator.Address)
	if len(a.NamedPorts) == 0 {
		a.NamedPorts = nil
	}
	return a, nil
}

// unmarshal reads one JSON object. Fields that this version does not know are
// passed over, so that a later one may add some.
func unmarshal[T allocator.Value](data []byte) (allocator.Value, error) {
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, errors.New("the value is no JSON object")
	}
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("the value is not readable as JSON: %w", err)
	}
	return v, nil
}

// ReferenceNumber is the number that a reference's record holds; 0 when the
// value is malformed (allocator.Raw in an answer of a transaction).
func ReferenceNumber(r allocator.Record) identity.Number {
	n, _ := r.Value.(allocator.NumberValue)
	return identity.Number(n)
}
