// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"
)

// The formats of output.
const (
	FormatTable = "table"
	FormatJSON  = "json"
	FormatYAML  = "yaml"
)

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
	return table().write(w)
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
