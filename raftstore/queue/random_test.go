package queue

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

var seeds = flag.Int("seeds", 40, "random histories of queues")

// TestTokensRiseWhateverHappens lets sessions come, wait, give up and end at
// servers that lag and are restored from snapshots, and leaders that are deposed
// with calls on the way. Whoever is let in is first in the true queue at that
// moment, with a token above all before; and the first is always let in.
func TestTokensRiseWhateverHappens(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, g *group) { newHistory(t, g, uint64(seed)).run(200) })
		})
	}
}

type history struct {
	t     *testing.T
	g     *group
	rnd   *rand.Rand
	names []string
	next  state.SessionID
	alive []state.SessionID
	calls map[*call]bool
	last  map[string]uint64 // token of the last one that was first
	// seen has, by token, the log's length when that place was last seen first.
	seen map[uint64]int
	in   int
}

func newHistory(t *testing.T, g *group, seed uint64) *history {
	h := &history{
		t: t, g: g, rnd: rand.New(rand.NewPCG(seed, 1)), names: []string{"a", "a/b"},
		calls: map[*call]bool{}, last: map[string]uint64{}, seen: map[uint64]int{},
	}
	g.proposed = h.note
	return h
}

// note remembers who is first now.
func (h *history) note() {
	for _, name := range h.names {
		if kv := h.first(name); kv != nil {
			if kv.Token < h.last[name] {
				h.t.Errorf("token %d is first of %q after %d", kv.Token, name, h.last[name])
			}
			h.last[name], h.seen[kv.Token] = kv.Token, len(h.g.log)
		}
	}
}

func (h *history) run(steps int) {
	for range steps {
		h.step()
		synctest.Wait()
		h.judge()
	}
	for _, s := range h.g.servers {
		s.lags = false
		s.catchUp()
	}
	synctest.Wait()
	h.judge()
	if h.in < 10 {
		h.t.Errorf("only %d were let in: the history is too short", h.in)
	}
	for c := range h.calls {
		c.cancel(errGaveUp)
	}
	synctest.Wait()
}

func (h *history) step() {
	pick := func() (state.SessionID, bool) {
		if len(h.alive) == 0 {
			return 0, false
		}
		return h.alive[h.rnd.IntN(len(h.alive))], true
	}
	server := h.g.servers[h.rnd.IntN(len(h.g.servers))]
	name := h.names[h.rnd.IntN(len(h.names))]
	switch n := h.rnd.IntN(100); {
	case n < 25:
		h.next++
		h.alive = append(h.alive, h.g.session(h.next))
		h.calls[server.acquire(name, h.next)] = true
	case n < 40:
		if id, ok := pick(); ok {
			h.calls[server.acquire(name, id)] = true
		}
	case n < 60: // the first one is done
		if kv := h.first(name); kv != nil {
			h.g.delete(kv.Key)
		}
	case n < 70:
		if id, ok := pick(); ok {
			h.g.end(id)
			for i, a := range h.alive {
				if a == id {
					h.alive = append(h.alive[:i], h.alive[i+1:]...)
					break
				}
			}
		}
	case n < 80:
		for c := range h.calls {
			cause := errGaveUp
			if h.rnd.IntN(2) == 0 {
				cause = errDeposed
			}
			c.cancel(cause)
			break
		}
	case n < 85:
		server = h.g.servers[1+h.rnd.IntN(2)]
		server.lags = !server.lags
		if !server.lags {
			server.catchUp()
		}
	case n < 92:
		if server.lags {
			server.step1()
		}
	case n < 95:
		h.g.propose(&state.Compact{Revision: revisionOf(h.g.servers[0])})
	case n < 97:
		if server != h.g.servers[0] {
			server.restore(h.g.servers[0])
		}
	default:
		h.g.put(fmt.Sprintf("%s/%x", name, h.rnd.IntN(50)+1000), 0)
	}
}

// step1 applies one entry, if there is one more.
func (r *replica) step1() {
	r.g.mu.Lock()
	more := r.applied < len(r.g.log)
	r.g.mu.Unlock()
	if more {
		r.step()
	}
}

// first of the true queue, found without any of the code under test.
func (h *history) first(name string) (first *mvcc.KeyValue) {
	h.g.servers[0].View(func(s *state.State) {
		for kv := range s.Keys().Keys() {
			if kv.Lease == 0 || !bytes.Equal(kv.Key, fmt.Appendf(nil, "%s/%x", name, kv.Lease)) {
				continue
			}
			if first == nil || kv.CreateRevision < first.CreateRevision {
				first = kv
			}
		}
	})
	return first
}

func (h *history) judge() {
	h.t.Helper()
	for c := range h.calls {
		select {
		case <-c.done:
			delete(h.calls, c)
			c.cancel(nil)
			h.over(c)
		default:
		}
	}
	for c := range h.calls {
		kv := h.first(string(c.r.Name))
		if kv != nil && kv.Lease == int64(c.r.Session) && !h.anyLags() {
			h.t.Fatalf("session %d is first of %q and waits", c.r.Session, c.r.Name)
		}
	}
}

func (h *history) anyLags() bool {
	for _, s := range h.g.servers {
		if s.lags {
			return true
		}
	}
	return false
}

func (h *history) over(c *call) {
	h.t.Helper()
	name := string(c.r.Name)
	switch {
	case c.err == nil:
		h.in++
		kv := h.first(name)
		switch {
		case kv != nil && kv.Token == c.place.Token && bytes.Equal(kv.Key, c.place.Key):
		case !h.anyLags():
			h.t.Fatalf("session %d was let in as first of %q with token %d; that is %+v", c.r.Session, name, c.place.Token, kv)
		case h.seen[c.place.Token] < c.begun: // an answer of a server that lags may come late
			h.t.Fatalf("session %d was let in as first of %q with token %d, which it was not since it asked", c.r.Session, name, c.place.Token)
		}
	case errors.Is(c.err, mvcc.ErrLeaseNotFound):
		h.g.servers[0].View(func(s *state.State) {
			if _, ok := s.Session(c.r.Session); ok {
				h.t.Fatalf("session %d of %q lives, and was told that it does not", c.r.Session, name)
			}
		})
	case errors.Is(c.err, errGaveUp), errors.Is(c.err, errDeposed), errors.Is(c.err, ErrPlaceGone):
	default:
		h.t.Fatalf("session %d of %q: %v", c.r.Session, name, c.err)
	}
}
