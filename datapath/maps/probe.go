// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Probe says whether the maps of the datapath can be used here, and if not,
// why. It tries the map types and looks for bpffs; it leaves nothing behind and
// mounts nothing.
func Probe() (ok bool, reason string) {
	for _, spec := range []*ebpf.MapSpec{
		{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1, Flags: unix.BPF_F_NO_PREALLOC},
		{Type: ebpf.LPMTrie, KeySize: 8, ValueSize: 8, MaxEntries: 1, Flags: unix.BPF_F_NO_PREALLOC},
		{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE},
	} {
		m, err := ebpf.NewMap(spec)
		if err != nil {
			return false, whyNoMap(spec.Type, err)
		}
		m.Close()
	}
	return probeBPFFS(DefaultMount, hasCap(unix.CAP_SYS_ADMIN))
}

func whyNoMap(typ ebpf.MapType, err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return "no right to make BPF maps: root or CAP_BPF is needed"
	case errors.Is(err, unix.ENOSYS):
		return "the kernel has no bpf system call"
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EINVAL):
		return fmt.Sprintf("the kernel has no BPF map of type %s", typ)
	}
	return fmt.Sprintf("cannot make a BPF map of type %s: %v", typ, err)
}

func probeBPFFS(dir string, mayMount bool) (bool, string) {
	if !isBPFFS(dir) {
		if mayMount {
			return true, ""
		}
		return false, fmt.Sprintf("no BPF file system at %s and no right to mount one: CAP_SYS_ADMIN is needed", dir)
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return false, fmt.Sprintf("cannot write to %s: %v", dir, err)
	}
	return true, ""
}

// hasCap says whether the process has a capability; unknown counts as no.
func hasCap(capability uint) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0
}
