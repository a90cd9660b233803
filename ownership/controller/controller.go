package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// ErrNotLeading is returned by what only the leader's controller can do.
var ErrNotLeading = errors.New("controller: not leading")

// Store is the part of raftstore.Store that the controller reads.
type Store interface {
	// View runs fn under the read lock; fn must not block or keep pointers.
	View(fn func(*state.State))
	// Notify makes ch (capacity 1) ready after each apply that made events.
	Notify(ch chan<- struct{}) (stop func())
}

// Proposer is the leader's right to propose, in one term; *raftstore.Lead is
// one. Commands of one call stay together in one log entry, and it fills in
// their term.
type Proposer interface {
	Propose(ctx context.Context, cmds ...state.Command) ([]state.Result, error)
	// Ahead is how much time has passed since the log last moved the logical
	// clock.
	Ahead() time.Duration
}

// Clock never goes back; bootclock.Clock is one.
type Clock interface {
	Now() time.Duration
}

// Gossip is what the controller asks of the member table.
type Gossip interface {
	// Look tells what gossip says of the process that opened the session, and
	// since when. It must not block.
	Look(worker string, session state.SessionID) (v Verdict, age time.Duration)
	// Probe asks the worker directly and through two members at once, and
	// says whether any of them got an answer.
	Probe(ctx context.Context, worker string) bool
}

// Config is what a Controller needs.
type Config struct {
	// Store and Clock are required; Clock is the server's boot clock.
	Store Store
	Clock Clock
	// Gossip may be nil: then nobody is ever thought dead before the TTL.
	Gossip Gossip
	// Logger defaults to none, Metrics to nothing.
	Logger  *slog.Logger
	Metrics Metrics
}

// Controller plans while its server leads. All methods may be called by any
// goroutine; none blocks on the loop.
type Controller struct {
	cfg  Config
	log  *slog.Logger
	poke chan struct{} // capacity 1: something in the inbox, or asked to look

	mu sync.Mutex
	// proposer is nil while not leading.
	proposer Proposer
	inbox    []streamSign
	asked    bool // look at everything, whatever changed
	cool     []coolNote
	views    map[state.KeyspaceID]*published
}

// streamSign is what the session hub has told.
type streamSign struct {
	session state.SessionID
	broken  bool
	at      time.Duration // boot clock
}

// coolNote keeps the balancer from undoing an operator's move.
type coolNote struct {
	keyspace  state.KeyspaceID
	partition uint32
}

// New checks cfg and returns a controller that does not lead yet.
func New(cfg Config) (*Controller, error) {
	if cfg.Store == nil {
		return nil, errors.New("new controller: Store is nil, must be set")
	}
	if cfg.Clock == nil {
		return nil, errors.New("new controller: Clock is nil, must be set")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = quiet{}
	}
	return &Controller{
		cfg:   cfg,
		log:   cfg.Logger,
		poke:  make(chan struct{}, 1),
		views: make(map[state.KeyspaceID]*published),
	}, nil
}

// Lead plans and proposes until ctx ends, and returns why it ended. It is one
// duty of a leader's term: a second call while one runs is an error.
func (c *Controller) Lead(ctx context.Context, p Proposer) error {
	c.mu.Lock()
	if c.proposer != nil {
		c.mu.Unlock()
		return errors.New("lead: the controller leads already")
	}
	c.proposer = p
	c.inbox, c.cool, c.asked = nil, nil, true
	clear(c.views)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.proposer = nil
		c.inbox, c.cool = nil, nil
		clear(c.views)
	}()
	if err := newTerm(c, p).run(ctx); err != nil {
		return fmt.Errorf("lead: %w", err)
	}
	return nil
}

// StreamBroken tells that the stream of a session attached to this server has
// ended without a close. It does not block.
func (c *Controller) StreamBroken(session state.SessionID) { c.tell(session, true) }

// StreamAttached tells that a session's stream has been attached here. It does
// not block.
func (c *Controller) StreamAttached(session state.SessionID) { c.tell(session, false) }

func (c *Controller) tell(session state.SessionID, broken bool) {
	sign := streamSign{session: session, broken: broken, at: c.cfg.Clock.Now()}
	c.mu.Lock()
	leading := c.proposer != nil
	if leading {
		c.inbox = append(c.inbox, sign)
	}
	c.mu.Unlock()
	if leading {
		c.wake()
	}
}

// Poke makes the loop look at everything again, soon. Gossip's change signal
// is wired to it.
func (c *Controller) Poke() {
	c.mu.Lock()
	c.asked = true
	c.mu.Unlock()
	c.wake()
}

func (c *Controller) wake() {
	select {
	case c.poke <- struct{}{}:
	default: // one signal is enough, the loop takes all there is
	}
}
