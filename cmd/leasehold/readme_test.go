package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The README's worker is the one that ownership/worker compiles.
func TestREADMEWorkerIsCompiled(t *testing.T) {
	src, err := os.ReadFile(filepath.Join(root(t), "ownership", "worker", "readme_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, code, ok := strings.Cut(string(src), "\t// README\n")
	code, _, ok2 := strings.Cut(code, "\t// README end\n")
	if !ok || !ok2 {
		t.Fatal("the marks are gone from ownership/worker/readme_test.go")
	}
	var want strings.Builder
	for line := range strings.Lines(code) {
		want.WriteString(strings.TrimPrefix(line, "\t"))
	}
	if !strings.Contains(readme(t), "```go\n"+want.String()+"```") {
		t.Errorf("README.md does not have the worker as it is compiled:\n%s", want.String())
	}
}

// Every command that the README shows exists, with the flags it shows.
func TestREADMECommandsExist(t *testing.T) {
	found := 0
	for line := range strings.Lines(readme(t)) {
		line = strings.TrimSpace(line)
		line, _, _ = strings.Cut(line, " #")
		for _, start := range []string{"leasehold ", "go run ./cmd/leasehold "} {
			rest, ok := strings.CutPrefix(line, start)
			if !ok {
				continue
			}
			cmd, args, err := newRootCommand(&env{}).Find(strings.Fields(rest))
			if err != nil {
				t.Errorf("%q: %v", line, err)
				continue
			}
			found++
			for _, a := range args {
				if a == "--" { // the rest is somebody else's command
					break
				}
				if name, ok := strings.CutPrefix(a, "--"); ok {
					name, _, _ = strings.Cut(name, "=")
					if cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
						t.Errorf("%q: %s has no flag --%s", line, cmd.CommandPath(), name)
					}
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d commands were found in the README", found)
	}
}
