// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

// Domain is the domain of every errdetails.ErrorInfo that the server sends.
const Domain = "signet"

// Retry hints for refusals that carry none of their own.
const (
	retryUnavailable = 250 * time.Millisecond
	retryExhausted   = 10 * time.Second
)

// Reasons that the server itself gives; labels.Code and allocator.Code give
// theirs. They are label values in metrics, keys of Status.refusals and, in
// upper case with underscores, ErrorInfo.reason.
const (
	reasonNumberRange = "number-out-of-range"
	reasonWhich       = "number-or-labels"
	reasonSelector    = "bad-selector"
	reasonPage        = "bad-page"
	reasonField       = "bad-field"
	reasonBatch       = "batch-size"
	reasonHold        = "bad-hold"
	reasonScope       = "node-scope"
	reasonOtherHolder = "other-holder"
	reasonSystemLabel = "system-label"
	reasonRole        = "role"
	reasonNoLeader    = "no-leader"
	reasonForwardLoop = "forwarded-twice"
	reasonStopping    = "stopping"
	reasonSlow        = "slow-reader"
	reasonSession     = "session-order"
	reasonUnknown     = "internal"
	reasonTransport   = "transport"
)

// refusal is why a call got no answer: one sentence for people, the rest for
// programs. It knows its gRPC status.
type refusal struct {
	code    codes.Code
	reason  string
	field   string // what is at fault: a request's field or a label
	message string
	retry   time.Duration
	used    uint64 // with ResourceExhausted
	limit   uint64
}

// Error implements error.
func (r *refusal) Error() string { return r.message }

// GRPCStatus implements the interface by which package status finds a status.
func (r *refusal) GRPCStatus() *status.Status {
	st := status.New(r.code, r.message)
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{
		Reason: strings.ToUpper(strings.ReplaceAll(r.reason, "-", "_")), Domain: Domain, Metadata: r.metadata(),
	}}
	switch r.code {
	case codes.InvalidArgument:
		details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: r.field, Description: r.message},
		}})
	case codes.ResourceExhausted:
		details = append(details, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{
			{Subject: "numbers", Description: fmt.Sprintf("%d of %d numbers are in use or remembered", r.used, r.limit)},
		}})
	}
	if r.retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.retry)})
	}
	if with, err := st.WithDetails(details...); err == nil {
		return with
	}
	return st
}

func (r *refusal) metadata() map[string]string {
	if r.field == "" {
		return nil
	}
	return map[string]string{"field": printable(r.field)}
}

// printable keeps strings that a client wrote fit for protobuf and short
// enough for a header.
func printable(s string) string {
	const most = 512
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func invalid(reason, field, format string, args ...any) *refusal {
	return &refusal{code: codes.InvalidArgument, reason: reason, field: field, message: fmt.Sprintf(format, args...)}
}

func unavailable(reason, format string, args ...any) *refusal {
	return &refusal{code: codes.Unavailable, reason: reason, message: fmt.Sprintf(format, args...), retry: retryUnavailable}
}

func denied(reason, field, format string, args ...any) *refusal {
	return &refusal{code: codes.PermissionDenied, reason: reason, field: field, message: fmt.Sprintf(format, args...)}
}

// refuse turns whatever a handler returned into a refusal. A status that is
// one already (a forwarded answer) stays as it is and gives nil.
func refuse(err error) *refusal {
	var own *refusal
	if errors.As(err, &own) {
		return own
	}
	var core *allocator.Error
	var label *labels.Error
	var selector *labels.SelectorError
	var number *identity.NumberError
	switch {
	case errors.As(err, &core):
		return refuseCore(core)
	case errors.As(err, &label):
		return invalid(label.Code.String(), labelField(label), "%s", printableMessage(label.Error()))
	case errors.As(err, &selector):
		return invalid(reasonSelector, "selector", "%s", printableMessage(selector.Error()))
	case errors.As(err, &number):
		return invalid(reasonNumberRange, "number", "%s", number.Error())
	case errors.Is(err, ErrNotLeader):
		return unavailable(reasonNoLeader, "%v; try again, the next leader will answer", err)
	case errors.Is(err, context.DeadlineExceeded):
		return &refusal{code: codes.DeadlineExceeded, reason: allocator.DeadlineExceeded.String(),
			message: "the deadline passed before the answer was known; the same call again is safe"}
	case errors.Is(err, context.Canceled):
		return &refusal{code: codes.Canceled, reason: "canceled", message: "the caller gave up"}
	}
	if _, ok := status.FromError(err); ok {
		return nil
	}
	return &refusal{code: codes.Internal, reason: reasonUnknown, message: printableMessage(err.Error())}
}

func labelField(e *labels.Error) string {
	if e.Label == "" {
		return "labels"
	}
	return printable(e.Label)
}

func printableMessage(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

var coreCodes = map[allocator.Code]codes.Code{
	allocator.InvalidArgument:    codes.InvalidArgument,
	allocator.Exhausted:          codes.ResourceExhausted,
	allocator.Unavailable:        codes.Unavailable,
	allocator.FailedPrecondition: codes.FailedPrecondition,
	allocator.NotFound:           codes.NotFound,
	allocator.PermissionDenied:   codes.PermissionDenied,
	allocator.DeadlineExceeded:   codes.DeadlineExceeded,
}

func refuseCore(e *allocator.Error) *refusal {
	code, ok := coreCodes[e.Code]
	if !ok {
		code = codes.Internal
	}
	retry := e.Retry
	switch {
	case retry > 0:
	case code == codes.Unavailable:
		retry = retryUnavailable
	case code == codes.ResourceExhausted:
		retry = retryExhausted
	}
	return &refusal{code: code, reason: e.Code.String(), field: printable(e.Field), message: printableMessage(e.Message),
		retry: retry, used: e.Used, limit: e.Limit}
}

// toStatus is the error as it goes over the wire.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if r := refuse(err); r != nil {
		return r.GRPCStatus().Err()
	}
	return err
}

// reasonOf is the label under which an error is counted.
func reasonOf(err error) string {
	if r := refuse(err); r != nil {
		return r.reason
	}
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == Domain {
			return strings.ToLower(strings.ReplaceAll(info.GetReason(), "_", "-"))
		}
	}
	return reasonTransport
}
