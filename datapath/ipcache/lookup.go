// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"structs"

	"github.com/cilium/ebpf"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/bpf"
)

// lookupProgram runs signet_lookup over the maps in use. It is loaded at the
// first lookup: it needs more rights than the maps (CAP_NET_ADMIN).
type lookupProgram struct {
	spec *ebpf.CollectionSpec
	maps map[string]*ebpf.Map
	coll *ebpf.Collection
}

// skb is the beginning of struct __sk_buff, and room for the rest: a kernel that
// has more to give back than fits reports an error.
type skb struct {
	_              structs.HostLayout
	Len            uint32
	PktType        uint32
	Mark           uint32
	QueueMapping   uint32
	Protocol       uint32
	VlanPresent    uint32
	VlanTCI        uint32
	VlanProto      uint32
	Priority       uint32
	IngressIfindex uint32
	Ifindex        uint32
	TCIndex        uint32
	CB             [5]uint32
	Rest           [110]uint32
}

// answer is what signet_lookup says about one address of a frame.
type answer struct {
	Result
	check  uint32 // of the full address
	action uint32 // what the program returned, TC_ACT_*
}

func (l *lookupProgram) lookup(addr netip.Addr) (Result, error) {
	a, err := l.run(frame(addr, addr), false)
	return a.Result, err
}

// run asks for the source or the destination of a frame.
func (l *lookupProgram) run(data []byte, destination bool) (answer, error) {
	if err := l.load(); err != nil {
		return answer{}, err
	}
	in, out := skb{}, skb{}
	if destination {
		in.Mark = 1
	}
	action, err := l.coll.Programs[bpf.IpcacheProgSignetLookup].Run(&ebpf.RunOptions{
		Data: data, Context: &in, ContextOut: &out,
	})
	if err != nil {
		return answer{}, fmt.Errorf("running the lookup program: %w", err)
	}
	return answer{
		Result: Result{
			Verdict: Verdict(out.CB[0]), Number: identity.Number(out.CB[1]),
			Flags: out.CB[2], Row: out.CB[3],
		},
		check: out.CB[4], action: action,
	}, nil
}

func (l *lookupProgram) load() error {
	if l.coll != nil {
		return nil
	}
	coll, err := ebpf.NewCollectionWithOptions(l.spec, ebpf.CollectionOptions{MapReplacements: l.maps})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("the kernel cannot run the lookup program: %w", err)
	}
	if err != nil {
		return fmt.Errorf("loading the lookup program (it needs CAP_BPF and CAP_NET_ADMIN): %w", err)
	}
	l.coll = coll
	return nil
}

func (l *lookupProgram) close() error {
	if l.coll != nil {
		l.coll.Close()
	}
	return nil
}

// EtherTypes and header lengths of the frames that frame makes.
const (
	etherIPv4, etherIPv6 = 0x0800, 0x86dd
	etherLen             = 14
)

// frame makes an Ethernet frame with a bare IP header between two addresses.
func frame(source, destination netip.Addr) []byte {
	if source.Is4() {
		data := make([]byte, etherLen+20)
		binary.BigEndian.PutUint16(data[12:], etherIPv4)
		data[etherLen] = 0x45
		binary.BigEndian.PutUint16(data[etherLen+2:], 20)
		copy(data[etherLen+12:], source.AsSlice())
		copy(data[etherLen+16:], destination.AsSlice())
		return data
	}
	data := make([]byte, etherLen+40)
	binary.BigEndian.PutUint16(data[12:], etherIPv6)
	data[etherLen] = 0x60
	copy(data[etherLen+8:], source.AsSlice())
	copy(data[etherLen+24:], destination.AsSlice())
	return data
}
