package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/spf13/cobra"
)

func newPartitionsCommand(e env) *cobra.Command {
	return group("partitions", "Show who owns which partition and why, move one, end a quarantine",
		"  leasehold partitions ls orders --unowned\n  leasehold partitions show orders/17 --why\n  leasehold partitions move orders/17 --to w4",
		newPartitionsListCommand(e), newPartitionsShowCommand(e), newPartitionsMoveCommand(e), newPartitionsRetryCommand(e))
}

func newPartitionsListCommand(e env) *cobra.Command {
	r := &leaseholdv1.ListPartitionsRequest{}
	cmd := &cobra.Command{
		Use:     "ls KEYSPACE",
		Aliases: []string{"list"},
		Short:   "List the partitions of a keyspace with owner and token",
		Example: `  leasehold partitions ls orders
  leasehold partitions ls orders --worker w2 -o wide
  leasehold partitions ls orders --unowned -o json`,
		Args:              exactArgs("KEYSPACE"),
		ValidArgsFunction: completeArgs(e, keyspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			r.Keyspace = args[0]
			items, err := listPartitions(cmd.Context(), e, c, r)
			if err != nil {
				return fmt.Errorf("list partitions of %q: %w", args[0], err)
			}
			if e.json() {
				return printItems(e.stdout, items)
			}
			t := newTable(e, numCol("PARTITION"), col("STATE"), col("OWNER"), numCol("TOKEN"), numCol("HELD"), col("TARGET"), col("CAUSE"),
				wideCol("ENDPOINT"), wideCol("SESSION"), wideCol("RANGE"), column{"FAILURES", true, true}, col("REASON"))
			for _, p := range items {
				t.row(number(p.GetPartition()), partitionState(p), p.GetOwner(), tokenText(p.GetToken()), heldText(p), p.GetTarget(), p.GetCause(),
					p.GetEndpoint(), sessionText(p.GetSessionId()), p.GetRangeFirst()+"-"+p.GetRangeLast(), number(p.GetFailures()), p.GetReason())
			}
			return t.print("no partition matches")
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Worker, "worker", "", "only those that this worker owns")
	f.BoolVar(&r.Unowned, "unowned", false, "only those without an owner")
	staleFlag(cmd, &r.Stale)
	complete(cmd, "worker", flagNames(e, workerIDs))
	return cmd
}

// listPartitions fetches all pages.
func listPartitions(ctx context.Context, e env, c *client.Client, r *leaseholdv1.ListPartitionsRequest) ([]*leaseholdv1.Partition, error) {
	bar := newProgress(e)
	defer bar.done()
	var items []*leaseholdv1.Partition
	for {
		page, err := c.Partitions().ListPartitions(ctx, r)
		if err != nil {
			return nil, err
		}
		items = append(items, page.GetItems()...)
		if page.GetNext() == 0 {
			return items, nil
		}
		if page.GetNext() <= r.GetFirst() {
			return nil, fmt.Errorf("the server's next page starts at %d, before the present one", page.GetNext())
		}
		r.First = page.GetNext()
		bar.show("read up to partition %d", r.GetFirst())
	}
}

// partitionState is the word of the proto name: PARTITION_STATE_OWNED, owned.
func partitionState(p *leaseholdv1.Partition) string {
	return strings.ToLower(strings.TrimPrefix(p.GetState().String(), "PARTITION_STATE_"))
}

func heldText(p *leaseholdv1.Partition) string {
	if p.GetOwner() == "" {
		return ""
	}
	return ageText(p.GetHeldMs())
}

func sessionText(id uint64) string {
	if id == 0 {
		return ""
	}
	return number(id) // as in logs and JSON
}

func printPartition(e env, p *leaseholdv1.Partition) error {
	if e.json() {
		return printMessage(e.stdout, p)
	}
	fields := []string{
		"partition", fmt.Sprintf("%s/%d", p.GetKeyspace(), p.GetPartition()),
		"state", partitionState(p),
		"owner", p.GetOwner(),
		"token", tokenText(p.GetToken()),
	}
	optional := func(name, value string) {
		if value != "" {
			fields = append(fields, name, value)
		}
	}
	optional("endpoint", p.GetEndpoint())
	optional("held for", heldText(p))
	optional("session", sessionText(p.GetSessionId()))
	optional("moving to", p.GetTarget())
	optional("last cause", p.GetCause())
	optional("reason", p.GetReason())
	if n := p.GetFailures(); n > 0 {
		optional("failed on", fmt.Sprintf("%d workers", n))
	}
	optional("hash range", p.GetRangeFirst()+" to "+p.GetRangeLast())
	return printFields(e, fields...)
}

// partitionCommand is what the commands on one partition share.
func partitionCommand(e env, cmd *cobra.Command, verb string, call func(context.Context, leaseholdv1.PartitionServiceClient, string, uint32) (*leaseholdv1.Partition, error), done func(*leaseholdv1.Partition) error) *cobra.Command {
	cmd.Args = placeArg
	cmd.ValidArgsFunction = completePlace(e)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		keyspace, n, err := placeArgs(args)
		if err != nil {
			return err
		}
		c, err := e.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		p, err := call(cmd.Context(), c.Partitions(), keyspace, n)
		if err != nil {
			return fmt.Errorf("%s %s/%d: %w", verb, keyspace, n, err)
		}
		if e.json() {
			return printMessage(e.stdout, p)
		}
		return done(p)
	}
	return cmd
}

func newPartitionsMoveCommand(e env) *cobra.Command {
	var to string
	cmd := partitionCommand(e, &cobra.Command{
		Use:   "move KEYSPACE/PARTITION --to WORKER",
		Short: "Hand a partition over to another worker",
		Long: `Hand a partition over: its owner is asked to finish, releases it, and the other
worker gets it with a new token. The command returns when the move has been
logged; events -f shows the rest.`,
		Example: "  leasehold partitions move orders/17 --to w4\n  leasehold partitions move orders 17 --to w4",
		PreRunE: func(*cobra.Command, []string) error {
			if to == "" {
				return usage("--to is missing: which worker should get it?")
			}
			return nil
		},
	}, "move partition", func(ctx context.Context, c leaseholdv1.PartitionServiceClient, keyspace string, n uint32) (*leaseholdv1.Partition, error) {
		return c.MovePartition(ctx, &leaseholdv1.MovePartitionRequest{Keyspace: keyspace, Partition: n, To: to})
	}, func(p *leaseholdv1.Partition) error {
		if p.GetOwner() == to && p.GetTarget() == "" {
			return e.say("%s/%d is with %s, token %d", p.GetKeyspace(), p.GetPartition(), p.GetOwner(), p.GetToken())
		}
		return e.say("%s/%d moves from %s to %s; follow it with: leasehold events -f --partition %s/%d",
			p.GetKeyspace(), p.GetPartition(), cell(p.GetOwner()), to, p.GetKeyspace(), p.GetPartition())
	})
	cmd.Flags().StringVar(&to, "to", "", "the `worker` that gets it")
	complete(cmd, "to", flagNames(e, workerIDs))
	return cmd
}

func newPartitionsRetryCommand(e env) *cobra.Command {
	return partitionCommand(e, &cobra.Command{
		Use:     "retry KEYSPACE/PARTITION",
		Short:   "End a partition's quarantine and forget its failures",
		Example: "  leasehold partitions ls orders --unowned\n  leasehold partitions retry orders/17",
	}, "retry partition", func(ctx context.Context, c leaseholdv1.PartitionServiceClient, keyspace string, n uint32) (*leaseholdv1.Partition, error) {
		return c.RetryPartition(ctx, &leaseholdv1.RetryPartitionRequest{Keyspace: keyspace, Partition: n})
	}, func(p *leaseholdv1.Partition) error {
		return e.say("%s/%d will be tried again, now %s", p.GetKeyspace(), p.GetPartition(), partitionState(p))
	})
}
