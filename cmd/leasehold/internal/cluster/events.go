package cluster

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// Follower hands every event of a keyspace to a function, once and in order,
// from when it was made, whichever server dies meanwhile.
type Follower struct {
	client   atomic.Pointer[client.Client]
	keyspace string
	each     func(*leaseholdv1.Event)
	seen     atomic.Uint64 // revision up to which each has been called
}

// NewFollower begins at the present revision. each is called by Run's
// goroutine.
func NewFollower(ctx context.Context, c *client.Client, keyspace string, each func(*leaseholdv1.Event)) (*Follower, error) {
	f := &Follower{keyspace: keyspace, each: each}
	f.client.Store(c)
	head, err := f.head(ctx)
	f.seen.Store(head)
	return f, err
}

// Use follows through another client once the present watch breaks.
func (f *Follower) Use(c *client.Client) { f.client.Store(c) }

// head is the revision of the newest event.
func (f *Follower) head(ctx context.Context) (uint64, error) {
	list, err := f.client.Load().Events().ListEvents(ctx, &leaseholdv1.ListEventsRequest{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("list events: %w", err)
	}
	return list.GetRevision(), nil
}

// Run follows until ctx ends. A watch that breaks is resumed where it broke,
// at whatever server answers.
func (f *Follower) Run(ctx context.Context) {
	for ctx.Err() == nil {
		f.watch(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond): // a leader may be missing
		}
	}
}

// watch reads one watch until it breaks.
func (f *Follower) watch(ctx context.Context) {
	stream, err := f.client.Load().Events().WatchEvents(ctx, &leaseholdv1.WatchEventsRequest{AfterRevision: f.seen.Load()})
	if err != nil {
		return
	}
	for {
		got, err := stream.Recv()
		if err != nil {
			return
		}
		for _, e := range got.GetItems() {
			if e.GetKeyspace() == f.keyspace && e.GetRevision() > f.seen.Load() {
				f.each(e)
			}
		}
		f.seen.Store(max(f.seen.Load(), got.GetRevision()))
	}
}

// CatchUp waits until each has been called for everything up to now.
func (f *Follower) CatchUp(ctx context.Context) error {
	head, err := f.head(ctx)
	if err != nil {
		return err
	}
	for f.seen.Load() < head {
		select {
		case <-ctx.Done():
			return fmt.Errorf("follow events to revision %d (at %d): %w", head, f.seen.Load(), context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
