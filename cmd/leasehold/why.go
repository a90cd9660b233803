package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/spf13/cobra"
)

// placeArgs reads a partition as KEYSPACE/PARTITION or as two arguments.
func placeArgs(args []string) (keyspace string, partition uint32, err error) {
	keyspace, number, one := strings.Cut(args[0], "/")
	if !one {
		number = args[1]
	}
	partition, err = partitionArg(number)
	return keyspace, partition, err
}

// placeArg checks that there is what placeArgs reads.
func placeArg(cmd *cobra.Command, args []string) error {
	if len(args) == 2 && strings.Contains(args[0], "/") {
		return usage("%q is one argument too many", args[1])
	}
	switch {
	case len(args) == 1 && strings.Contains(args[0], "/"):
		return nil
	case len(args) == 1:
		return usage("PARTITION is missing: write %s/17 or %s 17", args[0], args[0])
	}
	return exactArgs("KEYSPACE", "PARTITION")(cmd, args)
}

// maxNumbers is how many partitions the tab key offers.
const maxNumbers = 1000

// completePlace completes a keyspace, and the number of a partition behind it or
// behind a slash.
func completePlace(e env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		keyspace, prefix, slash := strings.Cut(begun, "/")
		switch {
		case len(args) == 0 && !slash:
			return completeNames(e, cmd, keyspaceNames)
		case len(args) == 0:
			return completeNames(e, cmd, partitionNumbers(keyspace, keyspace+"/", prefix))
		case len(args) == 1 && !strings.Contains(args[0], "/"):
			return completeNames(e, cmd, partitionNumbers(args[0], "", begun))
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// partitionNumbers lists those that begin with prefix.
func partitionNumbers(keyspace, before, prefix string) lister {
	return func(ctx context.Context, c *client.Client) ([]string, error) {
		k, err := c.Keyspaces().GetKeyspace(ctx, &leaseholdv1.GetKeyspaceRequest{Name: keyspace, Stale: true})
		var list []string
		for p := uint32(0); p < k.GetPartitions() && len(list) < maxNumbers; p++ {
			if n := strconv.FormatUint(uint64(p), 10); strings.HasPrefix(n, prefix) {
				list = append(list, before+n)
			}
		}
		return list, err
	}
}

func newPartitionsShowCommand(e env) *cobra.Command {
	var stale, why bool
	cmd := &cobra.Command{
		Use:   "show KEYSPACE/PARTITION",
		Short: "Show one partition: owner, token, state and, with --why, the reasons",
		Long: `Show one partition. With --why also why it has this owner or none, who else
could have it, in the ring's order, why it moved last, and what comes next.`,
		Example: `  leasehold partitions show orders/17
  leasehold partitions show orders/17 --why
  leasehold partitions show orders 17 --why -o json | jq -r '.reasons[0].code'`,
		Args:              placeArg,
		ValidArgsFunction: completePlace(e),
		RunE: func(cmd *cobra.Command, args []string) error {
			keyspace, n, err := placeArgs(args)
			if err != nil {
				return err
			}
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			if !why {
				p, err := c.Partitions().GetPartition(cmd.Context(), &leaseholdv1.GetPartitionRequest{Keyspace: keyspace, Partition: n, Stale: stale})
				if err != nil {
					return fmt.Errorf("show partition %s/%d: %w", keyspace, n, err)
				}
				return printPartition(e, p)
			}
			x, err := c.Partitions().ExplainPartition(cmd.Context(), &leaseholdv1.ExplainPartitionRequest{Keyspace: keyspace, Partition: n, Stale: stale})
			if err != nil {
				return fmt.Errorf("explain partition %s/%d: %w", keyspace, n, err)
			}
			if e.json() {
				return printMessage(e.stdout, x)
			}
			return printExplanation(e, x)
		},
	}
	cmd.Flags().BoolVar(&why, "why", false, "tell why it is as it is, who else could have it, and what happened to it")
	staleFlag(cmd, &stale)
	return cmd
}

func printExplanation(e env, x *leaseholdv1.Explanation) error {
	if err := printPartition(e, x.GetPartition()); err != nil {
		return err
	}
	title := func(s string) error { return e.say("\n%s", e.paint(bold, s)) }
	if err := title("WHY"); err != nil {
		return err
	}
	for _, r := range x.GetReasons() {
		if err := e.say("%s: %s", r.GetCode(), cell(r.GetText())); err != nil {
			return err
		}
		if r.GetNext() != "" {
			if err := e.say("    next: %s", cell(r.GetNext())); err != nil {
				return err
			}
		}
	}
	if len(x.GetCandidates()) > 0 {
		if err := title("WHO COULD HAVE IT"); err != nil {
			return err
		}
		t := newTable(e, numCol("RANK"), col("WORKER"), col("VERDICT"), numCol("HELD"), numCol("MOST"), col("NOTE"))
		for _, c := range x.GetCandidates() {
			rank := ""
			if c.GetRank() > 0 {
				rank = number(c.GetRank())
			}
			t.row(rank, c.GetWorker(), c.GetVerdict(), number(c.GetHeld()), number(c.GetMost()), c.GetNote())
		}
		if err := t.print(""); err != nil {
			return err
		}
	}
	if len(x.GetHistory()) == 0 {
		return nil
	}
	head := "WHAT HAPPENED"
	if x.GetHistoryCut() {
		head += " (what was before is not kept, or too much)"
	}
	if err := title(head); err != nil {
		return err
	}
	t := newTable(e, col("TIME"), col("EVENT"), col("WHO"), col("CAUSE"), numCol("TOKEN"), numCol("INDEX"))
	for _, ev := range x.GetHistory() {
		t.row(eventTime(ev), ev.GetKind(), eventWho(ev), ev.GetCause(), tokenText(ev.GetToken()), number(ev.GetIndex()))
	}
	return t.print("")
}

// eventTime is when it happened, as the proposing leader's clock had it.
func eventTime(ev *leaseholdv1.Event) string {
	if ev.GetTime() == nil {
		return ""
	}
	return ev.GetTime().AsTime().UTC().Format("2006-01-02T15:04:05.000Z")
}

// eventWho is whom it happened to, or from whom to whom.
func eventWho(ev *leaseholdv1.Event) string {
	if ev.GetFrom() != "" && ev.GetWorker() != "" {
		return ev.GetFrom() + " → " + ev.GetWorker()
	}
	return ev.GetWorker()
}
