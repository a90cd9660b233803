package api

import (
	"sync"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// maxQueued bounds the changes that wait for one worker, about 1.5 MB. Beyond
// it the queue is dropped and the worker is sent the full list.
const maxQueued = 1 << 15

// stream is one attached session: what waits to be sent to its worker, and what
// the worker last said. One goroutine writes (write.go), one reads (read.go);
// the hub and the store's callbacks put things in.
type stream struct {
	hub     *hub
	id      state.SessionID
	worker  string
	addr    string
	program string          // version of the worker's program; set before attach
	by      access.Identity // whose stream it is; set before attach
	term    uint64          // set by attach
	wake    chan struct{}   // capacity 1: there is something to send
	done    chan struct{}   // closed when the handler returns
	slots   chan struct{}   // one per command of the worker that waits
	renewed func(raftstore.KeepAlive, error)
	resumed bool
	// confidential: keys may be sent; set before attach.
	confidential bool
	// Of the writer alone. gossips is known once opened has been sent.
	sentOpened, sentClosed, gossips bool

	mu sync.Mutex
	// To be sent.
	queue   []change
	spare   []change // the writer's last queue, to be used again
	index   uint64   // log index of the newest change
	ordered bool     // see merger
	full    bool     // send the full list, which replaces queue
	ack     pb.KeepAliveResponse
	ackDue  bool
	replies []*pb.AttachResponse
	// setupDue: the worker is to be told the keys of gossip.
	setupDue bool
	ping     bool
	pong     chan struct{} // closed by the next pong; nil: nobody waits
	closed   *pb.ErrorDetail
	gone     bool  // the session has ended: nothing can be released any more
	ended    error // ends the stream with a status
	// Keep-alives in flight, oldest first.
	seqs  [16]uint64
	first int
	count int
	// What the session holds: version counts changes, held is its sum at
	// heldAt. Recomputed when a keep-alive asks for it.
	version uint64
	held    uint64
	heldAt  uint64
	// The last difference between what runs and what is held.
	diff diff
	// Commands of the worker.
	ops     []op
	opsRun  bool
	leaving bool
	closing bool // CloseSession is among ops
	said    said
	counts  report
	account *account // of the process, from its first report on
}

// said is what the worker last reported.
type said struct {
	running, ready                             uint32
	overruns, fencingChecks, fencingRejections uint64
	longestPause                               int64 // ms
}

func newStream(h *hub, id state.SessionID, worker, addr string, resumed bool) *stream {
	st := &stream{
		hub: h, id: id, worker: worker, addr: addr, resumed: resumed,
		wake: make(chan struct{}, 1), done: make(chan struct{}), slots: make(chan struct{}, maxOps),
		version: 1, full: true,
	}
	st.renewed = st.onRenewed // bound once: nothing is allocated per keep-alive
	return st
}

// signal wakes the writer.
func (st *stream) signal() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// end ends the stream with a status, as soon as the writer looks.
func (st *stream) end(why error) {
	st.mu.Lock()
	if st.ended == nil {
		st.ended = why
	}
	st.mu.Unlock()
	st.signal()
}

// close tells the worker that its session is over.
func (st *stream) close(d *pb.ErrorDetail) {
	st.mu.Lock()
	st.closeLocked(d)
	st.mu.Unlock()
	st.signal()
}

func (st *stream) closeLocked(d *pb.ErrorDetail) {
	if st.closed == nil {
		st.closed = d
	}
}

// resync makes the writer send the full list.
func (st *stream) resync() {
	st.mu.Lock()
	st.resyncLocked()
	st.mu.Unlock()
	st.signal()
}

func (st *stream) resyncLocked() {
	st.full, st.ordered = true, false
	st.queue = st.queue[:0]
	st.version++
}

// reply puts an answer to one of the worker's commands into the queue.
func (st *stream) reply(r *pb.AttachResponse) {
	st.mu.Lock()
	st.replies = append(st.replies, r)
	st.mu.Unlock()
	st.signal()
}

// deliver takes events of this session. It runs under the store's lock.
func (st *stream) deliver(s *state.State, evs []state.Event, index uint64, now time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for i := range evs {
		st.deliverLocked(s, &evs[i], now)
	}
	st.index = index
	if st.leaving {
		if sess, ok := s.Session(st.id); ok {
			st.closeIfEmptyLocked(sess)
		}
	}
	st.signal()
}

func (st *stream) deliverLocked(s *state.State, ev *state.Event, now time.Duration) {
	switch ev.Kind {
	case state.KindGrant:
		st.changeLocked(change{kind: changeGrant, token: ev.Token, from: ev.From, keyspace: ev.Keyspace, partition: ev.Partition, cause: ev.Cause})
	case state.KindDrain:
		st.ordered = true
		if ks, ok := s.Keyspace(ev.Keyspace); ok {
			if mv, ok := ks.Move(ev.Partition); ok && mv.Token == ev.Token {
				by := now + max(0, mv.Deadline-s.Now())
				st.changeLocked(change{kind: changeDrain, token: ev.Token, drainBy: by, keyspace: ev.Keyspace, partition: ev.Partition, cause: ev.Cause})
			}
		}
	case state.KindRevoke:
		st.ordered = true
		st.changeLocked(change{kind: changeRevoke, token: ev.Token, keyspace: ev.Keyspace, partition: ev.Partition, cause: ev.Cause})
	case state.KindRelease, state.KindExpire:
		st.ordered = true // it may be granted again before the writer looks
		st.version++
	case state.KindSessionLeave:
		st.leaving = true
	case state.KindSessionClose:
		st.gone = true
		st.closeLocked(closedDetail(pb.ReasonLeft, st.worker))
	case state.KindSessionExpire:
		st.gone = true
		st.closeLocked(closedDetail(pb.ReasonExpired, st.worker))
	case state.KindSessionBar:
		st.closeLocked(closedDetail(barReason(ev.Cause), st.worker))
	}
}

func (st *stream) changeLocked(c change) {
	st.version++
	switch {
	case st.full: // the list will show it
	case len(st.queue) >= maxQueued:
		st.resyncLocked()
	default:
		st.queue = append(st.queue, c)
	}
}

func barReason(c state.Cause) string {
	if c == state.CauseEvicted {
		return pb.ReasonEvicted
	}
	return pb.ReasonSuperseded
}

// closedDetail is the last word to a worker.
func closedDetail(reason, worker string) *pb.ErrorDetail {
	_, next, _ := rowOf(reason)
	return &pb.ErrorDetail{
		Reason: reason, Field: "session_id", Owner: worker,
		Message: "the session of worker " + worker + " is over (" + reason + "); " + next,
	}
}
