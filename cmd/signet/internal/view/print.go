// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"
)

// The formats of output.
const (
	FormatTable = "table"
	FormatWide  = "wide" // a table that shortens nothing
	FormatJSON  = "json"
	FormatYAML  = "yaml"
)

// IsTable reports whether a format is for people.
func IsTable(format string) bool { return format == FormatTable || format == FormatWide }

// Table is what people see: a heading and rows, or lines of text.
type Table struct {
	Heading []string
	Rows    [][]string
	// Empty is said instead when there are no rows.
	Empty string
}

// Print writes v in a format; table makes the table when it is wanted.
func Print(w io.Writer, format string, v any, table func() Table) error {
	switch format {
	case FormatJSON:
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(v)
	case FormatYAML:
		data, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	t := table()
	if format != FormatWide {
		t.shorten()
	}
	return t.write(w)
}

// headingLabels is above a column of label sets.
const headingLabels = "LABELS"

// shorten cuts label sets to what a screen has room for.
func (t Table) shorten() {
	at := slices.Index(t.Heading, headingLabels)
	for i, row := range t.Rows {
		if at >= 0 && at < len(row) {
			t.Rows[i] = slices.Clone(row)
			t.Rows[i][at] = Short(row[at])
		}
	}
}

// shortWidth is how many characters of a label set a table shows.
const shortWidth = 60

// Short is a label set of at most shortWidth characters: whole labels as far as
// they fit, and … for the rest.
func Short(text string) string {
	runes := []rune(text)
	if len(runes) <= shortWidth {
		return text
	}
	cut := string(runes[:shortWidth-2])
	if runes[shortWidth-2] != ' ' {
		if at := strings.LastIndex(cut, " "); at > 0 {
			return cut[:at] + " …"
		}
		return string(runes[:shortWidth-1]) + "…"
	}
	return cut + " …"
}

func (t Table) write(w io.Writer) error {
	if len(t.Rows) == 0 && t.Empty != "" {
		_, err := fmt.Fprintln(w, t.Empty)
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(t.Heading) > 0 {
		fmt.Fprintln(tw, strings.Join(t.Heading, "\t"))
	}
	for _, row := range t.Rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// Line writes v as one line of JSON, or as one YAML document.
func Line(w io.Writer, format string, v any) error {
	if format == FormatYAML {
		data, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "---\n%s", data)
		return err
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
