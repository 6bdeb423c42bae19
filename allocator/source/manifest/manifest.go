// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
)

const (
	// MaxFile is the largest file that is read, in bytes.
	MaxFile = 64 << 20
	// MaxPods is the largest number of pods that one call makes.
	MaxPods = 100_000
	// DefaultNamespace is where objects live that name no namespace.
	DefaultNamespace = "default"
	// DefaultServiceAccount is the account of pods that name none.
	DefaultServiceAccount = "default"
	// KeyNamespaceName is the label that Kubernetes gives every namespace.
	KeyNamespaceName = "kubernetes.io/metadata.name"
)

// File is one input: a name for messages and the content.
type File struct {
	Name string
	Data []byte
}

// Origin says where an object stands.
type Origin struct {
	File string
	// Document counts the documents of the file from 1.
	Document int
	// Item counts the items of a List (or workloads of a template list) from 1; 0 outside of one.
	Item int
}

// String is "file, document 2, item 3".
func (o Origin) String() string {
	s := fmt.Sprintf("%s, document %d", o.File, o.Document)
	if o.Item > 0 {
		s += fmt.Sprintf(", item %d", o.Item)
	}
	return s
}

// Owner is the object that a pod was made for; a bare Pod is its own.
type Owner struct{ Kind, Name string }

// Port is a port of a container. Name is empty for most.
type Port struct {
	Name     string
	Protocol string // TCP, UDP or SCTP
	Number   uint16
}

// Pod is one replica of a workload.
type Pod struct {
	Namespace string
	// Name is unique within the namespace and the same each time the same
	// files are read.
	Name           string
	ServiceAccount string
	Owner          Owner
	// Labels are the pod's own, with those that its controller adds.
	Labels map[string]string
	Ports  []Port
	// PodIPs are the addresses that a Pod's status says it has; none for pods
	// that a controller will make.
	PodIPs []netip.Addr
	Origin Origin
}

// Skip names an object that was not used, and why.
type Skip struct {
	Origin          Origin
	Kind            string
	Namespace, Name string
	Reason          string
}

// String is the sentence for people.
func (s Skip) String() string {
	return fmt.Sprintf("%s: %s skipped: %s", s.Origin, s.Object(), s.Reason)
}

// Object names what was skipped, also when it has no kind or no name.
func (s Skip) Object() string {
	kind, name := s.Kind, s.Name
	if kind == "" {
		kind = "object"
	}
	switch {
	case name == "" && s.Namespace != "":
		return kind + " without a name, in namespace " + s.Namespace
	case name == "":
		return kind + " without a name"
	case s.Namespace != "":
		name = s.Namespace + "/" + name
	}
	return kind + " " + name
}

// Result is what all files together describe.
type Result struct {
	// Pods are in the order of the files and of the objects in them.
	Pods []Pod
	// Namespaces maps the namespaces that the files describe to their labels.
	Namespaces map[string]map[string]string
	// Workloads is the number of objects that Pods were made for.
	Workloads int
	Skipped   []Skip
}

// NamespaceLabels returns the labels of a namespace as Kubernetes would keep
// them: those that the files give it, and its name under KeyNamespaceName.
func (r Result) NamespaceLabels(namespace string) map[string]string {
	own := maps.Clone(r.Namespaces[namespace])
	if own == nil {
		own = make(map[string]string, 1)
	}
	own[KeyNamespaceName] = namespace
	return own
}

// Error says that a file cannot be read at all.
type Error struct {
	Origin Origin
	Reason string
}

// Error names file, document and reason.
func (e *Error) Error() string { return e.Origin.String() + ": " + e.Reason }

// Parse reads one file. See ParseFiles.
func Parse(r io.Reader, name string) (Result, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return Result{}, fmt.Errorf("read %s: %w", name, err)
	}
	return ParseFiles(File{Name: name, Data: data})
}

// ParseFiles reads files as one: a namespace's labels hold for the pods of all
// of them, and an object that stands twice counts once, as last written. A file
// that is neither YAML nor JSON, or too large, fails the whole call with
// *Error; an object that cannot be used is in Result.Skipped.
func ParseFiles(files ...File) (Result, error) {
	c := newCollector()
	for _, f := range files {
		if len(f.Data) > MaxFile {
			return Result{}, &Error{Origin: Origin{File: f.Name, Document: 1}, Reason: fmt.Sprintf("the file is larger than %d MiB", MaxFile>>20)}
		}
		if err := c.file(f); err != nil {
			return Result{}, err
		}
	}
	return c.result()
}
