// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
)

// document is one document of a file as JSON.
type document struct {
	origin Origin
	json   []byte
}

// split returns the documents of a file that hold something. JSON texts may
// follow each other without a separator; YAML documents are separated by "---".
func split(f File) ([]document, error) {
	data := bytes.TrimPrefix(f.Data, []byte("\xef\xbb\xbf"))
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '{' {
		if docs, err := splitJSON(f.Name, trimmed); err == nil {
			return docs, nil
		}
	}
	return splitYAML(f.Name, data)
}

func splitJSON(name string, data []byte) ([]document, error) {
	var docs []document
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, err
		}
		docs = append(docs, document{origin: Origin{File: name, Document: len(docs) + 1}, json: raw})
	}
}

func splitYAML(name string, data []byte) ([]document, error) {
	var docs []document
	for i, text := range splitMarkers(data) {
		if blank(text) {
			continue
		}
		origin := Origin{File: name, Document: i + 1}
		converted, err := yaml.YAMLToJSON(text)
		if err != nil {
			return nil, &Error{Origin: origin, Reason: notYAML(text, err)}
		}
		switch converted[0] {
		case '{':
			docs = append(docs, document{origin: origin, json: converted})
		case 'n': // null: comments only
		default:
			return nil, &Error{Origin: origin, Reason: "it is not a Kubernetes object; a manifest is a mapping with apiVersion and kind"}
		}
	}
	return docs, nil
}

func notYAML(text []byte, err error) string {
	reason := fmt.Sprintf("it is neither YAML nor JSON: %v", err)
	if bytes.Contains(text, []byte("{{")) {
		reason += "; it looks like a template, render it first"
	}
	return reason
}

// splitMarkers cuts at lines that start with "---".
func splitMarkers(data []byte) [][]byte {
	parts := [][]byte{nil}
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte("---")); ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0) {
			parts = append(parts, nil)
			line = rest
		}
		last := len(parts) - 1
		parts[last] = append(parts[last], line...)
	}
	if blank(parts[0]) && len(parts) > 1 {
		parts = parts[1:] // nothing before the first marker is no document
	}
	return parts
}

// blank reports whether text holds only white space and comments.
func blank(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}
