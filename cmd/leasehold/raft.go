package main

import (
	"fmt"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/spf13/cobra"
)

func newRaftCommand(e env) *cobra.Command {
	return group("raft", "Look at the Raft group",
		"  leasehold raft peers", newRaftPeersCommand(e))
}

func newRaftPeersCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:     "peers",
		Aliases: []string{"list-peers"},
		Short:   "List the servers of the Raft group, as the asked server knows it",
		Example: "  leasehold raft peers\n  leasehold raft peers -o wide --server 10.0.0.2:7400",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			r, err := c.Cluster().ListPeers(cmd.Context(), &leaseholdv1.ListPeersRequest{})
			if err != nil {
				return fmt.Errorf("list raft peers: %w", err)
			}
			if e.json() {
				return printItems(e.stdout, r.GetItems())
			}
			t := newTable(e, col("ID"), col("ROLE"), col("VOTER"), col("GOSSIP"), col("RAFT"), col("GRPC"), wideCol("HTTP"), wideCol("GOSSIP-ADDR"), col("VERSION"))
			for _, p := range r.GetItems() {
				role := "follower"
				if p.GetLeader() {
					role = "leader"
				}
				t.row(p.GetServerId(), role, yesNo(p.GetVoter()), p.GetGossip(), p.GetRaftAddr(), p.GetGrpcAddr(), p.GetHttpAddr(), p.GetGossipAddr(), p.GetVersion())
			}
			return t.print("the cluster has not formed yet")
		},
	}
}
