// SPDX-License-Identifier: Apache-2.0

package check

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the list of codes into docs/check.md")

const (
	docsPath  = "../../docs/check.md"
	listBegin = "<!-- codes: begin -->\n"
	listEnd   = "<!-- codes: end -->\n"
)

// table is the documented list of codes.
func table() string {
	var b strings.Builder
	repairs := map[Code]Repair{}
	for _, r := range Repairs() {
		repairs[r.Code] = r
	}
	b.WriteString("| code | severity | invariant | what it means | what to do | signet repair |\n|---|---|---|---|---|---|\n")
	for _, c := range Codes() {
		r := repairs[c.Code]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | **%s**: %s |\n", c.Code, c.Severity, c.Invariant, c.Meaning, c.Action, r.Mode, r.Text)
	}
	return b.String()
}

func TestDocsListTheCodes(t *testing.T) {
	data, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), listBegin)
	list, after, ok2 := strings.Cut(rest, listEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the list", docsPath)
	}
	if list == table() {
		return
	}
	if !*update {
		t.Fatalf("%s does not list the codes as they are; run go test ./allocator/check -run Docs -update", docsPath)
	}
	if err := os.WriteFile(docsPath, []byte(before+listBegin+table()+listEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCodesAreWellFormed(t *testing.T) {
	form := regexp.MustCompile(`^[A-Z]+(-[A-Z]+)*$`)
	seen := map[Code]bool{}
	for _, c := range Codes() {
		if !form.MatchString(string(c.Code)) || seen[c.Code] {
			t.Errorf("the code %q is malformed or there twice", c.Code)
		}
		seen[c.Code] = true
		if c.Severity < Info || c.Severity > Error || !strings.HasSuffix(c.Meaning, ".") || !strings.HasSuffix(c.Action, ".") || strings.Contains(c.Meaning+c.Action, "|") {
			t.Errorf("%s lacks something: %+v", c.Code, c)
		}
	}
}
