package raftstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Store is one server's part in the replicated state. All methods may be called
// by any number of goroutines.
type Store struct {
	cfg   Config
	log   *slog.Logger
	self  Peer // but for the address, which addr tells
	files *files
	disk  *disk

	retain     *retention
	proposer   *builder
	reads      readRounds
	clock      *leaderClock
	keepAlives *keepAlives

	members  members
	greeter  *greeter
	cluster  atomic.Pointer[string] // nil: not known yet
	changing chan struct{}          // holds one while the servers of the group change

	changed       signals // entries applied
	applied       appliedWaiters
	leaderChanged signals

	mu    sync.RWMutex
	state *state.State

	appliedIndex atomic.Uint64 // of the last command applied
	seenIndex    atomic.Uint64 // of the last entry of any kind given to the state
	stopped      atomic.Bool   // the state takes no more entries
	leading      atomic.Uint64 // the term in which this server is in office, or 0
	office       atomic.Int64  // when it last took office, Unix nanoseconds

	probeMu sync.Mutex
	probing chan struct{} // closed when Raft's main loop has answered; nil: not asked

	failOnce sync.Once
	failed   chan struct{} // closed with failure set
	failure  error         // a *StorageError or an *UpgradeError

	lifeMu    sync.Mutex // guards the rest, which is set by Run
	life      life
	raft      *raft.Raft
	transport *transport
	since     time.Time     // Raft's start
	started   chan struct{} // closed when Run has started Raft, or has returned
}

// life is where a Store stands.
type life int

const (
	lifeNew life = iota
	lifeRunning
	lifeOver
)

// New opens the data directory, verifies what is in it and restores the newest
// snapshot. It starts nothing but the log's own goroutine. The Store must be
// given to Run or to Close.
func New(c Config) (*Store, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{
		cfg:     c,
		log:     c.Logger,
		state:   state.New(),
		failed:  make(chan struct{}),
		started: make(chan struct{}),

		changing: make(chan struct{}, 1),
		clock:    &leaderClock{clock: c.Clock},
	}
	s.retain = newRetention(&c)
	s.keepAlives = &keepAlives{s: s}
	s.proposer = &builder{
		proposer: newProposer(s.leaderID),
		clock:    s.clock,
		wall:     c.Wall,
		metrics:  c.Metrics,
		apply:    func(data []byte) raft.ApplyFuture { return s.running().Apply(data, 0) },
	}
	if s.files, err = openFiles(&c, newLogAdapter(c.Logger, "raft"), s); err != nil {
		if e := s.needs(0, err); e != nil {
			return nil, e
		}
		return nil, err
	}
	s.self = Peer{ID: s.files.id, Store: s.files.store}
	if err := s.openState(); err != nil {
		return nil, errors.Join(err, s.files.close())
	}
	return s, nil
}

// openState looks at what the files hold beside the log.
func (s *Store) openState() error {
	s.snapshotMembers()
	s.greeter = &greeter{
		self: s.self.raftID(), feature: s.cfg.MaxFeature, version: s.cfg.Version, log: s.log,
		members: &s.members, cluster: s.ClusterID,
		level: func() (level state.Feature) {
			s.View(func(st *state.State) { level = st.Feature() })
			return level
		},
		metrics: s.cfg.Metrics, certified: s.cfg.Certified, alone: s.alone, leader: s.leaderRaftID, newest: s.newestMembers,
		repeats: newRepeats(), refused: map[raft.ServerID]refusal{},
	}
	if e := s.needsLevel(0, s.greeter.level()); e != nil {
		return e
	}
	return s.openClusterID()
}

// ServerID is this server's id, stored or given.
func (s *Store) ServerID() string { return s.self.ID }

// Self is this server as the others know it. The address is complete once New
// has returned if Config.Advertise is set, and else once Run works.
func (s *Store) Self() Peer {
	p := s.self
	p.RaftAddr = s.addr()
	return p
}

// Close gives the data directory back when Run is never called. While Run works
// it does nothing.
func (s *Store) Close() error {
	s.lifeMu.Lock()
	if s.life != lifeNew {
		s.lifeMu.Unlock()
		return nil
	}
	s.life = lifeOver
	close(s.started)
	s.lifeMu.Unlock()
	s.proposer.close(true)
	s.applied.end()
	return s.files.close()
}

// HasState reports whether this server has a log or a snapshot: it has been
// part of a group, and must not be bootstrapped again.
func (s *Store) HasState() bool {
	if r := s.running(); r != nil {
		return r.LastIndex() > 0
	}
	has, err := s.files.hasState()
	return has || err != nil
}

// Bootstrap founds a group of voters. It may be called on any one of them, or
// on each with the same servers, before or while Run works. ErrHasState says
// that there is a group already. The stores of all must be known.
func (s *Store) Bootstrap(servers []Peer) error {
	var conf raft.Configuration
	for _, p := range servers {
		if p.ID == "" || p.Store == "" || p.RaftAddr == "" {
			return &PeerError{Op: "bootstrap", Peer: p, Reason: "id, store and address must be known"}
		}
		conf.Servers = append(conf.Servers, raft.Server{Suffrage: raft.Voter, ID: p.raftID(), Address: p.raftAddress()})
	}
	// The same on every server, whatever order they were found in.
	slices.SortFunc(conf.Servers, func(a, b raft.Server) int { return cmp.Compare(a.ID, b.ID) })
	s.lifeMu.Lock()
	if s.life == lifeNew {
		defer s.lifeMu.Unlock()
		rc := raftConfig(&s.cfg, s.self.raftID(), newLogAdapter(s.log, "raft"))
		return bootstrapError(raft.BootstrapCluster(rc, s.files.log, s.files.log, s.files.snaps, nil, conf))
	}
	s.lifeMu.Unlock()
	<-s.started
	r := s.running()
	if r == nil {
		return ErrStopped
	}
	done := make(chan error, 1)
	go func() { done <- r.BootstrapCluster(conf).Error() }()
	select {
	case err := <-done:
		return bootstrapError(err)
	case <-s.failed:
		return s.failure
	}
}

func bootstrapError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrCantBootstrap):
		return ErrHasState
	default:
		return fmt.Errorf("bootstrap: %w", err)
	}
}

// fail ends Run with err; the first failure counts.
func (s *Store) fail(err error) {
	s.failOnce.Do(func() {
		s.failure = err
		close(s.failed)
	})
}

// running returns Raft while Run works, else nil.
func (s *Store) running() *raft.Raft {
	s.lifeMu.Lock()
	defer s.lifeMu.Unlock()
	return s.raft
}

// addr is the address under which the other servers know this one.
func (s *Store) addr() string {
	s.lifeMu.Lock()
	defer s.lifeMu.Unlock()
	if s.transport == nil {
		return s.cfg.Advertise
	}
	return string(s.transport.LocalAddr())
}

// Run takes part in the group until ctx ends, and hands the leadership on
// before it returns. It may be called once. It returns nil after ctx, and a
// *StorageError when the disk failed, or an *UpgradeError: then the process should end, and with a
// hanging disk one of Raft's goroutines may be left behind in the kernel.
func (s *Store) Run(ctx context.Context) error {
	defer s.applied.end()
	var group sync.WaitGroup
	// The disk is watched first: it may hang at the start.
	watching, stopWatching := context.WithCancel(context.Background())
	defer stopWatching()
	group.Go(func() {
		s.disk.watch(watching, func(op string, age time.Duration) {
			s.log.Error("disk hangs, giving up the leadership", "op", op, "path", s.disk.path, "age", age)
		})
	})
	r, err := s.startWatched()
	if err != nil {
		stopWatching()
		group.Wait()
		return err
	}
	// Everything stops in this order: the role, which may still propose; the
	// builder; Raft; the files.
	building, stopBuilding := context.WithCancel(context.Background())
	following, stopFollowing := context.WithCancelCause(context.Background())
	group.Go(func() { s.tend(watching, r) })
	built, followed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(built)
		s.proposer.run(building)
	}()
	go func() {
		defer close(followed)
		s.follow(following, r)
	}()

	select {
	case <-ctx.Done():
		s.resign(r)
		stopFollowing(context.Cause(ctx))
	case <-s.failed:
		s.log.Error("store failed, stopping", "cause", s.failure)
		var old *UpgradeError
		if errors.As(s.failure, &old) {
			s.resign(r)
		}
		stopFollowing(s.failure)
	}
	<-followed
	s.proposer.close(true)
	stopBuilding()
	<-built
	err = s.stop(r)
	stopWatching() // a disk may hang to the last
	group.Wait()
	return err
}

// startWatched is start, but for a disk that hangs for good: then it is given
// up, and what hangs is left behind until the kernel lets go of it.
func (s *Store) startWatched() (*raft.Raft, error) {
	type started struct {
		raft *raft.Raft
		err  error
	}
	done := make(chan started, 1)
	go func() {
		r, err := s.start()
		done <- started{r, err}
	}()
	select {
	case d := <-done:
		return d.raft, d.err
	case <-s.failed:
	}
	select {
	case d := <-done: // it failed, and says so itself
		return d.raft, d.err
	case <-time.After(stopWait):
		go func() {
			if d := <-done; d.raft != nil {
				_ = s.stop(d.raft) // the failure has been told
			}
		}()
		return nil, s.failure
	}
}

// start opens the network and starts Raft.
func (s *Store) start() (*raft.Raft, error) {
	if !s.leave(lifeNew) {
		return nil, ErrStopped
	}
	defer close(s.started)
	logger := newLogAdapter(s.log, "raft")
	t, err := newTransport(&s.cfg, s.disk, s.greeter, logger)
	if err != nil {
		return nil, errors.Join(err, s.files.close())
	}
	t.retain = s.retain
	cached := &logCache{watchedLog: watchedLog{s.files.log, &s.members}}
	r, err := newRaft(raftConfig(&s.cfg, s.self.raftID(), logger), &fsm{s}, cached, s.files, t)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start raft: %w", err), t.Close(), s.files.close())
	}
	s.watchLeader(r, t)
	s.lifeMu.Lock()
	defer s.lifeMu.Unlock()
	s.life, s.raft, s.transport, s.since = lifeRunning, r, t, time.Now()
	return r, nil
}

// leave ends a stage of the store's life, if it is in it. What comes next may
// take as long as the disk hangs: Status and its like, which take the lock, must
// not wait for that.
func (s *Store) leave(stage life) bool {
	s.lifeMu.Lock()
	defer s.lifeMu.Unlock()
	if s.life != stage {
		return false
	}
	s.life = lifeOver
	return true
}

// newRaft starts Raft, which panics over a log that it cannot read.
func newRaft(rc *raft.Config, f *fsm, log raft.LogStore, files *files, t *transport) (r *raft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			r, err = nil, &StorageError{Op: "read log", Path: files.path("log"), Err: fmt.Errorf("%w: %v", ErrCorrupt, p)}
		}
	}()
	r, err = raft.NewRaft(rc, f, log, files.log, files.snaps, t)
	files.log.raftRuns.Store(true)
	return r, err
}

// stopWait bounds how long a failed store waits for Raft's goroutines: one that
// hangs in the kernel cannot be ended.
const stopWait = 2 * time.Second

// quiesce waits until nothing is in flight. Raft answers all that it has taken,
// but forgets what waits for it when it is shut down: so a hanging disk is
// waited for, too, until it is given up.
func (s *Store) quiesce() {
	quiet := s.proposer.quiet()
	for hung := true; hung; {
		_, age := s.disk.oldest()
		hung = age > 0 // it may come back while we wait, and then has work to do
		select {
		case <-quiet:
			return
		case <-s.failed:
			return
		case <-time.After(stopWait):
		}
	}
}

// stop ends Raft and closes the files, and returns the failure if there was one.
func (s *Store) stop(r *raft.Raft) error {
	s.quiesce()
	s.lifeMu.Lock()
	s.life, s.raft = lifeOver, nil
	s.lifeMu.Unlock()
	s.leaderChanged.notify()
	down := make(chan struct{})
	go func() {
		defer close(down)
		_ = r.Shutdown().Error() // never fails
		s.reads.asking.Wait()
		s.transport.news.telling.Wait()
	}()
	select {
	case <-down:
	case <-s.failed:
		select {
		case <-down:
		case <-time.After(stopWait):
			// The files stay open and locked until the kernel lets go of whoever
			// uses them, or the process ends.
			go func() {
				<-down
				_ = s.files.close()
			}()
			return s.failure
		}
	}
	if err := s.files.close(); err != nil {
		s.log.Error("close data directory", "cause", err)
	}
	select {
	case <-s.failed:
		return s.failure
	default:
		return nil
	}
}
