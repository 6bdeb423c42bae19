// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/signet-identity/signet/allocator/labels"
)

// Number is the numeric form of an identity. 0 is no identity.
type Number uint32

// String is the number in plain decimal, the form of keys and values in the store.
func (n Number) String() string { return strconv.FormatUint(uint64(n), 10) }

// NumberCode says why a number is refused.
type NumberCode int

// Why a number can be refused.
const (
	// NumberSyntax: not plain decimal digits without sign, blanks or padding.
	NumberSyntax NumberCode = iota + 1
	// NumberOverflow: it does not fit 32 bits, or is negative.
	NumberOverflow
	// NumberOutOfRange: it fits, but lies outside the range in question.
	NumberOutOfRange
)

// String is the code as JSON shows it.
func (c NumberCode) String() string {
	switch c {
	case NumberSyntax:
		return "syntax"
	case NumberOverflow:
		return "overflow"
	case NumberOutOfRange:
		return "out-of-range"
	default:
		return "code-" + strconv.Itoa(int(c))
	}
}

// NumberError is the refusal of a number.
type NumberError struct {
	Code   NumberCode
	Text   string // the number as it was given
	Reason string
}

// Error names the number and the reason.
func (e *NumberError) Error() string {
	return fmt.Sprintf("number %s: %s", labels.Quote(e.Text), e.Reason)
}

const overflowReason = "it does not fit 32 bits; numbers go from 0 to 4294967295"

// ParseNumber reads plain decimal digits: no sign, no blanks, no leading zero,
// at most 32 bits. The error is a *NumberError. It checks no range of a
// cluster; see Space.Check.
func ParseNumber(s string) (Number, error) {
	v, err := strconv.ParseUint(s, 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, &NumberError{Code: NumberOverflow, Text: s, Reason: overflowReason}
	case err != nil && len(s) > 1 && s[0] == '-' && allDigits(s[1:]):
		return 0, &NumberError{Code: NumberOverflow, Text: s, Reason: "it is negative; numbers go from 0 to 4294967295"}
	case err != nil:
		return 0, &NumberError{Code: NumberSyntax, Text: s, Reason: "it is not a number in plain decimal digits"}
	case s[0] == '0' && s != "0":
		return 0, &NumberError{Code: NumberSyntax, Text: s, Reason: "it has leading zeros; write it without"}
	}
	return Number(v), nil
}

// FromUint64 takes a number from a wider type; what does not fit is refused
// with *NumberError and never cut.
func FromUint64(v uint64) (Number, error) {
	if v > uint64(^Number(0)) {
		return 0, &NumberError{Code: NumberOverflow, Text: strconv.FormatUint(v, 10), Reason: overflowReason}
	}
	return Number(v), nil
}

// FromInt64 is FromUint64 for a signed type; negative numbers are refused.
func FromInt64(v int64) (Number, error) {
	if v < 0 {
		return ParseNumber(strconv.FormatInt(v, 10))
	}
	return FromUint64(uint64(v))
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
