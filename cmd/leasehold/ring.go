package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/spf13/cobra"
)

func newRingCommand(e env) *cobra.Command {
	return group("ring", "Show how partitions spread over workers, and what a change would move",
		"  leasehold ring show orders\n  leasehold ring simulate orders --add w9 --remove w2",
		newRingShowCommand(e), newRingSimulateCommand(e))
}

func newRingShowCommand(e env) *cobra.Command {
	r := &leaseholdv1.GetRingRequest{}
	cmd := &cobra.Command{
		Use:   "show KEYSPACE",
		Short: "Show what the ring would give each worker beside what it holds",
		Long: `Show each worker of a keyspace: what the consistent-hash ring would give it
(PLACED), what it holds, its fair share by capacity, and the most it may hold.
The ring is a wish: what has a good owner stays there, and only load moves it.
PLACED is a dash while there is no ring yet, as in a large keyspace at first.`,
		Example: `  leasehold ring show orders
  leasehold ring show orders -o wide
  leasehold ring show orders --points -o json | jq '.points | length'`,
		Args:              exactArgs("KEYSPACE"),
		ValidArgsFunction: completeArgs(e, keyspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.Points && !e.json() {
				return usage("--points needs -o json: they are many")
			}
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			r.Keyspace = args[0]
			m, err := c.Ring().GetRing(cmd.Context(), r)
			if err != nil {
				return fmt.Errorf("show ring of %q: %w", args[0], err)
			}
			if e.json() {
				return printMessage(e.stdout, m)
			}
			t := newTable(e, col("WORKER"), col("STATE"), column{"CAPACITY", true, true}, wideCol("DRAINED"),
				numCol("PLACED"), numCol("HELD"), numCol("FAIR"), numCol("MOST"), col("LOAD"))
			top := tallest(m.GetMembers())
			for _, w := range m.GetMembers() {
				t.row(w.GetWorker(), ringState(w), capacityOf(w), yesNo(w.GetDraining()),
					placedText(m, w), number(w.GetHeld()), fairText(w), number(w.GetMost()), loadBar(w, top))
			}
			return t.print("no worker has joined " + args[0])
		},
	}
	cmd.Flags().BoolVar(&r.Points, "points", false, "with -o json also all virtual nodes, and where each partition is placed")
	return cmd
}

// placedText is a dash while the leader has no ring yet: that of a large keyspace
// is worked out when there is time.
func placedText(m *leaseholdv1.Ring, w *leaseholdv1.RingMember) string {
	if m.GetVersion() == "" {
		return ""
	}
	return number(w.GetPlaced())
}

func ringState(w *leaseholdv1.RingMember) string {
	if w.GetDraining() {
		return "drained"
	}
	return w.GetState()
}

func capacityOf(w *leaseholdv1.RingMember) string {
	if w.GetCapacity() == 0 {
		return "none"
	}
	return number(w.GetCapacity())
}

func fairText(w *leaseholdv1.RingMember) string { return strconv.FormatFloat(w.GetFair(), 'f', 1, 64) }

func tallest(members []*leaseholdv1.RingMember) (top float64) {
	for _, w := range members {
		top = max(top, float64(w.GetHeld()), w.GetFair())
	}
	return top
}

const barWidth = 24

// loadBar draws what a worker holds, and a mark where its fair share is.
func loadBar(w *leaseholdv1.RingMember, top float64) string {
	if top == 0 {
		return ""
	}
	cells := func(v float64) int { return int(math.Round(v / top * barWidth)) }
	bar := []rune(strings.Repeat("█", cells(float64(w.GetHeld()))))
	if at := cells(w.GetFair()); w.GetFair() > 0 && at > 0 {
		for len(bar) < at {
			bar = append(bar, '·')
		}
		bar[at-1] = '│'
	}
	return string(bar)
}

func newRingSimulateCommand(e env) *cobra.Command {
	var add, remove []string
	cmd := &cobra.Command{
		Use:   "simulate KEYSPACE",
		Short: "Tell what would move if workers came or went, without moving anything",
		Long: `Run the planner on the present leases with workers added or taken away, until
it would move nothing more, and tell what would move, in its order. Nothing is
changed. Without --add and --remove it tells what moves anyway. A worker that is
removed leaves as on a clean stop; one that is added joins with the capacity
behind its id, or without a limit.`,
		Example: `  leasehold ring simulate orders --add w9 --add w10:50
  leasehold ring simulate orders --remove w2
  leasehold ring simulate orders --add w9 -o json | jq '.moves | length'`,
		Args:              exactArgs("KEYSPACE"),
		ValidArgsFunction: completeArgs(e, keyspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := &leaseholdv1.SimulateRingRequest{Keyspace: args[0], Remove: remove}
			for _, s := range add {
				w, err := simulatedWorker(s)
				if err != nil {
					return err
				}
				r.Add = append(r.Add, w)
			}
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			m, err := c.Ring().SimulateRing(cmd.Context(), r)
			if err != nil {
				return fmt.Errorf("simulate ring of %q: %w", args[0], err)
			}
			if e.json() {
				return printMessage(e.stdout, m)
			}
			return printSimulation(e, m)
		},
	}
	cmd.Flags().StringArrayVar(&add, "add", nil, "a `worker` that joins, as w9 or, with a capacity, w9:50; may be repeated")
	cmd.Flags().StringArrayVar(&remove, "remove", nil, "a `worker` that leaves; may be repeated")
	complete(cmd, "remove", func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return completeNames(e, cmd, workersOf(args))
	})
	complete(cmd, "add", cobra.NoFileCompletions)
	return cmd
}

// workersOf lists the workers of the keyspace that has been named, or all.
func workersOf(args []string) lister {
	return func(ctx context.Context, c *client.Client) ([]string, error) {
		r, err := c.Workers().ListWorkers(ctx, &leaseholdv1.ListWorkersRequest{Stale: true})
		var ids []string
		for _, w := range r.GetItems() {
			if len(args) == 0 || slices.Contains(w.GetKeyspaces(), args[0]) {
				ids = append(ids, w.GetId())
			}
		}
		return ids, err
	}
}

// simulatedWorker reads ID or ID:CAPACITY. An id may have colons itself: the last
// part is a capacity only if it is a number.
func simulatedWorker(s string) (*leaseholdv1.SimulatedWorker, error) {
	w := &leaseholdv1.SimulatedWorker{Id: s}
	at := strings.LastIndexByte(s, ':')
	if at < 0 || strings.Trim(s[at+1:], "0123456789") != "" || at+1 == len(s) {
		return w, nil
	}
	n, err := strconv.ParseUint(s[at+1:], 10, 32)
	if err != nil {
		return nil, usage("--add %q: the capacity after the last colon is %s, want 0 (no limit) to %d", s, s[at+1:], uint32(math.MaxUint32))
	}
	w.Id, w.Capacity = s[:at], uint32(n)
	return w, nil
}

func printSimulation(e env, m *leaseholdv1.Simulation) error {
	moves := len(m.GetMoves())
	if err := e.say("%s, %d stay where they are; nothing has been changed\n", counted(moves, "move"), m.GetKept()); err != nil {
		return err
	}
	type row struct{ before, after, now *leaseholdv1.RingMember }
	rows := map[string]*row{}
	at := func(id string) *row {
		if rows[id] == nil {
			rows[id] = &row{}
		}
		return rows[id]
	}
	for _, w := range m.GetBefore() {
		at(w.GetWorker()).before, at(w.GetWorker()).now = w, w
	}
	for _, w := range m.GetAfter() {
		at(w.GetWorker()).after, at(w.GetWorker()).now = w, w
	}
	var ids []string
	for id := range rows {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, cmp.Compare[string])
	t := newTable(e, col("WORKER"), numCol("BEFORE"), numCol("AFTER"), numCol("CHANGE"), numCol("FAIR"), numCol("MOST"), wideCol("STATE"))
	for _, id := range ids {
		r := rows[id]
		before, after := r.before.GetHeld(), r.after.GetHeld()
		fair, most := "", ""
		if r.after != nil {
			fair, most = fairText(r.after), number(r.after.GetMost())
		}
		t.row(id, heldOf(r.before), heldOf(r.after), changeText(after-before), fair, most, r.now.GetState())
	}
	if err := t.print("no worker has joined the keyspace"); err != nil || moves == 0 {
		return err
	}
	if err := e.say(""); err != nil {
		return err
	}
	t = newTable(e, numCol("PARTITION"), col("FROM"), col("TO"), col("CAUSE"))
	for _, mv := range m.GetMoves() {
		t.row(number(mv.GetPartition()), mv.GetFrom(), mv.GetTo(), mv.GetCause())
	}
	return t.print("")
}

func changeText(n int64) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%+d", n)
}

// heldOf is a dash for a worker that is not there.
func heldOf(w *leaseholdv1.RingMember) string {
	if w == nil {
		return ""
	}
	return number(w.GetHeld())
}
