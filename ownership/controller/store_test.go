package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// testStore is a log of one server in memory: it applies batches to a real
// state.State, at once and in order, and measures time like a leader.
type testStore struct {
	t  testing.TB
	mu sync.RWMutex
	s  *state.State
	// moved is when the logical clock was last moved.
	moved time.Time
	index uint64
	subs  map[chan<- struct{}]bool
	// delay is how long a proposal takes.
	delay atomic.Int64
	// fail makes proposals fail while it is set.
	fail atomic.Bool
	// items counts what was proposed, largest is the largest proposal.
	largest atomic.Int64
	// inVain counts grants that came before the hold of a restore was over.
	inVain atomic.Int64
}

const testTerm = 1

func newTestStore(t testing.TB) *testStore {
	s := &testStore{t: t, s: state.New(), moved: time.Now(), subs: make(map[chan<- struct{}]bool)}
	s.must(&state.Bootstrap{ClusterID: "c0ffee", FirstToken: 1000})
	s.must(&state.Announce{Term: testTerm, Server: state.Server{ID: "s1"}})
	return s
}

func (s *testStore) View(fn func(*state.State)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	fn(s.s)
}

func (s *testStore) Notify(ch chan<- struct{}) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs[ch] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subs, ch)
	}
}

func (s *testStore) Ahead() time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return min(time.Since(s.moved), state.MaxElapsed)
}

func (s *testStore) Propose(ctx context.Context, cmds ...state.Command) ([]state.Result, error) {
	if d := time.Duration(s.delay.Load()); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if s.fail.Load() {
		return nil, fmt.Errorf("no quorum")
	}
	return s.apply(cmds...), nil
}

func (s *testStore) apply(cmds ...state.Command) []state.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range cmds {
		switch c := c.(type) {
		case *state.Grant:
			c.Term = testTerm
			n += len(c.Items)
		case *state.Drain:
			c.Term = testTerm
			n += len(c.Items)
		case *state.Revoke:
			c.Term = testTerm
			n += len(c.Items)
		}
	}
	s.largest.Store(max(s.largest.Load(), int64(n)))
	s.index++
	b := &state.Batch{Wall: time.Unix(1, 0), Commands: cmds}
	// What goes through a log is encoded.
	enc, err := state.AppendBatch(nil, b)
	if err != nil {
		s.t.Errorf("encode: %v", err)
		return make([]state.Result, len(cmds))
	}
	if b, err = state.DecodeBatch(enc); err != nil {
		s.t.Errorf("decode: %v", err)
		return make([]state.Result, len(cmds))
	}
	r := s.s.Apply(s.index, testTerm, b)
	for i := range r {
		if state.ReasonOf(r[i].Err) == state.ReasonRestored {
			s.inVain.Add(1)
		}
	}
	for ch := range s.subs {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
	return r
}

// must applies commands that have to succeed.
func (s *testStore) must(cmds ...state.Command) []state.Result {
	s.t.Helper()
	rs := s.apply(cmds...)
	for i, r := range rs {
		if r.Err != nil {
			s.t.Errorf("%T: %v", cmds[i], r.Err)
		}
		for _, err := range r.Items {
			if err != nil {
				s.t.Errorf("%T: %v", cmds[i], err)
			}
		}
	}
	return rs
}

// elapsed is what a clock command carries now.
func (s *testStore) elapsed() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := time.Since(s.moved)
	s.moved = time.Now()
	return d
}

// keyspace creates one.
func (s *testStore) keyspace(name string, partitions uint32, change func(*state.Settings)) state.KeyspaceID {
	s.t.Helper()
	set := state.Settings{TTL: 10 * time.Second, Takeover: state.Strict, HandoffTimeout: 30 * time.Second}
	if change != nil {
		change(&set)
	}
	r := s.must(&state.CreateKeyspace{Name: name, Partitions: partitions, Settings: set})
	return r[0].Keyspace.ID
}

// open opens a session for a worker, superseding its present one.
func (s *testStore) open(worker string, capacity uint32, keyspaces ...string) state.SessionID {
	s.t.Helper()
	var inc uint64
	s.View(func(st *state.State) {
		if w, ok := st.Worker(worker); ok {
			inc = w.Incarnation
		}
	})
	s.mu.RLock()
	id := state.SessionID(s.index + 1)
	s.mu.RUnlock()
	s.must(&state.OpenSession{Session: id, Worker: worker, Incarnation: inc, Keyspaces: keyspaces, Capacity: capacity, Gossip: true})
	return id
}

// held lists what a session holds.
func (s *testStore) held(id state.SessionID, ks state.KeyspaceID) []uint32 {
	var parts []uint32
	s.View(func(st *state.State) { parts = slices.Collect(st.Held(id, ks)) })
	slices.Sort(parts)
	return parts
}

func (s *testStore) counts(ks state.KeyspaceID) (owned, draining int) {
	s.View(func(st *state.State) {
		if k, ok := st.Keyspace(ks); ok {
			owned, draining = k.Owned, k.Draining
		}
	})
	return owned, draining
}

// events returns those after a revision, of the kinds asked for.
func (s *testStore) events(after uint64, kinds ...state.Kind) []state.Event {
	var all []state.Event
	s.View(func(st *state.State) { all, _ = st.Events(after, 1<<20, nil) })
	return slices.DeleteFunc(all, func(e state.Event) bool { return !slices.Contains(kinds, e.Kind) })
}

func (s *testStore) revision() (r uint64) {
	s.View(func(st *state.State) { r = st.Revision() })
	return r
}

// monotonic is the boot clock of a test.
type monotonic struct{ start time.Time }

func (m monotonic) Now() time.Duration { return time.Since(m.start) + time.Second }

// fleet is the workers' side: it renews sessions and answers drains.
type fleet struct {
	s *testStore
	// deaf sessions do not answer drains, dead ones do not renew either.
	mu         sync.Mutex
	deaf, dead map[state.SessionID]bool
	// work is how long a handler takes to return.
	work time.Duration
}

func newFleet(s *testStore) *fleet {
	return &fleet{s: s, deaf: make(map[state.SessionID]bool), dead: make(map[state.SessionID]bool), work: 5 * time.Millisecond}
}

func (f *fleet) setDeaf(id state.SessionID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deaf[id] = true
}

func (f *fleet) setDead(id state.SessionID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deaf[id], f.dead[id] = true, true
}

// run renews every second, expires what has run out, and releases what
// drains, until ctx ends.
func (f *fleet) run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	defer f.s.Notify(changed)()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.renew()
		case <-changed:
			select {
			case <-time.After(f.work):
			case <-ctx.Done():
				return
			}
			f.release()
		}
	}
}

func (f *fleet) renew() {
	f.mu.Lock()
	defer f.mu.Unlock()
	keep := &state.KeepAlive{Term: testTerm, Elapsed: f.s.elapsed()}
	expire := &state.Expire{Term: testTerm}
	f.s.View(func(st *state.State) {
		for x := range st.Sessions() {
			switch {
			case x.Deadline <= st.Now()+keep.Elapsed:
				expire.Sessions = append(expire.Sessions, state.Expiry{Session: x.ID, Renewal: x.Renewal})
			case !f.dead[x.ID] && x.State <= state.SessionLeaving:
				keep.Sessions = append(keep.Sessions, x.ID)
			}
		}
	})
	f.s.apply(keep)
	if len(expire.Sessions) > 0 {
		f.s.apply(expire)
	}
}

func (f *fleet) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	var cmds []state.Command
	f.s.View(func(st *state.State) {
		for k := range st.Keyspaces() {
			for m := range k.Moves() {
				l := k.Lease(m.Partition)
				if f.deaf[l.Session] {
					continue
				}
				cmds = append(cmds, &state.Release{Session: l.Session, Cause: state.CauseDrained,
					Items: []state.LeaseRef{{Keyspace: k.ID, Partition: m.Partition, Token: m.Token}}})
			}
		}
		for x := range st.Sessions() {
			if x.State == state.SessionLeaving && x.Held == 0 {
				cmds = append(cmds, &state.CloseSession{Session: x.ID})
			}
		}
	})
	if len(cmds) > 0 {
		f.s.apply(cmds...)
	}
}

// testGossip is a member table that a test writes.
type testGossip struct {
	mu      sync.Mutex
	verdict map[string]Verdict
	since   map[string]time.Time
	answers map[string]bool
	takes   time.Duration
	asked   atomic.Int64
}

func newTestGossip() *testGossip {
	return &testGossip{verdict: make(map[string]Verdict), since: make(map[string]time.Time), answers: make(map[string]bool), takes: 100 * time.Millisecond}
}

func (g *testGossip) set(worker string, v Verdict, answers bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.verdict[worker], g.since[worker], g.answers[worker] = v, time.Now(), answers
}

func (g *testGossip) Look(worker string, _ state.SessionID) (Verdict, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v, ok := g.verdict[worker]; ok {
		return v, time.Since(g.since[worker])
	}
	return Alive, 0
}

func (g *testGossip) Probe(ctx context.Context, worker string) bool {
	g.asked.Add(1)
	select {
	case <-time.After(g.takes):
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a, ok := g.answers[worker]
	return a || !ok
}

// lead starts a controller over a store and a fleet, and returns it with a
// function that ends both and waits.
func lead(t testing.TB, s *testStore, g Gossip, m Metrics) (c *Controller, f *fleet, stop func()) {
	t.Helper()
	c, err := New(Config{Store: s, Clock: monotonic{time.Now()}, Gossip: g, Metrics: m, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	f = newFleet(s)
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { _ = c.Lead(ctx, s) })
	wait.Go(func() { f.run(ctx) })
	return c, f, func() {
		cancel()
		wait.Wait()
		s.View(func(st *state.State) {
			if err := st.Check(); err != nil {
				t.Errorf("state: %v", err)
			}
		})
	}
}

// why asks of a partition as it is now.
func why(c *Controller, ks state.KeyspaceID, p uint32) (Reason, error) {
	var lease state.Lease
	c.cfg.Store.View(func(s *state.State) {
		if k, ok := s.Keyspace(ks); ok {
			lease = k.Lease(p)
		}
	})
	return c.Why(ks, p, lease)
}
