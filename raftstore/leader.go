package raftstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Lead is the role of the leader during one term.
type Lead struct {
	// Term in which the role was won. Commands of the leader's duties carry it
	// and are void in any other.
	Term uint64
	s    *Store
}

// Propose is Store.Propose. A Grant, Drain, Revoke or RaiseFeature without a term gets the
// role's.
func (l *Lead) Propose(ctx context.Context, cmds ...state.Command) ([]state.Result, error) {
	l.sign(cmds)
	return l.s.Propose(ctx, cmds...)
}

// ProposeUrgent is Store.ProposeUrgent; the term is filled in as by Propose.
func (l *Lead) ProposeUrgent(ctx context.Context, cmds ...state.Command) ([]state.Result, error) {
	l.sign(cmds)
	return l.s.ProposeUrgent(ctx, cmds...)
}

// View is Store.View.
func (l *Lead) View(fn func(*state.State)) { l.s.View(fn) }

// Ahead is how much time has passed since the logical clock was last moved,
// at most state.MaxElapsed: State.Now plus Ahead is what a clock command would
// make of it now.
func (l *Lead) Ahead() time.Duration { return l.s.clock.ahead() }

func (l *Lead) sign(cmds []state.Command) {
	fill := func(term *uint64) {
		if *term == 0 {
			*term = l.Term
		}
	}
	for _, c := range cmds {
		switch c := c.(type) {
		case *state.Grant:
			fill(&c.Term)
		case *state.Drain:
			fill(&c.Term)
		case *state.Revoke:
			fill(&c.Term)
		case *state.RaiseFeature:
			fill(&c.Term)
		}
	}
}

// follow runs the leader's role whenever Raft gives it to this server, one term
// after the other, until ctx ends. Raft is never kept waiting: its channel
// holds only the latest turn, and everything slow happens in the role.
func (s *Store) follow(ctx context.Context, r *raft.Raft) {
	seen := make(chan raft.Observation, 16)
	observer := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	r.RegisterObserver(observer)
	defer r.DeregisterObserver(observer)

	var term uint64       // of the role that runs, 0 for none
	end := func(error) {} // ends it and waits for it
	defer func() { end(context.Cause(ctx)) }()
	var leader raft.ServerID
	for {
		select {
		case won := <-r.LeaderCh():
			now := r.CurrentTerm()
			if won && term == now && r.State() == raft.Leader {
				continue // seen already: this server won, lost and won again
			}
			end(ErrLostLeadership)
			term, end = 0, func(error) {}
			if won && r.State() == raft.Leader {
				term = now
				end = s.startRole(ctx, r, now)
			}
			s.leaderChanged.notify()
		case <-seen:
			if _, id := r.LeaderWithID(); id != leader {
				leader = id
				if id != "" {
					s.cfg.Metrics.LeaderChange()
				}
				s.leaderChanged.notify()
			}
		case <-ctx.Done():
			return
		}
	}
}

// startRole begins the role of a term and returns the function that ends it.
func (s *Store) startRole(ctx context.Context, r *raft.Raft, term uint64) (end func(error)) {
	s.transport.forget()
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.role(ctx, r, term)
	}()
	return func(cause error) {
		s.leading.Store(0)
		s.reads.close()
		s.transport.news.close()
		s.proposer.close(false)
		cancel(cause)
		<-done
	}
}

// role is the leader's whole term as a function call.
func (s *Store) role(ctx context.Context, r *raft.Raft, term uint64) {
	log := s.log.With("term", term)
	s.clock.begin(term)
	s.proposer.setPhase(phaseStarting)
	defer s.proposer.close(false)
	for {
		err := s.takeOffice(ctx, term)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			break
		}
		log.Warn("leader could not take office", "cause", err)
		s.handOver(ctx, r)
	}
	log.Info("leading")
	s.office.Store(time.Now().UnixNano())
	s.proposer.setPhase(phaseOpen)
	s.reads.open(term, raftOffice{s, r})
	s.leading.Store(term) // whoever is told so finds the office open
	s.transport.news.open(term, raftOffice{s, r})
	s.leaderChanged.notify()
	defer func() {
		s.leading.Store(0)
		s.reads.close()
		s.transport.news.close()
		log.Info("no longer leading", "cause", context.Cause(ctx))
	}()

	duty := make(chan struct{})
	go func() {
		defer close(duty)
		s.expire(ctx, log)
	}()
	defer func() { <-duty }()
	if s.cfg.Lead == nil {
		return
	}
	for ctx.Err() == nil {
		err := s.cfg.Lead(ctx, &Lead{Term: term, s: s})
		if ctx.Err() != nil || err == nil {
			return
		}
		log.Error("leader's duty ended", "cause", err)
		s.handOver(ctx, r)
	}
}

// handOver makes another server leader if there is one, and else waits a
// second, so that what went wrong can be tried again.
func (s *Store) handOver(ctx context.Context, r *raft.Raft) {
	if s.otherVoters(r) > 0 {
		if err := r.LeadershipTransfer().Error(); err == nil {
			<-ctx.Done()
			return
		}
	}
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
}

// takeOffice waits until everything before this term has been applied here,
// then gives a new cluster its identity and announces the leader.
func (s *Store) takeOffice(ctx context.Context, term uint64) error {
	if _, err := s.startup(ctx); err != nil {
		return fmt.Errorf("apply earlier terms: %w", err)
	}
	var cmds []state.Command
	s.View(func(st *state.State) {
		if st.ClusterID() == "" {
			cmds = append(cmds, &state.Bootstrap{ClusterID: newClusterID(), FirstToken: FirstToken(s.cfg.Wall())})
		}
	})
	// The tick says 0 and starts the clock of this term: from here on no time is
	// lost.
	cmds = append(cmds, &state.Announce{Term: term, Server: s.announced()}, &state.Tick{})
	results, err := s.startup(ctx, cmds...)
	if err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	for _, r := range results {
		if r.Err != nil {
			return fmt.Errorf("announce: %w", r.Err)
		}
	}
	return nil
}

func (s *Store) startup(ctx context.Context, cmds ...state.Command) ([]state.Result, error) {
	p, err := newProposal(cmds, 0)
	if err != nil {
		return nil, err
	}
	if err := s.proposer.submit(p, laneStart); err != nil {
		return nil, err
	}
	if err := s.proposer.wait(ctx, p); err != nil {
		return nil, err
	}
	return p.results, p.err
}

func (s *Store) announced() state.Server {
	a := s.cfg.Announce
	a.ID, a.RaftAddr = s.self.ID, s.addr()
	return a
}

func newClusterID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// FirstToken is where the counter of a cluster that is made at wall starts:
// centiseconds since 2025, times 8192. A cluster that is wiped and made again
// thereby starts above every token that the old one can have granted, unless it
// granted 800,000 a second for all its life.
func FirstToken(wall time.Time) state.Token {
	return state.Token(max(wall.Sub(firstWall)/(10*time.Millisecond), 0)) << 13
}
