package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// field is a server with one keyspace, and what commands wrote about
// themselves.
type field struct {
	t        *testing.T
	dev      *program // the server
	server   string
	keyspace string
	evidence string
}

// newField starts a server. Its keyspace has a TTL of 2 s and a handoff timeout
// of 2 s, unless the settings say otherwise.
func newField(t *testing.T, partitions int, settings ...string) *field {
	t.Helper()
	p := startProgram(t, append([]string{"dev", "--keyspace", "unused", "-o", "json"}, freePorts...)...)
	var d devResult
	if err := json.NewDecoder(p.stdout).Decode(&d); err != nil {
		t.Fatal(err)
	}
	f := &field{t, p, d.GRPCAddr, "jobs", filepath.Join(t.TempDir(), "evidence")}
	f.want(exitOK, append([]string{"keyspace", "create", f.keyspace, "--partitions", strconv.Itoa(partitions), "--ttl", "2s",
		"--handoff-timeout", "2s", "--initial-delay", "0s"}, settings...)...)
	return f
}

// want runs a command line that must end with the code.
func (f *field) want(code int, args ...string) (stdout, stderr string) {
	f.t.Helper()
	c := &cli{env: map[string]string{"LEASEHOLD_SERVER": f.server}}
	return c.want(f.t, code, args...)
}

// sidecar starts `leasehold run` with a name and a script for sh.
func (f *field) sidecar(id, script string, flags ...string) *program {
	f.t.Helper()
	args := append([]string{"run", "--server", f.server, "--keyspace", f.keyspace, "--id", id, "--log-format", "text"}, flags...)
	return startProgram(f.t, append(args, "--", "sh", "-c", f.prelude()+script)...)
}

// prelude gives a script: say WORD writes a line of evidence, beat WORD writes
// one every 20 ms for ever. /proc/uptime is the boot clock.
func (f *field) prelude() string {
	return `say() { read up _ </proc/uptime; echo "$up $LEASEHOLD_PARTITION $LEASEHOLD_TOKEN $1" >>` + f.evidence + `; }
beat() { while :; do say "$1"; sleep 0.02; done; }
`
}

// line is what a command wrote.
type line struct {
	at               time.Duration // boot clock
	partition, token uint64
	word             string
}

func (f *field) lines() []line {
	f.t.Helper()
	raw, err := os.ReadFile(f.evidence)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	var out []line
	for text := range strings.Lines(string(raw)) {
		if !strings.HasSuffix(text, "\n") {
			break // it is being written
		}
		w := strings.Fields(text)
		if len(w) != 4 {
			f.t.Fatalf("evidence %q", text)
		}
		at, err1 := strconv.ParseFloat(w[0], 64)
		p, err2 := strconv.ParseUint(w[1], 10, 64)
		tok, err3 := strconv.ParseUint(w[2], 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			f.t.Fatal(err)
		}
		out = append(out, line{time.Duration(at * float64(time.Second)), p, tok, w[3]})
	}
	return out
}

// said returns the lines with a word.
func (f *field) said(word string) []line {
	f.t.Helper()
	return slices.DeleteFunc(f.lines(), func(l line) bool { return l.word != word })
}

// heard waits until the command of each of so many partitions has said a word.
func (f *field) heard(word string, partitions int) {
	f.t.Helper()
	f.until(fmt.Sprintf("%q of %d partitions", word, partitions), func() bool {
		seen := map[uint64]bool{}
		for _, l := range f.said(word) {
			seen[l.partition] = true
		}
		return len(seen) == partitions
	})
}

// until waits for evidence.
func (f *field) until(what string, ok func() bool) {
	f.t.Helper()
	waitFor(f.t, what, ok)
}

// waitFor waits for what other processes do.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if poll(ctx, 10*time.Millisecond, func() (bool, error) { return ok(), nil }) != nil {
		t.Fatalf("waited in vain for %s", what)
	}
}

// silence waits until no line with the word has come for a second, and returns
// when the last one was written. A shell on a busy machine pauses for a while.
func (f *field) silence(word string) time.Duration {
	f.t.Helper()
	var last time.Duration
	f.until("the end of "+word, func() bool {
		all := f.said(word)
		if len(all) == 0 {
			return false
		}
		last = all[len(all)-1].at
		return bootclock.Boot().Now()-last > time.Second
	})
	return last
}

// neverTwo checks that no two tokens of a partition were at work at the same
// time. The clock has a resolution of 10 ms.
func (f *field) neverTwo() {
	f.t.Helper()
	first, last := map[[2]uint64]time.Duration{}, map[[2]uint64]time.Duration{}
	for _, l := range f.lines() {
		key := [2]uint64{l.partition, l.token}
		if _, ok := first[key]; !ok {
			first[key] = l.at
		}
		first[key], last[key] = min(first[key], l.at), max(last[key], l.at)
	}
	keys := slices.SortedFunc(maps.Keys(first), func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
	for i := 1; i < len(keys); i++ {
		old, young := keys[i-1], keys[i]
		if old[0] == young[0] && last[old] > first[young] {
			f.t.Errorf("partition %d: the command of token %d worked until %v, that of token %d from %v", old[0], old[1], last[old], young[1], first[young])
		}
	}
}

// owner waits until a worker owns a partition.
func (f *field) owner(partition int, id string) {
	f.t.Helper()
	eventually(f.t, f.server, `"owner": "`+id+`"`, "partitions", "show", f.keyspace, strconv.Itoa(partition), "-o", "json")
}
