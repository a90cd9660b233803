package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/backup"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// fakeBackup is a backup as a server would send it.
func fakeBackup(t *testing.T, partitions uint32, change func(*backup.Manifest)) []byte {
	t.Helper()
	s := state.New()
	s.Apply(1, 1, &state.Batch{Commands: []state.Command{
		&state.Bootstrap{ClusterID: "c0ffee", FirstToken: 1 << 40},
		&state.CreateKeyspace{Name: "orders", Partitions: partitions, Settings: state.Settings{TTL: 10 * time.Second, Takeover: state.Strict}},
	}})
	m := backup.Describe(s)
	m.Version, m.ServerID, m.Time = "v0.1.0", "s1", time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)
	if change != nil {
		change(&m)
	}
	var b bytes.Buffer
	if _, err := backup.Write(&b, m, s.Snapshot()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func put(t *testing.T, name string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// What was acknowledged before a save is in it, while keyspaces come and a
// worker's leases go on; the file is for its owner only, and is not replaced
// unless that is meant.
func TestBackupUnderLoad(t *testing.T) {
	s := newSite(t, 1)
	if err := s.keyspace("orders", 16, 10*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT); err != nil {
		t.Fatal(err)
	}
	m := newWatchman(t)
	m.work(s.Addrs(), "w1", "orders")
	m.until("orders", 16)
	var acknowledged atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil && i < 800; i++ {
			if err := s.keyspace(name(i), 4, 3*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED); err != nil {
				t.Error(err)
				return
			}
			acknowledged.Store(int64(i + 1))
		}
	}()
	file := filepath.Join(t.TempDir(), "saved")
	var before int64
	for range 5 {
		waitFor(t, "more keyspaces", func() bool {
			select {
			case <-done: // it has made all that it makes, or failed and said so
				return true
			default:
				return acknowledged.Load() > before+5
			}
		})
		before = acknowledged.Load()
		out, _ := s.want(exitOK, "backup", "save", file, "--force", "-o", "json")
		var res backupResult
		if err := json.Unmarshal([]byte(out), &res); err != nil || res.Manifest.Counts.Leases != 16 {
			t.Errorf("told %+v: %v", res, err)
		}
		data, err := os.ReadFile(file)
		if err != nil || int64(len(data)) != res.Bytes {
			t.Errorf("%d bytes, told %d: %v", len(data), res.Bytes, err)
		}
		st, _, err := backup.Load(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		for i := range before {
			if _, ok := st.KeyspaceByName(name(int(i))); !ok {
				t.Errorf("%s was acknowledged before and is missing", name(int(i)))
			}
		}
	}
	cancel()
	<-done
	if n := m.grants(); n != 16 {
		t.Errorf("%d grants, the backups moved leases", n)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, errOut := s.want(exitRefused, "backup", "save", file); !strings.Contains(errOut, "--force") {
		t.Errorf("replaced without a word: %s", errOut)
	}
	if out, _ := s.want(exitOK, "backup", "verify", file); !strings.Contains(out, "is good") {
		t.Errorf("verify: %s", out)
	}
	piped, errOut := s.want(exitOK, "backup", "save", "-")
	if _, err := backup.Check(strings.NewReader(piped)); err != nil || !strings.Contains(errOut, "saved -") {
		t.Errorf("to standard output: %v, said %s", err, errOut)
	}
	health, err := s.Servers()[0].Cluster().GetHealth(t.Context(), &leaseholdv1.GetHealthRequest{})
	if err != nil || time.Since(health.GetLastBackup().AsTime()) > time.Minute {
		t.Errorf("last backup %v, %v", health.GetLastBackup(), err)
	}
	if left, err := filepath.Glob(file + "*"); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

// halfway is a peer that sends the first half of a backup and then says no more
// until it is told to.
func halfway(t *testing.T, data []byte) (addr string, goOn chan struct{}) {
	p := newPeer(t)
	goOn = make(chan struct{})
	p.backup = func(out grpc.ServerStreamingServer[leaseholdv1.SaveBackupResponse]) error {
		send := func(part []byte) error {
			return out.Send(&leaseholdv1.SaveBackupResponse{Data: part, TotalBytes: int64(len(data))})
		}
		if err := send(data[:len(data)/2]); err != nil {
			return err
		}
		select {
		case <-goOn:
		case <-out.Context().Done():
			return out.Context().Err()
		}
		return send(data[len(data)/2:])
	}
	return p.addr, goOn
}

// kill -9 in the middle of a save: under the name is what was there before, and
// the next save is not in the way of what is left.
func TestSaveKilledInTheMiddleLeavesNoFile(t *testing.T) {
	data := fakeBackup(t, 200_000, nil)
	addr, goOn := halfway(t, data)
	dir := t.TempDir()
	for _, before := range []string{"", "an older one"} {
		file := filepath.Join(dir, "saved")
		if before != "" {
			put(t, file, []byte(before))
		}
		p := startProgram(t, "backup", "save", file, "--force", "--timeout", "1m", "--server", addr)
		waitFor(t, "the beginning", func() bool { return isLocked(file + ".tmp") })
		if _, errOut := (&cli{}).want(t, exitRefused, "backup", "save", file, "--force", "--server", addr); !strings.Contains(errOut, "another backup") {
			t.Errorf("two at once: %s", errOut)
		}
		p.cmd.Process.Kill()
		p.cmd.Wait()
		got, err := os.ReadFile(file)
		if string(got) != before || (err == nil) != (before != "") {
			t.Errorf("under the name is %.20q, %v; want %q", got, err, before)
		}
	}
	close(goOn)
	file := filepath.Join(dir, "saved")
	(&cli{}).want(t, exitOK, "backup", "save", file, "--force", "--server", addr)
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the next save: %d bytes, %v", len(got), err)
	}
}

// isLocked tells whether somebody has a file for himself.
func isLocked(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return lockFile(f) != nil
}

// A server that dies or falls silent in the middle.
func TestSaveFromAServerThatFallsSilent(t *testing.T) {
	t.Parallel()
	addr, _ := halfway(t, fakeBackup(t, 200_000, nil))
	file := filepath.Join(t.TempDir(), "saved")
	_, errOut := (&cli{}).want(t, exitFailed, "backup", "save", file, "--timeout", "3s", "--server", addr)
	if !strings.Contains(errOut, "nothing came from the server for 3s") {
		t.Errorf("said %s", errOut)
	}
	if left, err := filepath.Glob(file + "*"); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// A signal breaks a save off, with the exit code of its own.
func TestSaveEndsWithASignal(t *testing.T) {
	addr, _ := halfway(t, fakeBackup(t, 200_000, nil))
	file := filepath.Join(t.TempDir(), "saved")
	p := startProgram(t, "backup", "save", file, "--timeout", "1m", "--server", addr)
	waitFor(t, "the beginning", func() bool { return isLocked(file + ".tmp") })
	p.cmd.Process.Signal(syscall.SIGINT)
	if code := p.code(); code != 128+int(syscall.SIGINT) {
		t.Errorf("exit %d: %s", code, p.stderr)
	}
	if left, err := filepath.Glob(file + "*"); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// A full disk: the error says so, and nothing is left, neither of a file nor of
// a data directory.
func TestFullDiskLeavesNoBackup(t *testing.T) {
	dir := smallDisk(t, "400k")
	data := fakeBackup(t, 1<<20, nil)
	addr, goOn := halfway(t, data)
	close(goOn)
	file := filepath.Join(dir, "saved")
	_, errOut := (&cli{}).want(t, exitFailed, "backup", "save", file, "--server", addr)
	if !strings.Contains(errOut, "no space left") || !strings.Contains(errOut, file) {
		t.Errorf("save said %s", errOut)
	}
	whole := put(t, filepath.Join(t.TempDir(), "whole"), data)
	// A process of its own: what it has open of the disk goes with it.
	p := startProgram(t, "backup", "restore", whole, "--data-dir", filepath.Join(dir, "s1"), "--id", "s1", "--raft-addr", "10.0.0.1:7401", "--yes")
	if code := p.code(); code != exitFailed || !strings.Contains(p.stderr.String(), "no space left") {
		t.Errorf("restore: exit %d, said %s", code, p.stderr)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if more, _ := filepath.Glob(file + "*"); err != nil || len(left)+len(more) != 0 {
		t.Errorf("left %v %v, %v", left, more, err)
	}
	// Standard output that takes no more.
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd := exec.Command(os.Args[0], "backup", "save", "-", "--server", addr)
	cmd.Env, cmd.Stdout = append(os.Environ(), asProgramEnv+"=1"), full
	if out := cmd.Run(); out == nil || cmd.ProcessState.ExitCode() != exitFailed {
		t.Errorf("into /dev/full: %v", out)
	}
}

// smallDisk is a file system of its own. It takes root to make one.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "leasehold-test", dir).CombinedOutput(); err != nil {
		if os.Getenv("LEASEHOLD_CI") == "1" {
			t.Fatalf("mount a small disk: %v: %s", err, out)
		}
		t.Skipf("cannot mount a small disk here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// Whatever is wrong with a file, verify says so with the place, and restore
// writes nothing of it.
func TestDamagedBackupIsAlwaysRefused(t *testing.T) {
	data := fakeBackup(t, 50_000, nil)
	dir := t.TempDir()
	file, target := filepath.Join(dir, "damaged"), filepath.Join(dir, "s1")
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 30 {
		bad := bytes.Clone(data)
		what := "flipped"
		if at := random.IntN(len(data)); i%3 == 2 {
			bad, what = bad[:at], "cut"
		} else {
			bad[at] ^= 1 << random.IntN(8)
		}
		put(t, file, bad)
		for _, args := range [][]string{
			{"backup", "verify", file},
			{"backup", "inspect", file},
			{"backup", "restore", file, "--data-dir", target, "--id", "s1", "--raft-addr", "10.0.0.1:7401", "--yes"},
		} {
			_, errOut := (&cli{}).want(t, exitFailed, args...)
			if !strings.Contains(errOut, "damaged at byte") && !strings.Contains(errOut, "use a newer release") {
				t.Errorf("seed %d, %s file %d, %s: %s", seed, what, i, args[1], errOut)
			}
		}
	}
	if _, err := os.Stat(target); !os.IsNotExist(err) {
		t.Errorf("something was restored: %v", err)
	}
	put(t, file, data)
	(&cli{}).want(t, exitOK, "backup", "verify", file)
	(&cli{stdin: string(data)}).want(t, exitOK, "backup", "verify", "-")
}

// Restore refuses whatever could hurt, before it writes anything.
func TestRestoreRefuses(t *testing.T) {
	dir := t.TempDir()
	file := put(t, filepath.Join(dir, "good"), fakeBackup(t, 8, nil))
	restore := func(code int, want, file string, args ...string) {
		t.Helper()
		args = append([]string{"backup", "restore", file, "--id", "s1", "--raft-addr", "10.0.0.1:7401"}, args...)
		if _, errOut := (&cli{}).want(t, code, args...); !strings.Contains(errOut, want) {
			t.Errorf("%v: %s, want %q", args, errOut, want)
		}
	}
	fresh := filepath.Join(dir, "s1")
	restore(exitUsage, "--data-dir is missing", file, "--yes")
	restore(exitUsage, "--id is missing", file, "--data-dir", fresh, "--yes", "--id", "")
	restore(exitUsage, "0.0.0.0:7401", file, "--data-dir", fresh, "--yes", "--raft-addr", "0.0.0.0:7401")
	restore(exitUsage, "for example", file, "--data-dir", fresh, "--yes", "--raft-addr", "10.0.0.1")
	restore(exitUsage, "--yes", file, "--data-dir", fresh)
	restore(exitRefused, "is not empty", file, "--data-dir", dir, "--yes")
	restore(exitUsage, "FILE is empty", "", "--data-dir", fresh, "--yes")
	// A floor that the backup itself has passed saves nobody.
	restore(exitUsage, "above every one that was granted", file, "--data-dir", fresh, "--yes", "--token-floor", "1")

	ahead := put(t, filepath.Join(dir, "ahead"), fakeBackup(t, 8, func(m *backup.Manifest) { m.Time = time.Now().Add(time.Hour).UTC() }))
	restore(exitRefused, "--token-floor", ahead, "--data-dir", fresh, "--yes")
	if _, err := os.Stat(fresh); !os.IsNotExist(err) {
		t.Errorf("something was written: %v", err)
	}
	out, _ := (&cli{}).want(t, exitOK, "backup", "restore", ahead, "--id", "s1", "--raft-addr", "10.0.0.1:7401", "--data-dir", fresh, "--yes",
		"--token-floor", "5000000000000000", "--strict-hold", "40s", "-o", "json")
	var r restored
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.LastToken != 4999999999999999 || r.StrictHoldMs != 40_000 || r.ClusterID == "c0ffee" || len(r.StoreID) != 12 {
		t.Errorf("with a floor: %+v, %v", r, err)
	}
	restore(exitRefused, "is not empty", file, "--data-dir", fresh, "--yes")

	// A terminal is asked, and no means no.
	no := &cli{terminal: true, stdin: "n\n"}
	no.want(t, exitFailed, "backup", "restore", file, "--id", "s1", "--raft-addr", "10.0.0.1:7401", "--data-dir", filepath.Join(dir, "s2"))
	if _, err := os.Stat(filepath.Join(dir, "s2")); !os.IsNotExist(err) || !strings.Contains(no.stderr.String(), "c0ffee") {
		t.Errorf("after no: %v, asked %s", err, no.stderr.String())
	}
}

// The directory of a server that runs is neither read nor written.
func TestLiveDataIsNotTouched(t *testing.T) {
	s := newSite(t, 1)
	live := s.data(s.Servers()[0])
	file := filepath.Join(t.TempDir(), "saved")
	s.want(exitOK, "backup", "save", file)
	for _, args := range [][]string{
		{"save", file + "2", "--data-dir", live},
		{"inspect", "--data-dir", live},
		{"restore", file, "--data-dir", live, "--id", "s1", "--raft-addr", "127.0.0.1:7401", "--yes"},
	} {
		_, errOut := s.want(exitRefused, append([]string{"backup"}, args...)...)
		if !strings.Contains(errOut, "in use by process") && !strings.Contains(errOut, "not empty") {
			t.Errorf("%s: %s", args[0], errOut)
		}
	}
	if left, err := filepath.Glob(file + "2*"); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	s.ready(s.Servers()...)
}

// What the server refuses is told in its words, and with its exit code.
func TestSaveIsRefusedByTheServer(t *testing.T) {
	p := newPeer(t)
	p.backup = func(grpc.ServerStreamingServer[leaseholdv1.SaveBackupResponse]) error {
		return leaseholdv1.StatusError(codes.Aborted, &leaseholdv1.ErrorDetail{Reason: leaseholdv1.ReasonConflict, Message: "busy with others"})
	}
	if _, errOut := (&cli{}).want(t, exitRefused, "backup", "save", "-", "--server", p.addr); !strings.Contains(errOut, "busy with others") {
		t.Errorf("said %s", errOut)
	}
}

// kill -9 in the middle of a restore: what is left is the whole of it, nothing,
// or something that is refused by name.
func TestRestoreKilledInTheMiddleIsNeverHalf(t *testing.T) {
	file := put(t, filepath.Join(t.TempDir(), "saved"), fakeBackup(t, 300_000, nil))
	whole, refused, nothing := 0, 0, 0
	for i := 0; i < 12 || refused == 0 && i < 60; i++ { // a slow look may come too late
		dir := filepath.Join(t.TempDir(), "s1")
		p := startProgram(t, "backup", "restore", file, "--data-dir", dir, "--id", "s1", "--raft-addr", "10.0.0.1:7401", "--yes")
		// At some step of it: each leaves another number of files.
		waitFor(t, "the beginning", func() bool {
			left, _ := filepath.Glob(filepath.Join(dir, "*"))
			more, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
			return len(left)+len(more) > i%7
		})
		p.cmd.Process.Kill()
		p.cmd.Wait()
		c := &cli{}
		code := c.run(t, "backup", "inspect", "--data-dir", dir, "-o", "json")
		switch said := c.stderr.String(); {
		case code == exitOK:
			var in inspected
			if err := json.Unmarshal([]byte(c.stdout.String()), &in); err != nil || in.Manifest.Missing != "" || in.Manifest.Counts.Partitions != 300_000 {
				t.Errorf("opened with %+v, %v", in.Manifest, err)
			}
			whole++
		case strings.Contains(said, "not written to its end"):
			refused++
		case strings.Contains(said, "no snapshot and no log"), strings.Contains(said, "no such file"):
			nothing++
		default:
			t.Errorf("exit %d: %s", code, said)
		}
	}
	t.Logf("%d whole, %d refused, %d nothing", whole, refused, nothing)
	if refused == 0 {
		t.Error("no kill came in the middle")
	}
}
