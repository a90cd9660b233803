package main

import (
	"fmt"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/spf13/cobra"
)

func newClusterCommand(e env) *cobra.Command {
	return group("cluster", "Form a cluster from servers that wait for it",
		"  leasehold cluster init --expect 3 --server 10.0.0.1:7400", newClusterInitCommand(e))
}

func newClusterInitCommand(e env) *cobra.Command {
	var expect int32
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Form a cluster, once, from servers started without --bootstrap-expect",
		Long: `Form a cluster, once, from all servers that the asked one sees through gossip.
There must be exactly as many as --expect says, they must see each other, and
none may hold data: each is asked directly first. Whichever of them is asked,
the one with the lowest id does it, so two calls at once make one cluster. A
second call is refused.`,
		Example: `  leasehold cluster init --expect 3 --server 10.0.0.1:7400
  leasehold cluster init --expect 1`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if expect < 1 || expect > 9 {
				return usage("--expect %d: want the number of servers, 1 to 9, for example --expect 3", expect)
			}
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			r, err := c.Cluster().InitCluster(cmd.Context(), &leaseholdv1.InitClusterRequest{Expect: expect})
			if err != nil {
				return fmt.Errorf("form cluster: %w", err)
			}
			if e.json() {
				return printItems(e.stdout, r.GetItems())
			}
			var ids []string
			for _, p := range r.GetItems() {
				ids = append(ids, p.GetServerId())
			}
			return e.say("cluster formed by %s", strings.Join(ids, ", "))
		},
	}
	cmd.Flags().Int32Var(&expect, "expect", 0, "how many `servers` the cluster has")
	return cmd
}
