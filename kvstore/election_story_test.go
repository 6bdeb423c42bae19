// SPDX-License-Identifier: Apache-2.0

package kvstore_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signet-identity/signet/kvstore"
)

var rewrite = flag.Bool("rewrite", false, "write what the stories print into their files")

// TestStories plays each testdata/story_*.txt: lines of commands, a line of
// four dashes, and what they print, up to an empty line. Lines that begin with
// # are for the reader.
//
//	start NAME…       candidates join the election (TTL 15 s)
//	run DURATION      time passes
//	revoke NAME       somebody revokes the candidate's lease
//	delete NAME       somebody deletes the candidate's key
//	deafen NAME       its watches go silently dead
//	pause NAME D      the process stands still
//	kill NAME         the process is gone
//	cut NAME, heal NAME   no answers from the store, or again
//	stop NAME         a clean stop
//	abandon NAME WHY  the committer gives the term up
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/story_*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("the story goes otherwise; see the difference with -rewrite. It went:\n%s", got)
			}
		})
	}
}

// story is an election that commands drive.
type story struct {
	w    *world
	cs   map[string]*candidate
	log  []string
	last map[string]int // changes told so far
}

// play returns the text with what its commands print now.
func play(t *testing.T, text string) string {
	s := &story{w: newWorld(1), cs: map[string]*candidate{}, last: map[string]int{}}
	s.w.after = s.tell
	var out strings.Builder
	for _, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(block, "\n----")
		for line := range strings.SplitSeq(commands, "\n") {
			fmt.Fprintln(&out, line)
			if !strings.HasPrefix(line, "#") {
				s.do(t, strings.Fields(line))
			}
		}
		if strings.Contains(block, "\n----") {
			fmt.Fprintln(&out, "----")
			for _, line := range append(s.log, s.queue()) {
				fmt.Fprintln(&out, line)
			}
		}
		s.log = nil
		fmt.Fprintln(&out)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// tell notes what candidates told their owners since the last time.
func (s *story) tell() {
	for _, name := range sortedNames(s.cs) {
		c := s.cs[name]
		for _, change := range c.changes[s.last[name]:] {
			s.log = append(s.log, strings.TrimSpace(fmt.Sprintf("%.1fs %s: %v %s", s.w.now.Seconds(), name, change.Role, change.Reason)))
		}
		s.last[name] = len(c.changes)
	}
}

// queue is the election prefix, oldest first, with the state that each candidate is in.
func (s *story) queue() string {
	var queue []string
	for _, name := range sortedNames(s.cs) {
		c := s.cs[name]
		state := c.status().State
		if c.dead {
			state = "dead"
		}
		key := "no key"
		for _, kv := range s.w.keys(electionPrefix) {
			if lease := c.status().Lease; lease != 0 && kv.Lease == lease {
				key = fmt.Sprintf("key@%d", kv.CreateRevision)
			}
		}
		queue = append(queue, fmt.Sprintf("%s %s %s", name, state, key))
	}
	return fmt.Sprintf("%.1fs [%s]", s.w.now.Seconds(), strings.Join(queue, "] ["))
}

func sortedNames(cs map[string]*candidate) []string {
	var names []string
	for _, c := range []string{"a", "b", "c", "d"} {
		if cs[c] != nil {
			names = append(names, c)
		}
	}
	return names
}

func (s *story) do(t *testing.T, args []string) {
	t.Helper()
	if args[0] == "run" {
		s.w.run(s.w.now + duration(t, args[1]))
		return
	}
	if args[0] == "start" {
		for _, name := range args[1:] {
			s.cs[name] = s.w.candidate(name, kvstore.ElectionConfig{})
			s.w.run(s.w.now + 100*time.Millisecond)
		}
		return
	}
	c := s.cs[args[1]]
	if c == nil {
		t.Fatalf("%v: who?", args)
	}
	lease := c.status().Lease
	lost := func(kvstore.Call) bool { return args[0] == "cut" }
	switch args[0] {
	case "revoke":
		_ = s.w.model.Revoke(lease)
	case "delete":
		s.w.remove(electionPrefix + kvstore.LeaseName(lease))
	case "deafen":
		c.deaf = true
	case "pause":
		c.paused = s.w.now + duration(t, args[2])
	case "kill":
		c.dead = true
	case "cut", "heal":
		c.deaf, c.loseReq = args[0] == "cut", lost
	case "stop":
		c.do(c.Resign)
	case "abandon":
		c.do(func(now time.Duration) { c.Abandon(now, strings.Join(args[2:], " ")) })
	default:
		t.Fatalf("no such command: %v", args)
	}
	s.tell()
}

func duration(t *testing.T, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
