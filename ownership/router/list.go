package router

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// pageSize is how many partitions are listed at a time, about a megabyte.
const pageSize = 10_000

var (
	errNotFormed = errors.New("the servers have not formed a cluster yet")
	errRecreated = errors.New("the keyspace was deleted and created again meanwhile")
)

// list takes everything anew. The revision is read first, and every page is
// linearizable and says which log index it is of: events after the revision
// that a page knows already are older than its rows, so nothing is missed and
// nothing is undone.
func (r *Router) list(ctx context.Context) error {
	st, err := r.client.Cluster().GetStatus(ctx, &leaseholdv1.GetStatusRequest{})
	if err != nil {
		return err
	}
	if st.GetClusterId() == "" {
		return errNotFormed
	}
	evs, err := r.client.Events().ListEvents(ctx, &leaseholdv1.ListEventsRequest{Limit: 1})
	if err != nil {
		return err
	}
	r.mu.Lock()
	known := r.cluster
	r.mu.Unlock()
	same := known == st.GetClusterId()
	if known != "" && !same {
		r.cfg.Logger.Warn("the servers are another cluster now", "before", known, "cluster", st.GetClusterId())
	}
	for _, name := range r.cfg.Keyspaces {
		if err := r.listKeyspace(ctx, name, same); err != nil {
			return fmt.Errorf("list keyspace %s: %w", name, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cluster, r.revision = st.GetClusterId(), evs.GetRevision()
	r.lists.Add(1)
	return nil
}

// listKeyspace lists one keyspace. Rows of the incarnation that is known are
// only ever replaced by newer ones; keep says that its id means the same one.
func (r *Router) listKeyspace(ctx context.Context, name string, keep bool) error {
	for range 3 {
		ks, err := r.client.Keyspaces().GetKeyspace(ctx, &leaseholdv1.GetKeyspaceRequest{Name: name})
		if status.Code(err) == codes.NotFound {
			r.vanished(name)
			return nil
		}
		if err != nil {
			return err
		}
		r.mu.Lock()
		t := r.tableLocked(name)
		if !keep || t == nil || t.id != ks.GetId() || t.partitions != ks.GetPartitions() {
			t = newTable(name, ks.GetId(), ks.GetPartitions(), r.places, r.cfg.OnChange != nil)
		}
		r.mu.Unlock()
		err = r.listPages(ctx, t)
		if err != nil && status.Code(err) != codes.NotFound {
			return err
		}
		// An id is never used again: if it still is the same one, all pages
		// were of one keyspace.
		again, err := r.client.Keyspaces().GetKeyspace(ctx, &leaseholdv1.GetKeyspaceRequest{Name: name})
		if err != nil && status.Code(err) != codes.NotFound {
			return err
		}
		if again.GetId() == t.id {
			r.install(t)
			return nil
		}
		r.abandon(t)
	}
	return errRecreated
}

// listPages reads all pages into t. If readers see t already, they see each
// page when it has come.
func (r *Router) listPages(ctx context.Context, t *table) error {
	for first, more := uint32(0), true; more; {
		resp, err := r.client.Partitions().ListPartitions(ctx, &leaseholdv1.ListPartitionsRequest{Keyspace: t.name, First: first, Limit: pageSize})
		if err != nil {
			return err
		}
		var told []Route
		r.mu.Lock()
		for _, p := range resp.GetItems() {
			if p.GetPartition() < t.partitions {
				t.learn(newsOf(p))
				r.highest = max(r.highest, p.GetToken())
			}
		}
		if r.tableLocked(t.name) == t {
			told = r.showLocked()
		}
		r.mu.Unlock()
		r.tell(told)
		first, more = resp.GetNext(), resp.GetNext() > first
	}
	return nil
}

// install shows a table that has been filled.
func (r *Router) install(t *table) {
	r.mu.Lock()
	var told []Route
	for _, p := range t.show() {
		told = append(told, t.route(p, t.load(p)))
	}
	if r.tableLocked(t.name) != t {
		r.swapLocked(t.name, t)
	}
	r.mu.Unlock()
	r.tell(told)
}

// abandon forgets a table that never was shown, or whose keyspace is gone.
func (r *Router) abandon(t *table) {
	r.mu.Lock()
	if r.tableLocked(t.name) != t {
		t.show()
		t.drop()
	}
	r.mu.Unlock()
}

// vanished forgets a keyspace that does not exist.
func (r *Router) vanished(name string) {
	var told []Route
	r.mu.Lock()
	if t := r.tableLocked(name); t != nil {
		told = r.removeLocked(t)
	} else {
		r.swapLocked(name, nil) // from now on it is unknown, not unready
	}
	r.mu.Unlock()
	r.cfg.Logger.Warn("keyspace does not exist", "keyspace", name)
	r.tell(told)
}
