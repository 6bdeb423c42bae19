// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// A line says the lease as etcd's tools print it, an error once, and nothing
// of what there is not.
func TestPresenceLog(t *testing.T) {
	var buf bytes.Buffer
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey {
			return slog.Attr{}
		}
		return a
	}
	d := &PresenceDriver{log: slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{ReplaceAttr: plain}))}
	lost := errors.New("the key was deleted")
	for _, s := range []PresenceStatus{
		{State: "granting"},
		{State: "present", Lease: 0x694d7a1b2c3d4e5f},
		{State: "reading", Err: lost},
		{State: "granting", Err: lost},
		{State: "putting", Lease: 0x10, Err: lost},
		{State: "present", Lease: 0x10},
		{State: "reading", Err: lost},
	} {
		d.note(s)
	}
	want := `state=granting
state=present lease=694d7a1b2c3d4e5f
state=reading error="the key was deleted"
state=granting
state=putting lease=10
state=present lease=10
state=reading error="the key was deleted"
`
	if got := buf.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, strings.TrimSpace(want))
	}
}
