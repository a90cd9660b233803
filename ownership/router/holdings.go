package router

import (
	"sync"
)

// Holder knows which leases this process has. *Holdings is one.
type Holder interface {
	// Holds returns the token of the lease that this process holds for a
	// partition, and whether it holds one.
	Holds(keyspace string, partition uint32) (token uint64, ok bool)
}

// Locator tells who owns a partition. *Router is one.
type Locator interface {
	At(keyspace string, partition uint32) (Route, error)
}

// Holdings is a Holder that handlers tell of their leases:
//
//	func handle(ctx context.Context, l *worker.Lease) error {
//		defer held.Add(l.Keyspace(), l.Partition(), uint64(l.Token()), l.Check)()
//		…
//	}
//
// The zero Holdings is empty and ready. It is safe for concurrent use.
type Holdings struct {
	mu   sync.RWMutex // guards held
	held map[askKey]holding
}

type holding struct {
	token uint64
	check func() error
}

// Add says that this process holds a lease until the returned function is
// called, which may be done more than once. check, which may be nil, is asked
// each time whether the lease still is held: a worker's Lease.Check looks at
// the clock. Of two leases of one partition the higher token counts.
func (h *Holdings) Add(keyspace string, partition uint32, token uint64, check func() error) (remove func()) {
	key := askKey{keyspace, partition}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held == nil {
		h.held = map[askKey]holding{}
	}
	if h.held[key].token < token {
		h.held[key] = holding{token, check}
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.held[key].token == token {
			delete(h.held, key)
		}
	}
}

// Holds implements Holder.
func (h *Holdings) Holds(keyspace string, partition uint32) (token uint64, ok bool) {
	h.mu.RLock()
	at, ok := h.held[askKey{keyspace, partition}]
	h.mu.RUnlock()
	if !ok || at.check != nil && at.check() != nil {
		return 0, false
	}
	return at.token, true
}

// verdict is what an owner's side decides about one request: nil to serve it,
// or who to name instead.
func judgeHolder(h Holder, where Locator, keyspace string, partition uint32, expected uint64) (hint Hint, serve bool) {
	// Who sent the request may know of a later lease than this process: then
	// this one is over, whatever the clock here says.
	if token, ok := h.Holds(keyspace, partition); ok && token >= expected {
		return Hint{}, true
	}
	if where == nil {
		return Hint{}, false
	}
	at, err := where.At(keyspace, partition)
	if err != nil {
		return Hint{}, false
	}
	return Hint{Owner: at.Owner, Endpoint: at.Endpoint, Token: at.Token}, false
}
