package raftstore

import (
	"context"
	"sync"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// signals tells any number of listeners that something has changed. A listener
// that is behind finds one signal, however many changes there were.
type signals struct {
	mu sync.Mutex
	to map[chan<- struct{}]int
}

func (n *signals) add(ch chan<- struct{}) (stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.to == nil {
		n.to = make(map[chan<- struct{}]int)
	}
	n.to[ch]++
	return sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.to[ch]--; n.to[ch] == 0 {
			delete(n.to, ch)
		}
	})
}

func (n *signals) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for ch := range n.to {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// Notify makes the store send on ch, which must have capacity 1, after entries
// have been applied or a snapshot installed. Sends that find ch full are
// dropped: the signal that is there covers them. stop ends it.
func (s *Store) Notify(ch chan<- struct{}) (stop func()) { return s.changed.add(ch) }

// NotifyLeader is Notify for changes of LeaderID and IsLeader.
func (s *Store) NotifyLeader(ch chan<- struct{}) (stop func()) { return s.leaderChanged.add(ch) }

// Watcher reads the events of the state in order. There is no queue behind it:
// it reads the ledger in the state, which keeps the last events. A Watcher is
// for one goroutine.
type Watcher struct {
	s       *Store
	cluster string
	after   uint64
	wake    chan struct{}
	stop    func()
}

// Watch returns a watcher of all events after revision after (0: all that are
// kept). Revisions are the same on all servers, so a watcher may go on at
// another one from where it was. cluster, when not empty, is the cluster id
// that the revision belongs to. Stop must be called in the end.
func (s *Store) Watch(cluster string, after uint64) *Watcher {
	w := &Watcher{s: s, cluster: cluster, after: after, wake: make(chan struct{}, 1)}
	w.stop = s.Notify(w.wake)
	return w
}

// Stop ends the watch.
func (w *Watcher) Stop() { w.stop() }

// Revision is that of the last event returned.
func (w *Watcher) Revision() uint64 { return w.after }

// maxEvents is how many events Next returns at once.
const maxEvents = 1024

// Next appends the next events, at least one, to buf. It waits for them until
// ctx ends. If the watcher has fallen behind what the ledger keeps, or its
// revision belongs to another cluster, it gets a *state.Refusal with
// ReasonCompacted and, in Revision, the oldest revision that it can go on from:
// list again.
func (w *Watcher) Next(ctx context.Context, buf []state.Event) ([]state.Event, error) {
	for {
		var err error
		n := len(buf)
		w.s.View(func(st *state.State) {
			id := st.ClusterID()
			if w.cluster != "" && id != "" && id != w.cluster {
				err = &state.Refusal{Reason: state.ReasonCompacted, What: "watch", Field: "cluster", Value: w.cluster,
					Limit: "this is cluster " + id, Revision: st.Revision()}
				return
			}
			if w.after < st.Revision() {
				buf, err = st.Events(w.after, maxEvents, buf)
			}
		})
		if err != nil {
			return buf, err
		}
		if len(buf) > n {
			w.after = buf[len(buf)-1].Revision
			return buf, nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return buf, context.Cause(ctx)
		}
	}
}
