// SPDX-License-Identifier: Apache-2.0

package kvstore_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/commit"
	"github.com/signet-identity/signet/kvstore"
	"github.com/signet-identity/signet/kvstore/fake"
)

type lockedText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestScenario_O03_LossNamesComponentKeyLeaseAndCause(t *testing.T) {
	store := fakeBackend(t).client(t)
	var out lockedText
	d := kvstore.NewElectionDriver(store, kvstore.ElectionConfig{Prefix: "e/", TTL: 5 * time.Second,
		Candidate: allocator.Candidate{Who: "a"}}, slog.New(slog.NewTextHandler(&out, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	won, done := make(chan commit.Fence, 10), make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx, func(term context.Context, f commit.Fence) error { won <- f; <-term.Done(); return nil })
	}()
	f := <-won
	if err := store.Revoke(ctx, f.Lease); err != nil {
		t.Fatal(err)
	}
	lease := kvstore.LeaseName(f.Lease)
	eventually(t, 5*time.Second, "the loss is logged", func() bool { return strings.Contains(out.String(), "leadership ended") })
	cancel()
	<-done
	for _, want := range []string{"component=election", "key=e/" + lease, "lease=" + lease, "cause=", "store_answered_ago="} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, &out)
		}
	}
}

// TestScenario_L17_LoopsRestWhileTheStoreIsDown counts what mirror, election
// and presence ask of a store that refuses everything.
func TestScenario_L17_LoopsRestWhileTheStoreIsDown(t *testing.T) {
	var mu sync.Mutex
	calls := map[string]int{}
	start := time.Now()
	store := fake.NewStore(fake.NewModel(fake.Limits{}, 1), func() time.Duration { return time.Since(start) })
	defer store.Close()
	down := errors.New("connection refused")
	store.SetFault(func(call string) fake.Fault {
		mu.Lock()
		defer mu.Unlock()
		calls[call]++
		return fake.Fault{Before: down}
	})
	var out lockedText
	log := slog.New(slog.NewTextHandler(&out, nil))
	mirror, err := kvstore.NewMirrorDriver(store, kvstore.MirrorConfig{Spans: []kvstore.Span{kvstore.PrefixSpan("a/")}}, log)
	if err != nil {
		t.Fatal(err)
	}
	election := kvstore.NewElectionDriver(store, kvstore.ElectionConfig{Prefix: "e/", TTL: 5 * time.Second}, log)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { _ = mirror.Run(ctx, nil) })
	wg.Go(func() {
		election.Run(ctx, func(term context.Context, _ commit.Fence) error { <-term.Done(); return nil })
	})
	<-ctx.Done()
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	total := 0
	for _, n := range calls {
		total += n
	}
	if total == 0 || total > 60 {
		t.Errorf("%d calls in 3 s: %v", total, calls)
	}
	if lines := strings.Count(out.String(), "\n"); lines > 20 {
		t.Errorf("%d log lines in 3 s:\n%s", lines, &out)
	}
}
