// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/signet-identity/signet/allocator"
)

// saveDelay is how long a change may wait for its checkpoint when nobody waits
// for it; one that somebody waits for is written at once.
const saveDelay = 200 * time.Millisecond

// saveRetry is the pause after a checkpoint that could not be written.
const saveRetry = time.Second

// saver writes checkpoints: many changes in one, and those that a caller waits
// for without delay.
type saver struct {
	log   *slog.Logger
	file  string
	write func() error
	now   func() time.Time

	mu      sync.Mutex
	changed uint64        // changes so far
	saved   uint64        // changes that are on disk
	wanted  uint64        // a caller waits for these
	err     error         // of the last write
	success time.Time     // of the last good write
	moved   chan struct{} // closed and replaced after each write
	kick    chan struct{} // capacity 1
}

func newSaver(file string, write func() error, now func() time.Time, log *slog.Logger) *saver {
	return &saver{file: file, write: write, now: now, log: log,
		moved: make(chan struct{}), kick: make(chan struct{}, 1), success: now()}
}

// mark says that something changed.
func (s *saver) mark() {
	s.mu.Lock()
	s.changed++
	s.mu.Unlock()
	s.signal()
}

func (s *saver) signal() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// seq numbers the newest change.
func (s *saver) seq() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// wait returns once the changes up to seq are on disk.
func (s *saver) wait(ctx context.Context, seq uint64) error {
	for {
		s.mu.Lock()
		if s.saved >= seq {
			s.mu.Unlock()
			return nil
		}
		s.wanted = max(s.wanted, seq)
		moved, err := s.moved, s.err
		s.mu.Unlock()
		if err != nil {
			return refuse(allocator.Unavailable, "", "it is done, but not on disk, so a restart would lose it: %v", err)
		}
		s.signal()
		select {
		case <-moved:
		case <-ctx.Done():
			return refuse(allocator.Unavailable, "", "it is done, but the checkpoint %s is not written yet", s.file)
		}
	}
}

// run writes until ctx ends, and a last time then.
func (s *saver) run(ctx context.Context) error {
	for {
		select {
		case <-s.kick:
		case <-ctx.Done():
			s.save()
			return nil
		}
		for s.due(ctx) {
			if !s.save() {
				sleep(ctx, saveRetry)
				s.signal()
				break
			}
		}
	}
}

// due waits until a write is due; false when there is nothing to write.
func (s *saver) due(ctx context.Context) bool {
	late := time.NewTimer(saveDelay)
	defer late.Stop()
	for {
		s.mu.Lock()
		dirty, urgent := s.changed > s.saved, s.wanted > s.saved
		s.mu.Unlock()
		if !dirty || urgent || ctx.Err() != nil {
			return dirty && ctx.Err() == nil
		}
		select {
		case <-s.kick:
		case <-late.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// save writes what there is.
func (s *saver) save() bool {
	seq := s.seq()
	if s.saved == seq && s.err == nil {
		return true
	}
	err := s.write()
	if err != nil {
		s.log.Error("the checkpoint cannot be written", "file", s.file, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err == nil {
		s.saved, s.success = seq, s.now()
	}
	close(s.moved)
	s.moved = make(chan struct{})
	return err == nil
}

// status is when a checkpoint was last written, or that all was written
// already, and the error of the last try.
func (s *saver) status() (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && s.saved == s.changed {
		return s.now(), nil
	}
	return s.success, s.err
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
