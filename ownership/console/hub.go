package console

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/api"
)

const (
	// share is the part of one core that looking and encoding may take: the next
	// look is at least so many times the length of the last one away.
	share = 40
	// slowest is the pace that it may come down to.
	slowest = 10 * time.Second
	// quiet is how long nothing is said when nothing changes: a page that hears
	// less than that knows that it hears nothing at all.
	quiet = 5 * time.Second
	// maxViewers at a time.
	maxViewers = 64
)

// hub looks at the state for all viewers. What it looks with belongs to run; mu
// guards who watches.
type hub struct {
	cfg  *Config
	wake chan struct{} // capacity 1: somebody waits for a whole picture

	common common
	feeds  map[string]*feed
	costs  [4]time.Duration // of the last looks
	looks  int

	mu      sync.Mutex
	viewers map[*viewer]struct{}
	stopped bool
}

func newHub(cfg *Config) *hub {
	return &hub{
		cfg: cfg, wake: make(chan struct{}, 1),
		feeds: map[string]*feed{}, viewers: map[*viewer]struct{}{},
	}
}

func (h *hub) run(ctx context.Context) error {
	defer h.end()
	next := time.NewTimer(0)
	next.Stop()
	defer next.Stop()
	ticking := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.wake:
			if ticking {
				h.serve(h.present())
				continue
			}
		case <-next.C:
		}
		pace := h.tick()
		if ticking = pace > 0; ticking {
			next.Reset(pace)
		}
	}
}

// tick looks once, tells everybody, and returns when to look next; 0: nobody
// watches.
func (h *hub) tick() time.Duration {
	present := h.present()
	if len(present) == 0 {
		// What was seen is of no use to whoever comes next.
		h.common, h.feeds = common{}, map[string]*feed{}
		return 0
	}
	begin, now := time.Now(), h.cfg.Wall()
	h.arrange(present)
	h.common.src, h.common.gossip, h.common.listed = h.cfg.Source, h.cfg.Gossip, h.cfg.Source.Keyspaces()
	blocked := map[string]int{}
	for _, f := range h.feeds {
		f.look(h.cfg.Source, h.common.listed)
		if f.table != nil {
			blocked[f.name] = f.table.Blocked
		}
	}
	h.common.look(now, blocked)
	for _, f := range h.feeds {
		f.tell(now, &h.common)
	}
	h.serve(present)
	h.costs[h.looks%len(h.costs)] = time.Since(begin)
	h.looks++
	return h.pace()
}

// pace goes by the cheapest of the last looks: in the others, somebody else had the
// processor.
func (h *hub) pace() time.Duration {
	return min(max(h.cfg.Interval, share*slices.Min(h.costs[:])), slowest)
}

// arrange makes a feed for each keyspace that is watched, and drops the others.
func (h *hub) arrange(present []*viewer) {
	feeds := map[string]*feed{}
	for _, v := range present {
		f := feeds[v.keyspace]
		if f == nil {
			if f = h.feeds[v.keyspace]; f == nil {
				f = &feed{asked: v.keyspace}
			}
			f.viewers = f.viewers[:0]
			feeds[v.keyspace] = f
		}
		f.viewers = append(f.viewers, v)
	}
	h.feeds = feeds
}

// serve gives a whole picture to those who wait for one.
func (h *hub) serve(present []*viewer) {
	now := h.cfg.Wall()
	for _, v := range present {
		if !v.waits() {
			continue
		}
		f := h.feeds[v.keyspace]
		if f == nil {
			f = &feed{asked: v.keyspace}
			h.feeds[v.keyspace] = f
			f.look(h.cfg.Source, h.common.listed)
			f.begun(now)
		}
		v.begin(f.full(now, &h.common))
	}
}

// present are the viewers there are now.
func (h *hub) present() []*viewer {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*viewer, 0, len(h.viewers))
	for v := range h.viewers {
		all = append(all, v)
	}
	return all
}

// poke wakes run.
func (h *hub) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// join lets a viewer in. full: there are too many; stopped: the server ends.
func (h *hub) join(keyspace string) (v *viewer, full, stopped bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return nil, false, true
	}
	if len(h.viewers) >= maxViewers {
		return nil, true, false
	}
	v = &viewer{hub: h, keyspace: keyspace, behind: true, wake: make(chan struct{}, 1)}
	h.viewers[v] = struct{}{}
	return v, false, false
}

func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.viewers, v)
}

// end lets every viewer go.
func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	for v := range h.viewers {
		v.end()
	}
}

// feed is what is told of one keyspace. It belongs to the hub's goroutine.
type feed struct {
	asked   string // "": the first there is
	viewers []*viewer

	name  string
	n     uint32              // of a keyspace with too many partitions to be shown
	table *api.PartitionTable // nil: there are too many

	seq        uint64
	at         time.Time // of the last message
	generation uint64
	known      int  // names in table.Owners that have been told
	anew       bool // what was told before is of no use
	cached     []byte
}
