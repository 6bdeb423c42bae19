// SPDX-License-Identifier: Apache-2.0

package ipcache

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/signet-identity/signet/bpf"
)

// Config says how large the maps are and how patient the engine is. Zero
// values mean the defaults.
type Config struct {
	// PinPath is the folder of the pins, in bpffs. Default /sys/fs/bpf/signet.
	PinPath string
	// Addresses, Prefixes and Rows are the sizes of the three maps, in entries.
	// They are fixed when a map is made: a pinned map of another size is
	// refused. Default 512000, 512000 and 131072.
	Addresses, Prefixes, Rows int
	// Grace is how long a row outlives its last address, Quarantine how long a
	// cleared row's index is not used again: both longer than any program
	// takes for one packet. Default 2 s each.
	Grace, Quarantine time.Duration
	// RetryMin and RetryMax bound the waits between tries of a failing entry.
	// Default 100 ms and 10 s.
	RetryMin, RetryMax time.Duration
	// VerifyEvery is the period of the comparison with the maps. Default 60 s.
	VerifyEvery time.Duration
	// Clock gives the time; Default time.Now.
	Clock func() time.Time
	// Log gets what an operator should know. Default: nothing is logged.
	Log *slog.Logger
}

// DefaultPinPath is the folder of the pins when none is named.
const DefaultPinPath = "/sys/fs/bpf/signet"

func (c Config) withDefaults() (Config, error) {
	fallback(&c.PinPath, DefaultPinPath)
	fallback(&c.Addresses, 512000)
	fallback(&c.Prefixes, 512000)
	fallback(&c.Rows, 131072)
	fallback(&c.Grace, 2*time.Second)
	fallback(&c.Quarantine, 2*time.Second)
	fallback(&c.RetryMin, 100*time.Millisecond)
	fallback(&c.RetryMax, 10*time.Second)
	fallback(&c.VerifyEvery, time.Minute)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	for name, size := range map[string]int{"addresses": c.Addresses, "prefixes": c.Prefixes, "rows": c.Rows} {
		if size < 1 || size > math.MaxInt32 {
			return c, fmt.Errorf("the size %d for %s is out of range: at least 1", size, name)
		}
	}
	if c.Rows <= bpf.RowFirst {
		return c, fmt.Errorf("%d rows are too few: two are fixed, so at least %d", c.Rows, bpf.RowFirst+1)
	}
	return c, nil
}

func fallback[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}
