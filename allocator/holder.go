// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"strings"
)

// HolderKind says what keeps a holder's references alive (DESIGN.md section 4).
type HolderKind uint8

// The kinds of holders.
const (
	// HolderNode is a node with a presence of its own.
	HolderNode HolderKind = iota + 1
	// HolderKubernetes is k8s.<node>: the Kubernetes API says whether it is needed.
	HolderKubernetes
	// HolderPin is pin-<name>: stays until released.
	HolderPin
)

const (
	pinPrefix = "pin-"
	k8sPrefix = "k8s."
	maxName   = 253
	maxLabel  = 63
)

// ParseHolder tells a holder's kind and the node or pin name in it. The error
// is an *Error with code InvalidArgument.
func ParseHolder(holder string) (HolderKind, string, error) {
	kind, name := HolderNode, holder
	switch {
	case strings.HasPrefix(holder, pinPrefix):
		kind, name = HolderPin, holder[len(pinPrefix):]
	case strings.HasPrefix(holder, k8sPrefix):
		kind, name = HolderKubernetes, holder[len(k8sPrefix):]
	}
	if err := checkName(name); err != nil {
		return 0, "", &Error{Code: InvalidArgument, Field: holder, Message: fmt.Sprintf(
			"holder %q is none: %v; use a node's name, %s<node> or %s<name>", holder, err, k8sPrefix, pinPrefix)}
	}
	return kind, name, nil
}

// CheckNode refuses what cannot be a node's name: anything but an RFC 1123
// subdomain, and names with a holder's prefix. The error is an *Error with code InvalidArgument.
func CheckNode(node string) error {
	err := checkName(node)
	if err == nil && (strings.HasPrefix(node, pinPrefix) || strings.HasPrefix(node, k8sPrefix)) {
		err = fmt.Errorf("the prefixes %s and %s are taken", pinPrefix, k8sPrefix)
	}
	if err != nil {
		return &Error{Code: InvalidArgument, Field: node, Message: fmt.Sprintf("node name %q is none: %v", node, err)}
	}
	return nil
}

// checkName accepts RFC 1123 subdomains: labels of lower-case letters, digits
// and dashes, at most 63 bytes each and 253 in all, joined by dots.
func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("it is empty")
	}
	if len(name) > maxName {
		return fmt.Errorf("it is longer than %d bytes", maxName)
	}
	for _, label := range strings.Split(name, ".") {
		if label == "" || len(label) > maxLabel {
			return fmt.Errorf("each part between dots must have 1 to %d bytes", maxLabel)
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("a part may not begin or end with a dash")
		}
		for i := 0; i < len(label); i++ {
			c := label[i]
			if c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
				return fmt.Errorf("only lower-case letters, digits, dashes and dots are allowed")
			}
		}
	}
	return nil
}
