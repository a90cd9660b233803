package controller

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// term is the loop of one leadership. Its one goroutine owns every field;
// others talk to it through the controller's inbox and two channels.
type term struct {
	c   *Controller
	p   Proposer
	log *slog.Logger

	revision uint64 // of the last event read
	events   []state.Event
	begun    bool // the first round is over

	clock   state.Clock // never goes back
	spaces  map[state.KeyspaceID]*space
	watched map[state.SessionID]*watch
	barred  map[state.SessionID]state.Cause // why a session may only end
	fenced  bool                            // some keyspace may be taken over early

	rings   *rings
	probes  chan probed
	probing sync.WaitGroup
	slots   chan struct{} // bounds the probes under way

	// due is when the next round must be, on the boot clock; 0 for never.
	due      time.Duration
	judgeAt  time.Duration
	failures int // proposals in a row that failed
}

// space is what the loop remembers of a keyspace beside the state.
type space struct {
	id   state.KeyspaceID
	name string
	// dirty: something has changed since the last plan. wake: time alone may
	// change it then.
	dirty bool
	wake  state.Clock

	members                            uint64 // fingerprint of the workers and their standing
	lastChange, firstChange, coldSince state.Clock
	seen                               map[state.SessionID]struct{}
	lastArrival                        state.Clock // of a session not seen before
	cool, hold                         map[uint32]state.Clock
	flaps                              map[uint32]flap
	filling                            []state.SessionID
	lost                               []state.Cause
	lostAt, drainAt                    map[uint32]time.Duration // boot clock
	refusals                           int                      // plans in a row that were refused in part
	moved                              [32]int                  // grants by cause, not yet told to the metrics
}

// flap counts how often a partition has been given back lately.
type flap struct {
	count int
	last  state.Clock
}

const (
	maxProbes    = 16
	maxPipeline  = 4    // proposals waited for at once
	chunkItems   = 8000 // of one proposal, so that keep-alives go in between
	eventsAtOnce = 4096
	history      = 8192 // events a new leader reads to learn why partitions are unowned
	leastJudge   = 250 * time.Millisecond
	flapWithin   = 10 * time.Second
	flapMost     = 10 * time.Second
)

func newTerm(c *Controller, p Proposer) *term {
	return &term{
		c: c, p: p, log: c.log,
		spaces:  make(map[state.KeyspaceID]*space),
		watched: make(map[state.SessionID]*watch),
		barred:  make(map[state.SessionID]state.Cause),
		rings:   newRings(),
		probes:  make(chan probed),
		slots:   make(chan struct{}, maxProbes),
	}
}

// run is the loop: it sleeps until something may have changed, looks at what
// did, and proposes what follows from it.
func (t *term) run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	stop := t.c.cfg.Store.Notify(changed)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	helpers.Go(func() { t.rings.run(ctx) })
	defer func() {
		cancel()
		t.probing.Wait()
		helpers.Wait()
	}()

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed: // the log has moved on
		case <-t.c.poke: // a stream broke or came back, gossip changed, an operator asks
		case r := <-t.probes:
			t.noteProbe(r)
		case <-timer.C: // something planned or judged falls due
		}
		t.round(ctx)
		timer.Stop()
		if t.due > 0 {
			timer.Reset(max(t.due-t.c.cfg.Clock.Now(), 0))
		}
	}
}

// round looks at what changed and acts on it. Without a change and with
// nothing due it costs one look at a number.
func (t *term) round(ctx context.Context) {
	now := t.c.cfg.Clock.Now()
	asked := t.takeInbox()
	moved := t.readEvents(now)
	if !asked && !moved && t.begun && (t.due == 0 || now < t.due) {
		return
	}
	t.begun = true
	if asked {
		for _, s := range t.spaces {
			s.dirty = true
		}
	}
	v := t.look()
	if t.judge(ctx, v, now) {
		v = t.look() // with the keyspaces that the dead concern
		t.judge(ctx, v, now)
	}
	plans := t.plan(ctx, v)
	failed := t.propose(ctx, plans)
	t.publish(v, plans)
	t.schedule(now, failed)
}

// takeInbox moves what others have told into the loop.
func (t *term) takeInbox() (asked bool) {
	c := t.c
	c.mu.Lock()
	signs, cool := c.inbox, c.cool
	c.inbox, c.cool = nil, nil
	asked, c.asked = c.asked, false
	c.mu.Unlock()
	for _, s := range signs {
		t.noteStream(s)
		t.judgeAt = 0
		asked = true
	}
	for _, n := range cool {
		t.space(n.keyspace).cool[n.partition] = t.clock + coolDown
	}
	return asked
}

func (t *term) space(id state.KeyspaceID) *space {
	s := t.spaces[id]
	if s == nil {
		s = &space{
			id: id, dirty: true,
			cool: make(map[uint32]state.Clock), hold: make(map[uint32]state.Clock),
			flaps: make(map[uint32]flap), lostAt: make(map[uint32]time.Duration), drainAt: make(map[uint32]time.Duration),
		}
		t.spaces[id] = s
	}
	return s
}

// schedule sets when the next round must be at the latest.
func (t *term) schedule(now time.Duration, failed bool) {
	if failed {
		t.failures++
	} else {
		t.failures = 0
	}
	t.due = 0
	at := func(d time.Duration) {
		if t.due == 0 || now+d < t.due {
			t.due = now + max(d, time.Millisecond)
		}
	}
	for _, s := range t.spaces {
		switch {
		case s.dirty: // refused in part, or the proposal failed
			at(min(10*time.Millisecond<<min(max(s.refusals, t.failures), 10), time.Second))
		case s.wake > 0:
			at(s.wake - t.clock)
		}
	}
	if t.judgeAt > 0 {
		at(t.judgeAt - now)
	}
}
