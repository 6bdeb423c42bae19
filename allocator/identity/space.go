// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strconv"

	"github.com/signet-identity/signet/allocator/labels"
)

const (
	// DefaultClusterName is the name of a cluster that has none of its own.
	DefaultClusterName = "default"
	// MaxClusters and MaxClustersExtended are the two sizes a mesh can have.
	MaxClusters         uint32 = 255
	MaxClustersExtended uint32 = 511
	// MaxClusterName is the longest cluster name in bytes.
	MaxClusterName = 32
	// globalBits is the width of a number without its scope.
	globalBits = 24
)

// Space is the part of the number space that belongs to one cluster. Make one
// with NewSpace; it is decided once in the life of a cluster.
type Space struct {
	ClusterName string
	// ClusterID is 0 for a cluster that joins no mesh.
	ClusterID uint32
	// MaxConnectedClusters is 255 (16 local bits) or 511 (15 local bits).
	MaxConnectedClusters uint32
	// Wide gives a cluster that joins no mesh 24 local bits.
	Wide bool
}

// SpaceError is the refusal of a cluster's name, id or size.
type SpaceError struct {
	Field  string // "cluster-name", "cluster-id", "max-connected-clusters" or "wide"
	Value  string
	Reason string
}

// Error names the setting, its value and what is legal.
func (e *SpaceError) Error() string {
	return fmt.Sprintf("%s %s: %s", e.Field, labels.Quote(e.Value), e.Reason)
}

// NewSpace checks the settings and returns the cluster's space. An empty name
// means "default", a size of 0 means 255. The error joins one *SpaceError for
// each setting at fault.
func NewSpace(clusterName string, clusterID, maxConnectedClusters uint32, wide bool) (Space, error) {
	if clusterName == "" {
		clusterName = DefaultClusterName
	}
	if maxConnectedClusters == 0 {
		maxConnectedClusters = MaxClusters
	}
	s := Space{ClusterName: clusterName, ClusterID: clusterID, MaxConnectedClusters: maxConnectedClusters, Wide: wide}
	sizeErr := CheckMaxConnectedClusters(maxConnectedClusters)
	var idErr error
	if sizeErr == nil {
		idErr = checkClusterID(clusterName, clusterID, maxConnectedClusters)
	}
	var wideErr error
	if wide && clusterID != 0 {
		wideErr = &SpaceError{Field: "wide", Value: "true", Reason: fmt.Sprintf(
			"a wide cluster uses the bits of the cluster id for itself and joins no mesh; set cluster-id 0 instead of %d, or drop wide", clusterID)}
	}
	if err := errors.Join(CheckClusterName(clusterName), sizeErr, idErr, wideErr); err != nil {
		return Space{}, err
	}
	return s, nil
}

// CheckClusterName refuses, with *SpaceError, names that are not 1 to 32
// lower-case letters, digits and "-" with a letter or digit at both ends.
func CheckClusterName(name string) error {
	refuse := func(reason string) error {
		return &SpaceError{Field: "cluster-name", Value: name, Reason: reason}
	}
	if name == "" || len(name) > MaxClusterName {
		return refuse(fmt.Sprintf("it has to be 1 to %d characters long", MaxClusterName))
	}
	for i := range len(name) {
		if c := name[i]; !isAlphanumeric(c) && c != '-' {
			return refuse(`only lower-case letters, digits and "-" are allowed`)
		}
	}
	if !isAlphanumeric(name[0]) || !isAlphanumeric(name[len(name)-1]) {
		return refuse("it has to start and end with a letter or digit")
	}
	return nil
}

func isAlphanumeric(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

// CheckMaxConnectedClusters refuses, with *SpaceError, every size but 255 and 511.
func CheckMaxConnectedClusters(size uint32) error {
	if size == MaxClusters || size == MaxClustersExtended {
		return nil
	}
	return &SpaceError{Field: "max-connected-clusters", Value: strconv.FormatUint(uint64(size), 10),
		Reason: fmt.Sprintf("only %d and %d are allowed", MaxClusters, MaxClustersExtended)}
}

func checkClusterID(name string, id, size uint32) error {
	if id > size {
		return clusterIDRange(strconv.FormatUint(uint64(id), 10), size)
	}
	if id != 0 && name == DefaultClusterName {
		return &SpaceError{Field: "cluster-id", Value: strconv.FormatUint(uint64(id), 10), Reason: fmt.Sprintf(
			"the name %q cannot have an id other than 0; give the cluster a name of its own", DefaultClusterName)}
	}
	return nil
}

func clusterIDRange(value string, size uint32) error {
	return &SpaceError{Field: "cluster-id", Value: value, Reason: fmt.Sprintf(
		"the legal range is 0 to %d (0: joins no mesh)", size)}
}

// ParseClusterID reads a cluster id for a mesh of that size; everything outside
// 0 to size is refused with *SpaceError, which names the legal range.
func ParseClusterID(s string, maxConnectedClusters uint32) (uint32, error) {
	id, err := strconv.ParseUint(s, 10, 32)
	if err != nil || id > uint64(maxConnectedClusters) {
		return 0, clusterIDRange(s, maxConnectedClusters)
	}
	return uint32(id), nil
}

// CheckMesh refuses, with *SpaceError, a space that cannot join a mesh: one of
// cluster id 0.
func (s Space) CheckMesh() error {
	if s.ClusterID == 0 {
		return &SpaceError{Field: "cluster-id", Value: "0", Reason: fmt.Sprintf(
			"a cluster in a mesh needs an id of its own between 1 and %d", s.MaxConnectedClusters)}
	}
	return nil
}

// CheckMark refuses, with *SpaceError, a cluster id with bit 7 set where cloud
// networking uses the same bit of the packet mark: address management "eni" or
// "alibabacloud", or chaining "aws-cni".
func (s Space) CheckMark(ipam, chaining string) error {
	conflict := ipam == "eni" || ipam == "alibabacloud" || chaining == "aws-cni"
	if !conflict || s.ClusterID&0x80 == 0 {
		return nil
	}
	return &SpaceError{Field: "cluster-id", Value: strconv.FormatUint(uint64(s.ClusterID), 10), Reason: "bit 7 of the id collides with a packet mark " +
		"of the cloud's networking; use an id in 1 to 127 or 256 to 383"}
}

// LocalBits is the number of bits that are local to a cluster: 16, 15 or 24.
func (s Space) LocalBits() int {
	if s.Wide {
		return globalBits
	}
	return globalBits - bits.Len32(s.MaxConnectedClusters)
}

// Min is the first number that may be allocated.
func (s Space) Min() Number {
	if s.ClusterID == 0 {
		return MinAllocated
	}
	return Number(s.ClusterID << s.LocalBits())
}

// Max is the last number that may be allocated.
func (s Space) Max() Number { return Number((s.ClusterID+1)<<s.LocalBits()) - 1 }

// Capacity is how many numbers may be allocated.
func (s Space) Capacity() int { return int(s.Max()-s.Min()) + 1 }

// Contains reports whether n is in the range of the cluster.
func (s Space) Contains(n Number) bool { return s.Min() <= n && n <= s.Max() }

// Check refuses, with *NumberError, a number outside the cluster's range.
func (s Space) Check(n Number) error {
	if s.Contains(n) {
		return nil
	}
	return &NumberError{Code: NumberOutOfRange, Text: n.String(), Reason: fmt.Sprintf(
		"it is outside the range %d to %d of cluster %q (id %d)", s.Min(), s.Max(), s.ClusterName, s.ClusterID)}
}

// ClusterIDOf is the cluster whose range n lies in; in a wide space it is 0.
// The scope of n is not looked at.
func (s Space) ClusterIDOf(n Number) uint32 {
	return (uint32(n) & (1<<globalBits - 1)) >> s.LocalBits()
}

// Start is where the search for a new number begins: the first 8 bytes of the
// SHA-256 of the label set text as a big-endian integer, modulo the capacity,
// above Min. Equal labels start at equal places whatever else is allocated.
func Start(s Space, text string) Number {
	sum := sha256.Sum256([]byte(text))
	h := binary.BigEndian.Uint64(sum[:8])
	return s.Min() + Number(h%uint64(s.Capacity()))
}
