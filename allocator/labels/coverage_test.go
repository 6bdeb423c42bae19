// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The table of testdata/README.md names each group of vectors once, and the
// packages it names do run the groups they are said to run.
func TestEveryVectorGroupHasAPlace(t *testing.T) {
	place := readPlaces(t)
	groups := map[string]bool{}
	vectors := readVectors(t)
	for _, v := range vectors {
		groups[v.Group] = true
		if place[v.Group] == "" {
			t.Errorf("group %q stands nowhere in the table", v.Group)
		}
	}
	if len(vectors) != 348 {
		t.Errorf("%d vectors, want 348", len(vectors))
	}
	for group, where := range place {
		if !groups[group] {
			t.Errorf("the table names %q, which is no group", group)
		}
		switch where {
		case "later", "by construction":
		default:
			if !runs(t, where, group) {
				t.Errorf("no test of %s names the group %q", where, group)
			}
		}
	}
}

func readPlaces(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	place := map[string]string{}
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "-") || strings.TrimSpace(cells[1]) == "group" {
			continue
		}
		group := strings.TrimSpace(cells[1])
		if place[group] != "" {
			t.Errorf("the table names %q twice", group)
		}
		place[group] = strings.TrimSpace(cells[2])
	}
	return place
}

// runs reports whether a test file of the package speaks of the group.
func runs(t *testing.T, pkg, group string) bool {
	t.Helper()
	files, err := filepath.Glob("../../" + pkg + "/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("package %s: %v, %d test files", pkg, err, len(files))
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), `"`+group+`"`) {
			return true
		}
	}
	return false
}
