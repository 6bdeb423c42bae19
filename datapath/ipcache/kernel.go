// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/signet-identity/signet/bpf"
	"github.com/signet-identity/signet/datapath/maps"
)

// LayoutError means that the pinned maps were laid out by another version, or
// not by us. Nothing was changed.
type LayoutError struct {
	Path       string
	Have, Want bpf.Meta
}

// Error names both layouts and the way out.
func (e *LayoutError) Error() string {
	if e.Have.Magic != e.Want.Magic {
		return fmt.Sprintf("the pins in %s are none of ours: choose another pin path, or remove them", e.Path)
	}
	return fmt.Sprintf("the maps pinned in %s have layout %d (rows of %d bytes), this version writes layout %d (rows of %d bytes): run the version that made them, or let the node leave so that they are made anew",
		e.Path, e.Have.Layout, e.Have.RowSize, e.Want.Layout, e.Want.RowSize)
}

// kernelMaps are the maps of one pin folder, by pin name.
type kernelMaps struct {
	folder *maps.Folder
	byName map[string]*ebpf.Map
}

// Open opens the maps pinned under the configured path, or makes them, and
// becomes their one writer. What they hold stays until Synced. Errors:
// *maps.LockedError, *maps.NotBPFFSError, *maps.IncompatibleError, *LayoutError.
func Open(cfg Config) (Datapath, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	folder, err := maps.OpenFolder(cfg.PinPath)
	if err != nil {
		return nil, err
	}
	k := &kernelMaps{folder: folder, byName: map[string]*ebpf.Map{}}
	s, err := k.open(cfg)
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	e, err := newEngine(cfg, s)
	if err != nil {
		return nil, errors.Join(err, s.rows.Close(), k.close())
	}
	return e, nil
}

// open opens meta first: what carries no layout version is not touched, and a
// fresh folder has it before it has anything else.
func (k *kernelMaps) open(cfg Config) (store, error) {
	spec, err := bpf.LoadIpcache()
	if err != nil {
		return store{}, err
	}
	spec.Maps[hostsName].MaxEntries = uint32(cfg.Addresses)
	spec.Maps[prefixesName].MaxEntries = uint32(cfg.Prefixes)
	spec.Maps[rowsName].MaxEntries = uint32(cfg.Rows)
	if err := k.openMeta(spec.Maps[metaName]); err != nil {
		return store{}, err
	}
	for _, name := range []string{rowsName, prefixesName, hostsName} {
		if err := k.openMap(spec.Maps[name], nil); err != nil {
			return store{}, err
		}
	}
	return k.store(cfg, spec)
}

func (k *kernelMaps) openMap(spec *ebpf.MapSpec, fill func(*ebpf.Map) error) error {
	m, created, err := k.folder.Open(spec)
	if err != nil {
		return err
	}
	k.byName[spec.Name] = m
	if !created {
		return nil
	}
	if fill != nil {
		if err := fill(m); err != nil {
			return err
		}
	}
	return k.folder.Pin(spec.Name, m)
}

func (k *kernelMaps) openMeta(spec *ebpf.MapSpec) error {
	want := bpf.OwnMeta()
	err := k.openMap(spec, func(m *ebpf.Map) error {
		others, err := k.folder.Has(hostsName, prefixesName, rowsName)
		if err != nil {
			return err
		}
		if others {
			return &LayoutError{Path: k.folder.Path(), Want: want}
		}
		return m.Put(uint32(0), &want)
	})
	if err != nil {
		return err
	}
	var have bpf.Meta
	if err := k.byName[metaName].Lookup(uint32(0), &have); err != nil {
		return fmt.Errorf("reading the layout version: %w", err)
	}
	if have != want {
		return &LayoutError{Path: k.folder.Path(), Have: have, Want: want}
	}
	return nil
}

// store wraps the maps; hosts, prefixes and rows own theirs from then on, the
// handles in byName are for pins and for the program.
func (k *kernelMaps) store(cfg Config, spec *ebpf.CollectionSpec) (store, error) {
	var own [3]*ebpf.Map
	for i, name := range []string{hostsName, prefixesName, rowsName} {
		m, err := k.byName[name].Clone()
		if err != nil {
			return store{}, err
		}
		own[i] = m
	}
	rows, err := maps.MapArray(own[2])
	if err != nil {
		return store{}, err
	}
	program := &lookupProgram{spec: spec, maps: k.byName}
	return store{
		kind: "ebpf", path: cfg.PinPath,
		tables: [tableCount]addressMap{
			hosts:    maps.NewKernel[bpf.AddrKey, bpf.AddrValue](hostsName, own[0]),
			prefixes: maps.NewKernel[bpf.AddrKey, bpf.AddrValue](prefixesName, own[1]),
		},
		rows:       rows,
		lookup:     program.lookup,
		lostPins:   k.lostPins,
		restorePin: func(name string) error { return k.folder.Restore(name, k.byName[name]) },
		destroy:    func() error { return k.folder.Remove(hostsName, prefixesName, rowsName, metaName) },
		close:      func() error { return errors.Join(program.close(), k.close()) },
	}, nil
}

func (k *kernelMaps) lostPins() []string {
	var lost []string
	for _, name := range []string{metaName, rowsName, prefixesName, hostsName} {
		if !k.folder.Pinned(name, k.byName[name]) {
			lost = append(lost, name)
		}
	}
	return lost
}

func (k *kernelMaps) close() error {
	var errs []error
	for _, m := range k.byName {
		errs = append(errs, m.Close())
	}
	return errors.Join(append(errs, k.folder.Close())...)
}
