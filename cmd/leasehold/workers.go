package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/spf13/cobra"
)

func newWorkersCommand(e env) *cobra.Command {
	return group("workers", "List workers, drain one, bring it back, evict it",
		"  leasehold workers ls\n  leasehold workers drain w2 --wait",
		newWorkersListCommand(e), newWorkersDrainCommand(e), newWorkersUndrainCommand(e), newWorkersEvictCommand(e))
}

func newWorkersListCommand(e env) *cobra.Command {
	var stale bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List workers with their sessions and what they hold",
		Example: "  leasehold workers ls\n  leasehold workers ls -o wide",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			r, err := c.Workers().ListWorkers(cmd.Context(), &leaseholdv1.ListWorkersRequest{Stale: stale})
			if err != nil {
				return fmt.Errorf("list workers: %w", err)
			}
			if e.json() {
				return printItems(e.stdout, r.GetItems())
			}
			t := newTable(e, col("ID"), col("STATE"), col("DRAINED"), numCol("HELD"), numCol("RUNNING"), numCol("REMAINING"), col("GOSSIP"),
				col("KEYSPACES"), wideCol("ENDPOINT"), wideCol("ZONE"), column{"CAPACITY", true, true}, column{"TTL", true, true},
				column{"INCARNATION", true, true}, column{"OVERRUNS", true, true}, column{"PAUSE", true, true}, column{"CHECKS", true, true}, column{"REFUSED", true, true},
				wideCol("ATTACHED"), wideCol("SESSION"), wideCol("VERSION"), wideCol("OWNER"), col("ADDR"))
			for _, w := range r.GetItems() {
				t.row(w.GetId(), w.GetState(), yesNo(w.GetDraining()), number(w.GetHeld()), number(w.GetRunning()), remainingText(w), w.GetGossip(),
					strings.Join(w.GetKeyspaces(), ","), w.GetEndpoint(), w.GetZone(), capacityText(w), ttlText(w),
					number(w.GetIncarnation()), number(w.GetOverruns()), pauseText(w), number(w.GetFencingChecks()), number(w.GetFencingRejections()), yesNo(w.GetAttached()), sessionText(w.GetSessionId()), w.GetVersion(), w.GetOwner(), w.GetAddr())
			}
			return t.print("no workers; a worker joins with ownership/worker, see: leasehold dev")
		},
	}
	staleFlag(cmd, &stale)
	return cmd
}

func remainingText(w *leaseholdv1.Worker) string {
	if w.GetSessionId() == 0 {
		return ""
	}
	return ageText(w.GetRemainingMs())
}

// pauseText is the worker's longest stand-still of the last ten minutes; only
// the leader knows it, of workers that are attached.
func pauseText(w *leaseholdv1.Worker) string {
	if !w.GetAttached() {
		return ""
	}
	return msText(w.GetLongestPauseMs())
}

func ttlText(w *leaseholdv1.Worker) string {
	if w.GetSessionId() == 0 {
		return ""
	}
	return msText(w.GetTtlMs())
}

func capacityText(w *leaseholdv1.Worker) string {
	if w.GetCapacity() == 0 {
		return ""
	}
	return number(w.GetCapacity())
}

// workerCommand is what the commands on one worker share.
func workerCommand(e env, cmd *cobra.Command, verb string, call func(context.Context, *client.Client, string) (*leaseholdv1.Worker, error), done func(context.Context, *client.Client, *leaseholdv1.Worker) error) *cobra.Command {
	cmd.Args = exactArgs("WORKER")
	cmd.ValidArgsFunction = completeArgs(e, workerIDs)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := e.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		w, err := call(cmd.Context(), c, args[0])
		if err != nil {
			return fmt.Errorf("%s worker %q: %w", verb, args[0], err)
		}
		return done(cmd.Context(), c, w)
	}
	return cmd
}

func newWorkersDrainCommand(e env) *cobra.Command {
	var wait bool
	cmd := workerCommand(e, &cobra.Command{
		Use:   "drain WORKER",
		Short: "Hand over all that a worker holds and grant it nothing more",
		Long: `Hand over all that a worker holds, with new owners chosen at once, and grant it
nothing more until undrain. It outlives restarts of the worker and of servers.
With --wait the command returns when the worker holds nothing, at most after
--timeout.`,
		Example: "  leasehold workers drain w2\n  leasehold workers drain w2 --wait --timeout 2m",
	}, "drain", func(ctx context.Context, c *client.Client, id string) (*leaseholdv1.Worker, error) {
		return c.Workers().DrainWorker(ctx, &leaseholdv1.DrainWorkerRequest{Id: id})
	}, func(ctx context.Context, c *client.Client, w *leaseholdv1.Worker) error {
		if wait {
			var err error
			if w, err = waitDrained(ctx, e, c, w); err != nil {
				return err
			}
		}
		if e.json() {
			return printMessage(e.stdout, w)
		}
		return e.say("worker %s gets nothing new, holds %d", w.GetId(), w.GetHeld())
	})
	cmd.Flags().BoolVar(&wait, "wait", false, "return when it holds nothing")
	return cmd
}

func waitDrained(ctx context.Context, e env, c *client.Client, w *leaseholdv1.Worker) (*leaseholdv1.Worker, error) {
	ctx, cancel := context.WithTimeout(ctx, e.flags.timeout.d)
	defer cancel()
	bar := newProgress(e)
	defer bar.done()
	id := w.GetId()
	err := poll(ctx, 200*time.Millisecond, func() (bool, error) {
		r, err := c.Workers().ListWorkers(ctx, &leaseholdv1.ListWorkersRequest{})
		if err != nil {
			return false, err
		}
		w = &leaseholdv1.Worker{Id: id} // gone from the list: holds nothing
		for _, item := range r.GetItems() {
			if item.GetId() == id {
				w = item
			}
		}
		bar.show("worker %s holds %d", id, w.GetHeld())
		return w.GetHeld() == 0, nil
	})
	if err != nil {
		return nil, &hintError{fmt.Errorf("wait for worker %q, which still holds %d: %w", id, w.GetHeld(), err),
			"leasehold partitions ls KEYSPACE --worker " + id}
	}
	return w, nil
}

func newWorkersUndrainCommand(e env) *cobra.Command {
	return workerCommand(e, &cobra.Command{
		Use:     "undrain WORKER",
		Short:   "Let a drained worker have partitions again",
		Example: "  leasehold workers undrain w2",
	}, "undrain", func(ctx context.Context, c *client.Client, id string) (*leaseholdv1.Worker, error) {
		return c.Workers().UndrainWorker(ctx, &leaseholdv1.UndrainWorkerRequest{Id: id})
	}, func(_ context.Context, _ *client.Client, w *leaseholdv1.Worker) error {
		if e.json() {
			return printMessage(e.stdout, w)
		}
		return e.say("worker %s may have partitions again", w.GetId())
	})
}

func newWorkersEvictCommand(e env) *cobra.Command {
	return workerCommand(e, &cobra.Command{
		Use:   "evict WORKER",
		Short: "End a worker's session and drain its id",
		Long: `End a worker's session: it cannot renew any more, and its id is drained until
undrain. In strict mode its partitions move when it has released them or its
TTL has passed. Use drain if the worker still does as it is told.`,
		Example: "  leasehold workers evict w2\n  leasehold workers evict w2 --yes   # in a script",
	}, "evict", func(ctx context.Context, c *client.Client, id string) (*leaseholdv1.Worker, error) {
		if err := confirm(ctx, e, fmt.Sprintf("Evict worker %q? Its handlers are stopped.", id)); err != nil {
			return nil, err
		}
		return c.Workers().EvictWorker(ctx, &leaseholdv1.EvictWorkerRequest{Id: id})
	}, func(_ context.Context, _ *client.Client, w *leaseholdv1.Worker) error {
		if e.json() {
			return printMessage(e.stdout, w)
		}
		return e.say("worker %s is evicted, still holds %d", w.GetId(), w.GetHeld())
	})
}
