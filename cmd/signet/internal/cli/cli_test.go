// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/client"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
	"github.com/signet-identity/signet/allocator/server"
	"github.com/signet-identity/signet/cmd/signet/internal/option"
	"github.com/signet-identity/signet/cmd/signet/internal/run"
	"github.com/signet-identity/signet/cmd/signet/internal/view"
	"github.com/signet-identity/signet/kvstore"
)

var update = flag.Bool("update", false, "rewrite the reference in docs/reference")

// The committed reference is what the program would write now.
func TestReference(t *testing.T) {
	for name, text := range Reference() {
		path := filepath.Join("../../../../docs/reference", name)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(have) != text {
			t.Errorf("%s is not up to date; make generate rewrites it", name)
		}
	}
}

func TestExitCodes(t *testing.T) {
	_, label := labels.ParseSet("k8s:a=b;c")
	_, space := identity.NewSpace("default", 7, 255, false)
	for name, tt := range map[string]struct {
		err  error
		code int
	}{
		"fine":                {nil, 0},
		"anything":            {errors.New("x"), 1},
		"label":               {label, 1},
		"refused":             {&client.Error{Code: codes.InvalidArgument}, 1},
		"exhausted":           {&client.Error{Code: codes.ResourceExhausted}, 1},
		"not found":           {fmt.Errorf("w: %w", &client.Error{Code: codes.NotFound}), 4},
		"unavailable":         {&client.Error{Code: codes.Unavailable}, 5},
		"late":                {&client.Error{Code: codes.DeadlineExceeded}, 5},
		"agent: not found":    {status.Error(codes.NotFound, "x"), 4},
		"agent: late":         {status.Error(codes.DeadlineExceeded, "x"), 5},
		"agent: refused":      {status.Error(codes.InvalidArgument, "x"), 1},
		"etcd away":           {fmt.Errorf("w: %w", &kvstore.NotReadyError{}), 5},
		"option":              {&option.Error{}, 2},
		"options together":    {&run.ConfigError{}, 2},
		"cluster":             {space, 2},
		"plain text":          {fmt.Errorf("w: %w", &server.PlainTextError{}), 2},
		"etcd in plain text":  {fmt.Errorf("w: %w", &kvstore.EndpointError{}), 2},
		"socket missing":      {&run.AgentSocketError{Err: fs.ErrNotExist}, 5},
		"socket refused":      {&run.AgentSocketError{Err: syscall.ECONNREFUSED}, 5},
		"socket not for us":   {&run.AgentSocketError{Err: fs.ErrPermission}, 1},
		"findings":            {exit(ExitFindings, ""), 3},
		"usage":               {usage(&cobra.Command{Use: "x"}, "no"), 2},
		"of the core":         {&allocator.Error{Code: allocator.FailedPrecondition}, 1},
		"time of the command": {context.DeadlineExceeded, 5},
	} {
		if have := report(&bytes.Buffer{}, tt.err); have != tt.code {
			t.Errorf("%s: exit code %d, want %d", name, have, tt.code)
		}
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errors.Join(errors.New("a"), errors.New("b")), "signet: a; b\n"},
		{status.Error(codes.Internal, "it broke"), "signet: it broke\n"},
		{usage(&cobra.Command{Use: "signet"}, "no"), "signet: no; see signet --help\n"},
		{&client.Error{Code: codes.Unavailable, Message: "error reading server preface: EOF"},
			"signet: error reading server preface: EOF; the server may want TLS: give --tls-ca, --tls-cert and --tls-key\n"},
		{exit(ExitUnavailable, "w: %s", withTLSHint("tls: first record does not look like a TLS handshake")),
			"signet: w: tls: first record does not look like a TLS handshake; the server may speak plain text: leave --tls-ca, --tls-cert and --tls-key out\n"},
		{exit(ExitFindings, ""), ""},
	} {
		var b bytes.Buffer
		report(&b, tt.err)
		if b.String() != tt.want {
			t.Errorf("%q, want %q", b.String(), tt.want)
		}
	}
}

func TestSplitLabels(t *testing.T) {
	for _, tt := range []struct {
		in   []string
		want []string
	}{
		{[]string{"k8s:app=web"}, []string{"k8s:app=web"}},
		{[]string{"k8s:app=web,k8s:ns=shop"}, []string{"k8s:app=web", "k8s:ns=shop"}},
		{[]string{"k8s:app=web;k8s:ns=shop;"}, []string{"k8s:app=web", "k8s:ns=shop"}},
		{[]string{"k8s:app=web", "vm:role=db"}, []string{"k8s:app=web", "vm:role=db"}},
		{[]string{"k8s:list=a,b,c"}, []string{"k8s:list=a,b,c"}}, // a value with commas stays whole
		{[]string{"k8s:list=a,b,k8s:x=y"}, []string{"k8s:list=a,b", "k8s:x=y"}},
	} {
		if have := splitLabels(tt.in); !slices.Equal(have, tt.want) {
			t.Errorf("%q: %q, want %q", tt.in, have, tt.want)
		}
	}
}

func FuzzSplitLabels(f *testing.F) {
	f.Add("k8s:app=web,k8s:ns=shop;")
	f.Fuzz(func(t *testing.T, text string) {
		for _, l := range splitLabels([]string{text}) {
			if !strings.Contains(text, l) {
				t.Errorf("%q is not in %q", l, text)
			}
		}
	})
}

// Whatever a user is called, the default holder is one.
func TestHolderName(t *testing.T) {
	for _, name := range []string{"alice", "DOMAIN\\Bob", "", "---", "josé", strings.Repeat("x", 300), "a.b_c", strings.Repeat("-x", 100)} {
		holder := "pin-" + strings.TrimRight(holderName(name), "")
		if _, _, err := allocator.ParseHolder(holder); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// run runs a command line without any network.
func command(args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	root := New(Env{Args: append([]string{"signet"}, args...), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		LookupEnv: func(string) (string, bool) { return "", false }, Version: "v1.2.3", Began: time.Now()})
	root.SetArgs(args)
	code = report(&errs, root.ExecuteContext(context.Background()))
	return out.String(), errs.String(), code
}

func TestVersion(t *testing.T) {
	out, _, code := command("version", "-o", "json")
	if code != 0 || !strings.Contains(out, `"version": "v1.2.3"`) {
		t.Errorf("%d %s", code, out)
	}
	if out, _, code := command("--version"); code != 0 || out != "signet version v1.2.3\n" {
		t.Errorf("%d %s", code, out)
	}
	if out, _, _ := command("version"); !strings.Contains(out, "v1.2.3") {
		t.Error(out)
	}
}

// Every command teaches: it has a short text, and an example unless it is only
// a folder of others; every client command takes the client's options.
func TestEveryCommandTeaches(t *testing.T) {
	eachCommand(New(Env{Args: []string{"signet"}, LookupEnv: os.LookupEnv}), func(c *cobra.Command) {
		if c.Short == "" {
			t.Errorf("%s has no short text", c.CommandPath())
		}
		if !c.HasSubCommands() && c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		if c.Flags().Lookup("server") != nil && c.Name() != "agent" {
			for _, name := range []string{"timeout", "output", "agent-socket", "tls-ca", "tls-cert", "tls-key"} {
				if c.Flags().Lookup(name) == nil {
					t.Errorf("%s lacks --%s", c.CommandPath(), name)
				}
			}
		}
	})
}

// Scripts, units and charts rely on these names.
func TestNamesThatOthersRelyOn(t *testing.T) {
	root := New(Env{Args: []string{"signet"}, LookupEnv: os.LookupEnv})
	for path, names := range map[string]string{
		"operator": "etcd-endpoints etcd-ca etcd-cert etcd-key cluster-name cluster-id max-connected-clusters wide base-prefix presence-ttl election-ttl node-grace identity-grace quarantine forget-after tombstone-retention sweep-interval new-cluster listen metrics-listen wait-timeout tls-ca tls-cert tls-key config",
		"agent":    "etcd-endpoints etcd-ca etcd-cert etcd-key cluster-name base-prefix node-name presence-ttl metrics-listen socket pin-path state-dir wait-timeout tls-ca tls-cert tls-key server config",
		"dev":      "data-dir listen-base output no-agent apply node-grace identity-grace quarantine presence-ttl election-ttl cluster-name cluster-id",
	} {
		c, _, err := root.Find([]string{path})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(names) {
			if c.Flags().Lookup(name) == nil {
				t.Errorf("%s lacks --%s", path, name)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	ready := &view.Operator{Ready: true}
	finding := func(severity string) []view.Finding { return []view.Finding{{Severity: "info"}, {Severity: severity}} }
	for name, tt := range map[string]struct {
		l    look
		want string
		code int
	}{
		"all well":         {look{Status: view.Status{Operator: ready}}, stateOK, 0},
		"a notice":         {look{Status: view.Status{Operator: ready, Findings: finding("info")}}, stateOK, 0},
		"a warning":        {look{Status: view.Status{Operator: ready, Findings: finding("warning")}}, stateDegraded, 3},
		"no agent":         {look{Status: view.Status{Operator: ready}, agentExpected: true}, stateDegraded, 3},
		"agent not ready":  {look{Status: view.Status{Operator: ready, Agent: &view.Agent{}}, agentExpected: true}, stateDegraded, 3},
		"ready, an error":  {look{Status: view.Status{Operator: ready, Findings: finding("error")}}, stateDegraded, 3},
		"agent ready":      {look{Status: view.Status{Operator: ready, Agent: &view.Agent{Ready: true}}, agentExpected: true}, stateOK, 0},
		"not ready":        {look{Status: view.Status{Operator: &view.Operator{}}}, stateDegraded, 3},
		"nobody answers":   {look{Status: view.Status{Findings: finding("error")}}, stateUnavailable, 5},
		"nobody, and more": {look{Status: view.Status{Agent: &view.Agent{Ready: true}, Findings: finding("error")}}, stateUnavailable, 5},
	} {
		tt.l.State = tt.l.judge()
		if tt.l.State != tt.want {
			t.Errorf("%s: %s, want %s", name, tt.l.State, tt.want)
		}
		// Who waited until all is ready is not held up by a warning.
		if waited := tt.l.verdict(true, time.Second); (waited == nil) != (tt.l.ready() && tt.l.worst() != "error") {
			t.Errorf("%s: after --wait: %v", name, waited)
		}
		if err := tt.l.verdict(false, time.Second); (err == nil) != (tt.code == 0) || err != nil && codeOf(err) != tt.code {
			t.Errorf("%s: %v, want code %d", name, err, tt.code)
		}
	}
}

// What cannot be is refused before anybody is asked, with the code of wrong usage.
func TestWrongArgumentsAreUsage(t *testing.T) {
	for line, part := range map[string]string{
		"identity get 99999999999":                     "it does not fit 32 bits",
		"identity get 0":                               "number 0 is no identity",
		"identity get app=web":                         "it names no source",
		"identity release k8s:a=b any:a=c":             "its key is also that of",
		"identity explain 4294967296":                  "it does not fit 32 bits",
		"identity allocate k8s:a=b any:a=c":            "its key is also that of",
		"identity list -l app=(":                       "selector",
		"identity watch -l app=(":                      "selector",
		"endpoint list -l app=(":                       "selector",
		"endpoint put a app=web":                       "it names no source",
		"identity get":                                 "signet: identity get: a number or labels are missing; see signet identity get --help",
		"agent --pod-prefix 10.0.0.0/8 --pod-prefix x": "no address range",
	} {
		if _, errs, code := command(strings.Fields(line)...); code != ExitUsage || !strings.Contains(errs, part) || strings.Contains(errs, "signet: signet") {
			t.Errorf("%s: code %d, %s", line, code, errs)
		}
	}
}

// People are told once that a watch is current, and again after a new snapshot.
func TestWatchTellsCurrentOnce(t *testing.T) {
	var b bytes.Buffer
	s := &session{app: &app{Env{Stdout: &b}}}
	s.opts.output = view.FormatTable
	show := s.eventLines()
	for _, e := range []string{"reset", "current", "current", "upsert", "current", "reset", "current"} {
		event := view.Event{Event: e}
		if e == "upsert" {
			event.Identity = &view.Identity{Number: 7, Labels: []string{"k8s:a=b"}}
		}
		if err := show(event); err != nil {
			t.Fatal(err)
		}
	}
	var have []string
	for _, line := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		have = append(have, strings.Fields(line)[0])
	}
	if want := []string{"reset", "current", "upsert", "reset", "current"}; !slices.Equal(have, want) {
		t.Errorf("%q, want %q", have, want)
	}
}

func TestCommandLine(t *testing.T) {
	if have := commandLine([]string{"a", "b c", "d'e", ""}); have != `a 'b c' 'd'\''e' ''` {
		t.Error(have)
	}
}

// A client waits longer than it takes until another operator leads.
func TestClientsOutlastAFailover(t *testing.T) {
	o := &clientOptions{}
	o.Options()
	operator := &run.Operator{}
	operator.Options()
	if o.timeout <= operator.Graces.Election {
		t.Errorf("--timeout %s, --election-ttl %s", o.timeout, operator.Graces.Election)
	}
}

// Every code of a finding in status stands in the table of docs/operations.md,
// and that table names no other.
func TestFindingsAreDocumented(t *testing.T) {
	const top = "../../../../"
	page, err := os.ReadFile(top + "docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z-]+)` \\|").FindAllSubmatch(page, -1) {
		documented[string(m[1])] = true
	}
	code := regexp.MustCompile(`"([A-Z]+(?:-[A-Z]+)+|RECOVERY)"`)
	used := map[string]bool{}
	for _, dir := range []string{"allocator/operator", "allocator/agent", "cmd/signet/internal/cli"} {
		files, err := filepath.Glob(top + dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, m := range code.FindAllSubmatch(text, -1) {
				used[string(m[1])] = true
			}
		}
	}
	for c := range used {
		if !documented[c] {
			t.Errorf("docs/operations.md does not explain the finding %s", c)
		}
	}
	for c := range documented {
		if !used[c] {
			t.Errorf("docs/operations.md explains %s, and nothing says it", c)
		}
	}
}
