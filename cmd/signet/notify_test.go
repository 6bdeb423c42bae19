// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// notifySockets stand in for systemd's, by script.
var notifySockets sync.Map

// openNotify listens where a service tells systemd its state: notify-open.
func openNotify(ts *testscript.TestScript, _ bool, _ []string) {
	path := filepath.Join(ts.MkAbs("."), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv("NOTIFY_SOCKET", path)
	notifySockets.Store(ts, l)
}

// awaitNotify waits until a service said something: notify READY=1.
func awaitNotify(ts *testscript.TestScript, _ bool, args []string) {
	v, _ := notifySockets.Load(ts)
	l := v.(*net.UnixConn)
	ts.Check(l.SetReadDeadline(time.Now().Add(limit)))
	b := make([]byte, 4096)
	n, err := l.Read(b)
	ts.Check(err)
	if string(b[:n]) != args[0] {
		ts.Fatalf("it said %q, not %q", b[:n], args[0])
	}
}

// fetch gets a page and prints it: fetch URL.
func fetch(ts *testscript.TestScript, _ bool, args []string) {
	url := args[0]
	if !strings.HasPrefix(url, "http") {
		url = "http://" + url
	}
	client := &http.Client{Timeout: limit}
	resp, err := client.Get(url)
	ts.Check(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "HTTP %d\n%s", resp.StatusCode, body)
}
