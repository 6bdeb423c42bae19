// SPDX-License-Identifier: Apache-2.0

package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/signet-identity/signet/e2e/harness"
	"github.com/signet-identity/signet/kvstore"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// hurt carries a plan out. When it returns every fault is over.
func (s *scene) hurt(plan []fault) {
	began := time.Now()
	var all sync.WaitGroup
	for _, f := range plan {
		time.Sleep(time.Until(began.Add(f.at)))
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), f.lasts+10*time.Second)
			defer cancel()
			err := s.apply(ctx, f)
			s.mu.Lock()
			defer s.mu.Unlock()
			if err != nil {
				s.said = append(s.said, fmt.Sprintf("%s: %v", f.kind, err))
				return
			}
			s.count[f.kind]++
		})
	}
	all.Wait()
	for _, links := range s.links {
		for _, k := range links {
			k.heal()
		}
	}
}

// apply does one fault from its begin to its end.
func (s *scene) apply(ctx context.Context, f fault) error {
	switch f.kind {
	case killOperator, killLeader, stopOperator, stopLeader:
		o := s.operators[f.target%operatorCount]
		if f.kind == killLeader || f.kind == stopLeader {
			var err error
			if o, err = s.FindLeader(ctx, s.operators...); err != nil {
				return err
			}
		}
		if f.kind == stopOperator || f.kind == stopLeader {
			return pause(o.Process, f.lasts)
		}
		o.Kill()
		time.Sleep(f.lasts)
		return s.RestartOperator(o)
	case killAgent:
		a := s.agents[f.target]
		a.Kill()
		time.Sleep(f.lasts)
		return s.RestartAgent(a)
	case stopAgent:
		return pause(s.agents[f.target].Process, f.lasts)
	case stopMember:
		return pause(s.members[f.target].Process, f.lasts)
	case killMember:
		m := s.members[f.target]
		m.Kill()
		time.Sleep(f.lasts)
		var err error
		m.Process, err = m.start()
		return err
	case cutBoth, cutOneWay, slowLink:
		s.disturb(f)
		return nil
	case stepDown:
		return s.stepDown(ctx)
	case moveLeader:
		return s.moveLeader(ctx, f.member)
	case revokeLease:
		return s.revoke(ctx, f.target)
	}
	return fmt.Errorf("nobody knows the fault %q", f.kind)
}

func pause(p *harness.Process, lasts time.Duration) error {
	if err := p.Pause(); err != nil {
		return err
	}
	time.Sleep(lasts)
	return p.Continue()
}

// disturb cuts or slows a process's links for a while.
func (s *scene) disturb(f fault) {
	links := s.links[f.target]
	if f.member < allMembers {
		links = links[f.member : f.member+1]
	}
	for _, k := range links {
		switch {
		case f.kind == slowLink:
			k.up.set(false, f.delay)
			k.down.set(false, f.delay)
		case f.kind == cutBoth:
			k.up.set(true, 0)
			k.down.set(true, 0)
		case f.up:
			k.up.set(true, 0)
		default:
			k.down.set(true, 0)
		}
	}
	time.Sleep(f.lasts)
	for _, k := range links {
		k.heal()
	}
}

func (s *scene) stepDown(ctx context.Context) error {
	o, err := s.FindLeader(ctx, s.operators...)
	if err != nil {
		return err
	}
	c, err := dial(o.Address)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = signetv1.NewAdminServiceClient(c).StepDown(ctx, &signetv1.StepDownRequest{})
	return err
}

// moveLeader makes another member etcd's leader.
func (s *scene) moveLeader(ctx context.Context, to int) error {
	for _, m := range s.members {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.client}, Context: ctx})
		if err != nil {
			return err
		}
		defer c.Close()
		st, err := c.Status(ctx, m.client)
		if err != nil || st.Leader != st.Header.MemberId {
			continue
		}
		list, err := c.MemberList(ctx)
		if err != nil {
			return err
		}
		others := slices.DeleteFunc(list.Members, func(o *etcdserverpb.Member) bool { return o.ID == st.Leader })
		if len(others) == 0 {
			break
		}
		_, err = c.MoveLeader(ctx, others[to%len(others)].ID)
		return err
	}
	return errors.New("no member leads")
}

// revoke revokes the lease of a presence or of a candidate.
func (s *scene) revoke(ctx context.Context, which int) error {
	var leases []int64
	for _, prefix := range []string{s.Layout.Presences(), s.Layout.Election()} {
		r, err := s.Store.Range(ctx, kvstore.RangeRequest{Key: prefix, RangeEnd: kvstore.PrefixEnd(prefix)})
		if err != nil {
			return err
		}
		for _, kv := range r.KVs {
			if kv.Lease != 0 {
				leases = append(leases, kv.Lease)
			}
		}
	}
	if len(leases) == 0 {
		return errors.New("there is no lease")
	}
	if err := s.Store.Revoke(ctx, leases[which%len(leases)]); err != nil && !errors.Is(err, kvstore.ErrLeaseNotFound) {
		return err
	}
	return nil
}

// faultCounts is the faults by kind, as text.
func (s *scene) faultCounts() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, w := range weights {
		if n := s.count[w.kind]; n > 0 {
			out = append(out, fmt.Sprintf("%s %d", w.kind, n))
		}
	}
	return strings.Join(out, ", ")
}
