package main

import (
	"os"
	"path/filepath"
	"regexp"
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

// Every command that OPERATIONS.md and the procedures show exists, with the
// flags they show.
func TestOperationsCommandsExist(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root(t), "deploy", "operations", "*.sh"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	found := 0
	for _, name := range append(files, filepath.Join(root(t), "deploy", "OPERATIONS.md")) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer("\\\n", " ", "FILE --data-dir\n", "FILE --data-dir ", "save\nFILE", "save FILE").Replace(string(b))
		for _, m := range regexp.MustCompile("(?:`|\\blh |\\$best\" |\\$first\" |\\$id\" |^)leasehold ([a-z][^`|)\n]*)|\\blh ([a-z][^|)\n]*)").FindAllStringSubmatch(text, -1) {
			commandExists(t, filepath.Base(name), strings.TrimSuffix(m[1]+m[2], ";"))
			found++
		}
	}
	if found < 20 {
		t.Errorf("only %d commands were found", found)
	}
}

func commandExists(t *testing.T, where, line string) {
	t.Helper()
	cmd, args, err := newRootCommand(&env{}).Find(strings.Fields(line))
	if err != nil || cmd.Parent() == nil {
		t.Errorf("%s: %q is no command: %v", where, line, err)
		return
	}
	for _, a := range args {
		if a == "--" {
			break
		}
		if name, ok := strings.CutPrefix(a, "--"); ok {
			name, _, _ = strings.Cut(name, "=")
			if cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
				t.Errorf("%s: %q: %s has no flag --%s", where, line, cmd.CommandPath(), name)
			}
		}
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
