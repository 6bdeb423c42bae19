// SPDX-License-Identifier: Apache-2.0

package option

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

type settings struct {
	name     string
	servers  []string
	grace    time.Duration
	id, size uint32
	wide     bool
	prefixes []netip.Prefix
	addrs    []netip.Addr
	level    string
}

func table(s *settings) *Table {
	t := &Table{}
	t.String(&s.name, "cluster-name", "default", "a name", "the name")
	t.Strings(&s.servers, "server", "a:1", "host:port", "the servers")
	t.Duration(&s.grace, "node-grace", 15*time.Minute, 0, time.Hour, "the grace")
	t.Uint32(&s.id, "cluster-id", 0, 0, 511, "the id")
	t.ChoiceUint32(&s.size, "size", 255, "the size", 255, 511)
	t.Bool(&s.wide, "wide", false, "wide")
	t.Prefixes(&s.prefixes, "pod-prefix", "10.244.0.0/16", "prefixes")
	t.Addresses(&s.addrs, "node-address", "", "addresses")
	t.Choice(&s.level, "log-level", "info", "the level", "info", "warn")
	t.String(new(string), "config", "", "a file", "the file").NotInFile()
	return t
}

// resolve gives flags, variables and a file, as a command would.
func resolve(t *testing.T, flags []string, env map[string]string, file string) (settings, *Table, error) {
	t.Helper()
	var s settings
	tab := table(&s)
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	tab.AddFlags(fs)
	if err := fs.Parse(flags); err != nil {
		return s, tab, err
	}
	f := File{}
	if file != "" {
		f.Path = filepath.Join(t.TempDir(), "signet.yaml")
		if err := os.WriteFile(f.Path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := tab.Resolve(func(name string) (string, bool) { v, ok := env[name]; return v, ok }, f)
	return s, tab, err
}

func TestPrecedence(t *testing.T) {
	const file = "node-grace: 3m\nserver: [f:1, f:2]\nwide: true\n"
	env := map[string]string{"SIGNET_NODE_GRACE": "2m", "SIGNET_SERVER": "e:1,e:2", "SIGNET_CLUSTER_NAME": ""}
	for name, tt := range map[string]struct {
		flags  []string
		env    map[string]string
		file   string
		grace  time.Duration
		server string
		wide   bool
	}{
		"default":                         {grace: 15 * time.Minute, server: "a:1"},
		"file":                            {file: file, grace: 3 * time.Minute, server: "f:1,f:2", wide: true},
		"variable":                        {file: file, env: env, grace: 2 * time.Minute, server: "e:1,e:2", wide: true},
		"flag":                            {file: file, env: env, flags: []string{"--node-grace=1m", "--server=g:1", "--server=g:2,g:3"}, grace: time.Minute, server: "g:1,g:2,g:3", wide: true},
		"flag turned off":                 {file: file, flags: []string{"--wide=false"}, grace: 3 * time.Minute, server: "f:1,f:2"},
		"flag stands alone":               {flags: []string{"--wide"}, grace: 15 * time.Minute, server: "a:1", wide: true},
		"flag back to the default counts": {env: env, flags: []string{"--node-grace=15m"}, grace: 15 * time.Minute, server: "e:1,e:2"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, err := resolve(t, tt.flags, tt.env, tt.file)
			if err != nil {
				t.Fatal(err)
			}
			if s.grace != tt.grace || strings.Join(s.servers, ",") != tt.server || s.wide != tt.wide || s.name != "default" {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestGiven(t *testing.T) {
	_, tab, err := resolve(t, []string{"--wide"}, map[string]string{"SIGNET_CLUSTER_ID": "7"}, "log-level: warn\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range tab.Options() {
		want := slices.Contains([]string{"wide", "cluster-id", "log-level"}, o.Name)
		if tab.Given(o.Name) != want {
			t.Errorf("%s: given is %v", o.Name, !want)
		}
	}
}

func TestBadFiles(t *testing.T) {
	for name, tt := range map[string]struct{ file, where, key, reason, legal string }{
		"unknown key":          {"a: 1\n", ":1", "a", "no such option", "cluster-name"},
		"not of the file":      {"config: x\n", ":1", "config", "no such option", ""},
		"twice":                {"wide: true\nwide: true\n", ":2", "wide", "it stands there twice", ""},
		"no time":              {"# graces\nnode-grace: 5 minutes\n", ":2", "node-grace", `"5 minutes" is no time`, "15m"},
		"out of range":         {"node-grace: 2h\n", ":1", "node-grace", "out of range", "1h"},
		"number out of range":  {"cluster-id: 512\n", ":1", "cluster-id", "512 is out of range", "0 to 511"},
		"no number":            {"cluster-id: one\n", ":1", "cluster-id", `"one" is no whole number`, "0 to 511"},
		"no choice":            {"log-level: loud\n", ":1", "log-level", `"loud" is none`, "info, warn"},
		"no number of choices": {"size: 256\n", ":1", "size", "none of the choices", "255, 511"},
		"no bool":              {"wide: maybe\n", ":1", "wide", "neither true nor false", "true or false"},
		"no prefix":            {"pod-prefix: [10.0.0.0]\n", ":1", "pod-prefix", "no address range", "10.244.0.0/16"},
		"host bits":            {"pod-prefix: 10.0.0.1/8\n", ":1", "pod-prefix", "its range is 10.0.0.0/8", ""},
		"no address":           {"node-address: [x]\n", ":1", "node-address", "no address", ""},
		"null":                 {"node-grace:\n", ":1", "node-grace", "no value", ""},
		"a mapping":            {"server: {a: b}\n", ":1", "server", "neither a plain value nor a list", ""},
		"a nested list":        {"server: [[a]]\n", ":1", "server", "no plain value", ""},
		"a list":               {"- a\n", ":1", "", "no mapping", ""},
		"not YAML":             {"a: [\n", "", "", "it is not YAML", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := resolve(t, nil, nil, tt.file)
			var bad *Error
			if !errors.As(err, &bad) {
				t.Fatalf("%v", err)
			}
			if !strings.HasSuffix(bad.Where, "signet.yaml"+tt.where) || bad.Key != tt.key {
				t.Errorf("where %q, key %q", bad.Where, bad.Key)
			}
			for _, part := range []string{tt.reason, tt.legal, tt.key} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in: %v", part, err)
				}
			}
		})
	}
}

func TestBadVariableIsNamed(t *testing.T) {
	_, _, err := resolve(t, nil, map[string]string{"SIGNET_LOG_LEVEL": "loud"}, "")
	var bad *Error
	if !errors.As(err, &bad) || bad.Where != "environment variable SIGNET_LOG_LEVEL" || bad.Key != "log-level" {
		t.Fatalf("%v", err)
	}
	// A flag makes the variable not count, good or bad.
	if _, _, err := resolve(t, []string{"--log-level=warn"}, map[string]string{"SIGNET_LOG_LEVEL": "loud"}, ""); err != nil {
		t.Error(err)
	}
}

func TestBadFlagNamesWhatIsLegal(t *testing.T) {
	_, _, err := resolve(t, []string{"--size=1"}, nil, "")
	if err == nil || !strings.Contains(err.Error(), "legal: 255, 511") {
		t.Fatalf("%v", err)
	}
}

func TestFileThatIsNotThere(t *testing.T) {
	var s settings
	none := func(string) (string, bool) { return "", false }
	path := filepath.Join(t.TempDir(), "none.yaml")
	if err := table(&s).Resolve(none, File{Path: path, Optional: true}); err != nil {
		t.Error(err)
	}
	err := table(&s).Resolve(none, File{Path: path})
	if err == nil || !strings.Contains(err.Error(), path+": it cannot be read: no such file") {
		t.Error(err)
	}
	if err := table(&s).Resolve(none, File{Path: t.TempDir()}); err == nil {
		t.Error("a folder was read")
	}
}

func TestEmptyFiles(t *testing.T) {
	for _, file := range []string{"# nothing\n", "---\n", "null\n"} {
		if s, _, err := resolve(t, nil, nil, file); err != nil || s.name != "default" {
			t.Errorf("%q: %v", file, err)
		}
	}
}

// What an option shows is what it takes.
func TestStringsAreReadBack(t *testing.T) {
	s, tab, err := resolve(t, []string{"--pod-prefix=10.0.0.0/8,2001:db8::/64", "--node-address=10.0.0.7,::1", "--node-grace=90s", "--server=a:1,b:2"}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.prefixes) != 2 || len(s.addrs) != 2 {
		t.Fatalf("%+v", s)
	}
	for _, o := range tab.Options() {
		before := o.Value.String()
		if err := o.Value.Set(before); err != nil || o.Value.String() != before {
			t.Errorf("%s: %q is read back as %q, %v", o.Name, before, o.Value, err)
		}
		if o.Legal() == "" || o.Help == "" || o.Type() == "" {
			t.Errorf("%s: help, type or legal values are missing", o.Name)
		}
	}
}

// A flag that is repeated adds to every kind of list. The first use replaces
// the default; a variable or a file does not count then.
func TestRepeatedFlagsAdd(t *testing.T) {
	s, _, err := resolve(t, []string{"--pod-prefix=10.1.0.0/16", "--pod-prefix=10.2.0.0/16,10.3.0.0/16", "--node-address=10.0.0.7", "--node-address=::1",
		"--server=a:1", "--server=b:2"}, map[string]string{"SIGNET_POD_PREFIX": "10.9.0.0/16"}, "node-address: [10.9.9.9]\n")
	if err != nil {
		t.Fatal(err)
	}
	for have, want := range map[string]string{
		Join(s.prefixes): "10.1.0.0/16,10.2.0.0/16,10.3.0.0/16", Join(s.addrs): "10.0.0.7,::1", strings.Join(s.servers, ","): "a:1,b:2",
	} {
		if have != want {
			t.Errorf("%s, want %s", have, want)
		}
	}
	if _, _, err := resolve(t, []string{"--pod-prefix=10.1.0.0/16", "--pod-prefix=x"}, nil, ""); err == nil || !strings.Contains(err.Error(), "legal: address ranges") {
		t.Errorf("the second one is wrong: %v", err)
	}
}

func TestTwoOptionsOfOneNamePanic(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	tab := &Table{}
	tab.Bool(new(bool), "a", false, "")
	tab.Bool(new(bool), "a", false, "")
}

func FuzzFile(f *testing.F) {
	f.Add("node-grace: 5m\nserver: [a, b]\n")
	f.Add("a: &x [1]\nserver: *x\n")
	f.Add("server: &a [*a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var s settings
		err := table(&s).Resolve(func(string) (string, bool) { return "", false }, File{Path: path})
		var bad *Error
		if err != nil && !errors.As(err, &bad) {
			t.Errorf("untyped: %v", err)
		}
	})
}
