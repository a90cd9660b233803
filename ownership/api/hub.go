package api

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/metrics"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// hub knows the session streams attached to this server while it leads, and
// carries what the log says to them.
type hub struct {
	store  Store
	ctl    Controller
	clock  Clock
	log    *slog.Logger
	server string
	label  string
	gossip Gossip // nil: there is none
	wall   func() time.Time
	meter  *metrics.Server

	routines *routines

	mu      sync.Mutex
	term    uint64        // 0: not leading
	since   time.Duration // clock reading of the beginning of term
	streams map[state.SessionID]*stream
	// relayed has when sessions without a stream here last sent a keep-alive
	// by a single call: they are in touch, too.
	relayed map[state.SessionID]time.Duration
	// met has the sessions that have attached in this term: those a new leader
	// need not wait for.
	met map[state.SessionID]struct{}
	// accounts have locks of their own, which come after mu.
	accounts accounts
	// changed is closed and made anew when term changes.
	changed chan struct{}

	buf []state.Event // of onApply
}

func newHub(cfg *Config, r *routines) *hub {
	h := &hub{
		wall: cfg.Wall, meter: cfg.Metrics, routines: r,
		store: cfg.Store, ctl: cfg.Controller, clock: cfg.Clock, log: cfg.Logger, server: cfg.ServerID,
		label: cfg.GossipLabel, gossip: cfg.Gossip,
		streams: map[state.SessionID]*stream{},
		relayed: map[state.SessionID]time.Duration{},
		met:     map[state.SessionID]struct{}{},
		changed: make(chan struct{}),
	}
	h.accounts.reset()
	return h
}

// begin opens the hub for a term.
func (h *hub) begin(term uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.term, h.since = term, h.clock.Now()
	clear(h.relayed)
	clear(h.met)
	h.accounts.reset()
	close(h.changed)
	h.changed = make(chan struct{})
}

// end closes the hub and ends every stream with why.
func (h *hub) end(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.term = 0
	for id, st := range h.streams {
		st.end(why)
		delete(h.streams, id)
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// leading tells whether sessions are served here.
func (h *hub) leading() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.term != 0
}

// awaitLead waits until this server leads, for a server that has just been
// elected and has not applied all of the log yet.
func (h *hub) awaitLead(ctx context.Context, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		h.mu.Lock()
		term, changed := h.term, h.changed
		h.mu.Unlock()
		if term != 0 {
			return true
		}
		if !h.store.IsLeader() {
			return false
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// attach makes st the stream of its session. An older stream of the same
// session is a connection that the worker has given up.
func (h *hub) attach(st *stream) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.term == 0 {
		return false
	}
	if old := h.streams[st.id]; old != nil {
		old.end(failf(pb.ReasonReplaced, "session %d is attached anew from %s", st.id, st.addr))
	}
	delete(h.relayed, st.id)
	h.met[st.id] = struct{}{}
	if !st.resumed {
		h.accounts.open(st.id)
	}
	st.term = h.term
	h.streams[st.id] = st
	return true
}

// detach forgets st. It reports whether st was still its session's stream.
func (h *hub) detach(st *stream) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams[st.id] != st {
		return false
	}
	delete(h.streams, st.id)
	return true
}

// attached returns the stream of a session, or nil.
func (h *hub) attached(id state.SessionID) *stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams[id]
}

// awaited tells whether a session that had an earlier leader may still be on its
// way to this one, and for how long.
func (h *hub) awaited(id state.SessionID, grace time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, met := h.met[id]; met || h.term == 0 {
		return 0
	}
	return grace - (h.clock.Now() - h.since)
}

// relay notes a keep-alive that came by a single call.
func (h *hub) relay(id state.SessionID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.term != 0 && h.streams[id] == nil {
		h.relayed[id] = h.clock.Now()
	}
}

// heard is how long ago a session without a stream sent a keep-alive here.
func (h *hub) heard(id state.SessionID) (ago time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.relayed[id]
	return h.clock.Now() - at, ok
}

// figures are how many streams are attached here, and the longest pause that
// any of their workers reports.
func (h *hub) figures() (attached int, pause time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, st := range h.streams {
		pause = max(pause, time.Duration(st.says().longestPause)*time.Millisecond)
	}
	return len(h.streams), pause
}

// eventsPerRead bounds how much of the ledger is copied at a time.
const eventsPerRead = 4096

// onApply hands the events (from, to] to the streams they concern. It runs
// under the store's lock.
func (h *hub) onApply(s *state.State, from, to, index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.met) == 0 && len(h.relayed) == 0 {
		return
	}
	for from < to {
		evs, err := s.Events(from, eventsPerRead, h.buf[:0])
		if err != nil || len(evs) == 0 {
			h.resyncLocked() // more happened than the ledger holds
			h.tellKeysLocked()
			return
		}
		h.buf = evs
		from = evs[len(evs)-1].Revision
		h.deliverLocked(s, evs, index)
	}
}

// deliverLocked groups what follows one another for one session, so that each
// stream is locked once per run of events.
func (h *hub) deliverLocked(s *state.State, evs []state.Event, index uint64) {
	now := h.clock.Now()
	for i := 0; i < len(evs); {
		ev := &evs[i]
		if concernsAll(ev.Kind) {
			if ev.Kind == state.KindKeyring {
				h.tellKeysLocked()
			} else {
				h.resyncLocked()
			}
			i++
			continue
		}
		n := 1
		for i+n < len(evs) && evs[i+n].Session == ev.Session && !concernsAll(evs[i+n].Kind) {
			n++
		}
		if st := h.streams[ev.Session]; st != nil {
			st.deliver(s, evs[i:i+n], index, now)
		}
		// The end of a session is the last of its events.
		if k := evs[i+n-1].Kind; k == state.KindSessionExpire || k == state.KindSessionClose {
			delete(h.relayed, ev.Session)
			delete(h.met, ev.Session)
			h.accounts.end(ev.Session)
		}
		i += n
	}
}

// concernsAll tells whether an event is for every stream.
func concernsAll(k state.Kind) bool { return k == state.KindKeyspaceDelete || k == state.KindKeyring }

// resyncLocked makes every stream send its full list.
func (h *hub) resyncLocked() {
	for _, st := range h.streams {
		st.resync()
	}
}
