package router

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

const (
	// askTimeout bounds a question about one partition.
	askTimeout = 3 * time.Second
	// maxAsks bounds the hints that are looked into at a time.
	maxAsks = 64
)

type askKey struct {
	keyspace  string
	partition uint32
}

// ask is a question under way, which all who have the same share.
type ask struct {
	done chan struct{}
	err  error
}

// Refresh asks the servers about one partition, takes the answer into the table
// and returns what the table then has, as At does. Callers with the same
// question at the same time share one call.
func (r *Router) Refresh(ctx context.Context, keyspace string, partition uint32) (Route, error) {
	if _, err := r.table(keyspace); err != nil {
		return Route{Keyspace: keyspace, Partition: partition}, err
	}
	key := askKey{keyspace, partition}
	for {
		r.mu.Lock()
		a, others := r.asking[key]
		if !others {
			a = &ask{done: make(chan struct{})}
			r.asking[key] = a
		}
		r.mu.Unlock()
		if !others {
			a.err = r.askPartition(ctx, keyspace, partition)
			r.mu.Lock()
			delete(r.asking, key)
			r.mu.Unlock()
			close(a.done)
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return Route{Keyspace: keyspace, Partition: partition}, context.Cause(ctx)
		}
		if others && a.err != nil && ctx.Err() == nil {
			continue // the other's time may have been up, ours is not
		}
		if a.err != nil {
			return Route{Keyspace: keyspace, Partition: partition}, fmt.Errorf("ask who owns %s/%d: %w", keyspace, partition, a.err)
		}
		return r.At(keyspace, partition)
	}
}

// askPartition asks, and takes the answer in. A hint that was there before the
// question and that the answer does not know was wrong.
func (r *Router) askPartition(ctx context.Context, keyspace string, partition uint32) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r.mu.Lock()
	t := r.tableLocked(keyspace)
	var before hinting
	if t != nil {
		before = t.hinted[partition]
	}
	r.mu.Unlock()
	r.asks.Add(1)
	p, err := r.client.Partitions().GetPartition(ctx, &leaseholdv1.GetPartitionRequest{Keyspace: keyspace, Partition: partition})
	if err != nil {
		return err
	}
	r.mu.Lock()
	var told []Route
	if t != nil && r.tableLocked(keyspace) == t {
		n := newsOf(p)
		r.highest = max(r.highest, n.token)
		if h, hinted := t.hinted[partition]; hinted && h == before && n.token < h.token {
			t.put(n)
		} else {
			t.learn(n)
		}
		told = r.showLocked()
	}
	r.mu.Unlock()
	r.tell(told)
	return nil
}

// newsOf is what a server's answer says.
func newsOf(p *leaseholdv1.Partition) news {
	n := news{
		partition: p.GetPartition(), index: p.GetIndex(), token: p.GetToken(),
		session: p.GetSessionId(), worker: p.GetOwner(), endpoint: p.GetEndpoint(),
		draining: p.GetState() == leaseholdv1.PartitionState_PARTITION_STATE_DRAINING,
	}
	if n.worker == "" {
		n.session, n.reason = 0, p.GetReason()
		switch {
		case p.GetState() == leaseholdv1.PartitionState_PARTITION_STATE_QUARANTINED:
			n.reason = "it is quarantined"
		case n.reason == "":
			n.reason = "it is waiting for an owner"
		}
	}
	return n
}

// nudge wakes the goroutine that asks back.
func (r *Router) nudge() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// askBack looks into hints that nobody confirms, and asks for endpoints that
// events did not tell, at most once in a while.
func (r *Router) askBack(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.kick:
		}
		// Let the events have their say, and routers not all ask at once.
		if pause(ctx, hintPatience/2+rand.N(hintPatience/2)) != nil {
			return
		}
		again := r.findEndpoints(ctx)
		if r.checkHints(ctx) || again {
			r.nudge()
		}
	}
}

// checkHints asks about hints past their time and reports whether any are left.
func (r *Router) checkHints(ctx context.Context) (more bool) {
	var due []askKey
	r.mu.Lock()
	for name, t := range r.tablesLocked() {
		for p, h := range t.hinted {
			if time.Since(h.since) < hintPatience || len(due) == maxAsks {
				more = true
				continue
			}
			due = append(due, askKey{name, p})
		}
	}
	r.mu.Unlock()
	for _, k := range due {
		if err := r.askPartition(ctx, k.keyspace, k.partition); err != nil {
			r.cfg.Logger.Debug("hint not looked into", "keyspace", k.keyspace, "partition", k.partition, "error", err)
			return true
		}
	}
	return more
}

// findEndpoints asks for the workers if some owner's endpoint was not told, and
// reports whether to try again.
func (r *Router) findEndpoints(ctx context.Context) (again bool) {
	r.mu.Lock()
	var missing []*place
	for _, at := range r.places {
		if at.worker != "" && at.key.session != 0 && !at.asked && *at.endpoint.Load() == "" {
			missing = append(missing, at)
		}
	}
	r.mu.Unlock()
	if len(missing) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r.asks.Add(1)
	list, err := r.client.Workers().ListWorkers(ctx, &leaseholdv1.ListWorkersRequest{})
	if err != nil {
		if status.Code(err) == codes.Canceled {
			return false
		}
		r.cfg.Logger.Debug("endpoints not asked for", "error", err)
		return true
	}
	at := map[uint64]string{}
	for _, w := range list.GetItems() {
		at[w.GetSessionId()] = w.GetEndpoint()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range missing {
		m.asked = true // none, or the session is over: nothing more to learn
		if endpoint := at[m.key.session]; endpoint != "" {
			m.endpoint.Store(&endpoint)
		}
	}
	return false
}

// pause waits, and returns why not if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
