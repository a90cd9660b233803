package raftstore

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// refusalPause lies between the two refusals of the leader's address after
	// which its process counts as ended.
	refusalPause = 10 * time.Millisecond
	// portLooks is how often that address is dialled while it refuses nobody, with
	// a pause that begins with portPause and doubles: a process that is killed may
	// have its connections ended some time before its port is closed.
	portLooks = 6
	portPause = 5 * time.Millisecond
	// standPause lies between the servers that stand: the next finds out
	// meanwhile that it has given its vote, or that the one before got none.
	standPause  = 40 * time.Millisecond
	standJitter = 5 * time.Millisecond
)

// failover stands for election as soon as the leader's process has ended, and
// does not wait until its heartbeats are missed. A process that ends, by
// whatever signal, has its connections ended and its port closed by the kernel,
// which then refuses whoever dials. A cut network, a machine that is gone or a
// process that is stopped refuses nobody; then the heartbeat timeout decides as
// it does without this.
//
//	a connection from the leader ends ── its address refuses twice ──▶ wait for
//	those that stand first ── nobody has been heard of meanwhile ──▶ stand
//
// Where something else refuses in the leader's place (a proxy, a listener that
// is opened again), a leader that is alive loses an election, as in a transfer.
// That happens to each leader at most once in an election timeout.
type failover struct {
	self    raft.ServerID
	timeout time.Duration // the election timeout
	log     *slog.Logger
	group   followed
	// refused dials a server and reports whether the connection was refused.
	refused func(raft.Server) bool
	// slow is how long a synced write takes here.
	slow func() time.Duration

	watching sync.WaitGroup

	mu      sync.Mutex
	ctx     context.Context // ends with the transport
	busy    bool
	lastEnd time.Time     // when a connection from the leader last ended
	asked   time.Time     // when another server last asked for the vote, and may get it
	stood   raft.ServerID // against whom this server last stood, and when
	stoodAt time.Time
}

// followed is what failover needs of Raft.
type followed interface {
	// following returns the leader that this server follows, and when it last
	// heard of it or gave its vote.
	following() (leader raft.ServerID, heard time.Time, ok bool)
	configuration() raft.Configuration
	lastIndex() uint64 // of the log
	// stand makes this server a candidate whom others vote for although they know
	// a leader.
	stand(ctx context.Context)
}

// lost is called when a connection from another server has ended.
func (f *failover) lost(from raft.ServerID) {
	leader, heard, ok := f.group.following()
	// Who has not heard of the leader for long has been stopped itself, and
	// knows nothing about now.
	if !ok || leader != from || time.Since(heard) > f.timeout/2 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastEnd = time.Now()
	if f.busy || f.ctx.Err() != nil || f.stood == leader && time.Since(f.stoodAt) < f.timeout {
		return
	}
	f.busy = true
	f.watching.Go(func() {
		stood := f.look(f.ctx, leader)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.busy = false
		if stood {
			f.stood, f.stoodAt = leader, time.Now()
		}
	})
}

// candidate is called when another server asks for this one's vote, before Raft
// decides.
func (f *failover) candidate(lastIndex uint64) {
	if lastIndex < f.group.lastIndex() {
		return // it will not get the vote
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = time.Now()
}

// othersFirst waits for those that stand first and reports whether this server
// need not stand: it has voted, or there is a leader again. While a vote is on
// its way to the disk it waits on, as long as one may take.
func (f *failover) othersFirst(ctx context.Context, rank int, leader raft.ServerID) bool {
	wait := time.Duration(rank)*(standPause+4*f.slow()) + rand.N(standJitter)
	if !pause(ctx, min(wait, f.timeout)) {
		return true
	}
	for waited := time.Duration(0); waited < f.timeout; waited += standJitter {
		now, heard, ok := f.group.following()
		f.mu.Lock()
		since, asked := f.lastEnd, f.asked
		f.mu.Unlock()
		switch {
		case !ok || now != leader && now != "" || heard.After(since):
			return true
		case !asked.After(since):
			return false
		case !pause(ctx, standJitter):
			return true
		}
	}
	return true // the heartbeat timeout is near
}

// wait returns when nothing more happens, after ctx has ended.
func (f *failover) wait() {
	f.mu.Lock()
	f.mu.Unlock() //nolint:staticcheck // whoever comes later finds that ctx has ended
	f.watching.Wait()
}

// look finds out whether the leader has ended, and stands if so.
func (f *failover) look(ctx context.Context, leader raft.ServerID) (stood bool) {
	began := time.Now()
	rank, srv, ok := f.rank(leader)
	if !ok {
		return false
	}
	if !f.ended(ctx, srv) || f.othersFirst(ctx, rank, leader) {
		return false
	}
	f.log.Warn("the leader's process has ended, standing for election at once", "leader", splitID(leader).ID, "after", time.Since(began))
	f.group.stand(ctx)
	return true
}

// ended reports whether nobody listens at the leader's address any more.
func (f *failover) ended(ctx context.Context, srv raft.Server) bool {
	wait := portPause
	for i := range portLooks {
		if i > 0 {
			if !pause(ctx, wait) {
				return false
			}
			wait *= 2
		}
		if f.refused(srv) {
			return pause(ctx, refusalPause) && f.refused(srv)
		}
	}
	return false
}

// rank is how many other voters stand before this one; not ok: it has no vote,
// or the leader is not known.
func (f *failover) rank(leader raft.ServerID) (rank int, srv raft.Server, ok bool) {
	conf := f.group.configuration()
	at := slices.IndexFunc(conf.Servers, func(s raft.Server) bool { return s.ID == leader })
	if at < 0 {
		return 0, srv, false
	}
	for _, s := range conf.Servers {
		switch {
		case s.Suffrage != raft.Voter || s.ID == leader:
		case s.ID == f.self:
			ok = true
		case s.ID < f.self:
			rank++
		}
	}
	return rank, conf.Servers[at], ok
}

// pause reports whether ctx goes on after d.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// refuses dials a server as Dial does, without a hello, and reports whether
// nobody listens there.
func (s *streams) refuses(srv raft.Server, timeout time.Duration) bool {
	to := splitAddress(srv.Address)
	addr := to.RaftAddr
	if s.resolve != nil {
		if now, ok := s.resolve(to); ok {
			addr = now
		}
	}
	conn, err := s.network.Dial(addr, timeout)
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	_ = conn.Close()
	return false
}

// raftFollowed is the Raft that failover looks at.
type raftFollowed struct {
	r *raft.Raft
	t *transport
}

func (g raftFollowed) following() (leader raft.ServerID, heard time.Time, ok bool) {
	_, leader = g.r.LeaderWithID()
	ok = g.r.State() == raft.Follower && !g.t.greeter.removed() && g.t.disk.gate() == nil
	return leader, g.r.LastContact(), ok
}

func (g raftFollowed) configuration() raft.Configuration {
	return g.r.GetConfiguration().Configuration()
}

func (g raftFollowed) lastIndex() uint64 { return g.r.LastIndex() }

// stand does what a leader does that hands over to this server.
func (g raftFollowed) stand(ctx context.Context) {
	rpc := raft.RPC{Command: &raft.TimeoutNowRequest{RPCHeader: g.t.header()}, RespChan: make(chan raft.RPCResponse, 1)}
	select {
	case g.t.rpcs <- rpc:
	case <-ctx.Done():
	}
}

// watchLeader begins to look after the leader's process.
func (s *Store) watchLeader(r *raft.Raft, t *transport) {
	if t.streams == nil {
		return
	}
	timeout := s.cfg.ElectionTimeout
	f := &failover{
		self: s.self.raftID(), timeout: timeout, log: s.log, group: raftFollowed{r, t}, ctx: t.ctx,
		refused: func(srv raft.Server) bool { return t.streams.refuses(srv, timeout/4) },
		slow:    func() time.Duration { return s.disk.times.window().P50 },
	}
	t.streams.ended.Store(f)
}
