// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/allocator/labels"
)

// checkpointVersion is the format that this code reads and writes.
const checkpointVersion = 1

const checkpointFile = "checkpoint.json"

// checkpoint is what an agent remembers over a restart: JSON, snake_case.
type checkpoint struct {
	Version  int    `json:"version"`
	Cluster  string `json:"cluster"`
	Node     string `json:"node"`
	Instance string `json:"instance"`
	// Position is how far the agent had applied the store.
	Position  allocator.Position   `json:"position"`
	Sets      []checkpointSet      `json:"sets"`
	Endpoints []checkpointEndpoint `json:"endpoints"`
	Addresses []checkpointAddress  `json:"addresses"`
}

// checkpointSet is one reference of the node.
type checkpointSet struct {
	Text           string          `json:"text"`
	Number         identity.Number `json:"number"`
	Hold           int64           `json:"hold"`
	CreateRevision int64           `json:"create_revision"`
	Counter        uint64          `json:"counter"`
}

// checkpointEndpoint is one endpoint as it was last put.
type checkpointEndpoint struct {
	ID                string      `json:"id"`
	Text              string      `json:"text"`
	K8sNamespace      string      `json:"k8s_namespace,omitempty"`
	K8sPodName        string      `json:"k8s_pod_name,omitempty"`
	K8sServiceAccount string      `json:"k8s_service_account,omitempty"`
	NamedPorts        []namedPort `json:"named_ports,omitempty"`
}

type namedPort struct {
	Name     string `json:"name"`
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`
}

// checkpointAddress is one address of the node, its endpoint (empty: on its
// way out), the label set whose number is in force for it (empty: none yet),
// and the number under which it stands in the store (0: it does not).
type checkpointAddress struct {
	Address   netip.Addr      `json:"address"`
	Endpoint  string          `json:"endpoint,omitempty"`
	Text      string          `json:"text,omitempty"`
	Published identity.Number `json:"published,omitempty"`
	// Current: what is published says what the endpoint says.
	Current bool `json:"current,omitempty"`
}

// CheckpointError says that the checkpoint cannot be used.
type CheckpointError struct {
	File   string
	Reason string
	// Kept is where the file was moved to; empty: it was left where it is.
	Kept string
}

// Error names the file, the reason and the way out.
func (e *CheckpointError) Error() string {
	if e.Kept != "" {
		return fmt.Sprintf("checkpoint %s: %s; it was kept as %s: put a good copy in its place, or start again without one (endpoints then have to be put again)",
			e.File, e.Reason, e.Kept)
	}
	return fmt.Sprintf("checkpoint %s: %s", e.File, e.Reason)
}

// parseCheckpoint reads a checkpoint and checks that it is sound in itself, so
// that restoring it cannot fail. The error is a *CheckpointError.
func parseCheckpoint(data []byte) (*checkpoint, error) {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, corrupt("it is not readable as JSON: %v", err)
	}
	if version.Version != checkpointVersion {
		return nil, &CheckpointError{Reason: fmt.Sprintf(
			"it has format version %d and this agent knows %d; start the agent that wrote it, or move the file away to begin without one",
			version.Version, checkpointVersion)}
	}
	cp := &checkpoint{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(cp); err != nil {
		return nil, corrupt("it is not readable: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, corrupt("something follows its end")
	}
	return cp, cp.check()
}

func corrupt(format string, args ...any) error {
	return &CheckpointError{Reason: fmt.Sprintf(format, args...), Kept: ".bad"}
}

// check looks for what the writer never writes.
func (cp *checkpoint) check() error {
	sets := make(map[string]bool)
	numbers := make(map[identity.Number]bool)
	for _, s := range cp.Sets {
		if _, err := labels.ParseText(s.Text); err != nil {
			return corrupt("a label set is malformed: %v", err)
		}
		if sets[s.Text] || s.Number == 0 || numbers[s.Number] {
			return corrupt("label set %s stands there twice, or with a number that is none or another's", labels.Quote(s.Text))
		}
		sets[s.Text], numbers[s.Number] = true, true
	}
	ids := make(map[string]bool)
	for _, e := range cp.Endpoints {
		if _, err := labels.ParseText(e.Text); err != nil {
			return corrupt("endpoint %q: %v", e.ID, err)
		}
		if e.ID == "" || ids[e.ID] {
			return corrupt("endpoint %q stands there twice or has no id", e.ID)
		}
		ids[e.ID] = true
	}
	return cp.checkAddresses(sets, ids)
}

func (cp *checkpoint) checkAddresses(sets, ids map[string]bool) error {
	addrs := make(map[netip.Addr]bool)
	owning := make(map[string]bool)
	for _, a := range cp.Addresses {
		if !a.Address.IsValid() || a.Address.Zone() != "" || a.Address.Is4In6() || addrs[a.Address] {
			return corrupt("address %s is none, or stands there twice", a.Address)
		}
		addrs[a.Address] = true
		if a.Endpoint != "" && !ids[a.Endpoint] {
			return corrupt("address %s names endpoint %q, which is not there", a.Address, a.Endpoint)
		}
		if a.Text != "" && !sets[a.Text] && !reservedText(a.Text) {
			return corrupt("address %s names label set %s, which is not there", a.Address, labels.Quote(a.Text))
		}
		owning[a.Endpoint] = true
	}
	for id := range ids {
		if !owning[id] {
			return corrupt("endpoint %q has no address", id)
		}
	}
	return nil
}

func reservedText(text string) bool {
	ls, err := labels.ParseText(text)
	if err != nil {
		return false
	}
	_, ok := identity.ReservedForLabels(ls)
	return ok
}

// loadCheckpoint reads the checkpoint of a state folder; nil when there is
// none. A corrupt one is moved aside. The error is a *CheckpointError or one of
// the file system.
func loadCheckpoint(dir, cluster, node string) (*checkpoint, error) {
	file := filepath.Join(dir, checkpointFile)
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cp, err := parseCheckpoint(data)
	var bad *CheckpointError
	if errors.As(err, &bad) {
		bad.File = file
		if bad.Kept != "" {
			bad.Kept = file + ".bad"
			return nil, errors.Join(bad, os.Rename(file, bad.Kept))
		}
		return nil, bad
	}
	if cp.Cluster != cluster || cp.Node != node {
		return nil, &CheckpointError{File: file, Reason: fmt.Sprintf(
			"it belongs to node %q of cluster %q, and this is node %q of cluster %q; give this agent a state folder of its own",
			cp.Node, cp.Cluster, node, cluster)}
	}
	return cp, nil
}

// writeFile replaces a file so that after a crash either the old or the new
// content is there whole.
func writeFile(file string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // fails once it is renamed
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), file); err != nil {
		return err
	}
	return syncDir(filepath.Dir(file))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
