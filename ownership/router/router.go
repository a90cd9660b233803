package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ring/keyrange"
)

// Router has the table. Its methods are safe for concurrent use.
type Router struct {
	cfg     Config
	client  *client.Client
	started time.Time
	running atomic.Bool
	ready   chan struct{} // closed once, by Run's goroutine
	kick    chan struct{} // capacity 1: somebody has to be asked back

	// tables by name. The map is never changed: another one takes its place.
	tables atomic.Pointer[map[string]*table]
	// current is when the table was last known to be the truth, as time since
	// started; 0: never.
	current atomic.Int64

	events, old, lists, watches, asks, hints, refused atomic.Uint64

	mu       sync.Mutex // guards what follows, and the tables' own of writers
	places   places
	revision uint64 // of the last event taken in
	cluster  string // id, "" before the first list
	server   string // whose events are followed, "" when nobody's
	trouble  error  // why there is no table yet
	asking   map[askKey]*ask
	highest  uint64 // token that a server has told of
}

// New checks the configuration and allocates. Nobody is contacted before Run.
func New(cfg Config) (*Router, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	c, err := client.New(client.Config{Servers: cfg.Servers, TLS: cfg.TLS, Credential: cfg.Credential, Dialer: cfg.Dialer, Logger: cfg.Logger, UserAgent: "leasehold-router"})
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	return &Router{
		cfg: cfg, client: c, started: time.Now(), ready: make(chan struct{}), kick: make(chan struct{}, 1),
		places: places{}, asking: map[askKey]*ask{},
	}, nil
}

// Lookup tells who owns a key. It reads memory only and allocates nothing
// unless it fails, with ErrNotReady, an *UnknownKeyspaceError, or a
// *NoOwnerError, beside which the Route has the partition and its last token.
func (r *Router) Lookup(keyspace string, key []byte) (Route, error) {
	t, err := r.table(keyspace)
	if err != nil {
		return Route{Keyspace: keyspace}, err
	}
	return t.lookup(keyrange.Partition(key, t.partitions))
}

// At is Lookup for a partition by its number. A number that the keyspace does
// not have is ErrPartition.
func (r *Router) At(keyspace string, partition uint32) (Route, error) {
	t, err := r.table(keyspace)
	if err != nil {
		return Route{Keyspace: keyspace, Partition: partition}, err
	}
	if partition >= t.partitions {
		return Route{Keyspace: keyspace, Partition: partition}, fmt.Errorf("%w: %s/%d, want 0 to %d", ErrPartition, keyspace, partition, t.partitions-1)
	}
	return t.lookup(partition)
}

// Partition tells which partition a key belongs to.
func (r *Router) Partition(keyspace string, key []byte) (uint32, error) {
	t, err := r.table(keyspace)
	if err != nil {
		return 0, err
	}
	return keyrange.Partition(key, t.partitions), nil
}

func (r *Router) table(keyspace string) (*table, error) {
	if tables := r.tables.Load(); tables != nil {
		if t := (*tables)[keyspace]; t != nil {
			return t, nil
		}
	}
	select {
	case <-r.ready:
		return nil, &UnknownKeyspaceError{keyspace}
	default:
		return nil, ErrNotReady
	}
}

func (t *table) lookup(p uint32) (Route, error) {
	w := t.load(p)
	if !w.owned() {
		return t.route(p, w), &NoOwnerError{Keyspace: t.name, Partition: p, Token: w.token(), Reason: w.place.key.reason}
	}
	return t.route(p, w), nil
}

// Ready is closed when there is a table that a server's events keep fresh.
func (r *Router) Ready() <-chan struct{} { return r.ready }

// WaitReady waits for Ready. When ctx ends first, the error says what kept it.
func (r *Router) WaitReady(ctx context.Context) error {
	select {
	case <-r.ready:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trouble != nil {
		return fmt.Errorf("%w: %w (%w)", ErrNotReady, r.trouble, context.Cause(ctx))
	}
	return fmt.Errorf("%w (%w)", ErrNotReady, context.Cause(ctx))
}

// Age is how long ago the table was last known to be what a server of the
// cluster had, and that server to be in touch with a leader. Between two
// heartbeats it grows by one of them. Before there is a table it is the age of
// the Router.
func (r *Router) Age() time.Duration {
	return time.Since(r.started) - time.Duration(r.current.Load())
}

// freshenLocked notes that the table is what was true age ago.
func (r *Router) freshenLocked(age time.Duration) {
	r.current.Store(max(r.current.Load(), int64(time.Since(r.started)-age)))
}

// Stats is what a router can say about itself, for metrics and logs. Counters
// count from New.
type Stats struct {
	Ready      bool
	Age        time.Duration // see Router.Age
	Stale      bool          // Age is above Config.StaleAfter
	Server     string        // whose events are followed, "" when none's
	Revision   uint64        // of the last event taken in
	Keyspaces  int           // that exist, of the configured ones
	Partitions int           // of those
	Events     uint64        // received
	Old        uint64        // events that were older than the table
	Lists      uint64        // times that everything was listed
	Watches    uint64        // times that a watch began
	Asks       uint64        // questions about single partitions or endpoints
	Hints      uint64        // accepted by Correct
	Refused    uint64        // hints that were not
}

// Stats returns the present figures.
func (r *Router) Stats() Stats {
	s := Stats{
		Age: r.Age(), Events: r.events.Load(), Old: r.old.Load(), Lists: r.lists.Load(), Watches: r.watches.Load(),
		Asks: r.asks.Load(), Hints: r.hints.Load(), Refused: r.refused.Load(),
	}
	s.Stale = s.Age > r.cfg.StaleAfter
	select {
	case <-r.ready:
		s.Ready = true
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Server, s.Revision = r.server, r.revision
	for _, t := range r.tablesLocked() {
		s.Keyspaces++
		s.Partitions += int(t.partitions)
	}
	return s
}

// tablesLocked are those of the keyspaces that exist.
func (r *Router) tablesLocked() map[string]*table {
	if p := r.tables.Load(); p != nil {
		return *p
	}
	return nil
}

func (r *Router) tableLocked(name string) *table { return r.tablesLocked()[name] }

// removeLocked forgets a keyspace that is gone, and returns what there is to
// tell of it.
func (r *Router) removeLocked(t *table) (told []Route) {
	for _, p := range t.show() {
		told = append(told, t.route(p, t.load(p)))
	}
	for p := range t.partitions {
		if old := t.load(p); t.tells && old.owned() {
			told = append(told, Route{Keyspace: t.name, Partition: p, Token: old.token()})
		}
	}
	r.swapLocked(t.name, nil)
	return told
}

// swapLocked puts a table, or none, in the place of the one of that name.
func (r *Router) swapLocked(name string, t *table) {
	next := map[string]*table{}
	for k, v := range r.tablesLocked() {
		if k != name {
			next[k] = v
			continue
		}
		v.show()
		v.drop()
	}
	if t != nil {
		next[name] = t
	}
	r.tables.Store(&next)
}

var errRunning = errors.New("router: Run was called before, a Router runs once")
