package raftstore

import (
	"context"
	"log/slog"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

const (
	// tickEvery is how often the clock moves at least while there are sessions,
	// or a hold after a restore.
	tickEvery = time.Second
	// expirePause keeps expiry from following on itself: what has lapsed since
	// goes into the next round.
	expirePause = 25 * time.Millisecond
	// newSessionPause is how soon after a new session all are looked at; it is
	// less than any TTL.
	newSessionPause = 100 * time.Millisecond
	// expireChunk is how many sessions one Expire ends. The next chunk waits for
	// it, so that keep-alives and other proposals come between.
	expireChunk = 512
)

// expire ends sessions whose deadline has passed and keeps the clock moving,
// until the role ends. It looks at all sessions when the first deadline can
// have come, and otherwise once a second. Whether a session really goes is
// decided at Apply, by the clock in the log and the condition on its last
// renewal; being wrong here costs an entry, never a session.
func (s *Store) expire(ctx context.Context, log *slog.Logger) {
	applied := make(chan struct{}, 1)
	defer s.Notify(applied)()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var look time.Time // when the timer goes off
	sessions := 0
	for {
		select {
		case <-timer.C:
		case <-applied:
			// A new session may be due before any other.
			if n := s.sessionCount(); n != sessions {
				sessions = n
				if soon := time.Now().Add(newSessionPause); look.After(soon) {
					look = soon
					timer.Reset(newSessionPause)
				}
			}
			continue
		case <-ctx.Done():
			return
		}
		due, wait, n, held := s.lapsed()
		sessions = n
		for len(due) > 0 && ctx.Err() == nil {
			chunk := due[:min(len(due), expireChunk)]
			due = due[len(chunk):]
			s.expireSome(ctx, log, chunk)
		}
		if (n > 0 || held) && s.clock.sinceBuilt() >= tickEvery-newSessionPause {
			// Nobody waits for a tick.
			if p, err := newProposal([]state.Command{&state.Tick{}}, 0); err == nil {
				_ = s.proposer.submit(p, laneUrgent)
			}
		}
		look = time.Now().Add(wait)
		timer.Reset(wait)
	}
}

func (s *Store) sessionCount() (n int) {
	s.View(func(st *state.State) { n = st.SessionCount() })
	return n
}

// lapse is a session that may have to go, and how loud that is told: a worker
// that is lost is news, while many leases of keys are meant to run out.
type lapse struct {
	state.Expiry
	deadline state.Clock
	level    slog.Level
}

// lapsed returns the sessions whose deadline has passed by now, how long to
// wait before looking again, the number of sessions, and whether strict
// keyspaces are held back after a restore: the clock decides for how long.
func (s *Store) lapsed() (due []lapse, wait time.Duration, n int, held bool) {
	ahead := s.clock.ahead()
	wait = tickEvery
	s.View(func(st *state.State) {
		n, held = st.SessionCount(), st.StrictHold() > 0
		now := st.Now() + ahead
		for ses := range st.Sessions() {
			if left := ses.Deadline - now; left <= 0 {
				l := lapse{state.Expiry{Session: ses.ID, Renewal: ses.Renewal}, ses.Deadline, slog.LevelInfo}
				if ses.Worker == "" {
					l.level = slog.LevelDebug
				}
				due = append(due, l)
			} else {
				wait = min(wait, left)
			}
		}
	})
	return due, max(wait, expirePause), n, held
}

func (s *Store) expireSome(ctx context.Context, log *slog.Logger, chunk []lapse) {
	cmd := &state.Expire{Sessions: make([]state.Expiry, len(chunk))}
	for i := range chunk {
		cmd.Sessions[i] = chunk[i].Expiry
	}
	results, err := s.ProposeUrgent(ctx, cmd)
	if err != nil {
		if ctx.Err() == nil {
			log.Debug("expire sessions", "cause", err)
		}
		return
	}
	n := 0
	var now state.Clock
	s.View(func(st *state.State) { now = st.Now() + s.clock.ahead() })
	for i, r := range results[0].Sessions {
		if r.Err == nil {
			n++
			s.cfg.Metrics.SessionExpired(max(now-chunk[i].deadline, 0).Seconds())
			if len(chunk) <= 16 {
				log.Log(ctx, chunk[i].level, "session expired", "session", uint64(chunk[i].Session), "raft_index", results[0].Index)
			}
		}
	}
	if n > 16 {
		log.Info("sessions expired", "count", n, "raft_index", results[0].Index)
	}
}
