package rules

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/metrics/mixin/live"
)

// pages are the runbooks by the name of their alert.
func pages(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "runbooks", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if name := strings.TrimSuffix(filepath.Base(file), ".md"); name != "README" {
			all[name] = string(text)
		}
	}
	return all
}

// Every alert has a page and every page an alert.
func TestEveryAlertHasARunbook(t *testing.T) {
	all := pages(t)
	for _, a := range Alerts() {
		if all[a.Name] == "" {
			t.Errorf("%s has no page: write runbooks/%s.md", a.Name, a.Name)
		}
		if a.Runbook() != RunbookURL+a.Name+".md" {
			t.Errorf("%s leads to %s", a.Name, a.Runbook())
		}
	}
	for name, text := range all {
		if !slices.ContainsFunc(Alerts(), func(a Alert) bool { return a.Name == name }) {
			t.Errorf("runbooks/%s.md belongs to no alert", name)
		}
		want := regexp.MustCompile(`(?s)^# ` + name + `\n\n\S.*\n## First three moves\n\n1\. .*\n2\. .*\n3\. .*\n\n## What makes it worse\n\n\S.*\n## Over when\n\n\S`)
		if !want.MatchString(text) {
			t.Errorf("runbooks/%s.md: want what it means, three moves, what makes it worse and when it is over", name)
		}
		for _, m := range regexp.MustCompile(`\]\((Leasehold\w+)\.md\)`).FindAllStringSubmatch(text, -1) {
			if all[m[1]] == "" {
				t.Errorf("runbooks/%s.md leads to %s, which is not there", name, m[1])
			}
		}
		for _, m := range regexp.MustCompile("`(deploy/[\\w./]+)").FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("runbooks/%s.md: %v", name, err)
			}
		}
		if strings.Contains(text, "(deploy/") || strings.Contains(text, "`deploy/") && !strings.Contains(text, "deploy/operations/") && !strings.Contains(text, "deploy/OPERATIONS.md") {
			t.Errorf("runbooks/%s.md: unknown folder of deploy", name)
		}
	}
}

// help answers for each command once.
type help struct {
	t      *testing.T
	binary string
	known  map[string]string
}

// of is what the binary says about the words of a command.
func (h *help) of(words []string) string {
	key := strings.Join(words, " ")
	if text, ok := h.known[key]; ok {
		return text
	}
	out, err := exec.Command(h.binary, append(slices.Clone(words), "--help")...).CombinedOutput()
	if err != nil {
		out = nil
	}
	h.known[key] = string(out)
	return h.known[key]
}

var usageLine = regexp.MustCompile(`(?m)^Usage:\n  leasehold((?: [a-z]+)*)(.*)`)

// wrong says what the binary does not know of a command line, or "".
func (h *help) wrong(line string) string {
	var words, flags, args []string
	for _, w := range strings.Fields(line) {
		switch {
		case w == "--" || w == "|" || w == "&&" || w == ">":
			h.t.Errorf("%q: show one plain command", line)
		case strings.HasPrefix(w, "-"):
			name, _, _ := strings.Cut(w, "=")
			flags = append(flags, name)
		case len(flags) == 0 && len(args) == 0 && regexp.MustCompile(`^[a-z]+$`).MatchString(w):
			words = append(words, w)
		default:
			args = append(args, w)
		}
	}
	for ; len(words) > 0; words = words[:len(words)-1] {
		text := h.of(words)
		m := usageLine.FindStringSubmatch(text)
		if m == nil || strings.TrimSpace(m[1]) != strings.Join(words, " ") {
			args = append([]string{words[len(words)-1]}, args...) // an argument, unless nothing takes it
			continue
		}
		takes := strings.Fields(strings.ReplaceAll(m[2], "[flags]", ""))
		switch { // of what follows a flag nobody knows whether it is its value
		case strings.Contains(text, "Available Commands:") && len(args) > 0 && len(flags) == 0:
			return "there is no such command"
		case len(takes) > 0 && takes[0][0] != '[' && len(args) == 0 && !slices.Contains(flags, "--help"):
			return "arguments are missing: " + takes[0]
		case len(takes) == 0 && len(args) > 0 && len(flags) == 0:
			return "it takes no arguments"
		}
		for _, f := range flags {
			if !regexp.MustCompile(`(?m)^\s+(-\w, )?`+regexp.QuoteMeta(f)+`\b`).MatchString(text) &&
				!regexp.MustCompile(`(?m)^\s+`+regexp.QuoteMeta(f)+`, `).MatchString(text) {
				return "it has no flag " + f
			}
		}
		return ""
	}
	return "there is no such command"
}

// Every command of the pages is one of the binary, with the flags that are
// shown.
func TestRunbookCommandsExist(t *testing.T) {
	h := &help{t: t, binary: live.Binary(t), known: map[string]string{}}
	causes := families(t)["leasehold_partition_moves_total"].labels["reason"]
	found := 0
	for name, text := range pages(t) {
		here := 0
		for _, m := range regexp.MustCompile("`leasehold ([^`]+)`").FindAllStringSubmatch(text, -1) {
			here++
			if w := h.wrong(m[1]); w != "" {
				t.Errorf("runbooks/%s.md: leasehold %s: %s", name, m[1], w)
			}
		}
		for _, m := range regexp.MustCompile(`--cause (\w+)`).FindAllStringSubmatch(text, -1) {
			if !slices.Contains(causes, m[1]) {
				t.Errorf("runbooks/%s.md: no event has cause %s, only %q", name, m[1], causes)
			}
		}
		if here == 0 {
			t.Errorf("runbooks/%s.md shows no command", name)
		}
		found += here
	}
	if found < 2*len(Alerts()) {
		t.Errorf("only %d commands were found", found)
	}
	for line, want := range map[string]bool{ // the test itself
		"status --wait":                     true,
		"partitions ls orders -o wide":      true,
		"partitions list-all orders":        false,
		"partitions ls orders --all":        false,
		"partitions move orders/17 --to w4": true,
		"workers drain":                     false,
		"workers":                           true, "workers forget w2": false,
		"heal": false, "check quorum": true, "check everything": false,
	} {
		if w := h.wrong(line); (w == "") != want {
			t.Errorf("leasehold %s: %q", line, w)
		}
	}
}
