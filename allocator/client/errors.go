// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signet-identity/signet/allocator/labels"
)

// Error is why a call failed. Find it with errors.As; the wrapped cause keeps
// context.DeadlineExceeded and context.Canceled visible to errors.Is.
type Error struct {
	// Code is the gRPC code; Unavailable also when no server could be reached.
	Code codes.Code
	// Message is one sentence: the server's, or the client's own.
	Message string
	// Field is the label or request field at fault, if the server named one.
	Field string
	// Reason is the server's stable word for it, such as "duplicate-key".
	Reason string
	// Retry is when trying again makes sense; 0: no hint.
	Retry time.Duration

	cause error
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Unwrap is the cause: a gRPC status or a context's error.
func (e *Error) Unwrap() error { return e.cause }

// Unknown reports whether the call may have taken effect all the same.
func (e *Error) Unknown() bool {
	switch e.Code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal:
		return true
	}
	return false
}

// CodeOf is the code of an *Error in err's chain, OK for nil, Unknown otherwise.
func CodeOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return codes.Unknown
}

// asError turns what grpc returned into an *Error.
func asError(err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	var label *labels.Error
	if errors.As(err, &label) {
		return &Error{Code: codes.InvalidArgument, Message: label.Error(), Field: label.Label, Reason: label.Code.String(), cause: err}
	}
	st, ok := status.FromError(err)
	if !ok {
		return &Error{Code: codes.Unknown, Message: err.Error(), cause: err}
	}
	e := &Error{Code: st.Code(), Message: st.Message(), cause: err}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			e.Reason = strings.ToLower(strings.ReplaceAll(d.GetReason(), "_", "-"))
			e.Field = d.GetMetadata()["field"]
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Field = v.GetField()
			}
		case *errdetails.RetryInfo:
			e.Retry = d.GetRetryDelay().AsDuration()
		}
	}
	return e
}

// ended is the error of a call whose own time ran out. A deadline is reported
// as Unavailable when servers had been saying so all along: that is the news.
func ended(ctx context.Context, what string, last *Error) *Error {
	cause := ctx.Err()
	switch {
	case errors.Is(cause, context.Canceled):
		return &Error{Code: codes.Canceled, Message: what + ": the caller gave up", cause: cause}
	case last != nil && last.Code == codes.Unavailable:
		return &Error{Code: codes.Unavailable, Message: fmt.Sprintf("%s: no server answered in time: %s", what, last.Message),
			Reason: last.Reason, Retry: last.Retry, cause: errors.Join(cause, last)}
	}
	return &Error{Code: codes.DeadlineExceeded, Message: what + ": the deadline passed before the answer came; the same call again is safe", cause: cause}
}
