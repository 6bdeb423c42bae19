// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/signet-identity/signet/allocator/agent"
	"github.com/signet-identity/signet/datapath/ipcache"
	"github.com/signet-identity/signet/datapath/maps"
)

// DatapathError says that eBPF was asked for and cannot be had.
type DatapathError struct{ Reason string }

// Error names the reason and the way out.
func (e *DatapathError) Error() string {
	return "eBPF maps cannot be used here: " + e.Reason + "; put that right, or choose --datapath memory"
}

// openDatapath opens the kernel's maps, or maps in memory with the reason why.
func openDatapath(kind, pinPath string, log *slog.Logger) (*datapath, error) {
	cfg := ipcache.Config{PinPath: pinPath, Log: log}
	reason := "asked for with --datapath memory"
	if kind != "memory" {
		ok, why := maps.Probe()
		switch {
		case ok:
			return wrap(ipcache.Open(cfg))
		case kind == "ebpf":
			return nil, &DatapathError{Reason: why}
		}
		reason = why
	}
	return wrap(ipcache.NewMemory(cfg, reason))
}

func wrap(d ipcache.Datapath, err error) (*datapath, error) {
	if err != nil {
		return nil, err
	}
	return &datapath{d}, nil
}

// datapath is the ipcache as the agent drives it.
type datapath struct{ ipcache.Datapath }

var _ agent.Datapath = (*datapath)(nil)

var sources = map[agent.Source]ipcache.Source{
	agent.SourceRemote:   ipcache.SourceRemote,
	agent.SourceEndpoint: ipcache.SourceEndpoint,
}

// Upsert implements agent.Datapath.
func (d *datapath) Upsert(e agent.Entry) error {
	return d.Datapath.Upsert(ipcache.Entry{Prefix: e.Prefix, Number: e.Number, Source: sources[e.Source], Dead: e.Dead})
}

// Delete implements agent.Datapath.
func (d *datapath) Delete(p netip.Prefix, s agent.Source) error {
	return d.Datapath.Delete(p, sources[s])
}

// Failing implements agent.Datapath.
func (d *datapath) Failing() map[netip.Prefix]error {
	out := map[netip.Prefix]error{}
	for _, p := range d.Pending() {
		if p.Err != nil {
			out[p.Prefix] = p.Err
		}
	}
	return out
}

// List implements agent.Datapath. An entry that does not prove itself is
// denied, as a program would deny it.
func (d *datapath) List() ([]agent.Realised, error) {
	entries, err := d.Datapath.List()
	if err != nil {
		return nil, err
	}
	out := make([]agent.Realised, len(entries))
	for i, e := range entries {
		out[i] = agent.Realised{Prefix: e.Prefix, Row: e.Row, Number: e.Number,
			Dead: !e.Proven || e.Flags&ipcache.FlagDeny != 0 || e.Flags&ipcache.FlagValid == 0}
	}
	return out, nil
}

// Progress implements agent.Datapath.
func (d *datapath) Progress() agent.Progress {
	p := d.Datapath.Progress()
	return agent.Progress{Last: p.Last, Cleared: p.Cleared}
}

// Status implements agent.Datapath.
func (d *datapath) Status() agent.DatapathStatus {
	s := d.Datapath.Status()
	out := agent.DatapathStatus{Kind: s.Kind, Detail: s.PinPath, Pending: s.Pending, Failing: s.Failing,
		LastSuccess: s.LastSuccess, LastError: s.LastError}
	if s.Reason != "" {
		out.Detail = s.Reason
	}
	for _, t := range s.Tables {
		out.Entries += t.Entries
		out.Wanted += t.Wanted
		out.Capacity += t.Capacity
	}
	return out
}

// part closes the maps when it is stopped; the pins stay.
func (d *datapath) part(log *slog.Logger) *part {
	return &part{name: "datapath", failed: make(chan error), stop: func(context.Context) {
		if err := d.Close(); err != nil {
			log.Debug("closing the datapath", "error", fmt.Sprint(err))
		}
	}}
}
