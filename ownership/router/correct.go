package router

import (
	"time"
)

// Hint is what somebody who was taken for the owner says: not me, but him.
type Hint struct {
	Owner    string // worker id
	Endpoint string
	Token    uint64
}

// hinting is a row that only a hint vouches for.
type hinting struct {
	token uint64
	since time.Time
}

const (
	maxToken   = 1<<53 - 1
	maxTextLen = 256 // bytes of a worker id or an endpoint
	// hintPatience is how long the servers have to confirm a hint before they
	// are asked.
	hintPatience = 2 * time.Second
	// tokenDay is by how much tokens can rise within a day, where they follow
	// the clock: centiseconds times 2^13. A token further ahead of all others
	// was not made by this cluster.
	tokenDay = 24 * 60 * 60 * 100 << 13
)

// Correct takes in a hint about a partition, and reports whether it was news:
// only a higher token than the table has is. The table shows it at once; if no
// server confirms it within 2 s, one is asked, so that a wrong hint does not
// last.
func (r *Router) Correct(keyspace string, partition uint32, h Hint) bool {
	var told []Route
	r.mu.Lock()
	ok := r.correctLocked(keyspace, partition, h)
	if ok {
		told = r.showLocked()
	}
	r.mu.Unlock()
	if !ok {
		r.refused.Add(1)
		return false
	}
	r.hints.Add(1)
	r.nudge()
	r.tell(told)
	return true
}

func (r *Router) correctLocked(keyspace string, partition uint32, h Hint) bool {
	t := r.tableLocked(keyspace)
	switch {
	case t == nil || partition >= t.partitions:
		return false
	case h.Owner == "" || len(h.Owner) > maxTextLen || len(h.Endpoint) > maxTextLen:
		return false
	case h.Token <= t.get(partition).token() || h.Token > min(maxToken, r.highest+tokenDay):
		return false
	}
	t.put(news{partition: partition, token: h.Token, worker: h.Owner, endpoint: h.Endpoint})
	t.hinted[partition] = hinting{token: h.Token, since: time.Now()}
	return true
}
