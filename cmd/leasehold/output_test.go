package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command a person can call has help with an example.
func TestHelp(t *testing.T) {
	e := (&cli{}).asEnv()
	root := newRootCommand(&e)
	var paths []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		if c.Example == "" || c.Short == "" {
			t.Errorf("%s has no example or no short help", c.CommandPath())
		}
		paths = append(paths, c.CommandPath())
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	var b strings.Builder
	for _, path := range paths {
		args := append(strings.Fields(path)[1:], "--help")
		out, errOut := (&cli{}).want(t, exitOK, args...)
		if errOut != "" || !strings.Contains(out, "Examples:") {
			t.Errorf("%s --help:\n%s%s", path, out, errOut)
		}
		if strings.Contains(path, " demo") || strings.Contains(path, " bench") {
			continue // their own tests'
		}
		fmt.Fprintf(&b, "$ %s --help\n%s\n", path, out)
	}
	golden(t, "help.txt", b.String())
}

func (c *cli) asEnv() env {
	return env{stdin: strings.NewReader(""), stdout: &c.stdout, stderr: &c.stderr, getenv: func(k string) string { return c.env[k] }, isTerminal: func(any) bool { return c.terminal }}
}

// What people and scripts see, command by command.
func TestOutput(t *testing.T) {
	p := newPeer(t)
	for _, format := range []string{"table", "wide", "json"} {
		var b strings.Builder
		for _, line := range []string{
			"status", "keyspace ls", "keyspace show orders", "keyspace create mails --partitions 64 --ttl 1m30s --takeover fenced",
			"keyspace set orders --restart-grace 30s", "keyspace rm orders --yes",
			"partitions ls orders", "partitions show orders 1", "partitions show orders/0 --why", "partitions move orders 1 --to w4", "partitions retry orders 2",
			"locate orders key", "ring show orders", "ring simulate orders --add w9:1 --remove w2", "workers ls", "workers drain w2", "workers undrain w2", "workers evict w2 --yes",
			"events", "cluster init --expect 3", "raft peers", "raft add s4 --grpc-addr 10.0.0.4:7400", "raft promote s4",
			"raft remove s2 --yes", "raft transfer", "raft transfer s3",
			"credential create ci --role worker --keyspace orders --key-prefix /app/ --ttl 720h", "credential ls", "credential revoke ci --yes",
		} {
			args := append(strings.Fields(line), "-o", format)
			out, errOut := p.cli().want(t, exitOK, args...)
			if strings.Contains(out, "\x1b") {
				t.Errorf("%s: a raw escape in output that is no terminal", line)
			}
			if format == "json" && !json.Valid([]byte(out)) {
				t.Errorf("%s: not JSON:\n%s", line, out)
			}
			fmt.Fprintf(&b, "$ leasehold %s\n%s%s\n", strings.Join(args, " "), out, errOut)
		}
		golden(t, "output-"+format+".txt", b.String())
	}
}

func TestLists(t *testing.T) {
	p := newPeer(t)
	for _, line := range []string{"keyspace ls", "partitions ls orders", "workers ls", "events", "raft peers"} {
		out, _ := p.cli().want(t, exitOK, append(strings.Fields(line), "-o", "json")...)
		var list struct{ Items []map[string]any }
		if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Items) == 0 {
			t.Errorf("%s: %v in %s", line, err, out)
		}
	}
	out, _ := p.cli().want(t, exitOK, "partitions", "ls", "orders", "-o", "json")
	if !strings.Contains(out, `"token": "49387577294860"`) || !strings.Contains(out, `"held_ms": "7200123"`) {
		t.Errorf("tokens are strings and names those of the proto:\n%s", out)
	}
}

// Colour is for terminals only, and not under NO_COLOR.
func TestColour(t *testing.T) {
	p := newPeer(t)
	for _, c := range []struct {
		terminal bool
		noColor  string
		term     string
		want     bool
	}{{true, "", "xterm", true}, {false, "", "xterm", false}, {true, "1", "xterm", false}, {true, "", "dumb", false}} {
		cmd := p.cli()
		cmd.terminal, cmd.env["NO_COLOR"], cmd.env["TERM"] = c.terminal, c.noColor, c.term
		out, _ := cmd.want(t, exitOK, "partitions", "ls", "orders")
		if got := strings.Contains(out, "\x1b[32mowned\x1b[0m"); got != c.want {
			t.Errorf("%+v: colour %v\n%s", c, got, out)
		}
	}
}

// No name can move the cursor.
func TestCellsAreSafeForTerminals(t *testing.T) {
	for in, want := range map[string]string{
		"": "-", "w1": "w1", "żółw 😀": "żółw 😀", "a\nb": `"a\nb"`, "\x1b[2J": `"\x1b[2J"`, "a\u202eb": `"a\u202eb"`, "a\u00a0b": `"a\u00a0b"`, "a\xffb": `"a\xffb"`,
	} {
		if got := cell(in); got != want {
			t.Errorf("cell(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestPagesAreFetchedToTheEnd(t *testing.T) {
	p := newPeer(t)
	p.pages = 1
	out, _ := p.cli().want(t, exitOK, "partitions", "ls", "orders")
	if n := strings.Count(out, "\n"); n != 5 {
		t.Errorf("%d lines, want a title and 4 partitions:\n%s", n, out)
	}
}
