// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/server"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// told is what a client can read from an error.
type told struct {
	code          codes.Code
	reason, field string
	retry         time.Duration
	quota         string
}

func read(err error) told {
	st := status.Convert(err)
	out := told{code: st.Code()}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			out.reason = d.GetReason()
		case *errdetails.BadRequest:
			out.field = d.GetFieldViolations()[0].GetField()
		case *errdetails.RetryInfo:
			out.retry = d.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			out.quota = d.GetViolations()[0].GetDescription()
		}
	}
	return out
}

func allocateReq(holder string, ls ...string) *signetv1.AllocateRequest {
	return &signetv1.AllocateRequest{Holder: holder, Labels: ls}
}

func TestBadLabelsAreRefusedAlikeEverywhere(t *testing.T) {
	r := start(t)
	cases := []struct {
		name   string
		labels []string
		reason string
		field  string
	}{
		{"empty set", nil, "EMPTY_SET", "labels"},
		{"semicolon", []string{"k8s:a=b;c"}, "SEMICOLON", "k8s:a=b;c"},
		{"slash run", []string{"k8s:a=b//c"}, "SLASH_RUN", "k8s:a=b//c"},
		{"two with one key", []string{"k8s:a=b", "cni:a=c"}, "DUPLICATE_KEY", "cni:a=c"},
		{"source with a slash", []string{"x/y:a=b"}, "BAD_SOURCE", "x/y:a=b"},
		{"no source", []string{"a=b"}, "NO_SOURCE", "a=b"},
		{"a megabyte", []string{"k8s:a=" + strings.Repeat("x", 1<<20)}, "TOO_LONG", "labels"},
		{"reserved with others", []string{"reserved:host", "k8s:a=b"}, "RESERVED_MIXED", "reserved:host"},
	}
	calls := map[string]func(ls []string) error{
		"Allocate": func(ls []string) error {
			_, err := r.identity.Allocate(testContext(t), allocateReq("node-a", ls...))
			return err
		},
		"Release": func(ls []string) error {
			_, err := r.identity.Release(testContext(t), &signetv1.ReleaseRequest{Holder: "node-a", Labels: ls, Hold: 1})
			return err
		},
		"GetIdentity": func(ls []string) error {
			_, err := r.identity.GetIdentity(testContext(t), &signetv1.GetIdentityRequest{Labels: ls})
			return err
		},
		"ExplainIdentity": func(ls []string) error {
			_, err := r.identity.ExplainIdentity(testContext(t), &signetv1.ExplainIdentityRequest{Labels: ls})
			return err
		},
	}
	for _, c := range cases {
		for name, call := range calls {
			got := read(call(c.labels))
			if got.code != codes.InvalidArgument || got.reason != c.reason || got.field != c.field {
				t.Errorf("%s of %s: %+v, want INVALID_ARGUMENT %s %s", name, c.name, got, c.reason, c.field)
			}
		}
	}
	if n := r.count("allocate") + r.count("release") + r.count("get"); n != 0 {
		t.Errorf("%d refused calls reached the backend", n)
	}
	if n := r.server.Refusals()["semicolon"]; n != uint64(len(calls)) {
		t.Errorf("refusals counted for a semicolon: %d, want %d", n, len(calls))
	}
}

func TestBadFields(t *testing.T) {
	r := start(t)
	ctx := testContext(t)
	cases := []struct {
		name, reason string
		err          func() error
	}{
		{"holder in capitals", "INVALID_ARGUMENT", func() error {
			_, err := r.identity.Allocate(ctx, allocateReq("Node_A", "k8s:a=b"))
			return err
		}},
		{"no holder", "INVALID_ARGUMENT", func() error {
			_, err := r.identity.Allocate(ctx, allocateReq("", "k8s:a=b"))
			return err
		}},
		{"negative given up hold", "BAD_HOLD", func() error {
			_, err := r.identity.Allocate(ctx, &signetv1.AllocateRequest{Holder: "a", Labels: []string{"k8s:a=b"}, GivenUpHold: -1})
			return err
		}},
		{"any hold of a node", "BAD_HOLD", func() error {
			_, err := r.identity.Release(ctx, &signetv1.ReleaseRequest{Holder: "a", Labels: []string{"k8s:a=b"}})
			return err
		}},
		{"negative hold", "BAD_HOLD", func() error {
			_, err := r.identity.Release(ctx, &signetv1.ReleaseRequest{Holder: "pin-a", Labels: []string{"k8s:a=b"}, Hold: -4})
			return err
		}},
		{"node scope", "NODE_SCOPE", func() error {
			_, err := r.identity.Allocate(ctx, allocateReq("a", "cidr:10.0.0.0/8"))
			return err
		}},
		{"number and labels", "NUMBER_OR_LABELS", func() error {
			_, err := r.identity.GetIdentity(ctx, &signetv1.GetIdentityRequest{Number: u64(256), Labels: []string{"k8s:a=b"}})
			return err
		}},
		{"negative revision", "BAD_FIELD", func() error {
			_, err := r.identity.GetIdentity(ctx, &signetv1.GetIdentityRequest{Number: u64(256), MinRevision: -1})
			return err
		}},
		{"selector", "BAD_SELECTOR", func() error {
			_, err := r.identity.ListIdentities(ctx, &signetv1.ListIdentitiesRequest{Selector: "a in ("})
			return err
		}},
		{"page size", "BAD_PAGE", func() error {
			_, err := r.identity.ListIdentities(ctx, &signetv1.ListIdentitiesRequest{PageSize: 10001})
			return err
		}},
		{"page token", "BAD_PAGE", func() error {
			_, err := r.identity.ListIdentities(ctx, &signetv1.ListIdentitiesRequest{PageToken: "after-x"})
			return err
		}},
		{"batch size", "BATCH_SIZE", func() error {
			_, err := r.identity.BatchAllocate(ctx, &signetv1.BatchAllocateRequest{Items: make([]*signetv1.AllocateRequest, server.MaxBatch+1)})
			return err
		}},
		{"node with a holder's prefix", "INVALID_ARGUMENT", func() error {
			_, err := r.node.Leave(ctx, &signetv1.LeaveRequest{Node: "pin-a"})
			return err
		}},
		{"watch selector", "BAD_SELECTOR", func() error {
			w, err := r.identity.WatchIdentities(ctx, &signetv1.WatchIdentitiesRequest{Selector: "!"})
			if err == nil {
				_, err = w.Recv()
			}
			return err
		}},
	}
	for _, c := range cases {
		if got := read(c.err()); got.code != codes.InvalidArgument || got.reason != c.reason || got.field == "" && c.name != "no holder" {
			t.Errorf("%s: %+v, want INVALID_ARGUMENT %s with a field", c.name, got, c.reason)
		}
	}
}

func TestMessageLargerThanTheLimit(t *testing.T) {
	r := start(t)
	_, err := r.identity.Allocate(testContext(t), allocateReq("a", "k8s:a="+strings.Repeat("x", server.MaxMessage)))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a request over the limit: %v", err)
	}
}

func TestBackendErrorsBecomeStatuses(t *testing.T) {
	r := start(t)
	cases := []struct {
		err  error
		want told
	}{
		{&allocator.Error{Code: allocator.Exhausted, Message: "full", Used: 9, Limit: 10, Retry: time.Minute},
			told{code: codes.ResourceExhausted, reason: "EXHAUSTED", retry: time.Minute, quota: "9 of 10 numbers are in use or remembered"}},
		{&allocator.Error{Code: allocator.Exhausted, Message: "full"},
			told{code: codes.ResourceExhausted, reason: "EXHAUSTED", retry: 10 * time.Second, quota: "0 of 0 numbers are in use or remembered"}},
		{&allocator.Error{Code: allocator.Unavailable, Message: "recovery", Retry: 3 * time.Second}, told{code: codes.Unavailable, reason: "UNAVAILABLE", retry: 3 * time.Second}},
		{&allocator.Error{Code: allocator.Unavailable, Message: "loading"}, told{code: codes.Unavailable, reason: "UNAVAILABLE", retry: 250 * time.Millisecond}},
		{fmt.Errorf("queue: %w", server.ErrNotLeader), told{code: codes.Unavailable, reason: "NO_LEADER", retry: 250 * time.Millisecond}},
		{&allocator.Error{Code: allocator.FailedPrecondition, Message: "no presence"}, told{code: codes.FailedPrecondition, reason: "FAILED_PRECONDITION"}},
		{&allocator.Error{Code: allocator.NotFound, Message: "none"}, told{code: codes.NotFound, reason: "NOT_FOUND"}},
		{&allocator.Error{Code: allocator.PermissionDenied, Message: "no"}, told{code: codes.PermissionDenied, reason: "PERMISSION_DENIED"}},
		{&allocator.Error{Code: allocator.DeadlineExceeded, Message: "late"}, told{code: codes.DeadlineExceeded, reason: "DEADLINE_EXCEEDED"}},
		{&allocator.Error{Code: allocator.InvalidArgument, Field: "k8s:a=\xff", Message: "bad \xff"}, told{code: codes.InvalidArgument, reason: "INVALID_ARGUMENT", field: "k8s:a=\uFFFD"}},
		{context.DeadlineExceeded, told{code: codes.DeadlineExceeded, reason: "DEADLINE_EXCEEDED"}},
		{errors.New("a bug"), told{code: codes.Internal, reason: "INTERNAL"}},
	}
	for _, c := range cases {
		r.set(func(m *memory) { m.fail = c.err })
		_, err := r.identity.Allocate(testContext(t), allocateReq("a", "k8s:a=b"))
		if got := read(err); got != c.want {
			t.Errorf("%v became %+v, want %+v", c.err, got, c.want)
		}
		batch, err := r.identity.BatchAllocate(testContext(t), &signetv1.BatchAllocateRequest{Items: []*signetv1.AllocateRequest{allocateReq("a", "k8s:a=b")}})
		if err != nil || codes.Code(batch.GetResults()[0].GetError().GetCode()) != c.want.code {
			t.Errorf("%v in a batch became %v, %v", c.err, batch, err)
		}
	}
}

func TestBatchItemsFailAlone(t *testing.T) {
	r := start(t)
	resp, err := r.identity.BatchAllocate(testContext(t), &signetv1.BatchAllocateRequest{Items: []*signetv1.AllocateRequest{
		allocateReq("a", "k8s:a=1"), allocateReq("a"), allocateReq("a", "reserved:world"), allocateReq("b", "k8s:a=1"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := resp.GetResults()
	if got[0].GetResponse() == nil || got[3].GetResponse().GetIdentity().GetNumber() != got[0].GetResponse().GetIdentity().GetNumber() {
		t.Errorf("one set for two holders: %v and %v", got[0], got[3])
	}
	if codes.Code(got[1].GetError().GetCode()) != codes.InvalidArgument || got[2].GetResponse().GetIdentity().GetNumber() != 2 {
		t.Errorf("an empty set and a reserved one: %v and %v", got[1], got[2])
	}
	if h := got[3].GetResponse().GetIdentity().GetHolders(); len(h) != 1 || h[0].GetHolder() != "b" {
		t.Errorf("a batch shows its own holder only, got %v", h)
	}
}

func TestNumbersOutOfRange(t *testing.T) {
	r := start(t)
	for _, n := range []uint64{0, 1 << 32, 1 << 63, math.MaxUint64} {
		_, err := r.identity.GetIdentity(testContext(t), &signetv1.GetIdentityRequest{Number: u64(n)})
		if got := read(err); got.code != codes.InvalidArgument || got.reason != "NUMBER_OUT_OF_RANGE" || got.field != "number" {
			t.Errorf("number %d: %+v", n, got)
		}
	}
}
