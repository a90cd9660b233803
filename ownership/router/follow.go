package router

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

const (
	// Between two tries to follow: doubled up to the longer, and jittered.
	leastPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second
	// preferEvery is how often one that follows another server than the leader
	// looks whether there is a leader to go to.
	preferEvery = 5 * time.Second
)

var (
	errSilent = errors.New("no word from the server within three heartbeats")
	errMoved  = errors.New("the leader is elsewhere")
	errAhead  = errors.New("the server has not come as far as this table")
)

// follower is what Run's loop knows from one watch to the next.
type follower struct {
	*Router
	relist bool
	avoid  string // the server that failed last
	behind int    // servers in a row that had not come as far
	next   time.Duration
}

// Run keeps the table fresh until ctx ends, and then returns nil. It can be
// called once. Failures are not returned but overcome: another server is
// followed, or everything is listed again, after a growing pause.
func (r *Router) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return errRunning
	}
	ctx, cancel := context.WithCancel(ctx)
	asked := make(chan struct{})
	go func() { defer close(asked); r.askBack(ctx) }()
	defer func() {
		cancel()
		<-asked
		_ = r.client.Close() // says nothing but that it was closed before
	}()
	f := &follower{Router: r, relist: true}
	for {
		began := time.Now()
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.note("", err)
		if errors.Is(err, errMoved) {
			continue
		}
		r.cfg.Logger.Info("events not followed", "error", err, "list_again", f.relist, "age", r.Age())
		if time.Since(began) > 2*mostPause {
			f.next = 0
		}
		f.next = min(max(2*f.next, leastPause), mostPause)
		if pause(ctx, f.next/2+rand.N(f.next)) != nil {
			return nil
		}
	}
}

// note records whose events are followed, or why nobody's.
func (r *Router) note(server string, trouble error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server, r.trouble = server, trouble
}

// follow lists if that is due, and takes in one server's events until that
// ends.
func (f *follower) follow(ctx context.Context) error {
	if f.relist {
		if err := f.list(ctx); err != nil {
			return err
		}
		f.relist, f.behind = false, 0
	}
	addr, err := f.choose(ctx)
	if err != nil {
		return err
	}
	conn, err := f.client.Open(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(3*f.cfg.Heartbeat, func() { cancel(errSilent) })
	defer silence.Stop()
	f.watches.Add(1)
	stream, err := leaseholdv1.NewEventServiceClient(conn).WatchEvents(ctx, f.request())
	for err == nil {
		var m *leaseholdv1.WatchEventsResponse
		if m, err = stream.Recv(); err == nil {
			silence.Stop() // a list may take longer
			err = f.heard(ctx, addr, m)
			silence.Reset(3 * f.cfg.Heartbeat)
		}
	}
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		err = cause
	}
	return f.judge(addr, err)
}

// request asks for what comes after what the table has.
func (f *follower) request() *leaseholdv1.WatchEventsRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &leaseholdv1.WatchEventsRequest{AfterRevision: f.revision, ClusterId: f.cluster, HeartbeatMs: f.cfg.Heartbeat.Milliseconds()}
	// A server knows one keyspace's events apart, once the keyspace exists.
	if len(f.cfg.Keyspaces) == 1 && f.tableLocked(f.cfg.Keyspaces[0]) != nil {
		r.Keyspace = f.cfg.Keyspaces[0]
	}
	return r
}

// choose returns the server to follow: the leader, unless configured or known
// otherwise, and not the one that has just failed if there is another.
func (f *follower) choose(ctx context.Context) (string, error) {
	order, err := f.client.Servers(ctx)
	if err != nil {
		return "", err
	}
	if f.cfg.AnyServer {
		rand.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
	}
	if i := slices.Index(order, f.avoid); i >= 0 && len(order) > 1 {
		order = slices.Delete(order, i, i+1)
	}
	return order[0], nil
}

// heard takes in one message. An error ends the watch.
func (f *follower) heard(ctx context.Context, addr string, m *leaseholdv1.WatchEventsResponse) error {
	age := time.Duration(m.GetAgeMs()) * time.Millisecond
	if age > f.cfg.StaleAfter {
		return fmt.Errorf("server %s has heard nothing of a leader for %v", addr, age)
	}
	for _, name := range f.take(m) {
		if err := f.listKeyspace(ctx, name, true); err != nil {
			f.relist = true
			return fmt.Errorf("list keyspace %s: %w", name, err)
		}
	}
	f.note(addr, nil)
	f.behind = 0
	select {
	case <-f.ready:
	default:
		close(f.ready)
	}
	return f.prefer(ctx, addr, age, len(m.GetItems()) == 0)
}

// prefer goes to the leader when what is followed is not it: only on
// heartbeats, and not often.
func (f *follower) prefer(ctx context.Context, addr string, age time.Duration, idle bool) error {
	if f.cfg.AnyServer || age == 0 || !idle || rand.N(preferEvery) > f.cfg.Heartbeat {
		return nil
	}
	order, err := f.client.Servers(ctx)
	if err != nil || order[0] == addr {
		return nil
	}
	f.avoid = ""
	return errMoved
}

// judge decides what to do about the end of a watch.
func (f *follower) judge(addr string, err error) error {
	if errors.Is(err, errMoved) {
		return err
	}
	f.avoid = addr
	d := client.Detail(err)
	f.mu.Lock()
	revision := f.revision
	f.mu.Unlock()
	switch d.GetReason() {
	case leaseholdv1.ReasonCompacted:
		// Behind us is a server that has not caught up; the next one has. If
		// all say so, the events are not those of before.
		if d.GetRevision() < revision {
			f.behind++
			f.relist = f.behind >= 3
			return fmt.Errorf("server %s: %w: %w", addr, errAhead, err)
		}
		f.relist, f.avoid = true, ""
	case leaseholdv1.ReasonWrongCluster, leaseholdv1.ReasonNotFound:
		f.relist = true
	}
	return fmt.Errorf("server %s: %w", addr, err)
}
