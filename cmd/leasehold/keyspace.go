package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
)

func newKeyspaceCommand(e env) *cobra.Command {
	return group("keyspace", "Create, list, change and delete keyspaces",
		"  leasehold keyspace create orders --partitions 64\n  leasehold keyspace ls",
		newKeyspaceCreateCommand(e), newKeyspaceListCommand(e), newKeyspaceShowCommand(e),
		newKeyspaceSetCommand(e), newKeyspaceRemoveCommand(e))
}

// keyspaceFlags are the settings of a keyspace that can be given and changed.
type keyspaceFlags struct {
	partitions   uint32
	ttl          durationFlag
	takeover     takeoverFlag
	handoff      durationFlag
	restartGrace durationFlag
	initialDelay durationFlag
}

func (k *keyspaceFlags) define(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Uint32Var(&k.partitions, "partitions", k.partitions, "number of partitions, 1 to 1048576; fixed for ever, choose generously")
	f.Var(&k.ttl, "ttl", "how long a silent worker keeps its partitions")
	f.Var(&k.takeover, "takeover", "strict: never two owners' contexts at once; fenced: as soon as the owner is known dead")
	f.Var(&k.handoff, "handoff-timeout", "how long an owner may drain in a planned move")
	f.Var(&k.restartGrace, "restart-grace", "how long partitions wait for a worker that restarts under the same id")
	f.Var(&k.initialDelay, "initial-delay", "how long a new keyspace waits for more workers before the first grants (default the server's)")
	f.Lookup("initial-delay").DefValue = ""
	complete(cmd, "takeover", fixed("strict", "fenced"))
}

// takeoverFlag is strict or fenced.
type takeoverFlag struct{ t leaseholdv1.Takeover }

// String implements pflag.Value.
func (f *takeoverFlag) String() string { return takeoverText(f.t) }

// Type implements pflag.Value.
func (*takeoverFlag) Type() string { return "mode" }

// Set implements pflag.Value.
func (f *takeoverFlag) Set(s string) error {
	switch s {
	case "strict":
		f.t = leaseholdv1.Takeover_TAKEOVER_STRICT
	case "fenced":
		f.t = leaseholdv1.Takeover_TAKEOVER_FENCED
	default:
		return fmt.Errorf("want strict or fenced")
	}
	return nil
}

func takeoverText(t leaseholdv1.Takeover) string {
	if t == leaseholdv1.Takeover_TAKEOVER_FENCED {
		return "fenced"
	}
	return "strict"
}

func newKeyspaceCreateCommand(e env) *cobra.Command {
	k := keyspaceFlags{
		partitions: 256,
		ttl:        durationFlag{d: 10 * time.Second},
		takeover:   takeoverFlag{leaseholdv1.Takeover_TAKEOVER_STRICT},
		handoff:    durationFlag{d: 30 * time.Second},
	}
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a keyspace",
		Example: `  leasehold keyspace create orders
  leasehold keyspace create orders --partitions 1024 --ttl 5s --takeover fenced`,
		Args: exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			r := &leaseholdv1.CreateKeyspaceRequest{
				Name:             args[0],
				Partitions:       k.partitions,
				TtlMs:            k.ttl.ms(),
				Takeover:         k.takeover.t,
				HandoffTimeoutMs: proto.Int64(k.handoff.ms()),
				RestartGraceMs:   proto.Int64(k.restartGrace.ms()),
			}
			if cmd.Flags().Changed("initial-delay") {
				r.InitialDelayMs = proto.Int64(k.initialDelay.ms())
			}
			ks, err := c.Keyspaces().CreateKeyspace(cmd.Context(), r)
			if err != nil {
				return fmt.Errorf("create keyspace %q: %w", args[0], err)
			}
			if e.json() {
				return printMessage(e.stdout, ks)
			}
			return e.say("keyspace %s created: %d partitions, TTL %s, %s", ks.GetName(), ks.GetPartitions(), msText(ks.GetTtlMs()), takeoverText(ks.GetTakeover()))
		},
	}
	k.define(cmd)
	return cmd
}

func newKeyspaceListCommand(e env) *cobra.Command {
	var stale bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List keyspaces and how many of their partitions are owned",
		Example: "  leasehold keyspace ls\n  leasehold keyspace ls -o json | jq '.items[].name'",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			r, err := c.Keyspaces().ListKeyspaces(cmd.Context(), &leaseholdv1.ListKeyspacesRequest{Stale: stale})
			if err != nil {
				return fmt.Errorf("list keyspaces: %w", err)
			}
			if e.json() {
				return printItems(e.stdout, r.GetItems())
			}
			t := newTable(e, col("NAME"), numCol("PARTITIONS"), numCol("OWNED"), numCol("DRAINING"), numCol("UNOWNED"),
				numCol("QUARANTINED"), numCol("TTL"), col("TAKEOVER"), wideCol("HANDOFF"), wideCol("RESTART-GRACE"), wideCol("INITIAL-DELAY"), col("STATE"))
			for _, k := range r.GetItems() {
				s := k.GetStatus()
				t.row(k.GetName(), number(k.GetPartitions()), number(s.GetOwned()), number(s.GetDraining()), number(s.GetUnowned()),
					number(s.GetQuarantined()), msText(k.GetTtlMs()), takeoverText(k.GetTakeover()), msText(k.GetHandoffTimeoutMs()),
					msText(k.GetRestartGraceMs()), msText(k.GetInitialDelayMs()), keyspaceState(k))
			}
			return t.print("no keyspaces; make one with: leasehold keyspace create NAME")
		},
	}
	staleFlag(cmd, &stale)
	return cmd
}

func keyspaceState(k *leaseholdv1.Keyspace) string {
	if k.GetDeleting() {
		return "deleting"
	}
	return "active"
}

func newKeyspaceShowCommand(e env) *cobra.Command {
	var stale bool
	cmd := &cobra.Command{
		Use:               "show NAME",
		Short:             "Show one keyspace with all its settings",
		Example:           "  leasehold keyspace show orders",
		Args:              exactArgs("NAME"),
		ValidArgsFunction: completeArgs(e, keyspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			k, err := c.Keyspaces().GetKeyspace(cmd.Context(), &leaseholdv1.GetKeyspaceRequest{Name: args[0], Stale: stale})
			if err != nil {
				return fmt.Errorf("show keyspace %q: %w", args[0], err)
			}
			return printKeyspace(e, k)
		},
	}
	staleFlag(cmd, &stale)
	return cmd
}

func printKeyspace(e env, k *leaseholdv1.Keyspace) error {
	if e.json() {
		return printMessage(e.stdout, k)
	}
	s := k.GetStatus()
	return printFields(e,
		"name", k.GetName(),
		"state", keyspaceState(k),
		"partitions", fmt.Sprintf("%d (%d owned, of them %d draining; %d unowned, of them %d quarantined)",
			k.GetPartitions(), s.GetOwned(), s.GetDraining(), s.GetUnowned(), s.GetQuarantined()),
		"ttl", msText(k.GetTtlMs()),
		"takeover", takeoverText(k.GetTakeover()),
		"handoff timeout", msText(k.GetHandoffTimeoutMs()),
		"restart grace", msText(k.GetRestartGraceMs()),
		"initial delay", msText(k.GetInitialDelayMs()),
	)
}

func newKeyspaceSetCommand(e env) *cobra.Command {
	var k keyspaceFlags
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change settings of a keyspace",
		Long: `Change settings of a keyspace. Only what is given changes. The number of
partitions is fixed: another one than the present is refused.`,
		Example: `  leasehold keyspace set orders --restart-grace 30s
  leasehold keyspace set orders --takeover fenced --ttl 5s`,
		Args:              exactArgs("NAME"),
		ValidArgsFunction: completeArgs(e, keyspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := &leaseholdv1.UpdateKeyspaceRequest{Name: args[0]}
			given := false
			set := func(flag string, assign func()) {
				if cmd.Flags().Changed(flag) {
					assign()
					given = true
				}
			}
			set("partitions", func() { r.Partitions = &k.partitions })
			set("ttl", func() { r.TtlMs = proto.Int64(k.ttl.ms()) })
			set("takeover", func() { r.Takeover = &k.takeover.t })
			set("handoff-timeout", func() { r.HandoffTimeoutMs = proto.Int64(k.handoff.ms()) })
			set("restart-grace", func() { r.RestartGraceMs = proto.Int64(k.restartGrace.ms()) })
			set("initial-delay", func() { r.InitialDelayMs = proto.Int64(k.initialDelay.ms()) })
			if !given {
				return usage("nothing to change: give at least one setting, for example --ttl 10s")
			}
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			ks, err := c.Keyspaces().UpdateKeyspace(cmd.Context(), r)
			if err != nil {
				return fmt.Errorf("set keyspace %q: %w", args[0], err)
			}
			return printKeyspace(e, ks)
		},
	}
	k.define(cmd)
	for _, name := range strings.Fields("partitions ttl takeover handoff-timeout restart-grace") {
		cmd.Flags().Lookup(name).DefValue = "" // no default: what is not given stays as it is
	}
	return cmd
}

func newKeyspaceRemoveCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME",
		Aliases: []string{"delete"},
		Short:   "Delete a keyspace",
		Long: `Delete a keyspace. Its workers are told to finish and nothing is granted any
more. In strict mode it is gone when the last owner has released or expired.
Tokens go on rising: a new keyspace of the same name never repeats one.`,
		Example:           "  leasehold keyspace rm orders\n  leasehold keyspace rm orders --yes   # in a script",
		Args:              exactArgs("NAME"),
		ValidArgsFunction: completeArgs(e, keyspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := confirm(cmd.Context(), e, fmt.Sprintf("Delete keyspace %q? All its workers lose their partitions.", args[0])); err != nil {
				return err
			}
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			r, err := c.Keyspaces().DeleteKeyspace(cmd.Context(), &leaseholdv1.DeleteKeyspaceRequest{Name: args[0]})
			if err != nil {
				return fmt.Errorf("delete keyspace %q: %w", args[0], err)
			}
			if e.json() {
				return printMessage(e.stdout, r)
			}
			return e.say("keyspace %s is being deleted", cell(args[0]))
		},
	}
}
