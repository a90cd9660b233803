package doctor

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// lists asks the leader for keyspaces, workers and what has no owner; without
// one, whichever server answers, from its own state.
func (c *collector) lists(ctx context.Context, f *Facts) {
	f.ListsError = errors.New("no server answers")
	if l := f.leader(); l != nil {
		f.ListsError = c.listsFrom(ctx, f, l, false)
	}
	for _, s := range f.up() {
		if f.ListsError == nil {
			return
		}
		f.Stale = true
		f.ListsError = c.listsFrom(ctx, f, s, true)
	}
}

func (c *collector) listsFrom(ctx context.Context, f *Facts, s *Server, stale bool) error {
	conn, err := c.conn(s.Addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.Timeout)
	defer cancel()
	ks, err := pb.NewKeyspaceServiceClient(conn).ListKeyspaces(ctx, &pb.ListKeyspacesRequest{Stale: stale})
	if err != nil {
		return err
	}
	ws, err := pb.NewWorkerServiceClient(conn).ListWorkers(ctx, &pb.ListWorkersRequest{Stale: stale})
	if err != nil {
		return err
	}
	f.Keyspaces, f.Workers, f.Unowned = ks.GetItems(), ws.GetItems(), nil
	parts := pb.NewPartitionServiceClient(conn)
	for _, k := range f.Keyspaces {
		if k.GetStatus().GetUnowned() == 0 || k.GetDeleting() {
			continue
		}
		list, err := parts.ListPartitions(ctx, &pb.ListPartitionsRequest{Keyspace: k.GetName(), Unowned: true, Limit: MaxUnowned, Stale: stale})
		if err != nil {
			return err
		}
		f.Unowned = append(f.Unowned, list.GetItems()...)
	}
	if stale {
		return nil
	}
	return f.holders(ctx, conn)
}

// holders asks since when the workers hold something that no guard has checked
// a token for.
func (f *Facts) holders(ctx context.Context, conn *grpc.ClientConn) error {
	f.Holding = map[string]time.Duration{}
	parts := pb.NewPartitionServiceClient(conn)
	asked := 0
	for _, w := range f.Workers {
		if w.GetHeld() == 0 || w.GetFencingChecks() > 0 || !w.GetAttached() || asked == maxHolders {
			continue
		}
		asked++
		for _, name := range w.GetKeyspaces() {
			list, err := parts.ListPartitions(ctx, &pb.ListPartitionsRequest{Keyspace: name, Worker: w.GetId(), Limit: 100})
			if err != nil {
				return err
			}
			for _, p := range list.GetItems() {
				f.Holding[w.GetId()] = max(f.Holding[w.GetId()], time.Duration(p.GetHeldMs())*time.Millisecond)
			}
		}
	}
	return nil
}
