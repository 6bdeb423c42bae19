// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signet-identity/signet/kvstore"
)

// collector turns the newest snapshot into metrics when they are asked for.
type collector struct{ o *Operator }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("signet_operator_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector: the collector is unchecked, since
// its series depend on the state.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s, m, e := c.o.snap.Load(), c.o.mirror.Status(), c.o.election.Status()
	gauge := func(name, help string, v float64, labels ...string) {
		c.send(ch, prometheus.GaugeValue, name, help, v, labels...)
	}
	counter := func(name, help string, v uint64, labels ...string) {
		c.send(ch, prometheus.CounterValue, name, help, float64(v), labels...)
	}
	gauge("leader", "1 while this replica leads and serves.", flag(e.Role == kvstore.RoleLeader && s.serving))
	for state, v := range map[string]uint64{"live": s.numbers.Live, "idle": s.numbers.Idle, "quarantined": s.numbers.Quarantined, "free": s.numbers.Free} {
		gauge("numbers", "Numbers of the own range by state.", float64(v), "state", state)
	}
	gauge("numbers_capacity", "Numbers in the own range.", float64(s.numbers.Capacity))
	gauge("references", "References in the store.", float64(s.numbers.References))
	gauge("nodes", "Nodes by state.", float64(s.present), "state", "present")
	gauge("nodes", "Nodes by state.", float64(len(s.gone)), "state", "gone")
	gauge("addresses", "Published addresses.", float64(s.addresses))
	gauge("malformed_keys", "Keys of the store that cannot be read and are skipped.", float64(len(s.malformed)))
	gauge("sweep_braked", "1 while the collection stopped itself or is paused.", flag(s.sweep.Brake != ""))
	gauge("reuse_blockers", "Nodes whose acknowledgement the reuse of freed numbers waits for.", float64(len(s.blockers)))
	gauge("requests_waiting", "Requests that wait for an answer.", float64(s.waiting))
	gauge("applied_revision", "Store revision that the mirror has applied.", float64(m.Applied))
	for _, l := range c.o.loops(s, m, e) {
		if l.LastSuccessMs >= 0 {
			gauge("loop_last_success_age_seconds", "Age of a loop's last success.",
				(time.Duration(l.LastSuccessMs) * time.Millisecond).Seconds(), "loop", l.Name)
		}
	}
	counter("transactions_total", "Transactions sent.", s.commit.transactions)
	counter("ops_total", "Operations sent.", s.commit.ops)
	counter("barriers_total", "Barriers written after unknown outcomes.", s.commit.barriers)
	counter("unknown_outcomes_total", "Transactions without an answer.", s.commit.unknown)
	counter("splits_total", "Transactions split because one item was refused.", s.commit.splits)
	counter("stale_writes_rejected_total", "Transactions refused by the fence.", s.commit.stale)
	counter("relists_total", "Lists after the first.", m.Relists)
	counter("leadership_won_total", "Terms won.", e.Won)
	counter("leadership_lost_total", "Terms or candidacies lost.", e.Lost)
	c.collectSweep(counter, s)
}

func (c collector) collectSweep(counter func(name, help string, v uint64, labels ...string), s *snapshot) {
	for step, v := range map[string]uint64{
		"marked-idle": s.stats.MarkedIdle, "collected": s.stats.Collected, "marked-gone": s.stats.MarkedGone,
		"purged-references": s.stats.PurgedReferences, "purged-addresses": s.stats.PurgedAddresses,
		"healed": s.stats.Healed, "buried": s.stats.Buried,
	} {
		counter("sweep_total", "What the sweep did, by step.", v, "step", step)
	}
	for reason, v := range s.stats.Refusals {
		counter("refusals_total", "Requests refused, by reason.", v, "reason", reason)
	}
}

// send makes one metric; labels are name and value in turn.
func (c collector) send(ch chan<- prometheus.Metric, t prometheus.ValueType, name, help string, v float64, labels ...string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	ch <- prometheus.MustNewConstMetric(desc(name, help, names...), t, v, values...)
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
