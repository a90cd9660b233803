package queue

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// group is a log and the servers that apply it, without Raft: the first one
// applies what is proposed at once, the others when they are told to.
type group struct {
	t *testing.T

	mu      sync.Mutex
	log     [][]state.Command
	servers []*replica
	// proposed, if not nil, is called after each entry.
	proposed func()
}

// replica is one server's state, and the queues on it.
type replica struct {
	g    *group
	q    *Queues
	lags bool // it applies only with catchUp

	mu      sync.RWMutex
	s       *state.State
	applied int
	to      map[chan<- struct{}]bool
	grown   chan struct{} // closed, and made anew, with each entry applied
}

func newGroup(t *testing.T, servers int) *group {
	g := &group{t: t}
	for range servers {
		r := &replica{g: g, s: state.New(), to: map[chan<- struct{}]bool{}, grown: make(chan struct{})}
		r.q = New(r)
		g.servers = append(g.servers, r)
	}
	g.propose(&state.Announce{Term: 1, Server: state.Server{ID: "s1"}}, &state.Bootstrap{ClusterID: "test", FirstToken: 1})
	g.propose(&state.RaiseFeature{Term: 1, Level: state.MaxFeature})
	return g
}

// run serves the queues until the test ends.
func (g *group) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, r := range g.servers {
		running.Go(func() { _ = r.q.Run(ctx) })
	}
	g.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// propose writes one entry and applies it where nothing lags.
func (g *group) propose(cmds ...state.Command) []state.Result {
	g.mu.Lock()
	g.log = append(g.log, cmds)
	var results []state.Result
	for i, r := range g.servers {
		if i == 0 {
			results = r.catchUpLocked()
		} else if !r.lags {
			r.catchUpLocked()
		}
	}
	if g.proposed != nil {
		g.proposed()
	}
	g.mu.Unlock()
	return results
}

// catchUp applies all of the log.
func (r *replica) catchUp() {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	r.catchUpLocked()
}

// step applies one entry.
func (r *replica) step() {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	r.applyLocked(r.applied + 1)
}

func (r *replica) catchUpLocked() []state.Result { return r.applyLocked(len(r.g.log)) }

func (r *replica) applyLocked(to int) (results []state.Result) {
	r.mu.Lock()
	for r.applied < to {
		cmds := r.g.log[r.applied]
		r.applied++
		results = r.s.Apply(uint64(r.applied), 1, &state.Batch{Commands: cmds})
	}
	close(r.grown)
	r.grown = make(chan struct{})
	var to2 []chan<- struct{}
	for ch := range r.to {
		to2 = append(to2, ch)
	}
	r.mu.Unlock()
	for _, ch := range to2 {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
	return results
}

// restore gives the server another's state, as a snapshot from the leader does.
func (r *replica) restore(from *replica) {
	var b bytes.Buffer
	from.mu.RLock()
	snap, applied := from.s.Snapshot(), from.applied
	from.mu.RUnlock()
	if err := snap.Write(&b); err != nil {
		r.g.t.Fatal(err)
	}
	s, err := state.Restore(&b)
	if err != nil {
		r.g.t.Fatal(err)
	}
	r.mu.Lock()
	r.s, r.applied = s, applied
	r.mu.Unlock()
	r.g.mu.Lock()
	r.applyLocked(r.applied)
	r.g.mu.Unlock()
}

func (r *replica) View(fn func(*state.State)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	fn(r.s)
}

func (r *replica) Notify(ch chan<- struct{}) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to[ch] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.to, ch)
	}
}

// Enqueue, Leave, Confirm, Keeps and Retry make a replica a Backend.
func (r *replica) Enqueue(_ context.Context, cmd *state.Enqueue) (*state.Ticket, int64, error) {
	res := r.g.propose(cmd)[0]
	return res.Ticket, res.KVRevision, res.Err
}

func (r *replica) Leave(_ context.Context, key []byte, created int64) error {
	return r.g.propose(LeaveTxn(key, created))[0].Err
}

func (r *replica) Confirm(ctx context.Context) error {
	r.g.mu.Lock()
	index := len(r.g.log)
	r.g.mu.Unlock()
	for {
		r.mu.RLock()
		applied, grown := r.applied, r.grown
		r.mu.RUnlock()
		if applied >= index {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

var errDeposed = errors.New("deposed")

func (r *replica) Keeps(err error) bool { return errors.Is(err, errDeposed) }
func (r *replica) Retry(error) bool     { return false }

// session opens one.
func (g *group) session(id state.SessionID) state.SessionID {
	g.t.Helper()
	if res := g.propose(&state.GrantLease{Session: id, TTL: 60}); res[0].Err != nil {
		g.t.Fatal(res[0].Err)
	}
	return id
}

func (g *group) end(id state.SessionID) {
	g.t.Helper()
	if res := g.propose(&state.RevokeLease{Session: id}); res[0].Err != nil {
		g.t.Fatal(res[0].Err)
	}
}

func (g *group) put(key string, lease state.SessionID) {
	g.t.Helper()
	res := g.propose(&state.Transact{Txn: mvcc.Txn{Success: []mvcc.Op{{Put: &mvcc.PutOp{Key: []byte(key), Value: []byte("v"), Lease: int64(lease)}}}}})
	if res[0].Err != nil {
		g.t.Fatal(res[0].Err)
	}
}

func (g *group) delete(key []byte) {
	g.t.Helper()
	res := g.propose(&state.Transact{Txn: mvcc.Txn{Success: []mvcc.Op{{Delete: &mvcc.DeleteOp{Key: key}}}}})
	if res[0].Err != nil {
		g.t.Fatal(res[0].Err)
	}
}

func (g *group) has(key []byte) (ok bool) {
	g.servers[0].View(func(s *state.State) { ok = s.Keys().Get(key) != nil })
	return ok
}

func (g *group) token(key string) (token uint64) {
	g.servers[0].View(func(s *state.State) {
		if kv := s.Keys().Get([]byte(key)); kv != nil {
			token = kv.Token
		}
	})
	return token
}

// call is one Acquire on its way.
type call struct {
	t      *testing.T
	r      Request
	begun  int // the length of the log when it began
	cancel context.CancelCauseFunc
	done   chan struct{}
	place  Place
	err    error
}

var errGaveUp = errors.New("the caller gave up")

// acquire begins a call and waits until it waits.
func (r *replica) acquire(name string, id state.SessionID, more ...func(*Request)) *call {
	r.g.t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	r.g.mu.Lock()
	begun := len(r.g.log)
	r.g.mu.Unlock()
	c := &call{t: r.g.t, begun: begun, cancel: cancel, done: make(chan struct{}), r: Request{Name: []byte(name), Session: id}}
	for _, m := range more {
		m(&c.r)
	}
	go func() {
		defer close(c.done)
		c.place, c.err = r.q.Acquire(ctx, r, c.r)
	}()
	synctest.Wait()
	return c
}

func slots(n int) func(*Request) { return func(r *Request) { r.Slots = n } }
func noWait(r *Request)          { r.NoWait = true }

// waits fails the test unless the call waits.
func (c *call) waits() {
	c.t.Helper()
	synctest.Wait()
	select {
	case <-c.done:
		c.t.Fatalf("session %d for %q does not wait: %+v, %v", c.r.Session, c.r.Name, c.place, c.err)
	default:
	}
}

// in fails the test unless the call is among the first.
func (c *call) in() Place {
	c.t.Helper()
	if err := c.ended(); err != nil || !c.place.Acquired {
		c.t.Fatalf("session %d for %q: %+v, %v", c.r.Session, c.r.Name, c.place, err)
	}
	return c.place
}

// ended returns the error of a call that is over.
func (c *call) ended() error {
	c.t.Helper()
	synctest.Wait()
	select {
	case <-c.done:
	default:
		c.t.Fatalf("session %d for %q still waits", c.r.Session, c.r.Name)
	}
	c.cancel(nil)
	return c.err
}

// fails expects an error.
func (c *call) fails(want error) {
	c.t.Helper()
	if err := c.ended(); !errors.Is(err, want) {
		c.t.Fatalf("session %d for %q: %v, want %v", c.r.Session, c.r.Name, err, want)
	}
}

// inBubble runs a test in which time stands still.
func inBubble(t *testing.T, servers int, fn func(t *testing.T, g *group)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, servers)
		g.run()
		fn(t, g)
	})
}
