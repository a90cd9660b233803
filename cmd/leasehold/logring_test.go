package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestLogRingKeepsDebugLinesWhateverTheOutputShows(t *testing.T) {
	var out bytes.Buffer
	var ring logRing
	log := ring.keepIn(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))).With("server", "s1")
	log.Debug("quiet")
	log.WithGroup("g").Warn("loud", "n", 1)
	if got := out.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "server=s1 g.n=1") {
		t.Errorf("output: %s", got)
	}
	kept := string(ring.text())
	if !strings.Contains(kept, `"msg":"quiet","server":"s1"`) || !strings.Contains(kept, `"g":{"n":1}`) || strings.Count(kept, "\n") != 2 {
		t.Errorf("kept: %s", kept)
	}
}

func TestLogRingIsBounded(t *testing.T) {
	var ring logRing
	for n := range 3*ringLines + 7 {
		fmt.Fprintf(&ring, "line %d\n", n)
	}
	lines := strings.Split(strings.TrimSuffix(string(ring.text()), "\n"), "\n")
	if len(lines) != ringLines || lines[0] != fmt.Sprintf("line %d", 2*ringLines+7) || lines[ringLines-1] != fmt.Sprintf("line %d", 3*ringLines+6) {
		t.Errorf("%d lines, from %q to %q", len(lines), lines[0], lines[len(lines)-1])
	}
	long := append(bytes.Repeat([]byte("x"), ringBytes), '\n')
	for range 100 {
		if n, err := ring.Write(long); n != len(long) || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
	}
	if n := len(ring.text()); n > ringBytes || n < ringBytes/2 {
		t.Errorf("%d bytes are kept", n)
	}
	if len(ring.lines) > 2*ringLines+1 {
		t.Errorf("%d lines are held for %d", len(ring.lines), ringLines)
	}
}
