//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// volumes is a cluster of real processes, each with a small ext4 of its own.
type volumes struct {
	*site
	images string

	mu    sync.Mutex
	acked []string
	last  error // of the last try
}

const volumeBytes = 64 << 20

// newVolumes mounts a file system for each of three servers, with a filler that
// leaves so much free, and starts them.
func newVolumes(t *testing.T, free int64) *volumes {
	t.Helper()
	v := &volumes{images: t.TempDir()}
	dir := t.TempDir()
	for i := range 3 {
		id := fmt.Sprintf("s%d", i+1)
		v.mount(t, dir, id, true)
		t.Cleanup(func() { _ = exec.Command("umount", filepath.Join(dir, id)).Run() })
		if free > 0 {
			fill(t, filepath.Join(dir, id, "filler"), free)
		}
	}
	v.site = newSiteIn(t, dir, 3)
	return v
}

// mount mounts a server's file system, made anew or as it is.
func (v *volumes) mount(t *testing.T, dir, id string, fresh bool) {
	t.Helper()
	image, at := filepath.Join(v.images, id), filepath.Join(dir, id)
	var steps [][]string
	if fresh {
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(image, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(image, volumeBytes); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, []string{"mkfs.ext4", "-q", "-m", "0", image})
	}
	steps = append(steps, []string{"mount", "-o", "loop,errors=remount-ro", image, at})
	for _, step := range steps {
		if out, err := exec.Command(step[0], step[1:]...).CombinedOutput(); err != nil {
			if os.Getenv("LEASEHOLD_CI") == "1" {
				t.Fatalf("%s: %v: %s", strings.Join(step, " "), err, out)
			}
			t.Skipf("cannot make a file system here (it takes root, loop devices and mkfs.ext4): %s: %v: %s", strings.Join(step, " "), err, out)
		}
	}
}

// fill writes a file until so much is left.
func fill(t *testing.T, path string, leave int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for len(block) > 0 {
		var st syscall.Statfs_t
		if err := syscall.Fstatfs(int(f.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		if int64(st.Bavail)*st.Bsize < leave+int64(len(block)) {
			block = block[:len(block)/2]
			continue
		}
		_, err := f.Write(block)
		if err == nil {
			err = f.Sync()
		}
		if errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// write makes keyspaces from several goroutines until stop is called, and
// remembers which were acknowledged.
func (v *volumes) write(prefix string) (stop func()) {
	ctx, cancel := context.WithCancel(v.t.Context())
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("%s-%d-%d", prefix, w, i)
				one, done := context.WithTimeout(ctx, 3*time.Second)
				_, err := v.client.Keyspaces().CreateKeyspace(one, &leaseholdv1.CreateKeyspaceRequest{
					Name: name, Partitions: 1, TtlMs: 10_000, Takeover: leaseholdv1.Takeover_TAKEOVER_STRICT,
				})
				done()
				v.mu.Lock()
				if err == nil {
					v.acked = append(v.acked, name)
				}
				v.last = err
				v.mu.Unlock()
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

func (v *volumes) acknowledged() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.acked)
}

// more waits until so many more have been acknowledged.
func (v *volumes) more(n int) {
	v.t.Helper()
	want := v.acknowledged() + n
	v.until(fmt.Sprintf("%d more acknowledged", n), func() bool {
		if v.acknowledged() >= want {
			return true
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		if leaseholdv1.ReasonOf(v.last) == leaseholdv1.ReasonInvalid {
			v.t.Fatal(v.last)
		}
		return false
	})
}

func (v *volumes) until(what string, ok func() bool) {
	v.t.Helper()
	for end := time.Now().Add(3 * time.Minute); !ok(); {
		if time.Now().After(end) {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.t.Fatalf("no %s within three minutes; the last try: %v", what, v.last)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-v.t.Context().Done():
			v.t.FailNow()
		}
	}
}

// complete checks that everything acknowledged is there.
func (v *volumes) complete() {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), 30*time.Second)
	defer cancel()
	list, err := v.client.Keyspaces().ListKeyspaces(ctx, &leaseholdv1.ListKeyspacesRequest{})
	if err != nil {
		v.t.Fatal(err)
	}
	there := map[string]bool{}
	for _, k := range list.GetItems() {
		there[k.GetName()] = true
	}
	for _, name := range v.acked {
		if !there[name] {
			v.t.Errorf("%s was acknowledged and is gone", name)
		}
	}
}

// ended waits for the end of a server and returns its exit code and what it
// has logged since.
func (v *volumes) ended(x *cluster.Server, from int64) (code int, said string) {
	v.t.Helper()
	select {
	case <-x.Process().Done():
	case <-time.After(3 * time.Minute):
		v.t.Fatalf("%s goes on", x.ID)
	}
	var failed *exec.ExitError
	if errors.As(x.Process().Err(), &failed) {
		code = failed.ExitCode()
	}
	f, err := os.Open(filepath.Join(v.dir, x.ID+".log"))
	if err != nil {
		v.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		v.t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		v.t.Fatal(err)
	}
	return code, string(b)
}

func (v *volumes) logged(x *cluster.Server) int64 {
	info, err := os.Stat(filepath.Join(v.dir, x.ID+".log"))
	if err != nil {
		v.t.Fatal(err)
	}
	return info.Size()
}

func (v *volumes) leader() *cluster.Server {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), time.Minute)
	defer cancel()
	l, err := v.Leader(ctx)
	if err != nil {
		v.t.Fatal(err)
	}
	return l
}

// O-45: the disk of the leader is full. It ends and says why, another leads,
// nothing is lost, and with some room it starts again as it is.
func TestFullDiskOfTheLeader(t *testing.T) {
	v := newVolumes(t, 12<<20) // less than a log file: no room is reserved
	stop := v.write("before")
	v.more(20)
	l := v.leader()
	from := v.logged(l)
	rest := filepath.Join(v.data(l), "rest")
	fill(t, rest, 0)
	full := time.Now()
	code, said := v.ended(l, from)
	if code != exitFailed || !strings.Contains(said, "no space left on device") || !strings.Contains(said, "free some space") {
		t.Errorf("exit code %d:\n%s", code, said)
	}
	v.until("another leader", func() bool {
		for _, x := range v.Servers() {
			if st, err := x.Status(t.Context()); x != l && err == nil && st.GetLeaderId() == x.ID {
				return true
			}
		}
		return false
	})
	t.Logf("another leads %v after the disk was full", time.Since(full).Round(time.Millisecond))
	v.more(20)
	from = v.logged(l)
	if err := v.Start(l); err != nil {
		t.Fatal(err)
	}
	code, said = v.ended(l, from)
	if code != exitFailed || !strings.Contains(said, "MiB are free") {
		t.Errorf("started on a full disk: exit code %d:\n%s", code, said)
	}
	if err := os.Remove(rest); err != nil {
		t.Fatal(err)
	}
	if err := v.Start(l); err != nil {
		t.Fatal(err)
	}
	v.ready(l)
	v.more(20)
	stop()
	v.complete()
}

// The kernel turns the file system of the leader read-only after an error.
func TestReadOnlyDiskOfTheLeader(t *testing.T) {
	v := newVolumes(t, 0)
	stop := v.write("before")
	v.more(20)
	l := v.leader()
	from := v.logged(l)
	if out, err := exec.Command("sh", "-c", `dev=$(findmnt -n -o SOURCE "$1") && echo test >/sys/fs/ext4/$(basename $dev)/trigger_fs_error`, "sh", v.data(l)).CombinedOutput(); err != nil {
		stop()
		lacking(t, "cannot break a file system here: %v: %s", err, out)
	}
	code, said := v.ended(l, from)
	if code != exitFailed || !strings.Contains(said, "read-only file system") && !strings.Contains(said, "input/output error") || !strings.Contains(said, "kernel's messages") {
		t.Errorf("exit code %d:\n%s", code, said)
	}
	v.more(20)
	from = v.logged(l)
	if err := v.Start(l); err != nil {
		t.Fatal(err)
	}
	if code, said = v.ended(l, from); code != exitFailed || !strings.Contains(said, "read-only file system") {
		t.Errorf("started on a read-only disk: exit code %d:\n%s", code, said)
	}
	v.remount(l)
	if err := v.Start(l); err != nil {
		t.Fatal(err)
	}
	v.ready(l)
	stop()
	v.complete()
}

func (v *volumes) remount(x *cluster.Server) {
	v.t.Helper()
	if out, err := exec.Command("umount", v.data(x)).CombinedOutput(); err != nil {
		v.t.Fatalf("unmount: %v: %s", err, out)
	}
	// Replays the journal, and clears the mark of an error.
	if out, err := exec.Command("e2fsck", "-p", filepath.Join(v.images, x.ID)).CombinedOutput(); err != nil {
		var failed *exec.ExitError
		if !errors.As(err, &failed) || failed.ExitCode() > 1 {
			v.t.Fatalf("e2fsck: %v: %s", err, out)
		}
	}
	v.mount(v.t, v.dir, x.ID, false)
}

// shutdown cuts a file system off as power loss does: what has not reached the
// disk, its journal included, never will.
func shutdown(dir string) error {
	const ioctl, noLogFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	flags := uint32(noLogFlush)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), ioctl, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		return errno
	}
	return nil
}

// Power loss of all servers at once, under load, with everything that they keep
// on disk: also the vote, the list of log files and the snapshots, which the
// tests of raftstore do not reach.
func TestPowerLossOfRealFileSystems(t *testing.T) {
	v := newVolumes(t, 0)
	for n := range 5 {
		stop := v.write(fmt.Sprintf("cut%d", n))
		v.more(30)
		for _, x := range v.Servers() {
			if err := shutdown(v.data(x)); err != nil {
				t.Fatalf("shut the file system of %s down: %v", x.ID, err)
			}
		}
		for _, x := range v.Servers() {
			v.kill(x)
		}
		stop()
		for _, x := range v.Servers() {
			v.remount(x)
			if err := v.Start(x); err != nil {
				t.Fatal(err)
			}
		}
		v.ready(v.Servers()...)
		v.complete()
	}
	t.Logf("5 cuts, %d acknowledged, none is gone", v.acknowledged())
}
