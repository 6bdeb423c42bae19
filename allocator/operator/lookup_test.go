// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/kvstore"
)

// lateStore commits transactions at once, and keeps back the answer of those
// that write what holds.
type lateStore struct {
	kvstore.Store
	mu     sync.Mutex
	holds  string        // part of a key; "" keeps nothing back
	landed chan struct{} // gets one for each that is kept back
	let    chan struct{} // closed: the answers may come
}

func (s *lateStore) Txn(ctx context.Context, txn kvstore.Txn) (kvstore.TxnResult, error) {
	r, err := s.Store.Txn(ctx, txn)
	s.mu.Lock()
	holds, let := s.holds, s.let
	s.mu.Unlock()
	for _, a := range txn.Then {
		if holds != "" && a.Put && strings.Contains(a.Key, holds) {
			s.landed <- struct{}{}
			<-let
			break
		}
	}
	return r, err
}

// keep begins to keep back; what it returns ends that.
func (s *lateStore) keep(part string) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	let := make(chan struct{})
	s.holds, s.let = part, let
	return sync.OnceFunc(func() { close(let) })
}

// A commit whose answer has not come back yet is seen by everybody who watches
// the store. A linearizable look-up that begins after it must show it as well.
func TestGet_linearizableShowsCommitsWhoseAnswersAreLate(t *testing.T) {
	cfg := config(t, etcd(t), "a")
	late := &lateStore{Store: cfg.Store, landed: make(chan struct{}, 8)}
	cfg.Store = late
	o := start(t, cfg)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	until(t, "the replica serves", o.Ready)

	web := set(t, "k8s:app=web")
	for n, holder := range []string{"pin-ann", "pin-bob"} {
		let := late.keep("/" + holder)
		defer let()
		allocated := make(chan error, 1)
		go func() {
			_, err := o.Allocate(ctx, allocator.AllocateRequest{Labels: web, Holder: holder})
			allocated <- err
		}()
		<-late.landed
		time.AfterFunc(200*time.Millisecond, let) // the look-up waits behind the commit, or answers
		got, _, err := o.Get(ctx, allocator.GetQuery{Labels: web, Linearizable: true})
		if err != nil || len(got.Holders) != n+1 {
			t.Errorf("%d references have landed in the store, and the look-up shows %+v (%v)", n+1, got.Holders, err)
		}
		if err := <-allocated; err != nil {
			t.Fatal(err)
		}
	}
}
