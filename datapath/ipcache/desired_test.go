// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/signet-identity/signet/allocator/identity"
)

func TestBadEntriesAreRefused(t *testing.T) {
	b := newMemoryBench(t, small)
	for name, c := range map[string]struct {
		entry Entry
		says  string
	}{
		"no prefix":   {Entry{Number: 7, Source: SourceNode}, "not a valid prefix"},
		"host bits":   {Entry{Prefix: pfx("10.0.0.1/24"), Number: 7, Source: SourceNode}, "did you mean 10.0.0.0/24"},
		"4 in 6":      {Entry{Prefix: pfx("::ffff:10.0.0.1/128"), Number: 7, Source: SourceNode}, "give it as IPv4"},
		"no source":   {Entry{Prefix: pfx("10.0.0.1/32"), Number: 7}, "unknown source"},
		"bad source":  {Entry{Prefix: pfx("10.0.0.1/32"), Number: 7, Source: 9}, "unknown source"},
		"no number":   {Entry{Prefix: pfx("10.0.0.1/32"), Source: SourceNode}, "number 0 means unknown"},
		"bits beyond": {Entry{Prefix: netip.PrefixFrom(netip.MustParseAddr("10.0.0.1"), 33), Number: 7, Source: SourceNode}, "not a valid"},
	} {
		err := b.Upsert(c.entry)
		var refused *EntryError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := b.Delete(pfx("10.0.0.1/24"), SourceNode); err == nil {
		t.Error("a delete with host bits was taken")
	}
	if s := b.Status(); s.Pending != 0 || b.Progress().Last != 0 {
		t.Errorf("refused entries left something: %+v", s)
	}
}

// The winner is the greatest source that still speaks, whatever the order.
func TestWinnerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDesired()
		model := map[place]map[Source]want{}
		places := []place{placeOf(pfx("10.0.0.1/32")), placeOf(pfx("10.0.0.0/24")), placeOf(pfx("fd00::1/128"))}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				p := rapid.SampledFrom(places).Draw(t, "place")
				w := want{
					number: identity.Number(rapid.IntRange(1, 9).Draw(t, "number")),
					source: Source(rapid.IntRange(1, 4).Draw(t, "source")),
					dead:   rapid.Bool().Draw(t, "dead"),
				}
				d.set(p, w)
				if model[p] == nil {
					model[p] = map[Source]want{}
				}
				model[p][w.source] = w
			},
			"unset": func(t *rapid.T) {
				p := rapid.SampledFrom(places).Draw(t, "place")
				source := Source(rapid.IntRange(1, 4).Draw(t, "source"))
				d.unset(p, source)
				delete(model[p], source)
			},
			"": func(t *rapid.T) {
				var count [tableCount]int
				for _, p := range places {
					var best want
					for _, w := range model[p] {
						if w.source > best.source {
							best = w
						}
					}
					got, any := d.winner(p)
					if got != best || any != (best.source != 0) {
						t.Fatalf("%s: winner %+v, want %+v", p.prefix(), got, best)
					}
					if any {
						count[p.table]++
					}
				}
				if d.count != count {
					t.Fatalf("counts %v, want %v", d.count, count)
				}
			},
		})
	})
}

func TestPlaces(t *testing.T) {
	for text, want := range map[string]table{
		"10.0.0.1/32": hosts, "fd00::1/128": hosts,
		"10.0.0.0/31": prefixes, "fd00::/127": prefixes, "0.0.0.0/0": prefixes, "::/0": prefixes, "fd00::/32": prefixes,
	} {
		p := placeOf(pfx(text))
		if p.table != want || p.prefix() != pfx(text) {
			t.Errorf("%s stands in table %d as %s", text, p.table, p.prefix())
		}
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		SourceCIDR.String(): "cidr", SourceRemote.String(): "remote", SourceNode.String(): "node",
		SourceEndpoint.String(): "endpoint", Source(0).String(): "unknown",
		Miss.String(): "miss", Hit.String(): "hit", Deny.String(): "deny",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if Verdict(9).String() != "unknown" {
		t.Error("an unknown verdict has a name")
	}
}
