// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"
)

// collector shows the agent's state as metrics: gauges are read when asked for.
type collector struct {
	a *Agent

	endpoints, loopAge, refusals, ipcache, renumbered, grants, lost, restores, waiting, malformed *prometheus.Desc
}

func newCollector(a *Agent) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("signet_agent_"+name, help, labels, nil)
	}
	return &collector{
		a:          a,
		endpoints:  desc("endpoints", "Endpoints of the node, by state.", "state"),
		loopAge:    desc("loop_last_success_age_seconds", "Seconds since each loop last succeeded; -1: not yet.", "loop"),
		refusals:   desc("refusals_total", "Calls that were refused, by reason.", "reason"),
		ipcache:    desc("ipcache_entries", "Entries of the address map: wanted, realised, pending, failing, dead (known and denied), and its capacity.", "what"),
		renumbered: desc("identity_changes_total", "Addresses that changed their number under equal labels."),
		grants:     desc("presence_lease_grants_total", "Leases taken for the node's presence."),
		lost:       desc("presence_losses_total", "Times that the presence or its lease was lost."),
		restores:   desc("store_restores_total", "Times that the store turned out to be restored."),
		waiting:    desc("endpoint_waiting_seconds", "Seconds that the endpoint which has waited longest is not ready."),
		malformed:  desc("store_malformed_keys", "Keys of the store that are malformed and skipped."),
	}
}

// newReadySeconds counts how long endpoints were not ready, in seconds.
func newReadySeconds() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "signet_agent_endpoint_ready_seconds", Help: "Seconds from the time an endpoint began to wait until it was ready.",
		Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300}})
}

func (a *Agent) register() error {
	if a.cfg.Registerer == nil {
		return nil
	}
	c := newCollector(a)
	if err := a.cfg.Registerer.Register(c); err != nil {
		return err
	}
	a.metrics = c
	return nil
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.endpoints, c.loopAge, c.refusals, c.ipcache, c.renumbered, c.grants, c.lost, c.restores, c.waiting, c.malformed} {
		ch <- d
	}
	c.a.engine.readySeconds.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for _, l := range c.a.loops() {
		age := -1.0
		if l.age >= 0 {
			age = l.age.Seconds()
		}
		gauge(c.loopAge, age, l.name)
	}
	d, p := c.a.cfg.Datapath.Status(), c.a.presence.Status()
	for what, n := range map[string]int{"wanted": d.Wanted, "realised": d.Entries, "pending": d.Pending, "failing": d.Failing, "capacity": d.Capacity} {
		gauge(c.ipcache, float64(n), what)
	}
	counter(c.grants, p.Grants)
	counter(c.lost, p.Lost)
	s := c.a.engine.sample()
	gauge(c.ipcache, float64(s.dead), "dead")
	for state, n := range s.states {
		gauge(c.endpoints, float64(n), string(state))
	}
	for reason, n := range s.refusals {
		counter(c.refusals, n, reason)
	}
	counter(c.renumbered, s.renumbered)
	counter(c.restores, s.restores)
	gauge(c.waiting, s.waiting)
	gauge(c.malformed, float64(s.malformed))
	c.a.engine.readySeconds.Collect(ch)
}

// sample is one look at the engine.
type sample struct {
	counters
	states    map[EndpointState]int
	waiting   float64
	malformed int
	dead      int // entries that are denied because their number is dead
}

func (e *engine) sample() sample {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := sample{counters: e.stats, malformed: len(e.view.malformed),
		dead:   len(e.table.deadAddresses()) + e.view.dead,
		states: map[EndpointState]int{StateWaiting: 0, StateUnpublished: 0, StateReady: 0, StateFailed: 0}}
	s.refusals = maps.Clone(e.stats.refusals)
	for _, ep := range e.table.endpoints {
		if ep.view != nil {
			s.states[ep.view.State]++
		}
	}
	for _, since := range e.since {
		s.waiting = max(s.waiting, e.now().Sub(since).Seconds())
	}
	return s
}
