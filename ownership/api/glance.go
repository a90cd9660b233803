package api

import (
	"context"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// What whoever shows this server's own state to a person asks for, over and over:
// the answers of the calls of the same names, on the spot and without the leader.
// They show everything: whoever passes them on has asked who looks.

// Status is what GetStatus answers.
func (a *API) Status() *pb.Status {
	m, _ := (&cluster{API: a}).GetStatus(everybody(), nil) // it never fails
	return m
}

// Peers is what ListPeers answers.
func (a *API) Peers() []*pb.Peer {
	m, _ := (&cluster{API: a}).ListPeers(everybody(), nil) // it never fails
	return m.GetItems()
}

// Workers is what a stale ListWorkers answers. What workers say of themselves is
// there while this server leads.
func (a *API) Workers() (items []*pb.Worker, leading bool) {
	leading = a.hub.leading()
	m, _ := (&workers{API: a}).ListWorkers(everybody(), &pb.ListWorkersRequest{Stale: true}) // a stale one never fails
	return m.GetItems(), leading
}

// Keyspaces is what a stale ListKeyspaces answers.
func (a *API) Keyspaces() []*pb.Keyspace {
	m, _ := (&keyspaces{API: a}).ListKeyspaces(everybody(), &pb.ListKeyspacesRequest{Stale: true}) // a stale one never fails
	return m.GetItems()
}

// NewestEvents returns the newest events after a revision, at most limit of them,
// oldest first, and the revision of the last event there is.
func (a *API) NewestEvents(after uint64, limit int) (items []*pb.Event, revision uint64) {
	var found []state.Event
	var endpoints []string
	a.cfg.Store.View(func(s *state.State) {
		if revision = s.Revision(); revision <= after {
			return
		}
		a.names.learn(s)
		newestFirst(s, func(ev *state.Event) bool {
			if ev.Revision <= after {
				return false
			}
			found = append(found, *ev)
			return len(found) < limit
		})
		endpoints = endpointsOf(s, found, nil)
	})
	for i := len(found) - 1; i >= 0; i-- {
		items = append(items, (&events{API: a}).eventOf(&found[i], endpoints[i]))
	}
	return items, revision
}

// everybody is the context of a look that is not somebody's call.
func everybody() context.Context { return access.NewContext(context.Background(), access.Anybody()) }
