package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/spf13/cobra"
)

const defaultServer = "127.0.0.1:7400"

// run is the program: a command line in, an exit code out.
func run(ctx context.Context, e env) int {
	root := newRootCommand(&e)
	root.SetArgs(e.args)
	cmd, err := root.ExecuteContextC(ctx)
	if cause := context.Cause(ctx); cause != nil && err != nil {
		var sig *signalError
		if errors.As(cause, &sig) && errors.Is(err, context.Canceled) {
			err = cause
		}
	}
	code := exitCode(err)
	if err != nil {
		report(e.stderr, cmd.CommandPath(), err)
	}
	return code
}

// newRootCommand builds the tree of commands and gives e its flags.
func newRootCommand(e *env) *cobra.Command {
	e.flags = &globals{output: outputTable, timeout: durationFlag{d: client.DefaultTimeout, max: time.Hour}, patience: defaultPatience}
	root := &cobra.Command{
		Use:   "leasehold",
		Short: "Hand out the partitions of a keyspace, one owner each, with a fencing token",
		Long: `Leasehold hands out the partitions of a keyspace to workers, one owner each,
and proves it with a fencing token that the resource checks.

Flags that name an environment variable can be set there, and in the YAML file
of --config under the same name in lower case without the prefix. The flag wins
over the environment, the environment over the file. Durations need a unit.

Exit codes: 0 ok, 1 failed, 2 usage, 3 no leader or unreachable, 4 not found,
5 refused or conflict, 6 not let in.`,
		Example: `  leasehold dev                                  # a server to try things on
  leasehold keyspace create orders --partitions 64
  leasehold partitions ls orders
  leasehold events -f`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noSubcommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := applyLayers(*e, cmd); err != nil {
				return err
			}
			e.warnOfSecrets()
			return nil
		},
	}
	root.SetIn(e.stdin)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{flagFault(err)} })
	root.SuggestionsMinimumDistance = 2
	root.CompletionOptions.DisableDefaultCmd = true

	f := root.PersistentFlags()
	f.StringVar(&e.flags.server, "server", defaultServer, "gRPC `addresses` of servers, host:port separated by commas (env LEASEHOLD_SERVER)")
	f.VarP(&e.flags.output, "output", "o", "output format: table, wide or json (env LEASEHOLD_OUTPUT)")
	f.Var(&e.flags.timeout, "timeout", "how long to wait for an answer (env LEASEHOLD_TIMEOUT)")
	e.flags.security.define(f)
	f.StringVar(&e.flags.config, "config", "", "YAML `file` with settings (env LEASEHOLD_CONFIG)")
	f.BoolVar(&e.flags.yes, "yes", false, "do not ask before what can hurt")
	layered(f, "server", "output", "timeout")
	complete(root, "output", fixed(string(outputTable), string(outputWide), string(outputJSON)))

	for _, group := range commandGroups(*e) {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title + ":"})
		for _, cmd := range group.commands {
			cmd.GroupID = group.title
			root.AddCommand(cmd)
		}
		root.SetHelpCommandGroupID(group.title) // the last one
	}
	return root
}

type commandGroup struct {
	title    string
	commands []*cobra.Command
}

// noSubcommand is the Args of a command that only has subcommands.
func noSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	msg := fmt.Sprintf("%q is not a command of %s", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		msg += ", did you mean " + strings.Join(near, " or ") + "?"
	}
	return usage("%s", msg)
}

// group makes a command that only has subcommands.
func group(use, short, example string, sub ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:                        use,
		Short:                      short,
		Example:                    example,
		Args:                       noSubcommand,
		SuggestionsMinimumDistance: 2,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(sub...)
	return cmd
}

// exactArgs wants one argument per name, and says which one is missing.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage("%s is missing", names[len(args)])
		case len(args) > len(names):
			return usage("%q is one argument too many", args[len(names)])
		}
		return nil
	}
}

// optionalArg takes one argument or none.
func optionalArg(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage("%q is one argument too many", args[1])
	}
	return nil
}
