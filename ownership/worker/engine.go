package worker

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// engine does what the core decides: it owns the sockets, the goroutines and
// the one timer. Its loop is the only goroutine that touches core, stream and
// finder; the others reach it through mail.
type engine struct {
	id       string
	cfg      Config
	servers  *directory
	tenure   *tenure
	notes    *notifier
	metrics  *metrics.Worker
	observer *Observer

	mail    *mailbox[func(now reading)]
	ctx     context.Context // of everything but handlers; ends with the loop
	cancel  context.CancelFunc
	tasks   sync.WaitGroup // of the package's own goroutines
	foreign sync.WaitGroup // of goroutines that call the program: not waited for without bound

	// The loop's own.
	core     *core
	stream   *stream
	finder   *finder
	lastAddr string // of the stream before
	avoid    string // a server that went silent
	relays   int
	flaps    int // streams in a row that did not last
	gossip   *gossiper

	guardCounts atomic.Bool // see Worker.Fencing

	done chan struct{} // closed when run has returned
	err  error         // then: why
}

// foreignWait is how long the end waits for code of the program.
const foreignWait = 2 * time.Second

func newEngine(cfg Config, servers *directory) *engine {
	ctx, cancel := context.WithCancel(context.Background())
	t := &tenure{clock: cfg.Clock, wall: time.Now}
	if c, ok := cfg.Clock.(interface{ Wall() time.Time }); ok {
		t.wall = c.Wall
	}
	e := &engine{
		id:       cfg.ID,
		cfg:      cfg,
		servers:  servers,
		tenure:   t,
		notes:    newNotifier(cfg.Logger, cfg.Observer),
		metrics:  cfg.Metrics,
		observer: cfg.Observer,
		mail:     newMailbox[func(reading)](),
		ctx:      ctx,
		cancel:   cancel,
		core:     newCore(cfg.ID, cfg.StopGrace, cfg.ShutdownTimeout, t, rand.Float64, newSessionID),
		done:     make(chan struct{}),
	}
	e.core.tellGrants = cfg.Observer.Granted != nil
	return e
}

// newSessionID draws 63 random bits, not 0.
func newSessionID() uint64 { return rand.Uint64()>>1 | 1 }

// post has f run by the loop.
func (e *engine) post(f func(now reading)) { e.mail.put(f) }

// run is the loop. It returns when all is over and everything has been waited
// for.
func (e *engine) run() {
	defer close(e.done)
	notified := make(chan struct{})
	go func() {
		defer close(notified)
		e.notes.run()
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var spare []func(reading)
	for {
		events := e.mail.take(spare)
		for i, f := range events {
			f(e.tenure.read())
			events[i] = nil
		}
		spare = events
		now := e.tenure.read()
		e.core.opening = e.finder != nil && !e.finder.opened && e.finder.asked.Load()
		e.core.tick(now)
		e.perform(now)
		if e.core.out.done {
			break
		}
		timer.Reset(e.core.wake(now))
		select {
		case <-e.mail.signal:
		case <-timer.C:
		}
	}
	e.err = e.core.out.err
	e.shutdown(notified)
}

// shutdown ends everything that the loop has started.
func (e *engine) shutdown(notified <-chan struct{}) {
	if e.finder != nil {
		e.finder.cancel()
	}
	if e.stream != nil {
		e.stream.goodbye(time.Second)
	}
	e.cancel()
	e.tasks.Wait()
	// A finder may have come back after the loop's last look. Its stream is
	// nobody's, and its connection would stay open.
	e.finder, e.stream = nil, nil
	for _, f := range e.mail.take(nil) {
		f(e.tenure.read())
	}
	e.metrics.Held(0)
	e.metrics.Attached(false, 0)
	e.notes.stop()
	foreign := make(chan struct{})
	go func() {
		e.foreign.Wait()
		close(foreign)
	}()
	timer := time.NewTimer(foreignWait)
	defer timer.Stop()
	for _, c := range []<-chan struct{}{notified, foreign} {
		select {
		case <-c:
		case <-timer.C:
			return
		}
	}
}

// perform carries out what a step has decided.
func (e *engine) perform(now reading) {
	out := &e.core.out
	e.notes.granted(out.granted, now.boot)
	for _, l := range out.start {
		e.start(l, now.boot)
	}
	for _, x := range out.end {
		e.end(x)
	}
	e.core.tellLost(now)
	for _, l := range out.claim {
		if r := e.core.runs[l.space.name]; r != nil { // nil: its Run ended in the same step
			r.claimer.put(l)
		}
	}
	e.steer()
	if e.stream != nil && len(out.send) > 0 {
		e.stream.out.put(out.send...)
	}
	if out.relay != nil {
		e.startRelay(out.relay)
	}
	for _, x := range out.overrun {
		e.overrun(x)
	}
	for _, a := range out.acked {
		e.notes.confirmed(a.sent)
		e.metrics.Acked(a.left, e.core.session.ttl)
	}
	if e.core.overdue {
		e.metrics.RenewalOverdue(now.boot - e.core.session.confirmed.boot - e.core.session.ttl/2)
	}
	for _, f := range out.failed {
		f.run.end(f.err)
	}
	for _, l := range out.logs {
		e.notes.say(l)
	}
	e.metrics.Held(e.core.live)
	e.metrics.Attached(e.core.attached, e.core.session.ttl)
	e.metrics.Paused(e.core.pauses.max())
	e.core.reset()
}

// steer keeps exactly one of stream and finder, as the core wants it.
func (e *engine) steer() {
	c := e.core
	if e.stream != nil && !c.attached {
		if c.out.drop != "" {
			e.avoid = e.stream.addr
			e.metrics.KeepAliveFailed("timeout")
		}
		e.lastAddr = e.stream.addr
		e.stream.close()
		if e.tenure.clock.Now()-e.core.attachedAt > time.Second {
			e.flaps = 0
		} else {
			e.flaps++
		}
		e.stream = nil
	}
	wanted := !c.attached && !c.out.done && !c.leaving.closed &&
		(c.session.opened || len(c.runs) > 0 && !c.leaving.on || c.opening)
	if f := e.finder; f != nil && (!wanted || f.session != c.session.id || f.opened != c.session.opened) {
		f.cancel()
		e.finder = nil
	}
	if wanted && e.finder == nil {
		e.startFinder()
	}
}

func (e *engine) startFinder() {
	c := e.core
	ctx, cancel := context.WithCancel(e.ctx)
	f := &finder{session: c.session.id, opened: c.session.opened, cancel: cancel}
	e.finder = f
	first, avoid := e.firstRequest(), e.avoid
	e.avoid = ""
	var before time.Duration
	if e.flaps > 0 {
		before = min(minPause<<min(e.flaps, 8), maxPause)
	}
	if c.denied != nil { // what could change that is a new credential
		before = max(before, min(c.session.ttl/8, time.Second))
	}
	wait := min(max(c.session.ttl/4, time.Second), 5*time.Second)
	e.tasks.Go(func() {
		defer cancel()
		if before > 0 && !sleep(ctx, before/2+rand.N(before)) {
			return
		}
		got, ok := e.find(ctx, f, first, wait, avoid)
		if ok {
			e.post(func(now reading) { e.found(f, got, now) })
		}
	})
}

// firstRequest opens the session, or resumes it if it is open.
func (e *engine) firstRequest() *leaseholdv1.AttachRequest {
	c := e.core
	if c.session.opened {
		return &leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_Resume{Resume: &leaseholdv1.ResumeSession{
			SessionId: c.session.id, WorkerId: c.id, ClusterId: c.clusterID, HighestToken: uint64(c.highest), Version: e.cfg.Version,
		}}}
	}
	open := &leaseholdv1.OpenSession{
		SessionId: c.session.id, WorkerId: c.id, ClusterId: c.clusterID,
		Endpoint: e.cfg.Endpoint, Zone: e.cfg.Zone, Capacity: e.cfg.Capacity, Labels: e.cfg.Labels,
		Gossip: e.cfg.Gossip != GossipOff, Version: e.cfg.Version, HighestToken: uint64(c.highest),
	}
	for _, r := range sortedRuns(c.runs) {
		open.Keyspaces = append(open.Keyspaces, r.keyspace)
	}
	return &leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_Open{Open: open}}
}

// found takes what a finder ended with.
func (e *engine) found(f *finder, got found, now reading) {
	if e.finder != f {
		if got.stream != nil {
			got.stream.discard()
		}
		return // of a session that is over
	}
	e.finder = nil
	c := e.core
	if got.stream == nil {
		e.flaps++ // whatever is tried next, not at once
		if f.opened {
			c.closed(got.refused, now)
		} else {
			c.refused(got.refused, now)
		}
		return
	}
	st := got.stream
	switch m := got.answer.GetResponse().(type) {
	case *leaseholdv1.AttachResponse_Opened:
		e.attach(st)
		c.opened(m.Opened, got.sent, now)
		e.startGossip(m.Opened)
	case *leaseholdv1.AttachResponse_Closed:
		switch d := m.Closed.GetError(); verdictOf(d) {
		case verdictSuperseded, verdictEvicted:
			e.attach(st)
			c.attachedBarred(d, now)
		default:
			st.discard()
			c.closed(d, now)
		}
	default:
		st.discard() // not what the protocol says; another server may do better
	}
}

// attach makes st the stream and starts its two goroutines.
func (e *engine) attach(st *stream) {
	if e.lastAddr != "" && e.lastAddr != st.addr {
		e.metrics.ServerSwitched()
	}
	e.stream = st
	e.tasks.Go(st.write)
	e.tasks.Go(func() {
		st.read(func(m *leaseholdv1.AttachResponse) {
			e.post(func(now reading) {
				if e.stream == st {
					e.receive(m, now)
				}
			})
		}, func(err error) {
			e.post(func(now reading) {
				if e.stream == st {
					e.broken(err, now)
				}
			})
		})
	})
}

// receive takes one message of the stream.
func (e *engine) receive(m *leaseholdv1.AttachResponse, now reading) {
	c := e.core
	switch m := m.GetResponse().(type) {
	case *leaseholdv1.AttachResponse_KeepAlive:
		c.streamAnswered()
		c.acked(m.KeepAlive, now)
	case *leaseholdv1.AttachResponse_Gossip:
		e.gossipSetup(m.Gossip)
	case *leaseholdv1.AttachResponse_Leases:
		e.gossipSetup(nil) // it would have come before the list
		c.list(m.Leases, now)
	case *leaseholdv1.AttachResponse_Changes:
		c.changes(m.Changes, now)
	case *leaseholdv1.AttachResponse_Released:
		c.released(m.Released)
	case *leaseholdv1.AttachResponse_Joined:
		c.joined(m.Joined, now)
	case *leaseholdv1.AttachResponse_Closed:
		c.closed(m.Closed.GetError(), now)
	case *leaseholdv1.AttachResponse_Ping:
		c.send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_Pong{Pong: &leaseholdv1.Pong{}}})
	}
}

// broken takes the end of the stream.
func (e *engine) broken(err error, now reading) {
	c := e.core
	switch d := client.Detail(err); verdictOf(d) {
	case verdictGone, verdictSuperseded, verdictEvicted:
		c.closed(d, now)
	}
	c.detached()
}

func (e *engine) startRelay(m *leaseholdv1.KeepAliveRequest) {
	avoid := e.lastAddr
	if e.stream != nil {
		avoid = e.stream.addr
	}
	e.relays++
	try, wait := e.relays, max(e.core.session.ttl/4, 500*time.Millisecond)
	e.tasks.Go(func() {
		ack, err := e.relay(e.ctx, m, avoid, wait, try)
		d := client.Detail(err)
		if err != nil {
			e.metrics.KeepAliveFailed(outcome(d, err))
		}
		e.post(func(now reading) { e.core.relayed(m.GetSessionId(), ack, d, now) })
	})
}
