// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/bpf"
	"github.com/signet-identity/signet/datapath/maps"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeClock stands still unless it is told.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *fakeClock { return &fakeClock{now: time.Unix(1_000_000, 0)} }

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// fault makes chosen writes of an address map fail.
type fault struct {
	addressMap
	fail func(bpf.AddrKey) error
}

func (f *fault) PutBatch(keys []bpf.AddrKey, values []bpf.AddrValue) (int, error) {
	for i, key := range keys {
		if err := f.fail(key); err != nil {
			n, before := f.addressMap.PutBatch(keys[:i], values[:i])
			if before != nil {
				return n, before
			}
			return n, err
		}
	}
	return f.addressMap.PutBatch(keys, values)
}

// bench is an engine under test, over memory or the kernel.
type bench struct {
	*engine
	clock  *fakeClock
	cfg    Config
	reopen func() *engine // a new process over the same maps
}

// restart closes the engine and opens another on what it left.
func (b *bench) restart(t failer) {
	t.Helper()
	if err := b.engine.Close(); err != nil {
		t.Fatal(err)
	}
	b.engine = b.reopen()
}

func (b *bench) injectFaults(t table, fail func(bpf.AddrKey) error) {
	b.store.tables[t] = &fault{b.store.tables[t], fail}
}

// failer is what testing.T and rapid.T share.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

var pinCount atomic.Int64

func testPinPath() string {
	return fmt.Sprintf("%s/signet-test-%d-%d", maps.DefaultMount, os.Getpid(), pinCount.Add(1))
}

func newMemoryBench(t failer, cfg Config) *bench {
	clock := newClock()
	cfg.Clock = clock.Now
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s := memoryStore(cfg, "a test")
	b := &bench{clock: clock, cfg: cfg}
	b.reopen = func() *engine {
		e, err := newEngine(cfg, s)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	b.engine = b.reopen()
	return b
}

func newKernelBench(t failer, cfg Config) *bench {
	clock := newClock()
	cfg.Clock = clock.Now
	if cfg.PinPath == "" {
		cfg.PinPath = testPinPath()
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{clock: clock, cfg: cfg}
	b.reopen = func() *engine {
		d, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return d.(*engine)
	}
	b.engine = b.reopen()
	return b
}

func needKernel(t *testing.T) {
	t.Helper()
	if ok, reason := maps.Probe(); !ok {
		t.Skipf("not run on kernel maps: %s", reason)
	}
}

// small fits tests; sizes in entries.
var small = Config{Addresses: 1000, Prefixes: 200, Rows: 300}

// both runs a test over memory and, where possible, over the kernel.
func both(t *testing.T, cfg Config, test func(*testing.T, *bench)) {
	t.Run("memory", func(t *testing.T) {
		b := newMemoryBench(t, cfg)
		defer func() { destroy(t, b) }()
		test(t, b)
	})
	t.Run("kernel", func(t *testing.T) {
		needKernel(t)
		b := newKernelBench(t, cfg)
		defer func() { destroy(t, b) }()
		test(t, b)
	})
}

func destroy(t failer, b *bench) {
	t.Helper()
	if err := b.Destroy(); err != nil {
		t.Fatal(err)
	}
}

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func (b *bench) upsert(t failer, prefix string, n identity.Number, source Source) {
	t.Helper()
	if err := b.Upsert(Entry{Prefix: pfx(prefix), Number: n, Source: source}); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) delete(t failer, prefix string, source Source) {
	t.Helper()
	if err := b.Delete(pfx(prefix), source); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) reconcileAll(t failer) {
	t.Helper()
	if err := b.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// pass lets time pass and does what is due.
func (b *bench) tick(d time.Duration) error {
	b.clock.Add(d)
	return b.Tick(context.Background(), b.clock.Now())
}

func (b *bench) list(t failer) []Realised {
	t.Helper()
	list, err := b.List()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// numbers is what the maps say, by prefix; denied addresses have number 0.
func (b *bench) numbers(t failer) map[string]identity.Number {
	t.Helper()
	out := map[string]identity.Number{}
	for _, r := range b.list(t) {
		if !r.Proven || r.Flags&FlagValid == 0 {
			t.Fatalf("%+v does not prove itself", r)
		}
		out[r.Prefix.String()] = r.Number
	}
	return out
}

func (b *bench) noDrift(t failer) {
	t.Helper()
	drift, err := b.Verify()
	if err != nil {
		t.Fatal(err)
	}
	if !drift.Empty() {
		t.Fatalf("drift: %+v", drift.Items)
	}
}

func (b *bench) wantLookup(t failer, addr string, want Result) {
	t.Helper()
	got, err := b.Lookup(netip.MustParseAddr(addr))
	if err != nil {
		t.Fatal(err)
	}
	got.Row = want.Row // not part of the expectation unless compared elsewhere
	if got != want {
		t.Fatalf("lookup of %s: %+v, want %+v", addr, got, want)
	}
}

func hit(n identity.Number) Result { return Result{Verdict: Hit, Number: n, Flags: FlagValid} }

var (
	missed = Result{Verdict: Miss}
	denied = Result{Verdict: Deny, Flags: FlagValid | FlagDeny}
	broken = Result{Verdict: Deny}
)

func asPending(t failer, err error) *PendingError {
	t.Helper()
	var pending *PendingError
	if !errors.As(err, &pending) {
		t.Fatalf("error %v, want a PendingError", err)
	}
	return pending
}
