package rules

import (
	"fmt"
	"strings"
	"time"
)

// Write is the file for Prometheus, with all times divided by factor, which is
// at least 1.
func Write(factor int) []byte {
	var b strings.Builder
	b.WriteString("# Made by `make generate` from metrics/mixin/rules; do not edit.\n")
	if factor != 1 {
		fmt.Fprintf(&b, "# All times are divided by %d: for tests.\n", factor)
	}
	b.WriteString("groups:\n")
	for _, g := range Groups() {
		fmt.Fprintf(&b, "  - name: %s\n    rules:\n", g.Name)
		for _, r := range g.Records {
			fmt.Fprintf(&b, "      - record: %s\n        expr: |-\n%s", r.Name, indent(expr(r.Expr, factor)))
		}
		for _, a := range g.Alerts {
			fmt.Fprintf(&b, "      - alert: %s\n        expr: |-\n%s", a.Name, indent(expr(a.Expr, factor)))
			if a.For > 0 {
				fmt.Fprintf(&b, "        for: %s\n", format(a.For/time.Duration(factor)))
			}
			fmt.Fprintf(&b, "        labels:\n          severity: %s\n        annotations:\n", a.Severity)
			for _, n := range [][2]string{{"summary", a.Summary}, {"description", a.Description}, {"runbook_url", a.Runbook()}} {
				fmt.Fprintf(&b, "          %s: %s\n", n[0], quote(n[1]))
			}
		}
	}
	return []byte(b.String())
}

// Table is the README of the runbooks: each alert with its severity, how long
// it takes and what it says.
func Table() []byte {
	var b strings.Builder
	b.WriteString(`# Runbooks

One page for each alert of ` + "`../leasehold.rules.yml`" + `: what it means, the first three moves, what makes it worse, and when it is over.
Made by ` + "`make generate`" + `; the pages are written by hand.

| alert | severity | after | says |
|---|---|---|---|
`)
	for _, a := range Alerts() {
		after := "at once"
		if a.For > 0 {
			after = format(a.For)
		}
		fmt.Fprintf(&b, "| [%s](%s.md) | %s | %s | %s |\n", a.Name, a.Name, a.Severity, after, a.Summary)
	}
	return []byte(b.String())
}

func indent(expr string) string {
	var b strings.Builder
	for line := range strings.Lines(expr + "\n") {
		b.WriteString("          " + line)
	}
	return b.String()
}

// quote makes a YAML string of one line.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
