// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// classify wraps an error of etcd in the typed error that it stands for.
func classify(err error) error {
	if err == nil {
		return nil
	}
	err = rpctypes.Error(err)
	if typed := typedError(err); typed != nil {
		return fmt.Errorf("%w (%w)", typed, err)
	}
	return err
}

func typedError(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return ErrCompacted
	case errors.Is(err, rpctypes.ErrFutureRev):
		return ErrFutureRevision
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return ErrLeaseNotFound
	case errors.Is(err, rpctypes.ErrDuplicateKey):
		return ErrDuplicateKey
	case errors.Is(err, rpctypes.ErrEmptyKey):
		return ErrEmptyKey
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge), tooLong(err):
		return ErrTooLarge
	}
	return nil
}

// tooLong recognises gRPC's own limit on a request's length: the client's when
// it sends, the server's when it receives. (This client receives any length.)
func tooLong(err error) bool {
	if codeOf(err) != codes.ResourceExhausted {
		return false
	}
	return strings.Contains(err.Error(), "trying to send message larger than max") ||
		strings.Contains(err.Error(), "received message larger than max")
}

// codeOf is the gRPC code of an error, whichever type carries it.
func codeOf(err error) codes.Code {
	var etcd rpctypes.EtcdError
	switch {
	case errors.As(err, &etcd):
		return etcd.Code()
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	}
	return status.Code(err)
}

// classifyTxn is classify for a transaction: unless etcd itself refused it,
// one that writes may have landed or may land later.
func classifyTxn(err error, writes bool) error {
	err = classify(err)
	if !writes || refused(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
}

// refused says whether err shows that nothing was or will be written. What is
// not known to be a refusal is none.
func refused(err error) bool {
	switch codeOf(err) {
	case codes.InvalidArgument, codes.NotFound, codes.OutOfRange, codes.FailedPrecondition,
		codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return true
	case codes.ResourceExhausted:
		return errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, rpctypes.ErrTooManyRequests) || tooLong(err)
	}
	return false
}
