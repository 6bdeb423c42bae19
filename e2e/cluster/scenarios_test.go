// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	scenarioTest = regexp.MustCompile(`(?m)^func TestScenario_([A-Za-z0-9_]+)`)
	scenarioID   = regexp.MustCompile(`([A-Z])_?([0-9]{2})(?:_|$)`)
	scenarioRow  = regexp.MustCompile(`(?m)^\| ([A-Z]-[0-9]{2}) \| [^|]+ \| ([^|]+) \|$`)
	namedTest    = regexp.MustCompile("`(Test[A-Za-z0-9_]+)(…?)`")
)

// TestScenarios_tableIsTrue compares docs/scenarios.md with the tests there are.
func TestScenarios_tableIsTrue(t *testing.T) {
	root := filepath.Join("..", "..")
	table, err := os.ReadFile(filepath.Join(root, "docs", "scenarios.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, ids := allTests(t, root)
	rows := map[string]bool{}
	for _, m := range scenarioRow.FindAllStringSubmatch(string(table), -1) {
		id, here := m[1], strings.TrimSpace(m[2])
		rows[id] = true
		if strings.HasPrefix(here, "test") && !ids[id] {
			t.Errorf("%s: the table says that there is a test, and there is none", id)
		}
		for _, n := range namedTest.FindAllStringSubmatch(here, -1) {
			if !named(tests, n[1], n[2] != "") {
				t.Errorf("%s: the table names %s, and there is no such test", id, n[1])
			}
		}
	}
	for id := range ids {
		if !rows[id] {
			t.Errorf("there is a test for %s, and the table does not have it", id)
		}
	}
	if len(rows) < 90 {
		t.Errorf("the table has %d rows, fewer than there are scenarios", len(rows))
	}
}

func named(tests []string, name string, prefix bool) bool {
	for _, have := range tests {
		if have == name || prefix && strings.HasPrefix(have, name) {
			return true
		}
	}
	return false
}

var testFunc = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)`)

// allTests lists every test function, and the scenarios that some are named after.
func allTests(t *testing.T, root string) (tests []string, ids map[string]bool) {
	t.Helper()
	ids = map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range testFunc.FindAllStringSubmatch(string(data), -1) {
			tests = append(tests, m[1])
		}
		for _, m := range scenarioTest.FindAllStringSubmatch(string(data), -1) {
			for _, id := range scenarioID.FindAllStringSubmatch(m[1]+"_", -1) {
				ids[id[1]+"-"+id[2]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests, ids
}
