package etcdapi

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"
)

// noLeaderElections is how many election timeouts without a leader end what asked
// for one: fewer, and each election would.
const noLeaderElections = 3

// leaderLoss tells all who wait that there has been no leader for too long. One
// goroutine looks, however many wait.
type leaderLoss struct {
	mu   sync.Mutex
	ctx  context.Context // ends with ErrGRPCNoLeader
	lose context.CancelCauseFunc
}

func newLeaderLoss() *leaderLoss {
	l := &leaderLoss{}
	l.ctx, l.lose = context.WithCancelCause(context.Background())
	return l
}

// run looks until ctx ends.
func (l *leaderLoss) run(ctx context.Context, store Store, after time.Duration) {
	changed := make(chan struct{}, 1)
	stop := store.NotifyLeader(changed)
	defer stop()
	timer := time.NewTimer(after)
	defer timer.Stop()
	running := true
	for {
		id, ok := store.LeaderID()
		switch has := ok && id != ""; {
		case has:
			timer.Stop()
			running = false
			l.found()
		case !running: // what changes while there is none does not make it wait longer
			timer.Reset(after)
			running = true
		}
		select {
		case <-changed:
		case <-timer.C:
			if id, ok := store.LeaderID(); !ok || id == "" {
				l.lost()
			}
		case <-ctx.Done():
			return
		}
	}
}

func (l *leaderLoss) found() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		l.ctx, l.lose = context.WithCancelCause(context.Background())
	}
}

func (l *leaderLoss) lost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose(rpctypes.ErrGRPCNoLeader)
}

func (l *leaderLoss) current() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ctx
}

// asksForLeader tells whether a caller asked that there be a leader.
func asksForLeader(ctx context.Context) bool {
	md, ok := metadata.FromIncomingContext(ctx)
	if !ok {
		return false
	}
	v := md.Get(rpctypes.MetadataRequireLeaderKey)
	return len(v) > 0 && v[0] == rpctypes.MetadataHasLeader
}

// whileLed returns a context for a stream or a long wait. If its caller asked for a
// leader, it ends with "no leader" when there has been none for some elections.
func (a *API) whileLed(ctx context.Context) (context.Context, context.CancelFunc) {
	if !asksForLeader(ctx) {
		return context.WithCancel(ctx)
	}
	led, cancel := context.WithCancelCause(ctx)
	loss := a.leaderLoss.current()
	stop := context.AfterFunc(loss, func() { cancel(context.Cause(loss)) })
	return led, func() {
		stop()
		cancel(nil)
	}
}

// leaderLost is whileLed for who waits for other things, too: it is closed when
// there has been no leader for too long, and nil for a caller that did not ask.
func (a *API) leaderLost(ctx context.Context) <-chan struct{} {
	if !asksForLeader(ctx) {
		return nil
	}
	return a.leaderLoss.current().Done()
}
