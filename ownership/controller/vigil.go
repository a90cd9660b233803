package controller

import (
	"context"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// watch is what the loop knows about one session that gives cause for worry.
type watch struct {
	broken   bool
	brokenAt time.Duration // boot clock
	// probe under way, and what came of the last one.
	probing, probed, answered bool
	probedAt                  time.Duration
	// gone: known dead. If its session is renewed after all, it was not.
	gone    bool
	renewal uint64
	signAt  time.Duration // first sign of the death
}

// since is when the loss of its leases began, for the metrics.
func (w *watch) since(now time.Duration) time.Duration {
	if w.signAt > 0 {
		return w.signAt
	}
	return now
}

// probed is the answer of a probe.
type probed struct {
	session  state.SessionID
	watch    *watch // whom it was asked for: an answer that comes late is nobody's
	answered bool
}

// noteStream takes in what the session hub has told.
func (t *term) noteStream(s streamSign) {
	if !s.broken {
		delete(t.watched, s.session)
		return
	}
	w := t.watched[s.session]
	if w == nil {
		w = &watch{}
		t.watched[s.session] = w
	}
	w.broken, w.brokenAt = true, s.at
	w.probed = false
	if w.signAt == 0 {
		w.signAt = s.at
	}
}

func (t *term) noteProbe(r probed) {
	if w := t.watched[r.session]; w != nil && w == r.watch {
		w.probing, w.probed, w.answered = false, true, r.answered
		w.probedAt = t.c.cfg.Clock.Now()
	}
	t.judgeAt = 1 // overdue
	t.due = 1
}

// judge asks gossip about every session, and looks for workers that are known
// dead among those whose leases may be taken back before their TTL. It says
// whether the standing of any has changed.
func (t *term) judge(ctx context.Context, v *view, now time.Duration) (changed bool) {
	g := t.c.cfg.Gossip
	if g == nil {
		t.judgeAt = 0
		return false
	}
	t.judgeAt = 0
	for i := range v.sessions {
		s := &v.sessions[i]
		if w := t.watched[s.id]; w != nil && w.gone && s.renewal > w.renewal {
			t.log.Info("worker thought dead has renewed its session", "worker", s.worker, "session", uint64(s.id))
			delete(t.watched, s.id) // if its stream still is broken, keep-alives come another way
			changed = true
		}
		if !s.gossips {
			continue
		}
		verdict, age := g.Look(s.worker, s.id)
		s.verdict, s.until = verdict, t.clock-age+s.ttl
		if s.fenced && (s.state == state.SessionLive || s.state == state.SessionLeaving) {
			changed = t.judgeSession(ctx, s, now) || changed
		}
	}
	t.forgetEnded(v)
	if changed {
		t.dirtyAll()
	}
	return changed
}

// forgetEnded drops what is known of sessions that are no more.
func (t *term) forgetEnded(v *view) {
	if len(t.watched) == 0 {
		return
	}
	lasting := make(map[state.SessionID]*watch, len(t.watched))
	for i := range v.sessions {
		if w := t.watched[v.sessions[i].id]; w != nil {
			lasting[v.sessions[i].id] = w
		}
	}
	t.watched = lasting
}

func (t *term) judgeSession(ctx context.Context, s *session, now time.Duration) (dead bool) {
	w := t.watched[s.id]
	if w == nil {
		w = &watch{}
	}
	if w.gone {
		return false
	}
	signs := Signs{
		TTL: s.ttl, Silent: t.clock - (s.deadline - s.ttl), Gossip: s.verdict,
		Broken: w.broken, BrokenFor: now - w.brokenAt,
		Probed: w.probed, Answered: w.answered, ProbedFor: now - w.probedAt,
	}
	j := Judge(signs)
	if j.Dead {
		w.gone, w.renewal = true, s.renewal
		if w.signAt == 0 {
			w.signAt = now - max(signs.Silent-s.ttl/4, 0)
		}
		t.watched[s.id] = w
		t.log.Warn("worker is known dead before its session ran out",
			"worker", s.worker, "session", uint64(s.id), "cause", state.CauseCrash.String(), "silent", signs.Silent, "gossip", s.verdict.String())
		return true
	}
	if j.Probe && !w.probing {
		t.probe(ctx, w, s)
	}
	if j.Wait > 0 && !w.broken {
		j.Wait = max(j.Wait, leastJudge)
	}
	if j.Wait > 0 {
		t.judgeAt = earliest(t.judgeAt, now+j.Wait)
	}
	return false
}

// probe starts asking gossip about a session's process, unless as many as are
// allowed are being asked about already.
func (t *term) probe(ctx context.Context, w *watch, s *session) {
	select {
	case t.slots <- struct{}{}:
	default:
		return
	}
	w.probing, w.probed = true, false
	t.watched[s.id] = w
	g, id, worker := t.c.cfg.Gossip, s.id, s.worker
	t.probing.Go(func() {
		defer func() { <-t.slots }()
		limited, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		answered := g.Probe(limited, worker)
		select {
		case t.probes <- probed{id, w, answered}:
		case <-ctx.Done():
		}
	})
}
