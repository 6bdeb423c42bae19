// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// dumpTries is how often a dump begins anew before it is given up.
const dumpTries = 3

// errSlow asks for reading entry by entry, where batches do not work.
var errSlow = errors.New("batches do not work here")

// reader is what dump needs of a map.
type reader[K comparable, V any] interface {
	// batches starts a walk; each call reads on, and ErrKeyNotExist ends it.
	batches() func([]K, []V) (int, error)
	// next gives the key after prev, or the first; ErrNotFound ends the walk.
	next(prev *K) (K, error)
	Get(K) (V, error)
}

// dump reads a whole map as a set. A bucket that does not fit into a batch makes
// the batch grow; a kernel without batches, or a bucket that fits into none, is
// read entry by entry.
func dump[K comparable, V any](r reader[K, V], capacity, batch int) (map[K]V, error) {
	var last error
	for range dumpTries {
		all, err := dumpBatches(r, capacity, batch)
		if errors.Is(err, errSlow) {
			all, err = dumpSingly(r, capacity)
		}
		if err == nil {
			return all, nil
		}
		if !errors.Is(err, ErrIncomplete) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return nil, err
		}
		last = err
	}
	return nil, fmt.Errorf("%w after %d tries: %w", ErrIncomplete, dumpTries, last)
}

func dumpBatches[K comparable, V any](r reader[K, V], capacity, batch int) (map[K]V, error) {
	all := make(map[K]V)
	keys, values := make([]K, batch), make([]V, batch)
	read := r.batches()
	for seen := 0; seen <= walkLimit(capacity, batch); {
		n, err := read(keys, values)
		if err == nil || errors.Is(err, ebpf.ErrKeyNotExist) {
			for i := range n {
				all[keys[i]] = values[i]
			}
			seen += max(n, 1)
		}
		switch {
		case err == nil:
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return all, nil
		case errors.Is(err, unix.ENOSPC) && len(keys) <= capacity:
			keys, values = make([]K, 2*len(keys)), make([]V, 2*len(keys))
		case errors.Is(err, unix.ENOSPC), errors.Is(err, ebpf.ErrNotSupported):
			return nil, errSlow
		default:
			return nil, err
		}
	}
	return nil, ErrIncomplete
}

// dumpSingly walks the keys first and reads the values afterwards: a key that
// is gone by then was removed by someone else.
func dumpSingly[K comparable, V any](r reader[K, V], capacity int) (map[K]V, error) {
	seen := make(map[K]struct{})
	var prev *K
	for steps := 0; ; steps++ {
		if steps > walkLimit(capacity, 0) {
			return nil, ErrIncomplete
		}
		key, err := r.next(prev)
		if errors.Is(err, ErrNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		seen[key] = struct{}{}
		prev = &key
	}
	all := make(map[K]V, len(seen))
	for key := range seen {
		v, err := r.Get(key)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all[key] = v
	}
	return all, nil
}

// walkLimit bounds a walk: when keys vanish under it, the kernel begins anew,
// and without a bound it need not end.
func walkLimit(capacity, batch int) int { return 4*capacity + 2*batch }
