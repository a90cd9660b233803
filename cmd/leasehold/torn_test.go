//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// newestLog is the log file that a server wrote last, and where what has been
// written into it ends: behind that it is zeros.
func newestLog(t *testing.T, dataDir string) (path string, good []byte, end int) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dataDir, "log", "*.wal"))
	if err != nil || len(names) == 0 {
		t.Fatalf("log files in %s: %v %v", dataDir, names, err)
	}
	path = names[len(names)-1] // they are numbered
	if good, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return path, good, len(bytes.TrimRight(good, "\x00"))
}

// insideEntry is the place of a byte about in the middle of what has been written
// that belongs to an entry. Between entries there are zeros to fill up, and
// reserved bytes that are zero, too: a flip there damages nothing.
func insideEntry(t *testing.T, good []byte) int {
	t.Helper()
	var places []int
	run := 0
	for at, b := range good {
		if run++; b == 0 {
			run = 0
		}
		if run == 10 {
			places = append(places, at-5)
		}
	}
	if len(places) == 0 {
		t.Fatal("there is no entry in the log file")
	}
	return places[len(places)/2]
}

// O-46: servers are killed under load, and what their newest log file ends in
// is cut off. That is room which has not been written to: they start as they
// are and have everything. A flipped byte among the entries is refused, with
// the file and the way out, and the way out works.
func TestTornLogOfAKilledServer(t *testing.T) {
	t.Parallel()
	v := &volumes{site: newSite(t, 3)}
	stop := v.write("load")
	for i, cut := range []int64{1, 7, 8, 9, 100} {
		x := v.Servers()[i%3]
		v.more(20)
		v.kill(x)
		path, good, end := newestLog(t, v.data(x))
		if int64(len(good))-cut < int64(end)+8 {
			t.Fatalf("%s is full: %d of %d bytes", path, end, len(good))
		}
		if err := os.Truncate(path, int64(len(good))-cut); err != nil {
			t.Fatal(err)
		}
		if err := v.Start(x); err != nil {
			t.Fatal(err)
		}
		v.ready(x)
		if info, err := os.Stat(path); err != nil || info.Size() != int64(len(good)) {
			t.Errorf("cut by %d bytes, it has not got its size back: %v %v", cut, info.Size(), err)
		}
	}

	x := v.Servers()[0]
	v.more(20)
	v.kill(x)
	path, good, end := newestLog(t, v.data(x))
	flip := func(at int) {
		t.Helper()
		bad := bytes.Clone(good)
		bad[at] ^= 4
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flip(insideEntry(t, good))
	from := v.logged(x)
	if err := v.Start(x); err != nil {
		t.Fatal(err)
	}
	code, said := v.ended(x, from)
	// Which of the checks finds it first is a matter of where the byte lies.
	if !strings.Contains(said, path) && !strings.Contains(said, filepath.Dir(path)+": entry ") {
		t.Errorf("it does not say where:\n%s", said)
	}
	for _, part := range []string{"corrupt", "move the data directory away"} {
		if code != exitFailed || !strings.Contains(said, part) {
			t.Errorf("exit code %d, and it does not say %q:\n%s", code, part, said)
		}
	}
	if strings.Contains(said, "panic") || strings.Contains(said, "goroutine ") {
		t.Errorf("a trace is no message:\n%s", said)
	}

	// At half of the file's length nothing has been written yet.
	if end < len(good)/2 {
		flip(len(good) / 2)
		if err := v.Start(x); err != nil {
			t.Fatal(err)
		}
		v.ready(x)
		v.more(20)
		v.kill(x)
		path, good, _ = newestLog(t, v.data(x))
		flip(insideEntry(t, good))
	}

	// The way out: the directory is moved away, and the server is taken in again
	// under its id, without a vote until it has caught up.
	lost := v.data(x)
	if err := os.Rename(lost, lost+".damaged"); err != nil {
		t.Fatal(err)
	}
	if err := v.Start(x); err != nil {
		t.Fatal(err)
	}
	v.ready(x)
	v.until("vote of its own", func() bool { return v.votes(x) })
	stop()
	v.complete()
	t.Logf("%d acknowledged, none is gone", v.acknowledged())
}

// votes tells whether a server is the one voter of its id, as it knows itself.
func (v *volumes) votes(x *cluster.Server) bool {
	own := v.status(x).GetStoreId()
	list, err := x.Cluster().ListPeers(v.t.Context(), &leaseholdv1.ListPeersRequest{})
	if err != nil {
		return false
	}
	voters, others := 0, 0
	for _, p := range list.GetItems() {
		switch {
		case p.GetServerId() != x.ID:
		case p.GetVoter() && p.GetStoreId() == own:
			voters++
		default:
			others++
		}
	}
	return voters == 1 && others == 0
}
