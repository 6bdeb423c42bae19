// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Code says which rule a label set breaks.
type Code int

// The rules of label set text, in the order in which they are checked.
const (
	// CodeEmptySet: there is no label at all.
	CodeEmptySet Code = iota + 1
	// CodeTooLong: the text is longer than MaxText.
	CodeTooLong
	// CodeNoSource: the label was given without a source ("unspec").
	CodeNoSource
	// CodeBadSource: the source is empty, starts with "$", or holds one of "/ : ; =".
	CodeBadSource
	// CodeEmptyKey: the key is empty.
	CodeEmptyKey
	// CodeEqualsInKey: the key holds "=", so the text would be read back with another key.
	CodeEqualsInKey
	// CodeSemicolon: key or value holds ";", the end mark of a label.
	CodeSemicolon
	// CodeSlashRun: the label holds "//", which a reference key would collapse to "/".
	CodeSlashRun
	// CodeNotUTF8: the label is not valid UTF-8.
	CodeNotUTF8
	// CodeControl: the label holds NUL or another control character.
	CodeControl
	// CodeDuplicateKey: two labels of the set have one key.
	CodeDuplicateKey
	// CodeNotCanonical: stored text differs from what Set.Text writes for its labels.
	CodeNotCanonical
	// CodeReservedMixed: a caller from outside mixed the source "reserved" with others.
	CodeReservedMixed
)

var codeNames = map[Code]string{
	CodeEmptySet:      "empty-set",
	CodeTooLong:       "too-long",
	CodeNoSource:      "no-source",
	CodeBadSource:     "bad-source",
	CodeEmptyKey:      "empty-key",
	CodeEqualsInKey:   "equals-in-key",
	CodeSemicolon:     "semicolon",
	CodeSlashRun:      "slash-run",
	CodeNotUTF8:       "not-utf8",
	CodeControl:       "control-character",
	CodeDuplicateKey:  "duplicate-key",
	CodeNotCanonical:  "not-canonical",
	CodeReservedMixed: "reserved-mixed",
}

// String is the code as metrics and JSON show it, e.g. "duplicate-key".
func (c Code) String() string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return "code-" + strconv.Itoa(int(c))
}

// Error is the refusal of a label or a label set.
type Error struct {
	// Code is the rule that is broken.
	Code Code
	// Label is the label in its human form, or the text as a whole when no
	// single label is to blame. It is not shortened.
	Label string
	// Reason says what is wrong and what to do instead.
	Reason string
}

// Error names the label, shortened and quoted, and the reason.
func (e *Error) Error() string {
	if e.Label == "" {
		return "label set: " + e.Reason
	}
	return fmt.Sprintf("label %s: %s", Quote(e.Label), e.Reason)
}

// Quote makes s safe for a message: quoted, and cut when it is long.
func Quote(s string) string {
	const most = 120
	if len(s) <= most {
		return strconv.Quote(s)
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + fmt.Sprintf("… (%d bytes)", len(s))
}

func refuse(code Code, l Label, format string, args ...any) *Error {
	return &Error{Code: code, Label: l.String(), Reason: fmt.Sprintf(format, args...)}
}
