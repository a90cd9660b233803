package main

import (
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
)

// newDemoCommand tells the whole story on real processes.
func newDemoCommand(e env) *cobra.Command {
	cfg := demo.Config{}
	var fenced, strict bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work: workers join, leave, crash and are stopped; a zombie's write bounces",
		Long: `demo starts 3 servers and some workers, processes of this binary with their data
in a temporary directory. The workers relay a numbered stream of orders into a
SQLite ledger behind the guard of a fencing token. Meanwhile one joins, one
leaves, one is killed, one is stopped past its TTL and goes on, the Raft leader
is killed, and all workers restart under their ids.

The verdict comes from the ledger and from what each worker process wrote about
itself: every order exactly once and in sequence, no write accepted below an
accepted token, at least one stale write rejected, no move by the leader's
death, and with strict takeover no two contexts of a partition live at once.
Exit code 0 only if it holds; --no-guard leaves the guard out, and it must not.

With --hold the cluster stays up after that until Ctrl-C, with workers that carry
a light stream of orders, to be looked at and hurt: it prints the console's
address and how to start a Prometheus on files that it has written.`,
		Example: `  leasehold demo
  leasehold demo --strict --seed 7 --keep
  leasehold demo --hold            # and then look at it: console, Prometheus
  leasehold demo -o json | tail -n 1
  leasehold demo --no-guard        # what happens without the token`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if fenced || !strict {
				cfg.Modes = append(cfg.Modes, demo.Fenced)
			}
			if strict || !fenced {
				cfg.Modes = append(cfg.Modes, demo.Strict)
			}
			if cfg.Hold && !fenced && !strict {
				cfg.Modes = []demo.Mode{demo.Strict}
			}
			if err := cfg.Validate(); err != nil {
				return &usageError{err}
			}
			out, colour := e.stdout, e.colour()
			if e.json() { // standard output is for the result alone
				out, colour = e.stderr, false
			}
			result, err := demo.Run(cmd.Context(), cfg, demo.NewTimeline(out, colour))
			if err != nil {
				return err
			}
			if e.json() {
				if err := writeJSONLine(e, result); err != nil {
					return err
				}
			}
			if !result.OK {
				return &codedError{code: exitFailed} // the story has told why
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&fenced, "fenced", false, "only with fenced takeover (default: both)")
	f.BoolVar(&strict, "strict", false, "only with strict takeover (default: both)")
	f.Uint32Var(&cfg.Partitions, "partitions", 64, "how many `partitions` the orders are spread over")
	f.IntVar(&cfg.Workers, "workers", 5, "how many workers there are at the start")
	f.Int64Var(&cfg.Seed, "seed", 1, "decides who is hit by what, and when")
	f.BoolVar(&cfg.Keep, "keep", false, "keep ledger, evidence and logs")
	f.BoolVar(&cfg.NoGuard, "no-guard", false, "write without claim and guard: the ledger must come out damaged")
	f.BoolVar(&cfg.Hold, "hold", false, "after the story of one mode (default strict), keep the cluster up to look at")
	f.BoolVar(&cfg.NoStory, "no-story", false, "with --hold: only that")
	cmd.AddCommand(newDemoRelayCommand(e), newDemoAuditCommand(e))
	return cmd
}

// newDemoWorkerCommand is a worker process of the demo. People do not call it.
func newDemoWorkerCommand(e env) *cobra.Command {
	var shown metricsAddr
	cmd := &cobra.Command{
		Use:    demo.WorkerCommand + " CONFIG",
		Short:  "Be a worker of the demo",
		Hidden: true,
		Args:   exactArgs("CONFIG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			clock, err := e.workerFaults()
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(e.stderr, nil))
			series, stop, err := shown.serve(log)
			if err != nil {
				return err
			}
			defer stop()
			return demo.RunWorker(cmd.Context(), args[0], demo.Surroundings{In: e.stdin, Out: e.stdout, Log: log, Clock: clock, Metrics: series})
		},
	}
	shown.define(cmd)
	return cmd
}

// writeJSONLine writes a value on one line.
func writeJSONLine(e env, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	_, err = e.stdout.Write(append(raw, '\n'))
	return err
}
