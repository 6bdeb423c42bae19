// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/signet-identity/signet/datapath/maps"
	"github.com/signet-identity/signet/kvstore/embedded"
)

func bpfWorks() bool {
	ok, _ := maps.Probe()
	return ok
}

// process is a signet that a script started.
type process struct {
	cmd    *exec.Cmd
	stderr *buffer
	lines  chan string // of standard output
	done   chan struct{}
	err    error
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// processes are those of all scripts, by script and name.
var processes = struct {
	sync.Mutex
	of map[*testscript.TestScript]map[string]*process
}{of: map[*testscript.TestScript]map[string]*process{}}

// command is signet as a script would run it.
func command(ts *testscript.TestScript, args ...string) *exec.Cmd {
	path, err := exec.LookPath(filepath.Join(filepath.Dir(binPath(ts)), "signet"))
	ts.Check(err)
	cmd := exec.Command(path, args...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "USER", "TMPDIR", "SIGNET_SERVER", "SIGNET_AGENT_SOCKET", "NOTIFY_SOCKET"} {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	return cmd
}

// binPath is where testscript put signet: the first folder of PATH that has it.
func binPath(ts *testscript.TestScript) string {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if p := filepath.Join(dir, "signet"); isFile(p) {
			return p
		}
	}
	ts.Fatalf("signet is not in PATH")
	return ""
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

func launch(ts *testscript.TestScript, name string, args ...string) *process {
	p := &process{cmd: command(ts, args...), stderr: &buffer{}, lines: make(chan string, 4096), done: make(chan struct{})}
	p.cmd.Stderr = p.stderr
	out, err := p.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(p.cmd.Start())
	go func() {
		defer close(p.done)
		scan := bufio.NewScanner(out)
		scan.Buffer(nil, 1<<20)
		for scan.Scan() {
			p.lines <- scan.Text()
		}
		close(p.lines)
		p.err = p.cmd.Wait()
	}()
	processes.Lock()
	defer processes.Unlock()
	if processes.of[ts] == nil {
		processes.of[ts] = map[string]*process{}
	}
	processes.of[ts][name] = p
	ts.Defer(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if s := p.stderr.String(); s != "" {
			ts.Logf("--- %s said:\n%s", name, s)
		}
	})
	return p
}

func find(ts *testscript.TestScript, name string) *process {
	processes.Lock()
	defer processes.Unlock()
	p := processes.of[ts][name]
	if p == nil {
		ts.Fatalf("no process %q was started", name)
	}
	return p
}

// line waits for the next line of standard output.
func (p *process) line(ts *testscript.TestScript) string {
	select {
	case line, ok := <-p.lines:
		if !ok {
			<-p.done
			ts.Fatalf("the process ended: %v\n%s", p.err, p.stderr)
		}
		return line
	case <-time.After(limit):
		ts.Fatalf("nothing came within %s\n%s", limit, p.stderr)
	}
	return ""
}

// startDev starts signet dev under the name dev, and waits until it says that
// it is ready: dev [ARG...]. What it says goes to dev.json, and clients find it.
func startDev(ts *testscript.TestScript, _ bool, args []string) {
	base := ts.Getenv("BASE")
	if base == "" {
		base = strconv.Itoa(portRange(ts))
		ts.Setenv("BASE", base)
	}
	args = append([]string{"dev", "--listen-base", base, "-o", "json"}, args...)
	if !slices.Contains(args, "--data-dir") {
		args = append(args, "--data-dir", "data")
	}
	if !slices.Contains(args, "--datapath") {
		args = append(args, "--datapath", "memory")
	}
	p := launch(ts, "dev", args...)
	text := p.line(ts)
	ts.Check(os.WriteFile(ts.MkAbs("dev.json"), []byte(text), 0o600))
	var ready map[string]any
	ts.Check(json.Unmarshal([]byte(text), &ready))
	for env, field := range map[string]string{"SIGNET_SERVER": "grpc", "SIGNET_AGENT_SOCKET": "agent_socket", "ETCD": "etcd",
		"METRICS": "metrics", "DATA": "data_dir", "PINS": "pin_path"} {
		ts.Setenv(env, ready[field].(string))
	}
	if pins := ready["pin_path"].(string); pins != "" {
		ts.Defer(func() { _ = os.RemoveAll(pins) })
	}
}

// startBeside runs the agent that dev --no-agent says fits beside it: beside NAME.
func startBeside(ts *testscript.TestScript, _ bool, args []string) {
	var ready struct {
		DataDir      string   `json:"data_dir"`
		AgentCommand []string `json:"agent_command"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("dev.json")), &ready))
	ts.Setenv("SIGNET_AGENT_SOCKET", filepath.Join(ready.DataDir, "agent.sock"))
	launch(ts, args[0], ready.AgentCommand[1:]...)
}

// startEtcd starts an etcd in this process: etcd.
func startEtcd(ts *testscript.TestScript, _ bool, _ []string) {
	first := portRange(ts)
	s, err := embedded.Start(context.Background(), embedded.Config{DataDir: ts.MkAbs("etcd"),
		ClientURL: fmt.Sprintf("http://127.0.0.1:%d", first), PeerURL: fmt.Sprintf("http://127.0.0.1:%d", first+1)})
	ts.Check(err)
	ts.Defer(s.Close)
	ts.Setenv("ETCD", s.Endpoint())
}

// startProcess starts a signet and goes on: start NAME ARG...
func startProcess(ts *testscript.TestScript, _ bool, args []string) { launch(ts, args[0], args[1:]...) }

// stopProcess interrupts a process, and expects that it ends well: stop NAME.
// What it said goes to NAME.stderr.
func stopProcess(ts *testscript.TestScript, _ bool, args []string) {
	p := find(ts, args[0])
	began := time.Now()
	ts.Check(p.cmd.Process.Signal(syscall.SIGINT))
	select {
	case <-p.done:
	case <-time.After(limit):
		ts.Fatalf("%s did not stop within %s", args[0], limit)
	}
	ts.Logf("%s stopped in %s", args[0], time.Since(began))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".stderr"), []byte(p.stderr.String()), 0o600))
	if p.err != nil {
		ts.Fatalf("%s: %v", args[0], p.err)
	}
}

// crashProcess is kill -9: crash NAME.
func crashProcess(ts *testscript.TestScript, _ bool, args []string) {
	p := find(ts, args[0])
	ts.Check(p.cmd.Process.Kill())
	<-p.done
}

// exitCode runs signet and expects an exit code: code N ARG...
func exitCode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	have := 0
	var exit *exec.ExitError
	if err := ts.Exec("signet", args[1:]...); errors.As(err, &exit) {
		have = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if have != want {
		ts.Fatalf("exit code %d, want %d", have, want)
	}
}

// awaitEvent reads a watch's lines until one has all the words: event NAME WORD...
func awaitEvent(ts *testscript.TestScript, _ bool, args []string) {
	p := find(ts, args[0])
	for {
		line := p.line(ts)
		if !slices.ContainsFunc(args[1:], func(word string) bool { return !strings.Contains(line, word) }) {
			fmt.Fprintln(ts.Stdout(), line)
			return
		}
	}
}

// freePorts sets variables to addresses on which nobody listens, and
// NAME_PORT to their ports: ports NAME...
func freePorts(ts *testscript.TestScript, _ bool, args []string) {
	first := portRange(ts)
	for i, name := range args {
		ts.Setenv(name, fmt.Sprintf("127.0.0.1:%d", first+i))
		ts.Setenv(name+"_PORT", strconv.Itoa(first+i))
	}
}

// blocks counts the ranges of ports handed out, so that scripts that run at
// once never get the same.
var blocks atomic.Uint32

// portRange finds a few free ports in a row, below those that the system hands
// out by itself.
func portRange(ts *testscript.TestScript) int {
	const most, size = 2000, 10
	for range most {
		first := 10000 + int((uint32(os.Getpid())*37+blocks.Add(1))%most)*size
		free := 0
		for port := first; port < first+size; port++ {
			if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
				_ = l.Close()
				free++
			}
		}
		if free == size {
			return first
		}
	}
	ts.Fatalf("no free ports")
	return 0
}

// asNobody runs signet as a user without rights, and expects an exit code: as nobody N ARG...
func asNobody(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	const nobody = 65534
	cmd := command(ts, args[2:]...)
	// Signet itself lies where nobody may not look.
	dir, err := os.MkdirTemp("", "signet-nobody")
	ts.Check(err)
	defer os.RemoveAll(dir)
	ts.Check(os.Chmod(dir, 0o755))
	ts.Check(os.Link(cmd.Path, filepath.Join(dir, "signet")))
	cmd.Path, cmd.Dir = filepath.Join(dir, "signet"), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	fmt.Fprint(ts.Stderr(), string(out))
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Check(err)
	}
	if have := cmd.ProcessState.ExitCode(); have != want {
		ts.Fatalf("exit code %d, want %d:\n%s", have, want, out)
	}
}

// jsonField compares a field of a JSON file, or keeps it: field FILE PATH VALUE, field FILE PATH > VARIABLE.
func jsonField(ts *testscript.TestScript, neg bool, args []string) {
	var v any
	d := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	d.UseNumber()
	ts.Check(d.Decode(&v))
	for _, step := range strings.Split(args[1], ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[step]
		case []any:
			if step == "len" {
				v = len(at)
				continue
			}
			i, err := strconv.Atoi(step)
			ts.Check(err)
			v = at[i]
		}
	}
	have := fmt.Sprint(v)
	if args[2] == ">" {
		ts.Setenv(args[3], have)
		return
	}
	if (have == args[2]) == neg {
		ts.Fatalf("%s of %s is %s", args[1], args[0], have)
	}
}

// megabyteOfLabels allocates a label set of 1 MiB and expects a refusal.
func megabyteOfLabels(ts *testscript.TestScript, _ bool, _ []string) {
	args := []string{"2", "identity", "allocate"}
	for i := range 11 {
		args = append(args, fmt.Sprintf("k8s:key-%d=%s", i, strings.Repeat("x", 100_000)))
	}
	exitCode(ts, false, args)
}
