package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring"
)

// rings computes rings beside the loop: for a large keyspace one takes longer
// than a plan may. The loop waits for a ring only for a moment and otherwise
// plans with the one before; it is a wish, and nobody's ownership depends on it.
type rings struct {
	poke chan struct{} // capacity 1: something is wanted
	done chan struct{} // capacity 1: something is there

	mu   sync.Mutex
	want map[state.KeyspaceID]ringWish
	have map[state.KeyspaceID]*ring.Ring
	gone []state.KeyspaceID
}

type ringWish struct {
	members    []string // sorted
	partitions uint32
}

func newRings() *rings {
	return &rings{
		poke: make(chan struct{}, 1),
		done: make(chan struct{}, 1),
		want: make(map[state.KeyspaceID]ringWish),
		have: make(map[state.KeyspaceID]*ring.Ring),
	}
}

// run computes what is wanted, the newest wish of each keyspace, until ctx
// ends. The caches, one per keyspace, are its own.
func (r *rings) run(ctx context.Context) {
	caches := make(map[state.KeyspaceID]*ring.Cache)
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.poke:
		}
		for ctx.Err() == nil {
			id, w, ok := r.take(caches)
			if !ok {
				break
			}
			if caches[id] == nil {
				caches[id] = new(ring.Cache)
			}
			got, err := caches[id].Get(w.members, w.partitions)
			if err != nil {
				delete(caches, id) // then the plan goes without a wish
			}
			r.mu.Lock()
			r.have[id] = got
			r.mu.Unlock()
			signal(r.done)
		}
	}
}

func (r *rings) take(caches map[state.KeyspaceID]*ring.Cache) (state.KeyspaceID, ringWish, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range r.gone {
		delete(caches, id)
		delete(r.have, id)
	}
	r.gone = nil
	for id, w := range r.want {
		delete(r.want, id)
		return id, w, true
	}
	return 0, ringWish{}, false
}

func (r *rings) forget(id state.KeyspaceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.want, id)
	r.gone = append(r.gone, id)
	signal(r.poke)
}

// get returns the ring of these members, waiting at most patience for it, and
// after that the last one there was, which may be nil.
func (r *rings) get(ctx context.Context, id state.KeyspaceID, members []string, partitions uint32, patience time.Duration) *ring.Ring {
	last, ok := r.ready(id, members)
	if ok || len(members) == 0 {
		return last
	}
	r.mu.Lock()
	r.want[id] = ringWish{members, partitions}
	r.mu.Unlock()
	signal(r.poke)
	if patience <= 0 {
		return last
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return last
		case <-timer.C:
			return last
		case <-r.done:
			if last, ok = r.ready(id, members); ok {
				return last
			}
		}
	}
}

func (r *rings) ready(id state.KeyspaceID, members []string) (*ring.Ring, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.have[id]
	return last, last != nil && slices.Equal(last.Members(), members)
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
