package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// O-80: a stored keyspace keeps its number of partitions, and who asks for
// another one is told both.
func TestDevNamesAPartitionCountThatDoesNotCount(t *testing.T) {
	dir := t.TempDir()
	start := func(args ...string) (devResult, *program) {
		t.Helper()
		p := startProgram(t, append(append([]string{"dev", "--data-dir", dir, "-o", "json"}, args...), freePorts...)...)
		var d devResult
		if err := json.NewDecoder(p.stdout).Decode(&d); err != nil {
			t.Fatal(err)
		}
		return d, p
	}
	_, p := start("--partitions", "8")
	p.stop(t)
	d, p := start("--partitions", "9")
	p.stop(t)
	if d.Partitions != 8 {
		t.Errorf("%d partitions after a restart, stored were 8", d.Partitions)
	}
	if out := p.stderr.String(); !strings.Contains(out, "stored=8") && !strings.Contains(out, `"stored":8`) || !strings.Contains(out, "9") {
		t.Errorf("nobody was told: %s", out)
	}
	_, p = start()
	p.stop(t)
	if out := p.stderr.String(); strings.Contains(out, "stored") {
		t.Errorf("complains of a number that nobody asked for: %s", out)
	}
}
