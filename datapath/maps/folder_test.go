// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

var pathCount atomic.Int64

func testPath(t *testing.T) string {
	path := fmt.Sprintf("%s/signet-test-%d-m%d", DefaultMount, os.Getpid(), pathCount.Add(1))
	t.Cleanup(func() { os.RemoveAll(path) })
	return path
}

func openFolder(t *testing.T, path string) *Folder {
	t.Helper()
	f, err := OpenFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func spec(name string, size uint32) *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: name, Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: size, Flags: unix.BPF_F_NO_PREALLOC}
}

// openMap opens or makes and pins a map.
func openMap(t *testing.T, f *Folder, s *ebpf.MapSpec) (*ebpf.Map, bool) {
	t.Helper()
	m, created, err := f.Open(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if created {
		if err := f.Pin(s.Name, m); err != nil {
			t.Fatal(err)
		}
	}
	return m, created
}

func TestMapsOutliveTheFolder(t *testing.T) {
	needKernel(t)
	path := testPath(t)
	f := openFolder(t, path)
	if has, err := f.Has("one"); has || err != nil {
		t.Fatalf("Has in an empty folder: %v %v", has, err)
	}
	m, created := openMap(t, f, spec("one", 10))
	if !created {
		t.Fatal("a map was found in a fresh folder")
	}
	if err := errors.Join(m.Put(uint32(1), uint64(42)), m.Close(), f.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}

	f = openFolder(t, path)
	if has, err := f.Has("none", "one"); !has || err != nil {
		t.Fatalf("Has: %v %v", has, err)
	}
	m, created = openMap(t, f, spec("one", 10))
	var got uint64
	if err := m.Lookup(uint32(1), &got); created || err != nil || got != 42 {
		t.Fatalf("created %v, value %d, %v", created, got, err)
	}
	if err := f.Remove("one", "never there"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the folder is still there: %v", err)
	}
}

func TestRemoveLeavesWhatIsNotOurs(t *testing.T) {
	needKernel(t)
	f := openFolder(t, testPath(t))
	openMap(t, f, spec("one", 10))
	openMap(t, f, spec("foreign", 10))
	if err := f.Remove("one"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(f.Path(), "foreign")); err != nil {
		t.Fatal(err)
	}
}

func TestFolderIsLockedAndClosedToOthers(t *testing.T) {
	needKernel(t)
	path := testPath(t)
	if err := os.MkdirAll(path, 0o777); err != nil {
		t.Fatal(err)
	}
	f := openFolder(t, path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("mode %v %v", info.Mode(), err)
	}
	_, err := OpenFolder(path)
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Path != path || !strings.Contains(err.Error(), path) {
		t.Fatalf("second writer: %v", err)
	}
	f.Close()
	openFolder(t, path)
}

// B-08: a pinned map of other properties is named with both, and left alone.
func TestScenario_B08_OtherProperties(t *testing.T) {
	needKernel(t)
	f := openFolder(t, testPath(t))
	m, _ := openMap(t, f, spec("one", 1000))
	for i := range uint32(500) {
		if err := m.Put(i, uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	wide := spec("one", 1000)
	wide.KeySize = 16
	lpm := spec("one", 1000)
	lpm.Type = ebpf.LPMTrie
	for name, s := range map[string]*ebpf.MapSpec{"2000 entries": spec("one", 2000), "key 16 B": wide, "type LPMTrie": lpm} {
		_, _, err := f.Open(s)
		var incompatible *IncompatibleError
		if !errors.As(err, &incompatible) {
			t.Fatalf("%s: %v", name, err)
		}
		if incompatible.Have.MaxEntries != 1000 || !strings.Contains(err.Error(), "1000 entries") || !strings.Contains(err.Error(), name) {
			t.Fatalf("%s: %v", name, err)
		}
	}
	again, created := openMap(t, f, spec("one", 1000))
	var got uint64
	if err := again.Lookup(uint32(499), &got); created || err != nil || got != 499 {
		t.Fatalf("the content is gone: %d %v", got, err)
	}
}

func TestLostPinsAreRestored(t *testing.T) {
	needKernel(t)
	f := openFolder(t, testPath(t))
	m, _ := openMap(t, f, spec("one", 10))
	other, _ := openMap(t, f, spec("two", 10))
	path := filepath.Join(f.Path(), "one")
	if !f.Pinned("one", m) || f.Pinned("one", other) || f.Pinned("none", m) {
		t.Fatal("Pinned is wrong")
	}
	os.Remove(path)
	for range 2 {
		if err := f.Restore("one", m); err != nil || !f.Pinned("one", m) {
			t.Fatalf("Restore: %v", err)
		}
	}
	if err := f.Restore("two", m); err == nil || !f.Pinned("two", other) {
		t.Fatalf("another map's pin was replaced: %v", err)
	}
	// The whole folder is gone: it comes back, locked.
	os.RemoveAll(f.Path())
	if err := f.Restore("one", m); err != nil || !f.Pinned("one", m) {
		t.Fatalf("Restore without a folder: %v", err)
	}
	if _, err := OpenFolder(f.Path()); err == nil {
		t.Fatal("the restored folder is not locked")
	}
	f.Close()
	if err := f.Restore("one", m); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("Restore after Close: %v", err)
	}
}

func TestPathsOutsideBPFFS(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pins")
	_, err := OpenFolder(dir)
	var outside *NotBPFFSError
	if !errors.As(err, &outside) || outside.Path != dir || !strings.Contains(err.Error(), "mount -t bpf") {
		t.Fatalf("%v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Fatal("the folder was made nevertheless")
	}
	if _, err := OpenFolder("relative/path"); err == nil || !strings.Contains(err.Error(), "not absolute") {
		t.Fatalf("%v", err)
	}
	if _, err := OpenFolder(DefaultMount + "-other/x"); !errors.As(err, &outside) {
		t.Fatalf("a neighbour of the mount point: %v", err)
	}
}

// mounted gives a fresh bpffs of our own.
func mounted(t *testing.T) string {
	t.Helper()
	needKernel(t)
	dir := t.TempDir()
	if err := mountOnce(dir); err != nil {
		t.Skipf("no bpffs of our own: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// Several processes that come at once mount once: a second mount would hide
// the pins beneath it.
func TestMountOnce(t *testing.T) {
	needKernel(t)
	dir := t.TempDir()
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { errs[i] = mountOnce(dir) })
	}
	wg.Wait()
	if err := errors.Join(errs...); errors.Is(err, unix.EPERM) {
		t.Skipf("no bpffs of our own: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	if !isBPFFS(dir) {
		t.Fatal("not mounted")
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	if isBPFFS(dir) {
		unix.Unmount(dir, unix.MNT_DETACH)
		t.Fatal("mounted more than once")
	}
}

// B-08: a read-only bpffs is named as such, for reading what is there and for
// making what is not.
func TestScenario_B08_ReadOnlyMount(t *testing.T) {
	dir := mounted(t)
	f := openFolder(t, filepath.Join(dir, "pins"))
	openMap(t, f, spec("one", 10))
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Open(spec("one", 10)); !errors.Is(err, ErrReadOnly) && err != nil {
		t.Fatalf("opening: %v", err)
	}
	m, created, err := f.Open(spec("two", 10))
	if err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	defer m.Close()
	if err := f.Pin("two", m); !errors.Is(err, ErrReadOnly) {
		t.Fatalf("pinning: %v", err)
	}
	if _, err := OpenFolder(filepath.Join(dir, "others")); !errors.Is(err, ErrReadOnly) {
		t.Fatalf("making a folder: %v", err)
	}
}

// B-15: bpffs is unmounted under a running process, and mounted again.
func TestScenario_B15_Unmounted(t *testing.T) {
	dir := mounted(t)
	f := openFolder(t, filepath.Join(dir, "pins"))
	m, _ := openMap(t, f, spec("one", 10))
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	var outside *NotBPFFSError
	if err := f.Restore("one", m); !errors.As(err, &outside) {
		t.Fatalf("while unmounted: %v", err)
	}
	if err := mountOnce(dir); err != nil {
		t.Fatal(err)
	}
	if err := f.Restore("one", m); err != nil || !f.Pinned("one", m) {
		t.Fatalf("after mounting again: %v", err)
	}
}

// withoutCaps runs do on a thread that has no capability; the thread ends with it.
func withoutCaps(t *testing.T, do func()) {
	t.Helper()
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		err := unix.Capset(&header, &none[0])
		if err == nil {
			do()
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Skipf("cannot give up capabilities: %v", err)
	}
}

func TestProbeSaysWhyNot(t *testing.T) {
	var ok bool
	var reason string
	withoutCaps(t, func() { ok, reason = Probe() })
	if ok || !strings.Contains(reason, "CAP_BPF") {
		t.Fatalf("without capabilities: %v %q", ok, reason)
	}
	dir := t.TempDir()
	if ok, reason := probeBPFFS(dir, false); ok || !strings.Contains(reason, "CAP_SYS_ADMIN") {
		t.Errorf("without bpffs: %v %q", ok, reason)
	}
	if ok, reason := probeBPFFS(dir, true); !ok {
		t.Errorf("without bpffs, but may mount: %q", reason)
	}
	for err, want := range map[error]string{
		unix.EPERM: "CAP_BPF", unix.ENOSYS: "no bpf system call",
		unix.EINVAL: "no BPF map of type Hash", unix.ENOMEM: "cannot make",
	} {
		if got := whyNoMap(ebpf.Hash, err); !strings.Contains(got, want) {
			t.Errorf("%v: %q", err, got)
		}
	}
}

func TestNoRightToMountIsNamed(t *testing.T) {
	dir := t.TempDir()
	var err error
	withoutCaps(t, func() { err = mountOnce(dir) })
	if !errors.Is(err, unix.EPERM) {
		t.Fatalf("%v", err)
	}
	wrapped := &NotBPFFSError{Path: dir, Err: err}
	if !errors.Is(wrapped, unix.EPERM) || !strings.Contains(wrapped.Error(), "not permitted") {
		t.Fatalf("%v", wrapped)
	}
}
