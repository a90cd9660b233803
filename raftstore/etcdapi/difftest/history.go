package difftest

import (
	"fmt"
	"math"
	"sort"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// request is what a client wants of one key.
type request struct {
	kind   string // "get", "put", "cas", "delete"
	key    string
	value  string // that is written: no two writes have the same
	expect int64  // mod revision that a cas asks for, 0: absent
	marker string // key that a write makes besides, in the same transaction
}

// response is what it got. Of a get and a cas that did not hold: what is
// there; of a write: its revision.
type response struct {
	done     bool // a write has changed something
	value    string
	revision int64 // of the write, or the mod revision that was read
	header   int64 // revision of the answer
}

// record is one operation of the history, times in nanoseconds since its
// start.
type record struct {
	client       int
	req          request
	resp         response
	call, ret    int64
	unknown      bool // no answer: a write may or may not have happened
	neverApplied bool // no answer, and no event
}

// history is what all clients have done. Methods may be called from any
// goroutine.
type history struct {
	start time.Time

	mu      sync.Mutex
	records []record
}

func newHistory() *history { return &history{start: time.Now()} }

func (h *history) now() int64 { return int64(time.Since(h.start)) }

func (h *history) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.records)
}

func (h *history) add(r record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, r)
}

// change is one event of the complete list of events.
type change struct {
	key, value string
	delete     bool
	revision   int64
	prev       string // what the event says was there before
	hasPrev    bool
	seen       int64 // when
}

func changeOf(e *clientv3.Event, seen int64) change {
	c := change{key: string(e.Kv.Key), value: string(e.Kv.Value), delete: e.Type == clientv3.EventTypeDelete, revision: e.Kv.ModRevision, seen: seen}
	if e.PrevKv != nil {
		c.prev, c.hasPrev = string(e.PrevKv.Value), true
	}
	return c
}

// resolve settles the writes without an answer by the complete list of events:
// every write leaves a marker of its own.
func (h *history) resolve(events []change) {
	markers := map[string]change{}
	for _, e := range events {
		markers[e.key] = e
	}
	for i := range h.records {
		r := &h.records[i]
		if !r.unknown {
			continue
		}
		mark, ok := markers[r.req.marker]
		if !ok {
			r.neverApplied = true
			continue
		}
		r.unknown = false
		r.resp = response{done: true, revision: mark.revision, value: r.req.value, header: mark.revision}
		r.ret = mark.seen // it had happened by then
		if r.ret <= r.call {
			r.ret = r.call + 1
		}
	}
}

// operations of the history for porcupine, without those that never happened.
func (h *history) operations() []porcupine.Operation {
	var ops []porcupine.Operation
	for _, r := range h.records {
		if r.neverApplied {
			continue
		}
		ret := r.ret
		if r.unknown {
			ret = math.MaxInt64
		}
		ops = append(ops, porcupine.Operation{ClientId: r.client, Input: r.req, Output: r.resp, Call: r.call, Return: ret})
	}
	return ops
}

// checkOrder checks what holds across keys: who asks after an answer of some
// revision was given gets none of a lower one, and a later write a higher one.
func (h *history) checkOrder() error {
	type point struct {
		at       int64
		r        *record
		returned bool
	}
	var points []point
	for i := range h.records {
		if r := &h.records[i]; !r.unknown && !r.neverApplied {
			points = append(points, point{r.call, r, false}, point{r.ret, r, true})
		}
	}
	sort.SliceStable(points, func(i, j int) bool { return points[i].at < points[j].at })
	highest := int64(0)
	floor := map[*record]int64{}
	for _, p := range points {
		if !p.returned {
			floor[p.r] = highest
			continue
		}
		rev := p.r.resp.header
		if rev < floor[p.r] || p.r.resp.done && rev <= floor[p.r] {
			return fmt.Errorf("%v was answered at revision %d, after an answer of revision %d", p.r.req, rev, floor[p.r])
		}
		highest = max(highest, rev)
	}
	return nil
}
