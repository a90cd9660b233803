package main

import (
	"context"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/spf13/cobra"
)

// completionTimeout is how long a person waits for the tab key.
const completionTimeout = time.Second

func newCompletionCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a completion script for bash, zsh, fish or powershell",
		Long: `Print a completion script. It also completes keyspace names and worker ids, by
asking the cluster that --server or LEASEHOLD_SERVER names.`,
		Example: `  source <(leasehold completion bash)
  leasehold completion zsh > "${fpath[1]}/_leasehold"
  leasehold completion fish > ~/.config/fish/completions/leasehold.fish`,
		Args:      exactArgs("SHELL"),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(e.stdout, true)
			case "zsh":
				return root.GenZshCompletion(e.stdout)
			case "fish":
				return root.GenFishCompletion(e.stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(e.stdout)
			}
			return usage("shell %q: want bash, zsh, fish or powershell", args[0])
		},
	}
}

// lister fetches names from the cluster.
type lister func(context.Context, *client.Client) ([]string, error)

func keyspaceNames(ctx context.Context, c *client.Client) ([]string, error) {
	r, err := c.Keyspaces().ListKeyspaces(ctx, &leaseholdv1.ListKeyspacesRequest{Stale: true})
	var names []string
	for _, k := range r.GetItems() {
		names = append(names, k.GetName())
	}
	return names, err
}

func workerIDs(ctx context.Context, c *client.Client) ([]string, error) {
	r, err := c.Workers().ListWorkers(ctx, &leaseholdv1.ListWorkersRequest{Stale: true})
	var ids []string
	for _, w := range r.GetItems() {
		ids = append(ids, w.GetId())
	}
	return ids, err
}

// completeArgs completes the nth argument with the nth lister. An unreachable
// cluster completes nothing and says nothing.
func completeArgs(e env, by ...lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(by) || by[len(args)] == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completeNames(e, cmd, by[len(args)])
	}
}

func completeNames(e env, cmd *cobra.Command, names lister) ([]string, cobra.ShellCompDirective) {
	// The shell runs this instead of the command, so the layers are not yet on.
	if err := applyLayers(e, cmd); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	c, err := e.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	list, err := names(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}

// complete registers what completes a flag's value.
func complete(cmd *cobra.Command, flag string, by cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, by); err != nil {
		panic(err) // a flag that was never defined: a bug
	}
}

func fixed(values ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// flagNames completes a flag with names from the cluster.
func flagNames(e env, names lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return completeNames(e, cmd, names)
	}
}
