package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// AwaitVoters returns when the servers of the list are the Raft group: each a
// voter, with the data directory that it has now, and nobody else.
func (c *Cluster) AwaitVoters(ctx context.Context) error {
	for {
		err := c.voters(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until all servers vote (%w): %w", err, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// voters says what is missing for AwaitVoters.
func (c *Cluster) voters(ctx context.Context) error {
	leader, err := c.Leader(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list, err := leader.Cluster().ListPeers(ctx, &leaseholdv1.ListPeersRequest{})
	if err != nil {
		return err
	}
	peers := map[string]*leaseholdv1.Peer{}
	for _, p := range list.GetItems() {
		peers[p.GetServerId()] = p
	}
	if len(list.GetItems()) != len(c.servers) {
		return fmt.Errorf("the group has %d servers, not %d", len(list.GetItems()), len(c.servers))
	}
	for _, s := range c.servers {
		st, err := s.Status(ctx)
		if err != nil {
			return fmt.Errorf("ask %s: %w", s.ID, err)
		}
		p := peers[s.ID]
		switch {
		case p == nil:
			return fmt.Errorf("%s is not in the group", s.ID)
		case p.GetStoreId() != st.GetStoreId():
			return fmt.Errorf("%s is in the group with data directory %s, not %s", s.ID, p.GetStoreId(), st.GetStoreId())
		case !p.GetVoter():
			return fmt.Errorf("%s does not vote yet: %s", s.ID, p.GetNote())
		case !st.GetReady():
			return fmt.Errorf("%s is not ready: %s", s.ID, st.GetNotReadyReason())
		}
	}
	return nil
}

// Swap adds a server, waits until it votes, and takes another one out for
// good. The one that is taken out has ended then.
func (c *Cluster) Swap(ctx context.Context, cl *client.Client, old *Server, spec ServerSpec) error {
	fresh, err := c.Add(spec)
	if err != nil {
		return err
	}
	err = Persist(ctx, func(ctx context.Context) error {
		_, err := cl.Cluster().AddPeer(ctx, &leaseholdv1.AddPeerRequest{ServerId: fresh.ID, GrpcAddr: fresh.GRPCAddr})
		return err
	})
	if err != nil {
		return fmt.Errorf("add %s: %w", fresh.ID, err)
	}
	if err := c.AwaitVoters(ctx); err != nil {
		return err
	}
	err = Persist(ctx, func(ctx context.Context) error {
		_, err := cl.Cluster().RemovePeer(ctx, &leaseholdv1.RemovePeerRequest{ServerId: old.ID})
		return err
	})
	if err != nil {
		return fmt.Errorf("remove %s: %w", old.ID, err)
	}
	if err := c.Terminate(ctx, old); err != nil {
		return fmt.Errorf("terminate %s: %w", old.ID, err)
	}
	return c.Forget(old)
}

// Persist calls f until it succeeds, for up to half a minute: a leader may
// change meanwhile, and a new server has to be seen first.
func Persist(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("tried for half a minute"))
	defer cancel()
	for {
		trying, enough := context.WithTimeout(ctx, 5*time.Second)
		err := f(trying)
		enough()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}
