// Command fuzz runs every fuzz target of the module for a while, one after
// another, since go test takes only one target at a time.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

func main() {
	fuzztime := flag.String("fuzztime", "20s", "time for each target")
	flag.Parse()
	if err := run(*fuzztime); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

var target = regexp.MustCompile(`^Fuzz\w+$`)

func run(fuzztime string) error {
	out, err := exec.Command("go", "list", "-f", "{{if .TestGoFiles}}{{.ImportPath}}{{else if .XTestGoFiles}}{{.ImportPath}}{{end}}", "./...").Output()
	if err != nil {
		return fmt.Errorf("list packages: %w", err)
	}
	for _, pkg := range strings.Fields(string(out)) {
		names, err := exec.Command("go", "test", "-list", "^Fuzz", pkg).Output()
		if err != nil {
			return fmt.Errorf("list targets of %s: %w", pkg, err)
		}
		for _, name := range strings.Fields(string(names)) {
			if !target.MatchString(name) {
				continue
			}
			fmt.Println("fuzz:", pkg, name)
			// Left to itself, the fuzzer spends a minute to shorten one input that is
			// merely new, which is all the time that it has.
			cmd := exec.Command("go", "test", "-run", "^$", "-fuzz", "^"+name+"$", "-fuzztime", fuzztime, "-fuzzminimizetime", "20x", pkg)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("%s %s: %w", pkg, name, err)
			}
		}
	}
	return nil
}
