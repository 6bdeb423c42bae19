// SPDX-License-Identifier: Apache-2.0

package nemesis

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signet-identity/signet/e2e/harness"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/embedded"
)

// memberVariable makes the test binary an etcd member with this configuration.
const memberVariable = "SIGNET_NEMESIS_MEMBER"

// runMember is the life of a member: it ends when it is killed.
func runMember(config string) int {
	var cfg embedded.Config
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s, err := embedded.Start(context.Background(), cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stderr, <-s.Failed())
	return 1
}

// member is one etcd of the cluster, a process of its own.
type member struct {
	*harness.Process
	client string // host:port
	env    string
}

func (m *member) start() (*harness.Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), memberVariable+"="+m.env)
	return harness.Launch("etcd "+m.client, cmd)
}

// startMembers starts a cluster of n members and waits until it serves.
func startMembers(w *harness.World, n int) []*member {
	w.T.Helper()
	var peers, cluster []string
	for i := range n {
		peers = append(peers, "http://"+w.Port())
		cluster = append(cluster, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	var members []*member
	for i := range n {
		m := &member{client: w.Port()}
		env, err := json.Marshal(embedded.Config{DataDir: filepath.Join(w.Dir, fmt.Sprintf("etcd-%d", i)), Name: fmt.Sprintf("m%d", i),
			ClientURL: "http://" + m.client, PeerURL: peers[i], InitialCluster: strings.Join(cluster, ",")})
		if err != nil {
			w.T.Fatal(err)
		}
		m.env = string(env)
		if m.Process, err = m.start(); err != nil {
			w.T.Fatal(err)
		}
		w.T.Cleanup(func() {
			m.Kill()
			if w.T.Failed() {
				w.T.Logf("--- %s: %s", m.Name, m.Output())
			}
		})
		members = append(members, m)
	}
	awaitMembers(w.T, members)
	return members
}

// awaitMembers waits until each member answers a linearizable read.
func awaitMembers(t testing.TB, members []*member) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, m := range members {
		if err := answers(ctx, m); err != nil {
			t.Fatalf("%s: %v\n%s", m.Name, err, m.Output())
		}
	}
}

func answers(ctx context.Context, m *member) error {
	store, err := kvstore.NewEtcd(ctx, kvstore.EtcdConfig{Endpoints: []string{"http://" + m.client}})
	if err != nil {
		return err
	}
	defer store.Close()
	for {
		once, cancel := context.WithTimeout(ctx, time.Second)
		_, err := store.Range(once, kvstore.RangeRequest{Key: "x"})
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
