// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/allocator/labels"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

func TestAllocatePinsUntilTheLastRelease(t *testing.T) {
	c, o, _ := start(t)
	web := set(t, "k8s:app=web")
	first, err := c.Allocate(long(t), web)
	if err != nil || first.Number != 1000 || first.Hold == 0 || !first.Created || first.Identity.GetText() != web.Text() {
		t.Fatalf("first: %+v, %v", first, err)
	}
	again, err := c.Allocate(long(t), web)
	if err != nil || again.Number != first.Number || again.Hold != first.Hold || again.Created {
		t.Errorf("again: %+v, %v", again, err)
	}
	if n := o.count("allocate"); n != 1 {
		t.Errorf("%d calls for a pinned set", n)
	}
	if err := c.Release(long(t), web); err != nil || o.count("release") != 0 {
		t.Errorf("release of the first of two uses: %v, %d calls", err, o.count("release"))
	}
	if err := c.Release(long(t), web); err != nil || o.count("release") != 1 || o.references() != 0 {
		t.Errorf("release of the last use: %v, %d calls, %d references left", err, o.count("release"), o.references())
	}
	if err := c.Release(long(t), web); client.CodeOf(err) != codes.FailedPrecondition {
		t.Errorf("release of nothing: %v", err)
	}
	if len(c.Pins()) != 0 || c.Stats() != (client.Stats{Cached: 1}) {
		t.Errorf("left: %v, %+v", c.Pins(), c.Stats())
	}
}

func TestOneCallForManyCallersEachWithItsOwnDeadline(t *testing.T) {
	c, o, _ := start(t)
	gate := make(chan struct{})
	o.hook(func(context.Context, string) error { <-gate; return nil }, nil)
	web := set(t, "k8s:app=web")
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if a, err := c.Allocate(long(t), web); err != nil || a.Number != 1000 {
				t.Errorf("a patient caller: %+v, %v", a, err)
			}
		})
	}
	_, err := c.Allocate(within(t, 20*time.Millisecond), web)
	if client.CodeOf(err) != codes.DeadlineExceeded || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an impatient caller: %v", err)
	}
	close(gate)
	all.Wait()
	if n := o.count("allocate"); n != 1 {
		t.Errorf("%d calls", n)
	}
	if p := c.Pins(); len(p) != 1 || p[0].Uses != 50 {
		t.Errorf("pins: %+v", p)
	}
}

func TestAReferenceThatNobodyWaitedForIsGivenBack(t *testing.T) {
	c, o, _ := start(t)
	web := set(t, "k8s:app=web")
	landed := make(chan struct{}, 10)
	o.hook(nil, func(ctx context.Context, method string) error {
		if method == "allocate" {
			landed <- struct{}{}
			<-ctx.Done() // it landed, but the answer is lost
		}
		return ctx.Err()
	})
	if _, err := c.Allocate(within(t, 50*time.Millisecond), web); client.CodeOf(err) != codes.DeadlineExceeded {
		t.Fatalf("%v", err)
	}
	<-landed
	until(t, "the call to be given up", func() bool { return len(c.Unsettled()) == 1 })
	if o.references() != 1 {
		t.Fatal("the test lost its reference")
	}
	o.hook(nil, nil)
	if err := c.Flush(long(t)); err != nil || o.references() != 0 || c.Stats().Unsettled != 0 {
		t.Errorf("flush: %v, %d references, %+v", err, o.references(), c.Stats())
	}
}

func TestRetriesGoRoundTheServers(t *testing.T) {
	n, o := newNetwork(t), newOperator()
	n.serve("three", o)
	c := dial(t, n, func(cfg *client.Config) { cfg.Servers = []string{"one", "two", "three"} })
	if _, err := c.Allocate(long(t), set(t, "k8s:app=web")); err != nil {
		t.Fatal(err)
	}
	fails := 3
	o.hook(func(context.Context, string) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if fails--; fails >= 0 {
			return errDown
		}
		return nil
	}, nil)
	if _, err := c.Allocate(long(t), set(t, "k8s:app=db")); err != nil {
		t.Errorf("a server that is down for a moment: %v", err)
	}
	n.cut("three")
	n.serve("two", o)
	if _, err := c.Allocate(long(t), set(t, "k8s:app=mq")); err != nil {
		t.Errorf("another server took over: %v", err)
	}
}

func TestRetryHintIsRespected(t *testing.T) {
	c, o, _ := start(t)
	var mu sync.Mutex
	var times []time.Time
	const hint = 150 * time.Millisecond
	o.hook(func(context.Context, string) error {
		mu.Lock()
		defer mu.Unlock()
		if times = append(times, time.Now()); len(times) < 3 {
			return withRetry(t, hint)
		}
		return nil
	}, nil)
	if _, err := c.Allocate(long(t), set(t, "k8s:app=web")); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(times); i++ {
		if d := times[i].Sub(times[i-1]); d < hint {
			t.Errorf("try %d came after %v, the hint was %v", i+1, d, hint)
		}
	}
	o.hook(func(context.Context, string) error { return withRetry(t, time.Hour) }, nil)
	began := time.Now()
	_, err := c.LookupLabels(long(t), set(t, "k8s:app=other"))
	var e *client.Error
	if !errors.As(err, &e) || e.Code != codes.Unavailable || e.Retry != time.Hour || time.Since(began) > 5*time.Second {
		t.Errorf("a hint beyond the deadline: %#v after %v", err, time.Since(began))
	}
}

func TestRefusalsAreNotRepeated(t *testing.T) {
	c, o, _ := start(t)
	for _, code := range []codes.Code{codes.InvalidArgument, codes.ResourceExhausted, codes.FailedPrecondition, codes.NotFound, codes.PermissionDenied, codes.Internal} {
		o.hook(always(status.Error(code, "no")), nil)
		before := o.count("allocate")
		if _, err := c.Allocate(long(t), set(t, "k8s:app=web")); client.CodeOf(err) != code {
			t.Errorf("%s became %v", code, err)
		}
		if n := o.count("allocate") - before; n != 1 {
			t.Errorf("%s was tried %d times", code, n)
		}
	}
	if _, err := c.Allocate(long(t), labels.Set{}); client.CodeOf(err) != codes.InvalidArgument {
		t.Errorf("the empty set: %v", err)
	}
}

// While no server answers, pinned sets are served at once; all others wait for
// their deadline and are told, typed.
func TestWithoutServersOnlyPinsAreServed(t *testing.T) {
	c, _, n := start(t)
	web, db := set(t, "k8s:app=web"), set(t, "k8s:app=db")
	if _, err := c.Allocate(long(t), web); err != nil {
		t.Fatal(err)
	}
	n.cut("one")
	if a, err := c.Allocate(within(t, time.Second), web); err != nil || a.Number != 1000 {
		t.Errorf("a pinned set: %+v, %v", a, err)
	}
	if i, err := c.Lookup(within(t, time.Second), 1000); err != nil || i.Labels != web {
		t.Errorf("a pinned number: %+v, %v", i, err)
	}
	began := time.Now()
	_, err := c.Allocate(within(t, 300*time.Millisecond), db)
	var e *client.Error
	if !errors.As(err, &e) || e.Code != codes.Unavailable || !e.Unknown() {
		t.Errorf("another set: %v", err)
	}
	if took := time.Since(began); took < 250*time.Millisecond {
		t.Errorf("it gave up after %v, before its deadline", took)
	}
	if p := c.Pins(); len(p) != 1 {
		t.Errorf("a number was made up: %+v", p)
	}
}

func TestReleaseWithoutAnAnswerIsCarriedByTheNextAllocate(t *testing.T) {
	c, o, _ := start(t)
	web := set(t, "k8s:app=web")
	first, err := c.Allocate(long(t), web)
	if err != nil {
		t.Fatal(err)
	}
	o.hook(always(errDown, "release"), nil)
	if err := c.Release(within(t, 100*time.Millisecond), web); client.CodeOf(err) != codes.Unavailable {
		t.Fatalf("release without an answer: %v", err)
	}
	if len(c.Pins()) != 0 || len(c.Unsettled()) != 1 {
		t.Errorf("pins %v, unsettled %v", c.Pins(), c.Unsettled())
	}
	o.hook(nil, nil)
	second, err := c.Allocate(long(t), web)
	if err != nil || second.Hold == first.Hold || second.Number != first.Number {
		t.Fatalf("again: %+v after %+v, %v", second, first, err)
	}
	o.mu.Lock()
	last := o.requests[len(o.requests)-1].(*signetv1.AllocateRequest)
	o.mu.Unlock()
	if last.GetGivenUpHold() != first.Hold {
		t.Errorf("given_up_hold %d, want %d", last.GetGivenUpHold(), first.Hold)
	}
	// The late Release lands now, and takes nothing.
	if _, err := c.ReleaseHold(long(t), web, first.Hold); client.CodeOf(err) != codes.FailedPrecondition || o.references() != 1 {
		t.Errorf("the late release: %v, %d references", err, o.references())
	}
	if len(c.Unsettled()) != 0 {
		t.Error("it is still unsettled")
	}
}

func TestFlushSettlesReleases(t *testing.T) {
	c, o, _ := start(t)
	web := set(t, "k8s:app=web")
	if _, err := c.Allocate(long(t), web); err != nil {
		t.Fatal(err)
	}
	o.hook(nil, always(errDown, "release")) // lands, and the answer is lost
	if err := c.Release(within(t, 50*time.Millisecond), web); err == nil {
		t.Fatal("a release without an answer succeeded")
	}
	if err := c.Flush(within(t, 50*time.Millisecond)); client.CodeOf(unjoin(err)) != codes.Unavailable {
		t.Errorf("flush while nobody answers: %v", err)
	}
	o.hook(nil, nil)
	if err := c.Flush(long(t)); err != nil || c.Stats() != (client.Stats{Cached: 1}) {
		t.Errorf("flush: %v, %+v", err, c.Stats())
	}
}

// A Release and then an Allocate got no answer: the reference has a hold that
// the client never saw, and the hold it gave up is not it.
func TestFlushAfterALostReleaseAndALostAllocate(t *testing.T) {
	c, o, _ := start(t)
	web := set(t, "k8s:app=web")
	if _, err := c.Allocate(long(t), web); err != nil {
		t.Fatal(err)
	}
	o.hook(always(status.Error(codes.Internal, "broken off")), nil)
	if err := c.Release(long(t), web); err == nil {
		t.Fatal("a release without an answer succeeded")
	}
	o.hook(nil, always(status.Error(codes.Internal, "broken off")))
	if _, err := c.Allocate(long(t), web); err == nil {
		t.Fatal("an allocate without an answer succeeded")
	}
	o.hook(nil, nil)
	if err := c.Flush(long(t)); err != nil || o.references() != 0 {
		t.Errorf("%v, %d references", err, o.references())
	}
}

func unjoin(err error) error {
	var many interface{ Unwrap() []error }
	if errors.As(err, &many) {
		return many.Unwrap()[0]
	}
	return err
}

func TestReleaseOfAnotherHoldIsFinal(t *testing.T) {
	c, o, _ := start(t)
	web := set(t, "k8s:app=web")
	if !c.Adopt(web, 1000, 7) {
		t.Fatal("not adopted")
	}
	o.mu.Lock()
	o.holds[web.Text()+"node-a"] = 99
	o.mu.Unlock()
	if err := c.Release(long(t), web); client.CodeOf(err) != codes.FailedPrecondition || o.count("release") != 1 {
		t.Errorf("%v after %d tries", err, o.count("release"))
	}
	if len(c.Pins())+len(c.Unsettled()) != 0 {
		t.Error("it is still remembered")
	}
}

func TestAdoptAndRefresh(t *testing.T) {
	c, o, _ := start(t)
	web := set(t, "k8s:app=web")
	if c.Refresh(web, 5000, 1) {
		t.Error("a set that is not pinned was refreshed")
	}
	first, second := c.Adopt(web, 5000, 0), c.Adopt(web, 5000, 0)
	if !first || !second || c.Adopt(web, 0, 1) || c.Adopt(labels.Set{}, 1, 1) {
		t.Error("adopt takes sets with numbers only")
	}
	if a, err := c.Allocate(long(t), web); err != nil || a.Number != 5000 || a.Identity.GetText() != web.Text() || o.count("allocate") != 0 {
		t.Errorf("an adopted set: %+v, %v, %d calls", a, err, o.count("allocate"))
	}
	if !c.Refresh(web, 6000, 77) {
		t.Error("not refreshed")
	}
	if _, err := c.Lookup(within(t, 50*time.Millisecond), 5000); err == nil {
		t.Error("the number before the refresh is still pinned")
	}
	want := client.Pin{Labels: web, Number: 6000, Hold: 77, Uses: 3}
	if p := c.Pins(); len(p) != 1 || p[0] != want {
		t.Errorf("pins %+v, want %+v", p, want)
	}
	c.Refresh(web, 6000, 0) // the hold is unknown: it is learned before the release
	o.mu.Lock()
	o.holds[web.Text()+"node-a"] = 88
	o.mu.Unlock()
	for range 3 {
		if err := c.Release(long(t), web); err != nil {
			t.Error(err)
		}
	}
	if o.references() != 0 || o.count("allocate") != 1 || o.count("release") != 1 {
		t.Errorf("%d references, %d allocate, %d release", o.references(), o.count("allocate"), o.count("release"))
	}
}

func TestReservedNumbersAreNotReleased(t *testing.T) {
	c, o, _ := start(t)
	host := set(t, "reserved:host")
	o.numbers[host.Text()] = 1
	if a, err := c.Allocate(long(t), host); err != nil || a.Number != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	if err := c.Release(long(t), host); err != nil || o.count("release") != 0 {
		t.Errorf("%v, %d calls", err, o.count("release"))
	}
}

func TestCloseEndsCallsInFlight(t *testing.T) {
	c, _, n := start(t)
	n.cut("one")
	done := make(chan error)
	go func() { _, err := c.Allocate(long(t), set(t, "k8s:app=web")); done <- err }()
	until(t, "the call", func() bool { return c.Stats().Pinned == 0 })
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; client.CodeOf(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
	if _, err := c.Allocate(long(t), set(t, "k8s:app=web")); client.CodeOf(err) != codes.Canceled {
		t.Errorf("after Close: %v", err)
	}
}

// Whatever the order of allocations, releases, refusals and lost answers: uses
// are counted exactly, what is in use has a reference, and after Flush nothing
// else has one.
func TestUsesAreCountedExactly(t *testing.T) {
	n := newNetwork(t)
	rapid.Check(t, func(r *rapid.T) {
		o := newOperator()
		n.serve("one", o)
		defer n.cut("one")
		c := dial(t, n)
		defer c.Close()
		uses := map[labels.Set]int{}
		sets := []labels.Set{set(t, "k8s:app=a"), set(t, "k8s:app=b"), set(t, "k8s:app=c")}
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			s := rapid.SampledFrom(sets).Draw(r, "set")
			weather(o, rapid.SampledFrom([]string{"fine", "fine", "fine", "refused", "lost"}).Draw(r, "weather"))
			if rapid.Bool().Draw(r, "allocate") {
				if _, err := c.Allocate(context.Background(), s); err == nil {
					uses[s]++
				}
			} else if err := c.Release(context.Background(), s); uses[s] > 0 {
				uses[s]--
			} else if client.CodeOf(err) != codes.FailedPrecondition {
				r.Fatalf("release of nothing: %v", err)
			}
			checkPins(r, c, o, uses)
		}
		weather(o, "fine")
		for s, n := range uses {
			for range n {
				if err := c.Release(context.Background(), s); err != nil {
					r.Fatalf("release: %v", err)
				}
			}
		}
		if err := c.Flush(context.Background()); err != nil || o.references() != 0 || len(c.Pins())+len(c.Unsettled()) != 0 {
			r.Fatalf("in the end: %v, %d references, pins %v", err, o.references(), c.Pins())
		}
	})
}

func weather(o *operator, kind string) {
	denied := status.Error(codes.PermissionDenied, "no")
	switch kind {
	case "fine":
		o.hook(nil, nil)
	case "refused":
		o.hook(always(denied), nil)
	case "lost": // done, but the caller cannot know; not repeated, so that nothing lands late
		o.hook(nil, always(status.Error(codes.Internal, "broken off")))
	}
}

func checkPins(r *rapid.T, c *client.Client, o *operator, uses map[labels.Set]int) {
	pins := c.Pins()
	got := map[labels.Set]int{}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range pins {
		got[p.Labels] = p.Uses
		if o.holds[p.Labels.Text()+"node-a"] != p.Hold {
			r.Fatalf("pin %+v, but the operator has hold %d", p, o.holds[p.Labels.Text()+"node-a"])
		}
	}
	for s, n := range uses {
		if got[s] != n {
			r.Fatalf("%s: %d uses, want %d", s, got[s], n)
		}
	}
}

func BenchmarkAllocatePinned(b *testing.B) {
	c, err := client.Dial(context.Background(), client.Config{Servers: []string{"127.0.0.1:1"}, Holder: "node-a"})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	sets := make([]labels.Set, 256)
	for i := range sets {
		sets[i] = set(b, fmt.Sprintf("k8s:app=web-%d", i), "k8s:io.kubernetes.pod.namespace=shop", "k8s:io.cilium.k8s.policy.cluster=default")
		c.Adopt(sets[i], number(uint32(1000+i)), 1)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if _, err := c.Allocate(context.Background(), sets[n%len(sets)]); err != nil {
			b.Fatal(err)
		}
		n++
	}
}
