// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"strings"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
)

// opText is an op on one line of the trace.
func opText(op allocator.Op) string {
	var b strings.Builder
	b.WriteString(string(op.Verb) + " if")
	for _, g := range op.Guards {
		switch g.Kind {
		case allocator.GuardAbsent:
			fmt.Fprintf(&b, " [no %v]", g.Key)
		case allocator.GuardPresent:
			fmt.Fprintf(&b, " [%v]", g.Key)
		case allocator.GuardEmpty:
			fmt.Fprintf(&b, " [none under %v]", g.Key)
		default:
			fmt.Fprintf(&b, " [%v @%d]", g.Key, g.Revision)
		}
	}
	b.WriteString(" then")
	for _, w := range op.Writes {
		if w.Value == nil {
			fmt.Fprintf(&b, " -%v", w.Key)
		} else {
			fmt.Fprintf(&b, " +%v=%v", w.Key, w.Value)
		}
	}
	return b.String()
}

func txText(tx commit.Transaction) string {
	kind := [...]string{"", "work", "barrier", "settle"}[tx.Kind]
	var ops []string
	for _, op := range tx.Ops {
		ops = append(ops, fmt.Sprintf("%d %s", op.ID, op.Verb))
	}
	return kind + " " + strings.Join(ops, ", ")
}

func requestText(req any) string {
	switch r := req.(type) {
	case allocator.AllocateRequest:
		return fmt.Sprintf("allocate %v for %s, given up %d", r.Labels, r.Holder, r.GivenUpHold)
	case allocator.ReleaseRequest:
		return fmt.Sprintf("release %v of %s, hold %d", r.Labels, r.Holder, r.Hold)
	}
	return fmt.Sprintf("%T", req)
}

func replyText(r allocator.Reply) string {
	if r.Err != nil {
		return r.Err.Code.String() + ": " + r.Err.Message
	}
	switch v := r.Value.(type) {
	case allocator.Allocation:
		return fmt.Sprintf("number %d, hold %d", v.Identity.Number, v.Hold)
	case allocator.Released:
		return fmt.Sprintf("released %v", v.Done)
	}
	return fmt.Sprintf("%T", r.Value)
}
