// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

func withRetry(t *testing.T, d time.Duration) error {
	t.Helper()
	st, err := status.New(codes.Unavailable, "not yet").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

func TestLookupOrder(t *testing.T) {
	store := mirror{7000: set(t, "k8s:from=store")}
	c, o, _ := start(t, func(cfg *client.Config) { cfg.Store = store })
	o.numbers["k8s:app=web;"] = 2000
	for range 3 {
		if i, err := c.Lookup(long(t), 2000); err != nil || i.Labels != set(t, "k8s:app=web") {
			t.Errorf("from a server: %+v, %v", i, err)
		}
		if i, err := c.LookupLabels(long(t), set(t, "k8s:app=web")); err != nil || i.Number != 2000 {
			t.Errorf("from the cache: %+v, %v", i, err)
		}
		if i, err := c.Lookup(long(t), 7000); err != nil || i.Labels != set(t, "k8s:from=store") {
			t.Errorf("from the store: %+v, %v", i, err)
		}
		if i, err := c.LookupLabels(long(t), set(t, "k8s:from=store")); err != nil || i.Number != 7000 {
			t.Errorf("from the store: %+v, %v", i, err)
		}
		if i, err := c.Lookup(long(t), identity.World); err != nil || i.Labels != set(t, "reserved:world") {
			t.Errorf("reserved: %+v, %v", i, err)
		}
	}
	if n := o.count("get"); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

// mirror is a StoreReader.
type mirror map[identity.Number]labels.Set

func (m mirror) ByNumber(n identity.Number) (labels.Set, bool) { s, ok := m[n]; return s, ok }

func (m mirror) ByLabels(s labels.Set) (identity.Number, bool) {
	for n, have := range m {
		if have == s {
			return n, true
		}
	}
	return 0, false
}

func TestLookupRefusals(t *testing.T) {
	c, o, _ := start(t)
	o.numbers["k8s:it=freed;"] = 2000
	o.numbers["not canonical"] = 2001
	for n, want := range map[identity.Number]codes.Code{2000: codes.NotFound, 2001: codes.InvalidArgument, 2002: codes.NotFound} {
		if _, err := c.Lookup(long(t), n); client.CodeOf(err) != want {
			t.Errorf("number %d: %v, want %s", n, err, want)
		}
	}
	got, err := c.Get(long(t), client.GetOptions{Labels: []string{"k8s:it=freed"}})
	if err != nil || got.GetState() != signetv1.State_STATE_QUARANTINED {
		t.Errorf("Get explains a freed number: %v, %v", got, err)
	}
}

func TestAnswersExpireAndFedEntriesDoNot(t *testing.T) {
	const ttl = 20 * time.Millisecond
	c, o, _ := start(t, func(cfg *client.Config) { cfg.CacheTTL = ttl })
	web, db := set(t, "k8s:app=web"), set(t, "k8s:app=db")
	o.numbers[web.Text()] = 2000
	c.Learn(client.Identity{Number: 2001, Labels: db})
	if _, err := c.Lookup(long(t), 2000); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * ttl) // what is tested is the passing of time
	o.mu.Lock()
	delete(o.numbers, web.Text())
	o.numbers[set(t, "k8s:app=new").Text()] = 2000 // the number has another life now
	o.mu.Unlock()
	if i, err := c.Lookup(long(t), 2000); err != nil || i.Labels != set(t, "k8s:app=new") {
		t.Errorf("after the number's second birth: %+v, %v", i, err)
	}
	if _, err := c.LookupLabels(long(t), web); client.CodeOf(err) != codes.NotFound {
		t.Errorf("the labels of its first life: %v", err)
	}
	if i, err := c.Lookup(long(t), 2001); err != nil || i.Labels != db {
		t.Errorf("a fed entry: %+v, %v", i, err)
	}
	c.Drop(2001)
	if _, err := c.Lookup(long(t), 2001); client.CodeOf(err) != codes.NotFound {
		t.Errorf("a dropped entry: %v", err)
	}
	if _, err := c.LookupLabels(long(t), db); client.CodeOf(err) != codes.NotFound {
		t.Errorf("a dropped entry by labels: %v", err)
	}
}

func TestApplyFollowsAWatch(t *testing.T) {
	c, o, _ := start(t)
	event := func(kind signetv1.WatchIdentitiesResponse_Kind, n uint32, text string) {
		c.Apply(&signetv1.WatchIdentitiesResponse{Kind: kind, Identity: &signetv1.Identity{Number: n, Text: text}})
	}
	event(signetv1.WatchIdentitiesResponse_KIND_UPSERT, 2000, "k8s:app=web;")
	event(signetv1.WatchIdentitiesResponse_KIND_UPSERT, 2001, "k8s:app=db;")
	event(signetv1.WatchIdentitiesResponse_KIND_UPSERT, 2002, "malformed")
	event(signetv1.WatchIdentitiesResponse_KIND_DELETE, 2001, "k8s:app=db;")
	if i, err := c.Lookup(long(t), 2000); err != nil || i.Labels.Text() != "k8s:app=web;" || o.count("get") != 0 {
		t.Errorf("upserted: %+v, %v", i, err)
	}
	if s := c.Stats(); s.Cached != 1 {
		t.Errorf("cached %d, want 1", s.Cached)
	}
	c.Adopt(set(t, "k8s:app=pinned"), 3000, 1)
	event(signetv1.WatchIdentitiesResponse_KIND_RESET, 0, "")
	event(signetv1.WatchIdentitiesResponse_KIND_DELETE, 3000, "k8s:app=pinned;")
	if s := c.Stats(); s.Cached != 0 || s.Pinned != 1 {
		t.Errorf("after a reset: %+v", s)
	}
}

// P-04: the cache keeps its limit whatever labels the entries share; pinned
// sets stay; an evicted number is found again, and an eviction does nothing else.
func TestScenario_P_04_LimitIsKept(t *testing.T) {
	const limit, pinned, all = 1000, 20, 50000
	c, o, _ := start(t, func(cfg *client.Config) { cfg.CacheSize = limit })
	var sets []labels.Set
	for i := range pinned {
		s := set(t, fmt.Sprintf("k8s:app=pinned-%d", i), "k8s:io.kubernetes.pod.namespace=shop")
		if _, err := c.Allocate(long(t), s); err != nil {
			t.Fatal(err)
		}
		sets = append(sets, s)
	}
	calls := o.count("release")
	for i := range all {
		c.Learn(client.Identity{Number: number(uint32(100000 + i)), Labels: set(t, fmt.Sprintf("k8s:app=a-%d", i), "k8s:io.kubernetes.pod.namespace=shop")})
		if s := c.Stats(); s.Cached > limit || s.Pinned != pinned {
			t.Fatalf("after %d: %+v", i, s)
		}
	}
	for _, s := range sets {
		before := o.count("get") + o.count("allocate")
		if _, err := c.LookupLabels(long(t), s); err != nil || o.count("get")+o.count("allocate") != before {
			t.Errorf("%s was evicted: %v", s, err)
		}
	}
	o.mu.Lock()
	o.numbers[set(t, "k8s:app=a-0", "k8s:io.kubernetes.pod.namespace=shop").Text()] = 100000
	o.mu.Unlock()
	if i, err := c.Lookup(long(t), 100000); err != nil || i.Labels.Len() != 2 || o.count("get") != 1 {
		t.Errorf("an evicted number: %+v, %v, %d calls", i, err, o.count("get"))
	}
	if o.count("release") != calls || o.references() != pinned {
		t.Errorf("evictions released something: %d calls, %d references", o.count("release")-calls, o.references())
	}
}

// P-06: references equal pins at all times, however entries come and go in the
// cache; nothing is tied to evictions.
func TestScenario_P_06_NothingHangsOnEvictions(t *testing.T) {
	c, o, _ := start(t, func(cfg *client.Config) { cfg.CacheSize, cfg.CacheTTL = 100, time.Millisecond })
	sets := make([]labels.Set, 2000)
	for i := range sets {
		sets[i] = set(t, fmt.Sprintf("k8s:app=a-%d", i))
	}
	for i := range 100000 {
		n := i * 7919 % len(sets)
		c.Learn(client.Identity{Number: number(uint32(10000 + n)), Labels: sets[n]})
		if i%1000 != 0 {
			continue
		}
		if _, err := c.Allocate(long(t), sets[n]); err != nil {
			t.Fatal(err)
		}
		if i%3000 == 0 {
			if err := c.Release(long(t), sets[n]); err != nil {
				t.Fatal(err)
			}
		}
		if s := c.Stats(); s.Pinned != o.references() || s.Cached > 100 {
			t.Fatalf("%d references for %+v", o.references(), s)
		}
	}
	for _, p := range c.Pins() {
		for range p.Uses {
			if err := c.Release(long(t), p.Labels); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s := c.Stats(); s.Pinned != 0 || s.Unsettled != 0 || o.references() != 0 {
		t.Errorf("in the end %d references, %+v", o.references(), s)
	}
}

func TestErrorsSayWhatTheServerSaid(t *testing.T) {
	st, err := status.New(codes.InvalidArgument, "label bad").WithDetails(
		&errdetails.ErrorInfo{Reason: "DUPLICATE_KEY", Domain: "signet", Metadata: map[string]string{"field": "k8s:a=b"}},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "k8s:a=b"}}})
	if err != nil {
		t.Fatal(err)
	}
	c, o, _ := start(t)
	o.hook(always(st.Err()), nil)
	_, err = c.Allocate(long(t), set(t, "k8s:a=b"))
	var e *client.Error
	if !errors.As(err, &e) || e.Code != codes.InvalidArgument || e.Message != "label bad" || e.Field != "k8s:a=b" || e.Reason != "duplicate-key" || e.Unknown() {
		t.Errorf("%#v", err)
	}
	if status.Code(errors.Unwrap(err)) != codes.InvalidArgument {
		t.Error("the cause is lost")
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, servers := range [][]string{nil, {"localhost"}, {":80"}, {"unix://relative"}, {"unix:/x"}, {"a:1", "b"}} {
		_, err := client.Dial(long(t), client.Config{Servers: servers})
		var e *client.Error
		if !errors.As(err, &e) || e.Code != codes.InvalidArgument || e.Field != "servers" {
			t.Errorf("servers %q: %v", servers, err)
		}
	}
	for _, servers := range [][]string{{"localhost:1"}, {"[::1]:1"}, {"unix:///run/x"}} {
		c, err := client.Dial(long(t), client.Config{Servers: servers})
		if err != nil {
			t.Errorf("servers %q: %v", servers, err)
			continue
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
