// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const goodCheckpoint = `{"version":1,"cluster":"default","node":"n1","instance":"7d444840-9dc0-11d1-b245-5ffdce74fad2",
"position":{"nonce":"a","counter":3,"revision":12},
"sets":[{"text":"k8s:app=web;","number":1001,"hold":7,"create_revision":6,"counter":3}],
"endpoints":[{"id":"a","text":"k8s:app=web;","k8s_namespace":"shop","named_ports":[{"name":"http","port":80,"protocol":"TCP"}]}],
"addresses":[{"address":"10.244.0.1","endpoint":"a","text":"k8s:app=web;","published":1001,"current":true}]}`

func TestParseCheckpoint(t *testing.T) {
	if _, err := parseCheckpoint([]byte(goodCheckpoint)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ old, new, want string }{
		"cut":                {`"current":true}]}`, ``, "JSON"},
		"unknown version":    {`"version":1`, `"version":2`, "format version 2"},
		"unknown field":      {`"node":"n1"`, `"node":"n1","what":1`, "unknown field"},
		"trailing":           {`"current":true}]}`, `"current":true}]} {}`, "JSON"},
		"bad set":            {`"text":"k8s:app=web;","number"`, `"text":"k8s:app=web","number"`, "malformed"},
		"no number":          {`"number":1001`, `"number":0`, "twice, or with a number"},
		"no id":              {`"id":"a"`, `"id":""`, "no id"},
		"bad endpoint set":   {`"id":"a","text":"k8s:app=web;"`, `"id":"a","text":""`, "endpoint"},
		"no such endpoint":   {`"endpoint":"a"`, `"endpoint":"b"`, "not there"},
		"no such set":        {`"endpoint":"a","text":"k8s:app=web;"`, `"endpoint":"a","text":"k8s:app=api;"`, "not there"},
		"not an address":     {`10.244.0.1`, `10.244.0.1.2`, "not readable"},
		"a mapped address":   {`10.244.0.1`, `::ffff:10.244.0.1`, "is none"},
		"an empty address":   {`10.244.0.1`, ``, "is none"},
		"endpoint without":   {`"endpoint":"a",`, ``, "has no address"},
		"a negative number":  {`"number":1001`, `"number":-1`, "not readable"},
		"number of two sets": {`"sets":[`, `"sets":[{"text":"k8s:app=api;","number":1001},`, "another's"},
	} {
		text := strings.Replace(goodCheckpoint, c.old, c.new, 1)
		_, err := parseCheckpoint([]byte(text))
		var bad *CheckpointError
		if !errors.As(err, &bad) || !strings.Contains(bad.Reason, c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestLoadCheckpoint(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, checkpointFile)
	load := func(text, node string) error {
		t.Helper()
		if err := writeFile(file, []byte(text)); err != nil {
			t.Fatal(err)
		}
		_, err := loadCheckpoint(dir, "default", node)
		return err
	}
	if cp, err := loadCheckpoint(dir, "default", "n1"); cp != nil || err != nil {
		t.Errorf("without a file: %v %v", cp, err)
	}
	if err := load(goodCheckpoint, "n1"); err != nil {
		t.Error(err)
	}
	var bad *CheckpointError
	if err := load(goodCheckpoint, "n2"); !errors.As(err, &bad) || bad.Kept != "" || !strings.Contains(err.Error(), `node "n1"`) {
		t.Errorf("of another node: %v", err)
	}
	if err := load(strings.Replace(goodCheckpoint, `"version":1`, `"version":9`, 1), "n1"); !errors.As(err, &bad) || bad.Kept != "" {
		t.Errorf("of a later version: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("a checkpoint of a later version was moved: %v", err)
	}
	if err := load(goodCheckpoint[:40], "n1"); !errors.As(err, &bad) || bad.Kept != file+".bad" || !strings.Contains(err.Error(), file) {
		t.Errorf("a corrupt one: %v", err)
	}
	if kept, err := os.ReadFile(file + ".bad"); err != nil || string(kept) != goodCheckpoint[:40] {
		t.Errorf("it was not kept: %v", err)
	}
	if cp, err := loadCheckpoint(dir, "default", "n1"); cp != nil || err != nil {
		t.Errorf("the next start: %v %v", cp, err)
	}
}

func FuzzParseCheckpoint(f *testing.F) {
	f.Add([]byte(goodCheckpoint))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(strings.ReplaceAll(goodCheckpoint, "k8s:app=web;", "reserved:init=;")))
	f.Fuzz(func(t *testing.T, data []byte) {
		cp, err := parseCheckpoint(data)
		if err != nil {
			var bad *CheckpointError
			if !errors.As(err, &bad) {
				t.Fatalf("an error of another type: %v", err)
			}
			return
		}
		// What is accepted can be restored, comes to rest and is written as it can be read.
		w := newWorld()
		w.t.restore(cp)
		w.settle()
		again := w.t.checkpoint()
		text, err := json.Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseCheckpoint(text); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if len(w.t.endpoints) != len(cp.Endpoints) || bytes.Contains(text, []byte("null")) {
			t.Fatalf("%d endpoints became %s", len(cp.Endpoints), text)
		}
	})
}
