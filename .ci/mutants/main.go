// Command mutants checks the tests: it breaks one promise at a time in a copy
// of the tree and expects the named test to fail. A mutant that no longer
// applies, does not build, or survives its test makes the run fail.
//
//	go run ./.ci/mutants            all of them
//	go run ./.ci/mutants guard-ge   only those whose name contains an argument
//
// A mutant is a text file in .ci/mutants:
//
//	promise: what it breaks, in a sentence
//	file:    path of the file to change
//	test:    package and -run pattern of the test that must notice
//	tags:    optional extra arguments of go test
//	--- old
//	exact text, found once in the file
//	--- new
//	what replaces it
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type mutant struct {
	name, promise, file, pkg, pattern string
	old, new                          string
}

func run(only []string) error {
	paths, err := filepath.Glob(".ci/mutants/*.mutant")
	if err != nil {
		return err
	}
	var mutants []mutant
	for _, p := range paths {
		m, err := read(p)
		if err != nil {
			return fmt.Errorf("read %s: %w", p, err)
		}
		if wanted(m.name, only) {
			mutants = append(mutants, m)
		}
	}
	if len(mutants) == 0 {
		return errors.New("no mutant matches")
	}
	tree, err := os.MkdirTemp("", "leasehold-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if err := copyTree(".", tree); err != nil {
		return fmt.Errorf("copy tree: %w", err)
	}
	survived := 0
	for _, m := range mutants {
		start := time.Now()
		verdict, detail := try(tree, m)
		fmt.Printf("%-9s %-34s %s %s  (%s)\n", verdict, m.name, m.pkg, m.pattern, time.Since(start).Round(100*time.Millisecond))
		if verdict != "caught" {
			survived++
			fmt.Printf("          promise: %s\n%s\n", m.promise, indent(detail))
		}
	}
	fmt.Printf("mutants: %d passed, %d failed\n", len(mutants)-survived, survived)
	if survived > 0 {
		return fmt.Errorf("%d of %d mutants were not caught", survived, len(mutants))
	}
	return nil
}

// try applies one mutant, runs its test, and restores the file.
func try(tree string, m mutant) (verdict, detail string) {
	path := filepath.Join(tree, m.file)
	src, err := os.ReadFile(path)
	if err != nil {
		return "stale", err.Error()
	}
	if n := strings.Count(string(src), m.old); n != 1 {
		return "stale", fmt.Sprintf("the old text occurs %d times in %s", n, m.file)
	}
	defer os.WriteFile(path, src, 0o644)
	if err := os.WriteFile(path, []byte(strings.Replace(string(src), m.old, m.new, 1)), 0o644); err != nil {
		return "stale", err.Error()
	}
	dir, pkg := moduleOf(tree, m.pkg)
	if out, err := goTool(dir, time.Minute*5, "vet", pkg); err != nil {
		return "unbuilt", out
	}
	out, err := goTool(dir, time.Minute*4, "test", "-count=1", "-timeout=180s", "-run", m.pattern, pkg)
	switch {
	case err == nil && strings.Contains(out, "no tests to run"):
		return "untested", out
	case err == nil:
		return "SURVIVED", out
	case !strings.Contains(out, "--- FAIL") && !strings.Contains(out, "panic:"):
		return "broken", out
	}
	return "caught", ""
}

// moduleOf finds the module that a package belongs to, which may lie inside
// another one, and the package's path from there.
func moduleOf(tree, pkg string) (dir, rel string) {
	for at := filepath.Clean(pkg); at != "."; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(tree, at, "go.mod")); err == nil {
			rel, _ := filepath.Rel(at, pkg) // both are relative
			return filepath.Join(tree, at), "./" + rel
		}
	}
	return tree, pkg
}

func goTool(dir string, limit time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		out = fmt.Appendf(out, "go %s: not done within %v", args[0], limit)
	}
	return string(out), err
}

func read(path string) (mutant, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return mutant{}, err
	}
	m := mutant{name: strings.TrimSuffix(filepath.Base(path), ".mutant")}
	head, rest, ok := strings.Cut(string(raw), "--- old\n")
	if !ok {
		return m, errors.New("no --- old")
	}
	old, repl, ok := strings.Cut(rest, "--- new\n")
	if !ok {
		return m, errors.New("no --- new")
	}
	m.old, m.new = strings.TrimSuffix(old, "\n"), strings.TrimSuffix(repl, "\n")
	for _, line := range strings.Split(strings.TrimSpace(head), "\n") {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "promise":
			m.promise = value
		case "file":
			m.file = value
		case "test":
			m.pkg, m.pattern, _ = strings.Cut(value, " ")
		default:
			return m, fmt.Errorf("unknown key %q", key)
		}
	}
	if m.promise == "" || m.file == "" || m.pkg == "" || m.pattern == "" || m.old == "" {
		return m, errors.New("promise, file, test and old are needed")
	}
	return m, nil
}

func wanted(name string, only []string) bool {
	for _, o := range only {
		if strings.Contains(name, o) {
			return true
		}
	}
	return len(only) == 0
}

// copyTree copies what git would: no .git, no bin.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel == ".git" || rel == "bin" {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		// A script that cannot be run would fail its test whatever the mutant is.
		return os.WriteFile(filepath.Join(to, rel), b, info.Mode().Perm())
	})
}

func indent(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > 12 {
		lines = lines[len(lines)-12:]
	}
	return "          | " + strings.Join(lines, "\n          | ")
}
