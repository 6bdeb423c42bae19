// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"
	"testing"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore/fake"
)

// Repairs beside a leader that goes on allocating, marking and collecting
// between any two steps: every step is done or finds its ground changed, the
// leader never stumbles, no number moves, and in the end all is well.
func TestRepairBesideALeader(t *testing.T) {
	l := newLeader(t)
	l.damaged = true
	a := ask[allocator.Allocation](l, allocator.AllocateRequest{Labels: set(t, web), Holder: "pin-me"})
	b := ask[allocator.Allocation](l, allocator.AllocateRequest{Labels: set(t, db), Holder: "pin-me"})
	lease := l.grant()
	l.write(ids+"400", "\xff", 0)
	l.write(own+"idle/777", mark(1, 1), 0)
	l.write(refs+web+"/pin-b", b.Identity.Number.String(), 0)
	l.write(ids+b.Identity.Number.String(), db, lease)
	l.write(own+"tombstones/"+a.Identity.Number.String(), tombstone(web, "done", 2), 0)
	l.write(own+"gone/n7", "damaged", 0)
	l.run()
	s := fake.NewStore(l.model, nil)
	plan := planOf(t, s)
	if len(plan.Steps) < 5 {
		t.Fatalf("%+v", plan)
	}
	numbers := map[identity.Number]bool{}
	for i, step := range plan.Steps {
		one := plan
		one.Steps = []Step{step}
		results, err := Apply(t.Context(), s, l.layout, one)
		if err != nil || results[0].Fate == Failed || results[0].Fate == Unknown {
			t.Fatalf("%+v, %v", results, err)
		}
		l.run()
		text := fmt.Sprintf("k8s:new=%d;", i)
		n := ask[allocator.Allocation](l, allocator.AllocateRequest{Labels: set(t, text), Holder: "pin-me"})
		again := ask[allocator.Allocation](l, allocator.AllocateRequest{Labels: set(t, db), Holder: "pin-me"})
		if numbers[n.Identity.Number] || n.Identity.Number == 400 || again.Identity.Number != b.Identity.Number {
			t.Errorf("step %d: new %+v, old %+v", i, n, again)
		}
		numbers[n.Identity.Number] = true
		l.pass(1)
	}
	for range 3 { // what the leader changed under the first plan
		if _, err := Apply(t.Context(), s, l.layout, planOf(t, s)); err != nil {
			t.Fatal(err)
		}
		l.run()
	}
	l.pass(3)
	after := findingsOf(t, s)
	for _, f := range after {
		if f.Severity > Info {
			t.Errorf("%s %s: %s", f.Code, f.Object, f.Text)
		}
	}
	compareWith(t, s, map[string]string{
		ids + "400": "", own + "tombstones/400": `"pending"`, refs + web + "/pin-b": a.Identity.Number.String(),
		ids + a.Identity.Number.String(): web, ids + b.Identity.Number.String(): db, own + "gone/n7": `"since"`,
	})
	if left := planOf(t, s); len(left.Steps) > 0 || strings.Contains(fmt.Sprint(left.Left), "writes the master back") {
		t.Errorf("%+v", left)
	}
}

// A master is written only while nobody campaigns: somebody who begins to
// after the plan was made is in the way, and then does it himself.
func TestMastersAreTheLeadersToWrite(t *testing.T) {
	for name, edit := range map[string]func(*content){
		"deleted":    func(c *content) { c.del(ids + "301") },
		"unreadable": func(c *content) { c.put(ids+"301", "\xff") },
	} {
		c := sound()
		c.del(own + "election/1f")
		edit(c)
		s := storeOf(t, c)
		plan := planOf(t, s)
		if len(plan.Steps) == 0 {
			t.Fatalf("%s: nothing is planned", name)
		}
		s.Do(func(m *fake.Model) { put(t, m, own+"election/77", `{"who":"op-2"}`, 0) })
		results, err := Apply(t.Context(), s, newLayout(t), plan)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Fate != Changed || !strings.Contains(r.Detail, `election/77" is there`) {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}
