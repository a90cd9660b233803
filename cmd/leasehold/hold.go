package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/sidecar"
	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

type holdFlags struct {
	sidecarFlags
	wait   waitFlag
	create bool
	ttl    durationFlag
}

// waitFlag is a time span that may also be a bare 0: no unit changes that.
type waitFlag struct{ durationFlag }

// Set implements pflag.Value.
func (f *waitFlag) Set(s string) error {
	if s == "0" {
		f.d = 0
		return nil
	}
	return f.durationFlag.Set(s)
}

func newHoldCommand(e env) *cobra.Command {
	h := holdFlags{ttl: durationFlag{d: 10 * time.Second}}
	var waits bool
	cmd := &cobra.Command{
		Use:   "hold KEYSPACE [flags] -- CMD [ARG]...",
		Short: "Run a command while holding a keyspace of one partition: a singleton",
		Long: `hold waits for its turn, runs CMD once while it holds the only partition of
KEYSPACE, releases it and ends with CMD's exit code. However many are started
anywhere, one CMD runs at a time. It finds the same LEASEHOLD_* variables as under
run; it should give LEASEHOLD_TOKEN to what it writes to.

With --wait 0 it does not wait: if somebody else holds the partition it ends with
exit code 5 at once, which suits cron. That keeps two runs from overlapping; it
does not make a job run once per tick, because a host whose clock is behind may
start when the first has already finished.

If the lease is lost, CMD gets SIGTERM and then SIGKILL before somebody else can
be granted it, and hold ends with 75.

Exit codes: CMD's own, or 128 + signal; 75 the lease was lost; 126 or 127 CMD
cannot be run; 5 it was not its turn in time, or KEYSPACE has more than one
partition; else as for all commands.`,
		Example: `  leasehold hold nightly --create -- ./report.sh
  leasehold hold nightly --wait 30s -- ./report.sh

  # crontab, the same line on every host:
  0 3 * * *  leasehold hold nightly --create --wait 0 --server 10.0.0.1:7400,10.0.0.2:7400 -- /opt/report.sh`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || cmd.ArgsLenAtDash() == 0 {
				return usage("KEYSPACE is missing: %s", cmd.UseLine())
			}
			_, err := commandAfterDash(cmd, args, 1)
			return err
		},
		ValidArgsFunction: completeArgs(e, keyspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			command, err := commandAfterDash(cmd, args, 1)
			if err != nil {
				return err
			}
			waits = !cmd.Flags().Changed("wait")
			return h.run(cmd.Context(), e, args[0], command, waits)
		},
	}
	f := cmd.Flags()
	f.Var(&h.wait, "wait", "how long to wait for the turn, 0: not at all (default for ever)")
	f.Lookup("wait").DefValue = ""
	f.BoolVar(&h.create, "create", false, "create KEYSPACE with one partition if it does not exist")
	f.Var(&h.ttl, "ttl", "with --create: how long a silent holder keeps it")
	h.define(cmd, "default host name, keyspace and a random part, behind the name in a worker's certificate")
	return cmd
}

func (h *holdFlags) run(ctx context.Context, e env, keyspace string, command []string, forever bool) error {
	if h.id == "" { // several on one host take turns, so each needs a name
		id, err := hostID(e, "-"+keyspace+"-"+rand.Text()[:6])
		if err != nil {
			return err
		}
		h.id = id
	}
	cfg, err := h.config(e, keyspace, command)
	if err != nil {
		return err
	}
	c, err := e.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	k, err := h.find(ctx, c, keyspace)
	if err != nil {
		return err
	}
	if n := k.GetPartitions(); n != 1 {
		return &codedError{exitRefused, &hintError{fmt.Errorf("hold keyspace %q: it has %d partitions, and hold needs one of 1", keyspace, n),
			"use another keyspace with --create, or: leasehold run --keyspace " + keyspace}}
	}
	setKeyspace(&cfg, k)
	cfg.Wait = h.wait.d
	if forever {
		cfg.Wait = -1
	}
	cfg.Owner = func(ctx context.Context) (string, error) {
		p, err := c.Partitions().GetPartition(ctx, &leaseholdv1.GetPartitionRequest{Keyspace: keyspace})
		if err != nil {
			return "", fmt.Errorf("look who holds %q: %w", keyspace, err)
		}
		return p.GetOwner(), nil
	}
	series, stop, err := h.metrics.serve(cfg.Worker.Logger)
	if err != nil {
		return err
	}
	defer stop()
	cfg.Worker.Metrics = series
	return sidecarEnd(sidecar.Hold(ctx, cfg))
}

// find asks for the keyspace, and creates it if it may.
func (h *holdFlags) find(ctx context.Context, c *client.Client, keyspace string) (*leaseholdv1.Keyspace, error) {
	k, err := c.Keyspaces().GetKeyspace(ctx, &leaseholdv1.GetKeyspaceRequest{Name: keyspace})
	if h.create && client.Detail(err).GetReason() == leaseholdv1.ReasonNotFound {
		k, err = c.Keyspaces().CreateKeyspace(ctx, &leaseholdv1.CreateKeyspaceRequest{
			Name: keyspace, Partitions: 1, TtlMs: h.ttl.ms(), Takeover: leaseholdv1.Takeover_TAKEOVER_STRICT, InitialDelayMs: proto.Int64(0),
		})
		if client.Detail(err).GetReason() == leaseholdv1.ReasonExists { // another one was first
			k, err = c.Keyspaces().GetKeyspace(ctx, &leaseholdv1.GetKeyspaceRequest{Name: keyspace})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("hold keyspace %q: %w", keyspace, err)
	}
	return k, nil
}
