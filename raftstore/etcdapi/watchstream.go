package etcdapi

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// watcherState is where a watcher stands.
type watcherState uint8

const (
	watcherBehind watcherState = iota // its stream reads history for it
	watcherLive                       // the hub tells it
	watcherDead                       // cancelled, or its history was compacted
)

// watcher is one watch of a stream. All is guarded by hub.mu but what never
// changes; next belongs to the stream's sender while the watcher is behind.
type watcher struct {
	stream *watchStream
	id     int64
	spec   spec
	start  int64 // as asked for, 0: from now on. While it lies in the future, there are no marks
	next   int64 // all below has been told or queued; above it, too, while live
	state  watcherState
	slot   int  // in its group's members, while live
	notify bool // wants to hear of progress when nothing happens
	busy   bool // has had events since the last look
}

// watchStream is one client's stream of watches: a queue that the hub fills and
// one goroutine, send, empties. That goroutine alone writes to the stream, and
// reads history for the watchers that are behind, as fast as the client takes it.
type watchStream struct {
	h      *hub
	caller access.Identity

	// Guarded by hub.mu.
	watchers map[int64]*watcher
	nextID   int64
	lagging  int   // watchers that are behind
	wanted   int64 // tell the progress when the hub is here; 0: not asked
	touched  bool
	closed   bool

	mu     sync.Mutex
	queue  []item
	spare  []item
	behind []*watcher
	last   *payload // of the queue: its bytes are counted once

	bytes    atomic.Int64 // that wait to be sent
	controls atomic.Int64 // answers among the items
	ready    chan struct{}
	room     chan struct{}
}

// item is one message that waits: a payload for a watcher, or an answer.
type item struct {
	id      int64
	payload *payload
	control *pb.WatchResponse
	cost    int64
}

// itemCost is what an item takes beside the payload, in bytes.
const itemCost = 64

func (h *hub) newStream(caller access.Identity) *watchStream {
	s := &watchStream{
		h: h, caller: caller, watchers: map[int64]*watcher{},
		ready: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams[s] = struct{}{}
	return s
}

// size is how many watchers there are, and streams that they are in.
func (h *hub) size() (watchers, streams, behind int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams {
		watchers += len(s.watchers)
		behind += s.lagging
	}
	return watchers, len(h.streams), behind
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// signal wakes the sender.
func (s *watchStream) signal() { signal(s.ready) }

// offer queues a payload unless the queue is full.
func (s *watchStream) offer(id int64, p *payload) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	cost := int64(itemCost)
	if p != s.last {
		cost += int64(p.size)
	}
	if waits := s.bytes.Load(); waits > 0 && waits+cost > int64(s.h.limits.queue) {
		return false
	}
	s.last = p
	s.bytes.Add(cost)
	s.queue = append(s.queue, item{id: id, payload: p, cost: cost})
	return true
}

// control queues an answer. Their number is bounded by receiving no requests
// while many wait.
func (s *watchStream) control(m *pb.WatchResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.controls.Add(1)
	s.bytes.Add(itemCost)
	s.queue = append(s.queue, item{control: m, cost: itemCost})
}

// later leaves a watcher to the sender, after all that is in the queue.
func (s *watchStream) later(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind = append(s.behind, w)
}

// take returns what waits, and one watcher that is behind and all of whose
// messages have been sent when these have been.
func (s *watchStream) take() (items []item, w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items, s.queue, s.spare = s.queue, s.spare[:0], s.queue
	s.last = nil
	if len(s.behind) > 0 {
		w = s.behind[0]
		s.behind[0] = nil
		s.behind = s.behind[1:]
	}
	return items, w
}

// send writes to the client until ctx ends or write fails.
func (s *watchStream) send(ctx context.Context, write func(*pb.WatchResponse) error) error {
	interval := s.h.limits.progress
	// Clients that came back together are not told all together.
	tick := time.NewTicker(interval + rand.N(interval/10+1))
	defer tick.Stop()
	var read chunk
	for {
		items, behind := s.take()
		if err := s.sendAll(items, write); err != nil {
			return err
		}
		if behind != nil {
			if err := s.catchUp(behind, &read, write); err != nil {
				return err
			}
		} else {
			read = chunk{}
		}
		if behind != nil || len(items) > 0 {
			select {
			case <-tick.C:
				s.h.tellQuiet(s)
			case <-ctx.Done():
				return context.Cause(ctx)
			default:
			}
			continue
		}
		select {
		case <-s.ready:
		case <-tick.C:
			s.h.tellQuiet(s)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *watchStream) sendAll(items []item, write func(*pb.WatchResponse) error) error {
	for i := range items {
		it := items[i]
		items[i] = item{}
		if it.control != nil {
			if err := write(it.control); err != nil {
				return err
			}
			s.controls.Add(-1)
			signal(s.room)
		} else if err := sendPayload(it.id, it.payload, write); err != nil {
			return err
		}
		s.bytes.Add(-it.cost)
	}
	return nil
}

func sendPayload(id int64, p *payload, write func(*pb.WatchResponse) error) error {
	for part := range p.parts {
		if err := write(p.message(id, part)); err != nil {
			return err
		}
	}
	return nil
}

// waitRoom returns when few answers wait, so that a client that asks and does
// not read stops being heard.
func (s *watchStream) waitRoom(ctx context.Context) error {
	for s.controls.Load() >= int64(s.h.limits.controls) {
		select {
		case <-s.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
