// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/signet-identity/signet/kvstore"
)

const anyPort = "http://127.0.0.1:0"

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *Server, key, value string) int64 {
	t.Helper()
	store, err := s.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r, err := store.Txn(t.Context(), kvstore.Txn{Then: []kvstore.Action{{Put: true, Key: key, Value: []byte(value)}}})
	if err != nil {
		t.Fatal(err)
	}
	return r.Revision
}

func get(t *testing.T, s *Server, key string) string {
	t.Helper()
	store, err := s.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r, err := store.Range(t.Context(), kvstore.RangeRequest{Key: key})
	if err != nil || len(r.KVs) != 1 {
		t.Fatalf("%q: %+v, %v", key, r, err)
	}
	return string(r.KVs[0].Value)
}

func TestDataOutlivesTheProcess(t *testing.T) {
	cfg := Config{DataDir: t.TempDir() + "/new/folder", ClientURL: anyPort, PeerURL: anyPort}
	begin := time.Now()
	s := start(t, cfg)
	t.Logf("started in %v", time.Since(begin))
	put(t, s, "a", "1")
	s.Close()
	if info, err := os.Stat(s.LogFile()); err != nil || info.IsDir() {
		t.Errorf("the log file: %v", err)
	}
	if info, err := os.Stat(cfg.DataDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the data folder's mode: %v, %v", info.Mode(), err)
	}
	begin = time.Now()
	s = start(t, cfg)
	t.Logf("started again in %v", time.Since(begin))
	defer s.Close()
	if got := get(t, s, "a"); got != "1" {
		t.Errorf("after a restart a is %q", got)
	}
}

func TestBusyFolderIsNamed(t *testing.T) {
	cfg := Config{DataDir: t.TempDir(), ClientURL: anyPort, PeerURL: anyPort}
	s := start(t, cfg)
	defer s.Close()
	var busy *FolderBusyError
	if _, err := Start(t.Context(), cfg); !errors.As(err, &busy) || busy.Dir != cfg.DataDir || !strings.Contains(err.Error(), cfg.DataDir) {
		t.Errorf("a second start: %v", err)
	}
	if got := put(t, s, "a", "1"); got < 2 {
		t.Errorf("the first one writes at revision %d", got)
	}
}

func TestBusyPortIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := "http://" + l.Addr().String()
	for name, cfg := range map[string]Config{
		"client": {DataDir: t.TempDir(), ClientURL: taken, PeerURL: anyPort},
		"peer":   {DataDir: t.TempDir(), ClientURL: anyPort, PeerURL: taken},
	} {
		var busy *PortBusyError
		if _, err := Start(t.Context(), cfg); !errors.As(err, &busy) || busy.Address != l.Addr().String() {
			t.Errorf("%s port: %v", name, err)
		}
		cfg.ClientURL, cfg.PeerURL = anyPort, anyPort
		start(t, cfg).Close() // the failed start has let go of the folder
	}
}

func TestURLsAreChecked(t *testing.T) {
	for _, u := range []string{"", "127.0.0.1:1", "https://127.0.0.1:1", "http://127.0.0.1", "http://0.0.0.0:1", "http://example.com:1"} {
		if s, err := Start(t.Context(), Config{DataDir: t.TempDir(), ClientURL: u, PeerURL: anyPort}); err == nil {
			s.Close()
			t.Errorf("%q is taken", u)
		}
	}
}

// freePorts are ports that were free a moment ago.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func TestThreeMembers(t *testing.T) {
	ports := freePorts(t, 3)
	var members []string
	for i, port := range ports {
		members = append(members, fmt.Sprintf("m%d=http://127.0.0.1:%d", i, port))
	}
	var servers []*Server
	for i, port := range ports {
		servers = append(servers, start(t, Config{
			DataDir: t.TempDir(), Name: fmt.Sprintf("m%d", i), ClientURL: anyPort,
			PeerURL: fmt.Sprintf("http://127.0.0.1:%d", port), InitialCluster: strings.Join(members, ","),
		}))
	}
	defer func() {
		for _, s := range servers {
			s.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, s := range servers {
		if err := s.Ready(ctx); err != nil {
			t.Fatal(err)
		}
	}
	put(t, servers[0], "a", "1")
	servers[0].Close()
	servers = servers[1:]
	if got := get(t, servers[1], "a"); got != "1" {
		t.Errorf("with one member down a is %q", got)
	}
	put(t, servers[0], "a", "2")
}
