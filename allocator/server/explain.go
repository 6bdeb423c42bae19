// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/signet-identity/signet/allocator"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// ExplainIdentity implements IdentityService.
func (s *identityService) ExplainIdentity(ctx context.Context, req *signetv1.ExplainIdentityRequest) (*signetv1.ExplainIdentityResponse, error) {
	q, fixed, err := which(req.Number, req.GetLabels())
	if err != nil {
		return nil, err
	}
	if fixed != nil {
		return &signetv1.ExplainIdentityResponse{Identity: fixed, Story: []string{fmt.Sprintf(
			"Number %d is reserved: it means the same in every cluster, is stored nowhere, and is never freed.", fixed.GetNumber())}}, nil
	}
	i, out, err := s.find(ctx, q)
	if err != nil {
		return nil, err
	}
	return &signetv1.ExplainIdentityResponse{
		Identity:  out,
		Born:      timeOut(allocator.Time{Revision: i.CreateRevision}),
		Freed:     timeOut(i.Freed),
		IdleSince: timeOut(i.IdleSince),
		Story:     story(i),
	}, nil
}

// story says in sentences how the identity stands, and what comes next.
func story(i allocator.Identity) []string {
	out := []string{fmt.Sprintf("Number %d was given to these labels at store revision %d.", i.Number, i.CreateRevision)}
	switch i.State {
	case allocator.Live:
		out = append(out, heldBy(i.Holders))
	case allocator.IdleState:
		out = append(out, fmt.Sprintf("Nobody holds it since store revision %d; it is freed once the identity grace has passed, unless someone allocates it again.",
			i.IdleSince.Revision))
	case allocator.Quarantined:
		out = append(out, fmt.Sprintf("It was freed at store revision %d and is in quarantine: only the same labels can have it back for now.", i.Freed.Revision))
	case allocator.Free:
		out = append(out, fmt.Sprintf("It was freed at store revision %d and its quarantine is over: any labels may get it, the same ones first.", i.Freed.Revision))
	}
	return out
}

func heldBy(holders []allocator.Holder) string {
	const most = 10
	if len(holders) == 0 {
		return "Nobody holds it at the moment; it is marked idle at the next sweep, unless someone allocates it again."
	}
	names := make([]string, 0, most)
	for _, h := range holders[:min(most, len(holders))] {
		names = append(names, fmt.Sprintf("%s (hold %d)", h.Name, h.Hold))
	}
	text := fmt.Sprintf("It is held by %d: %s", len(holders), strings.Join(names, ", "))
	if left := len(holders) - most; left > 0 {
		text += fmt.Sprintf(" and %d more", left)
	}
	return text + ". It stays as long as one of them does."
}
