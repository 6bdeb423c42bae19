// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/signet-identity/signet/allocator/identity"
	"github.com/signet-identity/signet/kvstore"
)

// Options says whose content is judged.
type Options struct {
	Layout kvstore.Layout
	// Space is the cluster's configured number space. The zero Space means:
	// what the store's own cluster record says, or where there is none a
	// cluster of id 0 with 16 local bits. Then nothing can mismatch.
	Space identity.Space
}

// Store judges the content of a store at one revision: the keys under Prefixes
// (others are passed over), each once, in any order. It reads nothing else, so
// equal content gives an equal Report.
func Store(kvs []kvstore.KV, revision int64, o Options) Report {
	return judge(kvs, revision, o).report()
}

// judge is Store with the index that the findings came from.
func judge(kvs []kvstore.KV, revision int64, o Options) *checker {
	c := newChecker(revision, o)
	for _, kv := range kvs {
		if covered(c.prefixes, kv.Key) {
			c.take(kv)
		}
	}
	c.chooseSpace(o.Space)
	c.setOthersAside()
	c.checkRecords()
	c.checkIdentities()
	c.checkReferences()
	c.checkNodes()
	c.checkAddresses()
	return c
}

func (c *checker) report() Report {
	sortFindings(c.findings)
	return Report{
		Revision:   c.revision,
		Keys:       c.keys,
		Identities: len(c.masters),
		References: len(c.references),
		Nodes:      c.presences,
		Addresses:  len(c.addresses),
		Findings:   c.findings,
	}
}

// add notes a finding; severity, invariant and action are those of the code.
func (c *checker) add(code Code, object, format string, args ...any) {
	info := c.codes[code]
	c.findings = append(c.findings, Finding{
		Code: code, Severity: info.Severity, Invariant: info.Invariant,
		Object: object, Text: fmt.Sprintf(format, args...), Action: info.Action,
	})
}
