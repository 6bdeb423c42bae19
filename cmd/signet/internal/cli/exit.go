// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/server"
	"github.com/signet-identity/signet/cmd/signet/internal/option"
	"github.com/signet-identity/signet/cmd/signet/internal/run"
	"github.com/signet-identity/signet/kvstore"
)

// The exit codes.
const (
	ExitFine        = 0
	ExitError       = 1
	ExitUsage       = 2
	ExitFindings    = 3
	ExitNotFound    = 4
	ExitUnavailable = 5
)

// exitError carries a code of its own. With an empty message nothing is said:
// the output did.
type exitError struct {
	code    int
	message string
}

func (e *exitError) Error() string { return e.message }

func exit(code int, format string, args ...any) error {
	return &exitError{code: code, message: fmt.Sprintf(format, args...)}
}

// usage is an error in how the command was called.
func usage(c *cobra.Command, format string, args ...any) error {
	where := ""
	if c.HasParent() { // report says signet already
		where = strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ") + ": "
	}
	return exit(ExitUsage, "%s%s; see %s --help", where, fmt.Sprintf(format, args...), c.CommandPath())
}

// report says on one line what went wrong, and returns the exit code.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return ExitFine
	}
	if message := oneLine(messageOf(err)); message != "" {
		fmt.Fprintln(stderr, "signet: "+strings.TrimPrefix(message, "signet: "))
	}
	return codeOf(err)
}

// messageOf is an error without the wrapping that gRPC puts around it.
func messageOf(err error) string {
	if st, ok := status.FromError(err); ok && st.Code() != codes.OK && errors.Unwrap(err) == nil {
		return withTLSHint(st.Message())
	}
	return withTLSHint(err.Error())
}

// withTLSHint says what it means when only one side speaks TLS.
func withTLSHint(message string) string {
	switch {
	case strings.Contains(message, "the server may "): // it is said already
	case strings.Contains(message, "error reading server preface"):
		return message + "; the server may want TLS: give --tls-ca, --tls-cert and --tls-key"
	case strings.Contains(message, "first record does not look like a TLS handshake"):
		return message + "; the server may speak plain text: leave --tls-ca, --tls-cert and --tls-key out"
	}
	return message
}

func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

func codeOf(err error) int {
	var own *exitError
	var setting *option.Error
	var config *run.ConfigError
	var space *identity.SpaceError
	var plain *server.PlainTextError
	var endpoint *kvstore.EndpointError
	var late *kvstore.NotReadyError
	var socket *run.AgentSocketError
	var answered *client.Error
	switch {
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &setting), errors.As(err, &config), errors.As(err, &space), errors.As(err, &plain), errors.As(err, &endpoint):
		return ExitUsage
	case errors.As(err, &late):
		return ExitUnavailable
	case errors.As(err, &socket):
		if errors.Is(err, fs.ErrPermission) {
			return ExitError
		}
		return ExitUnavailable
	case errors.As(err, &answered):
		return codeOfGRPC(answered.Code)
	case errors.Is(err, context.DeadlineExceeded):
		return ExitUnavailable
	}
	if st, ok := status.FromError(err); ok {
		return codeOfGRPC(st.Code())
	}
	return ExitError
}

func codeOfGRPC(c codes.Code) int {
	switch c {
	case codes.NotFound:
		return ExitNotFound
	case codes.Unavailable, codes.DeadlineExceeded:
		return ExitUnavailable
	}
	return ExitError
}
