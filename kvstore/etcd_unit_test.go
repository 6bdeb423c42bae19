// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Only what etcd itself refused is known not to land.
func TestOutcomesOfTransactions(t *testing.T) {
	for _, c := range []struct {
		err     error
		typed   error
		unknown bool
	}{
		{rpctypes.ErrGRPCTooManyOps, ErrTooLarge, false},
		{rpctypes.ErrGRPCRequestTooLarge, ErrTooLarge, false},
		{status.Error(codes.ResourceExhausted, "trying to send message larger than max (3 vs. 2)"), ErrTooLarge, false},
		{status.Error(codes.ResourceExhausted, "grpc: received message larger than max (3 vs. 2)"), ErrTooLarge, false},
		{rpctypes.ErrGRPCLeaseNotFound, ErrLeaseNotFound, false},
		{rpctypes.ErrGRPCDuplicateKey, ErrDuplicateKey, false},
		{rpctypes.ErrGRPCEmptyKey, ErrEmptyKey, false},
		{rpctypes.ErrGRPCNoSpace, nil, false},
		{rpctypes.ErrGRPCRequestTooManyRequests, nil, false},
		{rpctypes.ErrGRPCPermissionDenied, nil, false},
		{rpctypes.ErrGRPCInvalidAuthToken, nil, false},
		{rpctypes.ErrGRPCAuthOldRevision, nil, false},
		{rpctypes.ErrGRPCTimeout, nil, true},
		{rpctypes.ErrGRPCTimeoutDueToLeaderFail, nil, true},
		{rpctypes.ErrGRPCLeaderChanged, nil, true},
		{rpctypes.ErrGRPCNoLeader, nil, true},
		{rpctypes.ErrGRPCStopped, nil, true},
		{rpctypes.ErrGRPCCorrupt, nil, true},
		{status.Error(codes.Unavailable, "connection reset"), nil, true},
		{status.Error(codes.Unknown, "?"), nil, true},
		{status.Error(codes.Internal, "?"), nil, true},
		{status.Error(codes.ResourceExhausted, "?"), nil, true},
		{context.Canceled, context.Canceled, true},
		{context.DeadlineExceeded, context.DeadlineExceeded, true},
		{fmt.Errorf("wrapped: %w", context.DeadlineExceeded), context.DeadlineExceeded, true},
		{errors.New("no status at all"), nil, true},
	} {
		got := classifyTxn(c.err, true)
		if errors.Is(got, ErrUnknownOutcome) != c.unknown {
			t.Errorf("%v of a write: %v", c.err, got)
		}
		if c.typed != nil && !errors.Is(got, c.typed) {
			t.Errorf("%v: %v is no %v", c.err, got, c.typed)
		}
		if read := classifyTxn(c.err, false); errors.Is(read, ErrUnknownOutcome) {
			t.Errorf("%v of a read: %v", c.err, read)
		}
	}
	if classify(nil) != nil {
		t.Error("no error has become one")
	}
}

// L-21, W-03, W-04: servers with known faults are named at start.
func TestServerFault(t *testing.T) {
	for version, faulty := range map[string]bool{
		"3.3.27": true, "3.4.23": true, "3.4.25": true, "3.4.42": false, "3.4.50": false,
		"3.5.7": true, "3.5.8": true, "3.5.28": false, "3.6.0-rc.1": true, "3.6.8": true, "3.6.9": false,
		"3.7.0": false, "3.7.3": false, "4.0.0": false, "": false, "x.y.z": false, "3.4": false, "3.-4.1": false,
	} {
		if got := ServerFault(version); (got != "") != faulty {
			t.Errorf("ServerFault(%q) = %q", version, got)
		}
	}
}

func TestCheckEndpoints(t *testing.T) {
	for _, c := range []struct {
		endpoints []string
		tls, ok   bool
	}{
		{[]string{"http://127.0.0.1:2379"}, false, true},
		{[]string{"127.0.0.1:2379", "http://[::1]:2379", "localhost:2379"}, false, true},
		{[]string{"unix:///run/etcd.sock"}, false, true},
		{[]string{"https://etcd.example:2379", "etcd2.example:2379"}, true, true},
		{[]string{"unixs:///run/etcd.sock"}, true, true},
		{nil, false, false},
		{[]string{"http://10.0.0.1:2379"}, false, false},
		{[]string{"etcd.example:2379"}, false, false},
		{[]string{"https://127.0.0.1:2379"}, false, false},
		{[]string{"unixs:///run/etcd.sock"}, false, false},
		{[]string{"http://etcd.example:2379"}, true, false},
		{[]string{"http://127.0.0.1:2379", "https://etcd.example:2379"}, true, false},
		{[]string{"ftp://127.0.0.1:2379"}, false, false},
		{[]string{"127.0.0.1"}, false, false},
		{[]string{"http://127.0.0.1:2379/path"}, false, false},
		{[]string{""}, false, false},
	} {
		err := CheckEndpoints(c.endpoints, c.tls)
		var want *EndpointError
		if (err == nil) != c.ok || err != nil && !errors.As(err, &want) {
			t.Errorf("CheckEndpoints(%v, %v) = %v", c.endpoints, c.tls, err)
		}
	}
}
