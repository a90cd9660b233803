package api

import (
	"context"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// read looks at the state: linearizably, or at this server's own on the spot.
func (a *API) read(ctx context.Context, stale bool, fn func(*state.State)) error {
	if stale {
		a.cfg.Store.View(fn)
		return nil
	}
	return a.cfg.Store.Read(ctx, fn)
}

// look is read for one keyspace, named by the caller in field.
func (a *API) look(ctx context.Context, stale bool, field, name string, fn func(*state.State, *state.Keyspace)) error {
	if err := checkName(field, name); err != nil {
		return err
	}
	found := false
	err := a.read(ctx, stale, func(s *state.State) {
		var ks *state.Keyspace
		if ks, found = s.KeyspaceByName(name); found {
			fn(s, ks)
		}
	})
	if err == nil && !found {
		err = notFound("keyspace", field, name)
	}
	return err
}

// propose logs one command and returns what the state machine said, about it
// or about its only item.
func (a *API) propose(ctx context.Context, cmd state.Command) error {
	results, err := a.cfg.Store.Propose(ctx, cmd)
	if err != nil {
		return err
	}
	if err := results[0].Err; err != nil {
		return err
	}
	for _, err := range results[0].Items {
		if err != nil {
			return err
		}
	}
	return nil
}
