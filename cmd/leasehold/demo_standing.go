package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
)

// newDemoRelayCommand is a worker of the demo on a cluster of one's own.
func newDemoRelayCommand(e env) *cobra.Command {
	var id, dir string
	begin := demo.DefaultStandby()
	var fenced bool
	var shown metricsAddr
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Be one worker of a stream of orders, on a cluster of your own",
		Long: `relay carries orders into a SQLite ledger, as the workers of the demo do, but on
the servers that --server names and until it is stopped. Workers that share a
directory share a stream; the first of them begins it and creates the keyspace
"orders". Kill, pause or cut off whatever you like, and look at the ledger with
demo audit. The compose file of deploy/compose runs three of them.`,
		Example: `  leasehold demo relay --id w1 --dir /tmp/orders
  leasehold demo relay --id w2 --dir /tmp/orders &
  leasehold demo audit --dir /tmp/orders`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return usage("--dir is missing: which directory do the workers share? for example --dir /tmp/orders")
			}
			if id == "" {
				host, err := os.Hostname()
				if err != nil {
					return usage("--id is missing, and the host has no name: %v", err)
				}
				id = host
			}
			if n := begin.Source.Partitions; n < 1 || n > demo.MaxPartitions {
				return usage("--partitions %d: want 1 to %d", n, demo.MaxPartitions)
			}
			if fenced {
				begin.Mode = demo.Fenced
			}
			s, err := demo.OpenStanding(dir, begin)
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(e.stderr, nil))
			series, stop, err := shown.serve(log)
			if err != nil {
				return err
			}
			defer stop()
			at := demo.Surroundings{Out: discard{}, Log: log, Metrics: series}
			if at.TLS, at.Credential, err = e.security(); err != nil {
				return err
			}
			err = s.Relay(cmd.Context(), id, e.flags.server, at)
			var stopped *signalError
			if errors.As(context.Cause(cmd.Context()), &stopped) {
				return nil // it was asked to
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&id, "id", "", "worker id (default the host's name)")
	f.StringVar(&dir, "dir", "", "`directory` that the workers share: stream, ledger, evidence")
	f.Uint32Var(&begin.Source.Partitions, "partitions", begin.Source.Partitions, "how many `partitions` a new stream has")
	f.DurationVar(&begin.Source.Pace, "pace", begin.Source.Pace, "time between two orders of a partition of a new stream")
	f.BoolVar(&fenced, "fenced", false, "create the keyspace with fenced takeover")
	shown.define(cmd)
	return cmd
}

// discard takes the copy of the evidence that the demo's driver would read.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// newDemoAuditCommand reads what such workers left behind.
func newDemoAuditCommand(e env) *cobra.Command {
	var dir string
	var end bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Hold the ledger of a stream of orders against what was sent",
		Long: `audit reads ledger and evidence of demo relay: every order exactly once and in
sequence, no write accepted below an accepted token, with strict takeover no
two contexts of a partition live at once, except in a process that was paused.
While the stream goes on, the orders of the last minute may be missing. Exit
code 1 if anything is wrong.`,
		Example: "  leasehold demo audit --dir /tmp/orders\n  leasehold demo audit --dir /tmp/orders --end -o json",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := demo.ReadStanding(dir)
			if err != nil {
				return err
			}
			if end {
				ctx, cancel := context.WithTimeoutCause(cmd.Context(), wait, fmt.Errorf("not within %v", wait))
				defer cancel()
				if _, err := s.End(ctx); err != nil {
					return err
				}
			}
			found, err := s.Judge(cmd.Context())
			if err != nil {
				return err
			}
			if err := printFindings(e, found); err != nil {
				return err
			}
			if len(found.Problems) > 0 {
				return &codedError{code: exitFailed} // they have been told
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", "", "`directory` that the workers share")
	f.BoolVar(&end, "end", false, "end the stream first, and wait until the ledger has all of it")
	f.DurationVar(&wait, "wait", time.Minute, "how long --end waits")
	return cmd
}

func printFindings(e env, f demo.Findings) error {
	if e.json() {
		return writeJSONLine(e, f)
	}
	err := printFields(e,
		"orders", fmt.Sprintf("%d written, %d missing of 1 to %d, %d twice", f.OrdersWritten, f.OrdersMissing, f.Last, f.OrdersDuplicated),
		"tokens", fmt.Sprintf("%d writes accepted below an accepted one, %d rejected", f.TokenRegressions, f.StaleWritesRejected),
		"contexts", fmt.Sprintf("%d checked, %d pairs live at once", f.IntervalsChecked, f.Overlaps),
	)
	for _, p := range f.Problems {
		if err == nil {
			err = e.say("✗ %s", p)
		}
	}
	return err
}
