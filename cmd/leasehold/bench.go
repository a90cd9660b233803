package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/bench"
)

// newBenchCommand measures on real servers.
func newBenchCommand(e env) *cobra.Command {
	return group("bench", "Measure assignment, takeover, handoff, routers and sessions",
		`  leasehold bench assign
  leasehold bench takeover --strict
  leasehold bench handoff -o json
  leasehold bench router --routers 100
  leasehold bench sessions --sessions 2000`,
		newBenchAssign(e), newBenchTakeover(e), newBenchHandoff(e), newBenchRouter(e), newBenchSessions(e))
}

const benchServers = `
Three servers are started on loopback, with log and fsync on disk, unless
--server names others on the command line; the environment does not count.`

// benchConfig is what all benches share.
func benchConfig(e env, cmd *cobra.Command) bench.Config {
	var cfg bench.Config
	if cmd.Flags().Changed("server") {
		cfg.Servers, cfg.Identity = e.flags.server, e.flags.security.Files
	}
	if e.isTerminal(e.stderr) {
		cfg.Progress = func(format string, args ...any) {
			fmt.Fprintf(e.stderr, "\r\x1b[K"+format, args...)
		}
	}
	return cfg
}

// finish ends the line of progress and prints the result.
func finishBench(e env, result any, text string, err error) error {
	if e.isTerminal(e.stderr) {
		fmt.Fprint(e.stderr, "\r\x1b[K")
	}
	if err != nil {
		return err
	}
	if e.json() {
		return writeJSONLine(e, result)
	}
	_, err = fmt.Fprintln(e.stdout, text)
	return err
}

// atLeast refuses sizes that measure nothing.
func atLeast(sizes map[string][2]int) error {
	var errs []error
	for flag, s := range sizes {
		if s[0] < s[1] {
			errs = append(errs, usage("--%s %d: want at least %d", flag, s[0], s[1]))
		}
	}
	return errors.Join(errs...)
}

func newBenchAssign(e env) *cobra.Command {
	var a bench.AssignConfig
	delay := durationFlag{d: 25 * time.Millisecond, max: 5 * time.Second}
	cmd := &cobra.Command{
		Use:   "assign",
		Short: "How soon every partition of a new keyspace has its owner",
		Long: `assign opens sessions, creates a keyspace, has all workers join it, and measures
from the call that creates it until every partition has been received, with its
token, by a worker's library.
` + benchServers,
		Example: "  leasehold bench assign --workers 100 --partitions 100000 -o json",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := atLeast(map[string][2]int{"workers": {a.Workers, 1}, "processes": {a.Processes, 1}, "partitions": {int(a.Partitions), 1}}); err != nil {
				return err
			}
			a.Delay = delay.d
			r, err := bench.Assign(cmd.Context(), benchConfig(e, cmd), a)
			return finishBench(e, r, fmt.Sprintf("%d partitions had their owner among %d workers after %.3f s", r.Partitions, r.Workers, r.Seconds), err)
		},
	}
	f := cmd.Flags()
	f.IntVar(&a.Workers, "workers", 100, "sessions")
	f.IntVar(&a.Processes, "processes", 4, "that host the workers")
	f.Uint32Var(&a.Partitions, "partitions", 100_000, "of the new keyspace")
	f.Var(&delay, "initial-delay", "of the new keyspace: it waits until no worker has joined for so long")
	return cmd
}

func newBenchTakeover(e env) *cobra.Command {
	var t bench.TakeoverConfig
	cmd := &cobra.Command{
		Use:   "takeover",
		Short: "How soon a killed worker's partitions run elsewhere",
		Long: `takeover kills worker processes one after the other, and measures for each of
their partitions from the signal until a handler runs in another process.
` + benchServers,
		Example: "  leasehold bench takeover\n  leasehold bench takeover --strict -o json",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := atLeast(map[string][2]int{"kills": {t.Kills, 1}, "workers": {t.Workers, 2}, "partitions": {int(t.Partitions), 1}}); err != nil {
				return err
			}
			r, err := bench.TakeoverTimes(cmd.Context(), benchConfig(e, cmd), t)
			return finishBench(e, r, fmt.Sprintf("%s: %d kills, %d partitions taken over: p50 %.0f ms, p99 %.0f ms, max %.0f ms", r.Mode, r.Kills, r.Count, r.P50, r.P99, r.Max), err)
		},
	}
	f := cmd.Flags()
	f.IntVar(&t.Kills, "kills", 50, "how many workers are killed")
	f.IntVar(&t.Workers, "workers", 8, "worker processes alive at a time")
	f.Uint32Var(&t.Partitions, "partitions", 256, "of the keyspace")
	f.BoolVar(&t.Strict, "strict", false, "strict takeover instead of fenced")
	return cmd
}

func newBenchHandoff(e env) *cobra.Command {
	var h bench.HandoffConfig
	cmd := &cobra.Command{
		Use:   "handoff",
		Short: "How long a planned handoff takes",
		Long: `handoff drains workers and has workers leave, in turns, and measures for each of
their partitions from the drain until the next handler runs. The handlers do
nothing, so what is left is Leasehold's part.
` + benchServers,
		Example: "  leasehold bench handoff --handoffs 1000 -o json",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := atLeast(map[string][2]int{"handoffs": {h.Handoffs, 1}, "workers": {h.Workers, 2}, "partitions": {int(h.Partitions), 1}}); err != nil {
				return err
			}
			r, err := bench.Handoff(cmd.Context(), benchConfig(e, cmd), h)
			return finishBench(e, r, fmt.Sprintf("%s: %d handoffs: p50 %.1f ms, p99 %.1f ms, max %.1f ms", r.Mode, r.Count, r.P50, r.P99, r.Max), err)
		},
	}
	f := cmd.Flags()
	f.IntVar(&h.Handoffs, "handoffs", 500, "how many at least")
	f.IntVar(&h.Workers, "workers", 4, "worker processes")
	f.Uint32Var(&h.Partitions, "partitions", 64, "of the keyspace")
	f.BoolVar(&h.Strict, "strict", false, "strict takeover instead of fenced")
	return cmd
}

func newBenchRouter(e env) *cobra.Command {
	var r bench.RouterConfig
	cmd := &cobra.Command{
		Use:   "router",
		Short: "How soon a move is visible to routers",
		Long: `router drains workers and has workers leave, in turns, and measures for each move
and each router from the leader's proposal of the grant, which is before the log
has it, until the router's table shows the new owner. It starts its own servers
always.`,
		Example: "  leasehold bench router --routers 100 --moves 1000 -o json",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := atLeast(map[string][2]int{"routers": {r.Routers, 1}, "moves": {r.Moves, 1}, "workers": {r.Workers, 2}, "partitions": {int(r.Partitions), 1}}); err != nil {
				return err
			}
			t, err := bench.RouterTimes(cmd.Context(), benchConfig(e, cmd), r)
			return finishBench(e, t, fmt.Sprintf("%d routers, %d times that one showed a move: p50 %.1f ms, p99 %.1f ms, max %.1f ms", r.Routers, t.Count, t.P50, t.P99, t.Max), err)
		},
	}
	f := cmd.Flags()
	f.IntVar(&r.Routers, "routers", 100, "routers, in this process, each with its own connections")
	f.IntVar(&r.Moves, "moves", 500, "how many at least")
	f.IntVar(&r.Workers, "workers", 4, "worker processes")
	f.Uint32Var(&r.Partitions, "partitions", 64, "of the keyspace")
	f.BoolVar(&r.AnyServer, "any-server", false, "routers follow a server chosen at random instead of the leader")
	return cmd
}

func newBenchSessions(e env) *cobra.Command {
	var s bench.SessionsConfig
	span := durationFlag{d: 30 * time.Second, max: time.Hour}
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "What it costs the servers to keep sessions alive",
		Long: `sessions opens sessions with a TTL of 10 s, each on a connection of its own, and
measures the processor time of all servers while nothing else happens, per
1,000 sessions and minute. It starts its own servers always.`,
		Example: "  leasehold bench sessions --sessions 1000 --for 1m -o json",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := atLeast(map[string][2]int{"sessions": {s.Sessions, 1}, "processes": {s.Processes, 1}, "for": {int(span.d / time.Second), 1}}); err != nil {
				return err
			}
			s.For = span.d
			r, err := bench.Sessions(cmd.Context(), benchConfig(e, cmd), s)
			return finishBench(e, r, fmt.Sprintf("%d sessions: %.2f s of processor time per 1,000 sessions and minute, all servers together", r.Sessions, r.Seconds), err)
		},
	}
	f := cmd.Flags()
	f.IntVar(&s.Sessions, "sessions", 1000, "how many")
	f.IntVar(&s.Processes, "processes", 4, "that host them")
	f.Var(&span, "for", "how long is measured")
	return cmd
}

// newBenchWorkerCommand hosts workers for a bench. People do not call it.
func newBenchWorkerCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:    bench.WorkerCommand + " CONFIG",
		Short:  "Host workers for a bench",
		Hidden: true,
		Args:   exactArgs("CONFIG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			log := slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
			return bench.RunWorkers(cmd.Context(), args[0], e.stdin, e.stdout, log)
		},
	}
}
