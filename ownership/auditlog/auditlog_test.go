package auditlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	anna   = access.Identity{Source: access.Certificate, Name: "anna", Role: access.Operator, Serial: "0a1b"}
	batch  = access.Identity{Source: access.Bearer, Name: "batch", Role: access.Worker, Credential: "abc123abc123"}
	nobody = access.Identity{}
)

func start(t *testing.T, c Config) *Log {
	t.Helper()
	if c.Server == "" {
		c.Server = "s1"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func stop(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func call(n int) Entry {
	return Entry{Identity: anna, From: "10.0.0.7:4711", Method: "/leasehold.v1.OwnershipService/Drain", Target: fmt.Sprintf("orders/%d", n), Outcome: "ok"}
}

func lines(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.SplitAfter(strings.TrimSuffix(string(b), "\n"), "\n")
}

// problem is what Verify finds in files that somebody has changed.
func problem(t *testing.T, files ...string) *Problem {
	t.Helper()
	_, err := Verify("", files...)
	if err == nil {
		return nil
	}
	var p *Problem
	if !errors.As(err, &p) {
		t.Fatalf("got %v, want a problem of a file", err)
	}
	return p
}

func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := start(t, Config{Path: path})
	at := time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.FixedZone("", 3600))
	for _, e := range []Entry{
		{Time: at, Identity: anna, From: "10.0.0.7:1", Method: "/a/Drain", Target: "orders/3", Outcome: "ok"},
		{Time: at, Identity: batch, Method: "/a/Get", Outcome: "DENIED"},
		{Time: at, Identity: access.Anybody(), Method: "/a/Get", Target: "name=" + access.Token("abc123abc123", make([]byte, access.SecretLen)), Outcome: "ok"},
		{Time: at, Identity: nobody, Method: "/a/Get\n<x>\xff", Target: strings.Repeat("ö", 5000), Outcome: "UNAUTHENTICATED"},
	} {
		l.Record(e)
	}
	stop(t, l)
	got := lines(t, path)
	if len(got) != 7 {
		t.Fatalf("%d lines: %q", len(got), got)
	}
	for i, want := range []string{
		`"server":"s1","seq":1,"who":"server/s1","method":"(segment)","outcome":"ok","prev":"","hash":"`,
		`"seq":2,"who":"server/s1","method":"(start)"`,
		`{"time":"2026-11-30T11:00:00.123Z","server":"s1","seq":3,"who":"operator/anna","source":"certificate","proof":"0a1b","from":"10.0.0.7:1","method":"/a/Drain","target":"orders/3","outcome":"ok","prev":"`,
		`"who":"worker/batch","source":"credential","proof":"abc123abc123","method":"/a/Get","outcome":"DENIED"`,
		`"who":"anybody","source":"open","method":"/a/Get","target":"name=lhc_abc123abc123_[redacted]"`,
		`"who":"nobody","method":"/a/Get\n<x>\ufffd","target":"` + strings.Repeat("ö", maxField/2) + `…","outcome":"UNAUTHENTICATED"`,
		`"seq":7,"who":"server/s1","method":"(stop)"`,
	} {
		if !strings.Contains(got[i], want) {
			t.Errorf("line %d is\n%swant in it\n%s", i+1, got[i], want)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v, %v", info.Mode(), err)
	}
	rep, err := Verify("", path)
	if err != nil || rep.Lines != 7 || rep.Servers[0].Last != 7 {
		t.Fatal(rep, err)
	}
	if rep, err = Verify(rep.Servers[0].Hash, path); err != nil || !rep.Has {
		t.Error("the last hash is not found", err)
	}
	if rep, err = Verify(strings.Repeat("0", 64), path); err != nil || rep.Has {
		t.Error("a hash is found that is in no line", err)
	}
}

// Whatever is done to one byte, one line or two, Verify names the first line that
// is not as it was. That the last lines are missing nobody can see without their
// hash.
func TestVerifyNamesWhatWasChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := start(t, Config{Path: path})
	for i := range 3 {
		l.Record(call(i))
	}
	stop(t, l)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, text []byte, line int) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if p := problem(t, path); p == nil || p.File != path || p.Line != line {
			t.Errorf("%s: got %v, want line %d", what, p, line)
		}
	}
	line := 1
	for i, c := range whole {
		text := bytes.Clone(whole)
		text[i] ^= 1 << (i % 8)
		check(fmt.Sprintf("byte %d, %q as %q", i, c, text[i]), text, line)
		if c == '\n' {
			line++
		}
	}
	all := bytes.SplitAfter(bytes.TrimSuffix(whole, []byte("\n")), []byte("\n"))
	all[len(all)-1] = append(all[len(all)-1], '\n')
	for i := range len(all) - 1 {
		check(fmt.Sprintf("without line %d", i+1), bytes.Join(slices.Delete(slices.Clone(all), i, i+1), nil), i+1)
		twice := slices.Insert(slices.Clone(all), i, all[i])
		check(fmt.Sprintf("line %d twice", i+1), bytes.Join(twice, nil), i+2)
		for j := i + 1; j < len(all); j++ {
			swapped := slices.Clone(all)
			swapped[i], swapped[j] = swapped[j], swapped[i]
			check(fmt.Sprintf("lines %d and %d swapped", i+1, j+1), bytes.Join(swapped, nil), i+1)
		}
	}
	// A line in place of another, with a hash of its own that is right.
	r, _, err := parseLine(bytes.TrimSuffix(all[4], []byte("\n")))
	if err != nil {
		t.Fatal(err)
	}
	r.Who = "operator/eve"
	forged, _ := r.appendLine(nil)
	check("a forged line", bytes.Join(slices.Replace(slices.Clone(all), 4, 5, forged), nil), 6)

	last := parseHash(t, all[len(all)-1])
	if err := os.WriteFile(path, bytes.Join(all[:len(all)-1], nil), 0o600); err != nil {
		t.Fatal(err)
	}
	if rep, err := Verify(last, path); err != nil || rep.Has {
		t.Errorf("the last line is cut off, and its hash is found: %v, %v", rep, err)
	}
}

func parseHash(t *testing.T, line []byte) string {
	t.Helper()
	_, hash, err := parseLine(bytes.TrimSuffix(line, []byte("\n")))
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func TestSegments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := start(t, Config{Path: path, SegmentBytes: MinSegmentBytes, Segments: 3})
	for i := range 2000 {
		l.Record(call(i))
	}
	stop(t, l)
	old, err := segments(path)
	if err != nil || len(old) != 2 {
		t.Fatalf("kept %q, %v: want two and the newest", old, err)
	}
	for _, name := range append(old, path) {
		if info, err := os.Stat(name); err != nil || info.Size() > MinSegmentBytes+maxBatch*maxLine || info.Mode().Perm() != 0o600 {
			t.Error(name, info, err)
		}
	}
	rep, err := Verify("", path, old[1], old[0]) // in any order
	if err != nil || len(rep.Servers) != 1 || rep.Servers[0].First == 1 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if p := problem(t, old[0], path); p == nil || p.File != path || p.Line != 1 {
		t.Errorf("a segment is missing, and what is found is %v", p)
	}
	if p := problem(t, old[0], old[1], old[1], path); p == nil || p.Line != 1 {
		t.Errorf("a segment is there twice, and what is found is %v", p)
	}
	other := filepath.Join(t.TempDir(), "audit.log")
	stop(t, start(t, Config{Path: other, Server: "s2"}))
	if rep, err := Verify("", other, path, old[0], old[1]); err != nil || len(rep.Servers) != 2 {
		t.Errorf("two servers' files together: %+v, %v", rep, err)
	}
}

func TestStartGoesOnWithTheChain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := start(t, Config{Path: path})
	l.Record(call(1))
	stop(t, l)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, `{"time":"2026-`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if p := problem(t, path); p == nil || p.Line != 5 || !strings.Contains(p.What, "not finished") {
		t.Errorf("an unfinished line is %v", p)
	}
	stop(t, start(t, Config{Path: path}))
	if rep, err := Verify("", path); err != nil || rep.Servers[0].Last != 7 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if got := lines(t, path); !strings.Contains(got[4], "14 bytes of an unfinished line were cut off") || !strings.Contains(got[5], methodStart) {
		t.Errorf("the start says %q", got[4:])
	}

	// A crash between two segments: the chain goes on from the older.
	if err := os.Rename(path, path+"."+segmentSuffix(1)); err != nil {
		t.Fatal(err)
	}
	stop(t, start(t, Config{Path: path}))
	if rep, err := Verify("", path, path+"."+segmentSuffix(1)); err != nil || rep.Servers[0].Last != 10 {
		t.Fatalf("%+v, %v", rep, err)
	}

	// A last line that was changed keeps nobody out, and stays to be found.
	all := lines(t, path)
	all[2] = strings.Replace(all[2], `"ok"`, `"no"`, 1)
	if err := os.WriteFile(path, []byte(strings.Join(all, "")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	stop(t, start(t, Config{Path: path}))
	if p := problem(t, path); p == nil || p.Line != 3 {
		t.Errorf("a changed line is %v", p)
	}
	if got := lines(t, path); len(got) != 6 || !strings.Contains(got[3], methodDamaged) {
		t.Errorf("the start says %q", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may still read it: %v", info.Mode())
	}
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	theirs := filepath.Join(dir, "theirs")
	stop(t, start(t, Config{Path: theirs, Server: "s2"}))
	for name, text := range map[string]string{"key": "0123456789abcdef", "notes": "one\ntwo\n", "json": "{}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"theirs", "key", "notes", "json", ".", "absent/audit.log"} {
		path := filepath.Join(dir, name)
		before, _ := os.ReadFile(path)
		_, err := Open(Config{Path: path, Server: "s1"})
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error that names it", name, err)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Errorf("%s has been changed", name)
		}
		if strings.Contains(fmt.Sprint(err), "0123456789") {
			t.Errorf("%s: its contents are in the error: %v", name, err)
		}
	}
	for _, c := range []Config{{SegmentBytes: 1000}, {Segments: 1}, {Segments: -1}} {
		c.Path, c.Server = filepath.Join(dir, "new"), "s1"
		if _, err := Open(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func TestUnknownCallersPushNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.log")
		l := start(t, Config{Path: path})
		for range 10 * unknownBurst {
			l.Record(Entry{Identity: nobody, Method: "/a/Get", Outcome: "UNAUTHENTICATED"})
		}
		synctest.Wait()
		for i := range 2 * unknownBurst {
			l.Record(call(i))
		}
		stop(t, l)
		all := strings.Join(lines(t, path), "")
		if n := strings.Count(all, `"who":"nobody"`); n != unknownBurst {
			t.Errorf("%d entries of unknown callers, want %d", n, unknownBurst)
		}
		told := 0
		for _, m := range regexp.MustCompile(`"(\d+) entries of unknown callers`).FindAllStringSubmatch(all, -1) {
			n, _ := strconv.Atoi(m[1])
			told += n
		}
		if told != 9*unknownBurst {
			t.Errorf("lines tell of %d entries that were left out, want %d", told, 9*unknownBurst)
		}
		if n := strings.Count(all, "operator/anna"); n != 2*unknownBurst {
			t.Errorf("%d entries of somebody known, want %d", n, 2*unknownBurst)
		}
	})
}

func FuzzVerify(f *testing.F) {
	r := record{Time: "2026-11-30T12:00:00.000Z", Server: "s1", Seq: 1, Who: "server/s1", Method: methodSegment, Outcome: "ok"}
	text, _ := r.appendLine(nil)
	f.Add(text)
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "audit.log")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		rep, err := Verify("", path)
		if err == nil && rep.Lines != bytes.Count(b, []byte("\n")) {
			t.Errorf("%d lines of %q are in order", rep.Lines, b)
		}
		if e, err := readEnd(path); err == nil && e.size+e.torn != int64(len(b)) {
			t.Errorf("the end of %q is at %d, with %d bytes behind it", b, e.size, e.torn)
		}
	})
}
