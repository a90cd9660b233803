package main

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func staleFlag(cmd *cobra.Command, stale *bool) {
	cmd.Flags().BoolVar(stale, "stale", false, "answer from any server's own state, also without a leader; it may be old")
}

// partitionArg reads a partition number. Whether the keyspace has it is for
// the server to say.
func partitionArg(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, usage("partition %q: want a number from 0, for example 17", s)
	}
	return uint32(n), nil
}

// printFields writes pairs of name and value, aligned.
func printFields(e env, pairs ...string) error {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		width = max(width, len(pairs[i]))
	}
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		value := cell(pairs[i+1])
		fmt.Fprintf(&b, "%-*s  %s\n", width, pairs[i], e.paint(colourOf[value], value))
	}
	_, err := e.stdout.Write([]byte(b.String()))
	return err
}

// confirm asks before something that can hurt. Off a terminal nobody can be
// asked, so --yes is needed there.
func confirm(ctx context.Context, e env, question string) error {
	if e.flags.yes {
		return nil
	}
	if !e.isTerminal(e.stdin) || !e.isTerminal(e.stderr) {
		return usage("this can hurt and there is no terminal to ask on: add --yes if you mean it")
	}
	fmt.Fprintf(e.stderr, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // ends with the line, or with the process
		line, _ := bufio.NewReader(e.stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case a := <-answer:
		if a == "y" || a == "yes" {
			return nil
		}
		return &codedError{exitFailed, fmt.Errorf("nothing was done")}
	case <-ctx.Done():
		fmt.Fprintln(e.stderr)
		return context.Cause(ctx)
	}
}

// progress is a line on a terminal that is written over; elsewhere nothing.
type progress struct {
	e    env
	live bool
	used bool
}

func newProgress(e env) *progress { return &progress{e: e, live: e.isTerminal(e.stderr)} }

func (p *progress) show(format string, args ...any) {
	if !p.live {
		return
	}
	p.used = true
	fmt.Fprintf(p.e.stderr, "\r\x1b[K"+format, args...)
}

// done takes the line away.
func (p *progress) done() {
	if p.used {
		fmt.Fprint(p.e.stderr, "\r\x1b[K")
	}
}

// poll calls look every interval until it says true or an error, or ctx ends.
func poll(ctx context.Context, interval time.Duration, look func() (bool, error)) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		if ok, err := look(); ok || err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
