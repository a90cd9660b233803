package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// Gossip is one member of the gossip cluster: this process. All methods may be
// called from any goroutine, at any time.
type Gossip struct {
	cfg       Config
	log       *slog.Logger
	transport memberlist.Transport
	local     string // ip:port that others are told
	bindPort  int
	advertise advertised

	keys      *keyring
	guard     *guard
	table     *table
	questions *questions
	seeker    *seeker
	packets   *packets
	strangers strangers
	lookup    func(ctx context.Context, host string) ([]net.IP, error)
	stats     counters

	changed chan struct{} // capacity 1, for the user
	dirty   chan struct{} // capacity 1, for the notify loop
	publish chan struct{} // capacity 1, for the publish loop
	again   chan struct{} // capacity 1, for Run: memberlist has strangers

	conflicts chan Conflict // for the notify loop
	doubts    chan string   // members declared dead, for the confirm loop
	asks      chan message  // probe requests of others
	saves     chan []knownPeer

	metaMu    sync.Mutex
	meta      Meta
	metaBytes atomic.Pointer[[]byte] // encoded meta, read by memberlist's callback
	cluster   atomic.Pointer[string] // meta.ClusterID, read by memberlist's callbacks

	// updating is held by who updates the node: one at a time, memberlist's own
	// races. It is a channel because it is held for a while, and a goroutine that
	// waits for a mutex stops the time of a synctest bubble.
	updating chan struct{}
	ml       atomic.Pointer[memberlist.Memberlist]

	lifeMu  sync.Mutex
	life    life
	tasks   sync.WaitGroup // everything that spawn started
	leaving chan struct{}  // closed by Leave
	killed  chan struct{}  // closed by Shutdown
	done    chan struct{}  // closed when Run has returned
}

type life uint8

const (
	idle life = iota
	running
	stopped
)

// New validates the configuration and binds the sockets, so that LocalAddr is
// known and an address in use is an error here. Nothing is sent before Run. If
// Run is never called, Shutdown gives the sockets back.
func New(cfg Config) (*Gossip, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	meta, err := encodeMeta(cfg.Label, cfg.Meta)
	if err != nil {
		return nil, err
	}
	g := &Gossip{
		cfg:       cfg,
		log:       cfg.Logger,
		table:     newTable(),
		questions: newQuestions(),
		packets:   newPackets(),
		lookup:    lookup,
		changed:   make(chan struct{}, 1),
		dirty:     make(chan struct{}, 1),
		publish:   make(chan struct{}, 1),
		again:     make(chan struct{}, 1),
		conflicts: make(chan Conflict, 16),
		doubts:    make(chan string, 1024),
		updating:  make(chan struct{}, 1),
		asks:      make(chan message, 64),
		saves:     make(chan []knownPeer, 1),
		meta:      cfg.Meta,
		leaving:   make(chan struct{}),
		killed:    make(chan struct{}),
		done:      make(chan struct{}),
	}
	if g.keys, err = newKeyring(cfg.KeyringVersion, cfg.Keys); err != nil {
		return nil, fmt.Errorf("make the gossip keyring: %w", err)
	}
	g.metaBytes.Store(&meta)
	g.cluster.Store(&cfg.Meta.ClusterID)
	if err := g.bind(); err != nil {
		return nil, err
	}
	g.guard = newGuard(g)
	g.seeker = newSeeker(g)
	return g, nil
}

// Members returns a copy of the table of members, sorted by name. It includes
// this member, and those that left or died for ForgetAfter.
func (g *Gossip) Members() []Member {
	all := g.table.all()
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Member returns the member of that name.
func (g *Gossip) Member(name string) (Member, bool) { return g.table.get(name) }

// Changed is signalled after the table of members has changed. It holds one
// signal: who reads it has seen all changes before. It is for one reader.
func (g *Gossip) Changed() <-chan struct{} { return g.changed }

// LocalAddr returns the ip:port that others are told. It is known after New.
func (g *Gossip) LocalAddr() string { return g.local }

// Label returns the cluster's label.
func (g *Gossip) Label() string { return g.cfg.Label }

// UpdateMeta changes what others are told about this member and returns at
// once; the news is published in the background, the last state of several
// changes being enough. Role and ID cannot change, and Keyring is SetKeys' alone. From the return on, members of
// other clusters than ClusterID are refused, and those already there are
// dropped within half a second. When the result cannot be
// encoded the error names the field and nothing changes. change must not block
// or call g.
func (g *Gossip) UpdateMeta(change func(*Meta)) error {
	changed, err := g.changeMeta(func(m *Meta) {
		keyring := m.Keyring
		change(m)
		m.Keyring = keyring
	})
	if err != nil {
		return fmt.Errorf("update meta: %w", err)
	}
	if changed {
		signal(g.publish)
	}
	return nil
}

func (g *Gossip) changeMeta(change func(*Meta)) (changed bool, err error) {
	g.metaMu.Lock()
	defer g.metaMu.Unlock()
	m := g.meta
	change(&m)
	if m == g.meta {
		return false, nil
	}
	if m.Role != g.meta.Role || m.ID != g.meta.ID {
		return false, errors.New("role and id cannot change")
	}
	b, err := encodeMeta(g.cfg.Label, m)
	if err != nil {
		return false, err
	}
	if m.ClusterID != g.meta.ClusterID {
		g.cluster.Store(&m.ClusterID)
		g.seeker.again.Store(true) // who refused us may not any more
	}
	g.meta = m
	g.metaBytes.Store(&b)
	return true, nil
}

// noteChange tells both who listens outside and the notify loop. It never
// blocks: memberlist calls it with its lock held.
func (g *Gossip) noteChange() {
	signal(g.changed)
	signal(g.dirty)
}

// signal puts a token into a channel of capacity 1 unless one is there.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// notifyLoop counts members and calls OnChange and OnConflict.
func (g *Gossip) notifyLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-g.conflicts:
			g.cfg.OnConflict(c)
			continue
		case <-g.dirty:
		}
		c := g.table.counts()
		g.cfg.Observer.Members(c[Alive], c[Leaving], c[Left], c[Dead])
		if g.cfg.OnChange != nil {
			g.cfg.OnChange()
		}
	}
}

// publishTimeout bounds the wait until an update has been sent often enough.
const publishTimeout = time.Second

// publishLoop tells the others what UpdateMeta changed.
func (g *Gossip) publishLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.publish:
		}
		g.updateNode(publishTimeout)
	}
}

func (g *Gossip) updateNode(timeout time.Duration) {
	g.updating <- struct{}{}
	defer func() { <-g.updating }()
	ml := g.ml.Load()
	if ml == nil {
		return
	}
	// A timeout only means that it is still being sent.
	if err := ml.UpdateNode(timeout); err != nil {
		g.log.Debug("gossip update is still under way", "error", err)
	}
}
