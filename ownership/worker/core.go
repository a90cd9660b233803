package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// core decides everything the worker does. It computes only: messages, results
// and clock readings go in through its methods, what is to be done comes out in
// out. It starts nothing, waits for nothing and calls nobody, so that it can be
// tested step by step, and so that nothing of the program can hold it up.
//
// It belongs to one goroutine. Only tenure and ready are read by others.
type core struct {
	id      string // the worker's
	stopFor time.Duration
	// tellGrants says that somebody observes grants.
	tellGrants bool
	rand       func() float64 // [0, 1)
	newID      func() uint64

	session   session
	tenure    *tenure
	clusterID string
	runs      map[string]*run
	spaces    map[uint32]*space

	// The stream. relaying: a keep-alive is on its way round.
	attached   bool
	attachedAt time.Duration
	askedAt    time.Duration // of the oldest keep-alive that the stream has not answered; 0: none
	relaying   bool
	relayAt    time.Duration
	everOpened bool
	opening    bool                     // a request to open it may have been carried out
	barred     bool                     // superseded or evicted: no keep-alive can renew any more
	lapsed     bool                     // the deadline has passed and contexts were ended for it
	overdue    bool                     // it was said that renewal is overdue
	jumped     bool                     // it was said that the clocks jumped
	denied     *leaseholdv1.ErrorDetail // why the servers do not let us in, as was said

	// Leases, over all spaces.
	live     int    // contexts that live, or will when their handler starts
	hash     uint64 // over those
	running  int    // handlers that have not returned
	draining map[*Lease]struct{}
	ending   map[*Lease]struct{} // context ended, handler has not returned
	highest  fence.Token
	overruns uint64
	lost     lost
	told     lost   // what the newest keep-alive has said of it
	process  uint64 // id of the first session that was opened; 0: none yet
	ready    atomic.Int32
	fencing  fence.Tally
	refusals refused
	pauses   pauses
	serial   uint32 // of the last full list

	index   uint64 // highest raft index heard of
	request uint64
	leaving leaving
	rel     map[releaseKey][]*leaseholdv1.LeaseRef // gathered in this step
	relKeys []releaseKey                           // in order
	pending map[uint64]*leaseholdv1.ReleaseLeases  // asked for, not confirmed
	asked   map[ref]struct{}                       // the leases of pending

	out effects
}

func (c *core) log(level slog.Level, msg string, args ...any) {
	c.out.logs = append(c.out.logs, logLine{level, msg, append(args, "worker", c.id, "session", c.session.id)})
}

func (c *core) send(m *leaseholdv1.AttachRequest) {
	if c.attached {
		c.out.send = append(c.out.send, m)
	}
}

func newCore(id string, grace, stopFor time.Duration, t *tenure, rnd func() float64, newID func() uint64) *core {
	c := &core{
		id:       id,
		stopFor:  stopFor,
		rand:     rnd,
		newID:    newID,
		session:  session{grace: grace},
		tenure:   t,
		runs:     make(map[string]*run),
		spaces:   make(map[uint32]*space),
		draining: make(map[*Lease]struct{}),
		ending:   make(map[*Lease]struct{}),
		rel:      make(map[releaseKey][]*leaseholdv1.LeaseRef),
		pending:  make(map[uint64]*leaseholdv1.ReleaseLeases),
		asked:    make(map[ref]struct{}),
	}
	c.session.begin(newID())
	return c
}

// add takes a Run in. Its keyspace is joined at once if there is a session.
func (c *core) add(r *run) {
	if c.runs[r.keyspace] != nil {
		c.out.failed = append(c.out.failed, failure{r, fmt.Errorf("run keyspace %q: %w", r.keyspace, ErrKeyspaceBusy)})
		return
	}
	c.runs[r.keyspace] = r
	if c.session.opened {
		c.join(r)
	}
}

func (c *core) join(r *run) {
	c.request++
	c.send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_Join{
		Join: &leaseholdv1.JoinKeyspace{Keyspace: r.keyspace, Request: c.request},
	}})
}

// fail ends one Run. What it holds has to go back first; the last Run that
// fails ends the worker.
func (c *core) fail(r *run, err error, now reading) {
	delete(c.runs, r.keyspace)
	c.out.failed = append(c.out.failed, failure{r, err})
	if r.space != nil {
		for _, l := range r.space.held {
			c.end(l, ErrShutdown, now)
		}
	}
	if len(c.runs) == 0 {
		c.leave(false, 0, now)
	}
}

// opened takes the first message of a stream. sent is when the first request to
// open this session went out.
func (c *core) opened(m *leaseholdv1.SessionOpened, sent, now reading) {
	c.attached, c.attachedAt, c.askedAt = true, now.boot, 0
	if c.clusterID == "" {
		c.clusterID = m.GetClusterId()
	}
	ttl := time.Duration(m.GetTtlMs()) * time.Millisecond
	first := !c.session.opened
	if first {
		c.everOpened = true
		if c.process == 0 {
			c.process = c.session.id
		}
		c.session.open(sent, ttl)
		if err := c.checkGrace(); err != nil {
			c.stop(err, ErrShutdown, now)
			return
		}
		c.session.nextAt = sent.boot + intervalOf(ttl)
		// The answer may have come after what it gives is over: nothing is held
		// until a keep-alive has been acknowledged.
		c.lapsed = c.session.lapsed(now.boot)
		c.log(slog.LevelInfo, "session opened", "ttl", ttl, "incarnation", m.GetIncarnation(), "leader", m.GetLeaderId())
	} else {
		c.shorten(ttl, now)
		// What was sent on the old stream may be lost: ask again at once.
		c.session.nextAt = now.boot
		c.log(slog.LevelInfo, "session resumed", "leader", m.GetLeaderId())
	}
	c.tenure.set(c.session.until, c.session.ttl, c.session.confirmed)
	joined := make(map[string]bool)
	for _, k := range m.GetKeyspaces() {
		joined[k.GetName()] = true
		c.joined(k, now)
	}
	for _, r := range sortedRuns(c.runs) {
		if !joined[r.keyspace] {
			c.join(r)
		}
	}
	c.resend()
	if c.leaving.on {
		c.sendLeave()
	}
}

// attachedBarred notes a stream whose first message was that the session is
// superseded or evicted: it takes releases and nothing else.
func (c *core) attachedBarred(d *leaseholdv1.ErrorDetail, now reading) {
	c.attached, c.attachedAt, c.askedAt = true, now.boot, 0
	c.closed(d, now)
	c.resend()
}

// resend asks again for the releases that are not confirmed.
func (c *core) resend() {
	for _, id := range sortedRequests(c.pending) {
		c.send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_Release{Release: c.pending[id]}})
	}
}

// checkGrace refuses a StopGrace that leaves too little of the TTL.
func (c *core) checkGrace() error {
	s := &c.session
	if m := marginOf(s.ttl); s.grace+m > s.ttl/2 {
		return fmt.Errorf("session TTL %v contradicts StopGrace %v: with the margin of %v it takes more than half of the TTL",
			s.ttl, s.grace, m)
	}
	return nil
}

func (c *core) shorten(ttl time.Duration, now reading) {
	before := c.session.ttl
	c.session.shorten(ttl)
	if c.session.ttl == before {
		return
	}
	c.tenure.ttl.Store(int64(c.session.ttl))
	if err := c.checkGrace(); err != nil {
		c.stop(err, ErrShutdown, now)
	}
}

// joined takes the answer about one keyspace.
func (c *core) joined(k *leaseholdv1.KeyspaceJoined, now reading) {
	if d := k.GetError(); d != nil {
		if r := c.runs[k.GetName()]; r != nil {
			c.fail(r, refusal(fmt.Sprintf("join keyspace %q", r.keyspace), d), now)
		}
		return
	}
	sp := c.learn(k)
	c.shorten(time.Duration(k.GetTtlMs())*time.Millisecond, now)
	if r := c.runs[sp.name]; r != nil && r.hold && sp.partitions != 1 {
		c.fail(r, fmt.Errorf("hold keyspace %q: it has %d partitions, and Hold needs one of 1", sp.name, sp.partitions), now)
	}
}

// detached notes that the stream is gone.
func (c *core) detached() { c.attached = false }

// acked takes an acknowledged keep-alive, whichever way it came.
func (c *core) acked(m *leaseholdv1.KeepAliveResponse, now reading) {
	s := &c.session
	if !s.opened || m.GetSessionId() != s.id {
		return // of a session that is over
	}
	ttl := time.Duration(m.GetTtlMs()) * time.Millisecond
	c.shorten(ttl, now)
	left := s.until - now.boot
	sent, ok := s.ack(m.GetSeq(), ttl)
	if !ok {
		return
	}
	c.index = max(c.index, m.GetIndex())
	c.tenure.set(s.until, s.ttl, s.confirmed)
	c.out.acked = append(c.out.acked, acked{sent.boot, left})
	if c.overdue && !s.overdue(now.boot) {
		c.overdue = false
		c.log(slog.LevelInfo, "renewal caught up")
	}
	c.jumped, c.denied = false, nil
	if c.lapsed && !s.lapsed(now.boot) {
		c.lapsed = false
		c.startWaiting(now)
	}
}

// gone ends the session: the servers do not know it any more. Another one is
// opened unless the worker is leaving.
func (c *core) gone(cause error, now reading) {
	c.log(slog.LevelWarn, "session is gone", "cause", cause)
	c.forget(cause, now)
	c.session.begin(c.newID())
}

// forget ends every context and drops what was asked of the old session.
func (c *core) forget(cause error, now reading) {
	c.tenure.clear()
	for _, sp := range c.spaces {
		for _, l := range sp.held {
			c.end(l, cause, now)
			c.giveUp(l)
		}
	}
	clear(c.pending)
	clear(c.asked)
	clear(c.rel)
	c.relKeys = c.relKeys[:0]
	c.attached, c.lapsed, c.overdue, c.denied = false, false, false, nil
}

// closed takes the last message of a stream, or a definite refusal that came
// another way.
func (c *core) closed(d *leaseholdv1.ErrorDetail, now reading) {
	switch verdictOf(d) {
	case verdictLeft:
		if c.leaving.on {
			c.leaving.closed = true
			c.detached()
			return
		}
		c.gone(ErrExpired, now)
	case verdictSuperseded:
		c.bar(ErrSuperseded, now)
	case verdictEvicted:
		c.bar(ErrEvicted, now)
	case verdictGone:
		c.gone(ErrExpired, now)
	case verdictOtherCluster:
		// A server of another cluster among ours is a mistake to live with as
		// long as the session can be alive in its own.
		if s := &c.session; !s.opened || now.boot >= s.until+s.grace+marginOf(s.ttl) {
			c.log(slog.LevelWarn, "the servers belong to another cluster now", "cluster", c.clusterID)
			c.clusterID = ""
			c.gone(ErrExpired, now)
		}
		c.detached()
	case verdictDenied:
		// One server may not have heard yet of a new credential, or not yet of a
		// renewed certificate's authority. That decides nothing before the time
		// is over in which keep-alives could still be let in.
		s := &c.session
		if d.GetReason() == leaseholdv1.ReasonLimited && c.denied != nil {
			d = c.denied // which says why the login fails
		}
		said := c.denied != nil
		c.denied = d
		if s.opened && !said {
			c.log(slog.LevelWarn, "the servers do not let this worker in: its leases end when their time is over",
				"left", s.until-now.boot, "cause", d.GetMessage())
		}
		if !s.opened || now.boot >= s.until {
			c.barred = true
			c.stop(refusal("renew session", d), ErrExpired, now)
		}
		c.detached()
	default:
		c.detached()
	}
}

// refused takes a definite refusal to open a session.
func (c *core) refused(d *leaseholdv1.ErrorDetail, now reading) {
	switch v := verdictOf(d); {
	case v == verdictInUse:
		c.stop(&IDInUseError{ID: c.id, Addr: d.GetOwner()}, ErrShutdown, now)
		return
	case v == verdictSuperseded, v == verdictEvicted, v == verdictOtherCluster,
		v == verdictGone && d.GetReason() != leaseholdv1.ReasonNotFound: // an open finds no keyspace, not no session
		c.closed(d, now)
		return
	}
	// A refusal may name the keyspace that it is about.
	if r := c.runs[d.GetValue()]; r != nil && len(c.runs) > 1 {
		c.fail(r, refusal(fmt.Sprintf("open session for keyspace %q", r.keyspace), d), now)
		return
	}
	c.stop(refusal("open session", d), ErrShutdown, now)
}

// bar ends the worker because its session may not be renewed any more. The
// stream, if there is one, stays: strict leases end when they are released.
func (c *core) bar(cause error, now reading) {
	c.barred = true
	c.stop(cause, cause, now)
}

// stop ends the worker because of an error that no retry can mend.
func (c *core) stop(err, cause error, now reading) {
	if c.leaving.err == nil {
		c.leaving.err = err
	}
	c.tenure.clear()
	c.leave(false, 0, now)
	c.abort(cause, now)
}

// errNoSession is what Run returns when it was stopped before it had one.
var errNoSession = errors.New("no session was opened")
