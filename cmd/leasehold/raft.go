package main

import (
	"context"
	"fmt"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/spf13/cobra"
)

func newRaftCommand(e env) *cobra.Command {
	return group("raft", "Look at the Raft group, and change who is in it",
		"  leasehold raft peers\n  leasehold raft add s4\n  leasehold raft remove s2",
		newRaftPeersCommand(e), newRaftAddCommand(e), newRaftPromoteCommand(e), newRaftRemoveCommand(e), newRaftTransferCommand(e))
}

func newRaftPeersCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:     "peers",
		Aliases: []string{"list-peers"},
		Short:   "List the servers of the Raft group, as the asked server knows it",
		Long: `List the servers of the Raft group, as the asked server knows it: the leader if
it answers, which alone knows when each has last answered, and what is being
done with it (NOTE). A server that is no voter yet takes everything in and is
promoted by itself when it has caught up.`,
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
			t := newTable(e, col("ID"), col("ROLE"), col("VOTER"), col("GOSSIP"), numCol("CONTACT"), col("RAFT"), col("GRPC"), wideCol("HTTP"),
				wideCol("GOSSIP-ADDR"), wideCol("STORE"), column{"LAST-INDEX", true, true}, column{"FEATURE", true, true}, col("VERSION"), col("NOTE"))
			for _, p := range r.GetItems() {
				t.row(p.GetServerId(), roleText(p), yesNo(p.GetVoter()), p.GetGossip(), contactText(p), p.GetRaftAddr(), p.GetGrpcAddr(), p.GetHttpAddr(),
					p.GetGossipAddr(), p.GetStoreId(), tokenText(p.GetLastIndex()), tokenText(uint64(p.GetMaxFeatureLevel())), p.GetVersion(), p.GetNote())
			}
			return t.print("the cluster has not formed yet")
		},
	}
}

func roleText(p *leaseholdv1.Peer) string {
	if p.GetLeader() {
		return "leader"
	}
	return "follower"
}

// contactText is how long ago the server answered the leader, or nothing where
// that is not known.
func contactText(p *leaseholdv1.Peer) string {
	if p.GetLeader() || p.GetLastContactMs() < 0 {
		return ""
	}
	return ageText(p.GetLastContactMs())
}

// serverIDs completes ids of servers of the Raft group.
func serverIDs(ctx context.Context, c *client.Client) ([]string, error) {
	r, err := c.Cluster().ListPeers(ctx, &leaseholdv1.ListPeersRequest{})
	var ids []string
	for _, p := range r.GetItems() {
		ids = append(ids, p.GetServerId())
	}
	return ids, err
}

// peerCommand is what the commands on one server of the group share.
func peerCommand(e env, cmd *cobra.Command, do func(ctx context.Context, c *client.Client, id string) error) *cobra.Command {
	cmd.Args = exactArgs("SERVER")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := e.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		return do(cmd.Context(), c, args[0])
	}
	return cmd
}

func newRaftAddCommand(e env) *cobra.Command {
	var addr string
	cmd := peerCommand(e, &cobra.Command{
		Use:   "add SERVER",
		Short: "Let a new server into the Raft group",
		Long: `Let a new server into the Raft group. It is asked for its identity first, must
answer, and must hold no data. It takes in all that the cluster knows and is
promoted to a voter by itself when it has kept up for twenty election timeouts;
until then it cannot slow anything down.

A server whose data directory was lost needs no add: started empty under its old
id, it takes the place of its former self.`,
		Example: "  leasehold raft add s4\n  leasehold raft add s4 --grpc-addr 10.0.0.4:7400   # gossip does not show it",
	}, func(ctx context.Context, c *client.Client, id string) error {
		p, err := c.Cluster().AddPeer(ctx, &leaseholdv1.AddPeerRequest{ServerId: id, GrpcAddr: addr})
		if err != nil {
			return fmt.Errorf("add server %q: %w", id, err)
		}
		if e.json() {
			return printMessage(e.stdout, p)
		}
		if p.GetVoter() {
			return e.say("server %s at %s is in the group already, and a voter", p.GetServerId(), p.GetRaftAddr())
		}
		return e.say("server %s at %s is in the group; it becomes a voter when it has caught up: leasehold raft peers", p.GetServerId(), p.GetRaftAddr())
	})
	cmd.Flags().StringVar(&addr, "grpc-addr", "", "`host:port` where to ask the server for its identity (default what gossip shows)")
	return cmd
}

func newRaftPromoteCommand(e env) *cobra.Command {
	cmd := peerCommand(e, &cobra.Command{
		Use:     "promote SERVER",
		Short:   "Make a caught-up server a voter now",
		Long:    "Make a server that has caught up a voter without waiting until it has kept up for\na while.",
		Example: "  leasehold raft promote s4",
	}, func(ctx context.Context, c *client.Client, id string) error {
		p, err := c.Cluster().PromotePeer(ctx, &leaseholdv1.PromotePeerRequest{ServerId: id})
		if err != nil {
			return fmt.Errorf("promote server %q: %w", id, err)
		}
		if e.json() {
			return printMessage(e.stdout, p)
		}
		return e.say("server %s is a voter", p.GetServerId())
	})
	cmd.ValidArgsFunction = completeArgs(e, serverIDs)
	return cmd
}

func newRaftRemoveCommand(e env) *cobra.Command {
	var force bool
	var store string
	cmd := peerCommand(e, &cobra.Command{
		Use:   "remove SERVER",
		Short: "Take a server out of the Raft group for good",
		Long: `Take a server out of the Raft group for good, dead or alive. A leader hands its
leadership on first. A removed server that still runs says so and does nothing
more; to come back, its data directory must be emptied and it must be added.

It is refused when the voters that are left and answer would be no majority;
--force does it all the same, and then nothing works until enough of them are
back.`,
		Example: "  leasehold raft remove s2\n  leasehold raft remove s2 --yes   # in a script",
	}, func(ctx context.Context, c *client.Client, id string) error {
		if err := confirm(ctx, e, fmt.Sprintf("Remove server %q? Its data directory cannot come back.", id)); err != nil {
			return err
		}
		r, err := c.Cluster().RemovePeer(ctx, &leaseholdv1.RemovePeerRequest{ServerId: id, StoreId: store, Force: force})
		if err != nil {
			return fmt.Errorf("remove server %q: %w", id, err)
		}
		if e.json() {
			return printMessage(e.stdout, r)
		}
		return e.say("server %s is removed", id)
	})
	cmd.Flags().BoolVar(&force, "force", false, "also when the voters that are left and answer are no majority")
	cmd.Flags().StringVar(&store, "store", "", "only the data directory of this `id`, as raft peers -o wide shows it (default all of that server)")
	cmd.ValidArgsFunction = completeArgs(e, serverIDs)
	return cmd
}

func newRaftTransferCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:     "transfer [SERVER]",
		Short:   "Hand the leadership to another voter",
		Long:    "Hand the leadership to the server named, else to the voter that is furthest on.\nNo lease moves, no handler stops.",
		Example: "  leasehold raft transfer\n  leasehold raft transfer s3",
		Args:    optionalArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] == "" {
				return usage("SERVER is empty: name a voter, or leave it out for the one that is furthest on")
			}
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			req := &leaseholdv1.TransferLeadershipRequest{}
			if len(args) > 0 {
				req.ServerId = args[0]
			}
			r, err := c.Cluster().TransferLeadership(cmd.Context(), req)
			if err != nil {
				return fmt.Errorf("transfer leadership: %w", err)
			}
			if e.json() {
				return printMessage(e.stdout, r)
			}
			return e.say("server %s leads", r.GetLeaderId())
		},
		ValidArgsFunction: completeArgs(e, serverIDs),
	}
}
