package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// needTool skips a test whose tool is not installed; in CI that is a failure.
func needTool(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("LEASEHOLD_CI") == "1" {
			t.Fatalf("%s is not installed", name)
		}
		t.Skipf("%s is not installed", name)
	}
}

// write is one that a resource has accepted.
type write struct {
	partition, token uint64
	what             string
}

// moveExample runs an example on two sidecars, one after the other, and checks
// what the resource has accepted: everything moves by a drain, both commands end
// in order, and no token is followed by a lower one.
func moveExample(t *testing.T, accepted func() []write, flags []string, example, variable string) {
	t.Helper()
	const partitions = 3
	path, err := filepath.Abs("../../ownership/examples/run/" + example)
	if err != nil {
		t.Fatal(err)
	}
	f := newField(t, partitions, "--ttl", "10s", "--handoff-timeout", "15s")
	start := func(id string) *program {
		args := append([]string{"run", "--server", f.server, "--keyspace", f.keyspace, "--id", id, "--log-format", "text"}, flags...)
		return startProgram(t, append(args, "--", "env", variable, path)...)
	}
	byAll := func(after uint64) func() bool {
		return func() bool {
			seen := map[uint64]bool{}
			for _, w := range accepted() {
				if w.token > after {
					seen[w.partition] = true
				}
			}
			return len(seen) == partitions
		}
	}
	w1 := start("w1")
	waitFor(t, "writes of the first", byAll(0))
	f.owner(partitions-1, "w1")
	highest := uint64(0)
	for _, w := range accepted() {
		highest = max(highest, w.token)
	}
	w2 := start("w2") // from now on it may have some of them
	eventually(t, f.server, "w2", "workers", "ls")
	f.want(exitOK, "workers", "drain", "w1")
	waitFor(t, "writes of the second", byAll(highest))
	for _, p := range []*program{w1, w2} {
		p.stop(t)
		if out := p.stderr.String(); strings.Contains(out, "killed") || strings.Contains(out, "stale") || strings.Contains(out, "Traceback") {
			t.Errorf("it did not go in order:\n%s", out)
		}
	}
	last := map[uint64]uint64{}
	for _, w := range accepted() {
		if w.token < last[w.partition] {
			t.Errorf("partition %d: token %d after %d", w.partition, w.token, last[w.partition])
		}
		last[w.partition] = w.token
	}
}

func TestRunExampleShell(t *testing.T) {
	needTool(t, "flock")
	t.Parallel()
	store := t.TempDir()
	accepted := func() (out []write) {
		files, _ := filepath.Glob(filepath.Join(store, "jobs-*.log"))
		for _, file := range files {
			p, err := strconv.ParseUint(strings.TrimSuffix(file[strings.LastIndex(file, "-")+1:], ".log"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(raw)) {
				var w write
				if _, err := fmt.Sscanf(line, "%d %s", &w.token, &w.what); err == nil {
					w.partition = p
					out = append(out, w)
				}
			}
		}
		return out
	}
	moveExample(t, accepted, nil, "consume.sh", "STORE="+store)
	handed := 0
	for _, w := range accepted() {
		if w.what == "handed" {
			handed++
		}
	}
	if handed != 6 {
		t.Errorf("%d commands said that they hand over, want 3 of the first and 3 of the second", handed)
	}
}

func TestRunExamplePython(t *testing.T) {
	needTool(t, "python3")
	t.Parallel()
	file := filepath.Join(t.TempDir(), "orders.db")
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	accepted := func() (out []write) {
		rows, err := db.Query("SELECT partition_id, token, item FROM orders ORDER BY rowid")
		if err != nil {
			return nil // no table yet
		}
		defer rows.Close()
		for rows.Next() {
			var w write
			if err := rows.Scan(&w.partition, &w.token, &w.what); err != nil {
				t.Fatal(err)
			}
			out = append(out, w)
		}
		return out
	}
	moveExample(t, accepted, []string{"--mode", "per-worker"}, "worker.py", "STORE="+file)
}

// ledger is a resource behind HTTP with a guard of its own.
type ledger struct {
	gate *fence.Gate

	mu     sync.Mutex
	writes []write
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	partition, err1 := strconv.ParseUint(r.Header.Get("Leasehold-Partition"), 10, 32)
	token, err2 := strconv.ParseUint(r.Header.Get("Leasehold-Token"), 10, 64)
	body, err3 := io.ReadAll(io.LimitReader(r.Body, 1<<10))
	if err1 != nil || err2 != nil || err3 != nil {
		http.Error(w, "no stamp", http.StatusBadRequest)
		return
	}
	stamp := fence.Stamp{Keyspace: r.Header.Get("Leasehold-Keyspace"), Partition: uint32(partition),
		Token: fence.Token(token), Owner: r.Header.Get("Leasehold-Owner")}
	if err := l.gate.Do(r.Context(), stamp, func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.writes = append(l.writes, write{partition, token, string(body)})
		return nil
	}); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

func TestRunExampleNode(t *testing.T) {
	needTool(t, "node")
	t.Parallel()
	l := &ledger{gate: fence.NewGate(nil, nil)}
	srv := httptest.NewServer(l)
	defer srv.Close()
	accepted := func() []write {
		l.mu.Lock()
		defer l.mu.Unlock()
		return append([]write(nil), l.writes...)
	}
	moveExample(t, accepted, []string{"--mode", "per-worker"}, "worker.mjs", "RESOURCE="+srv.URL)
}
