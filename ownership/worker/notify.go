package worker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// maxLogLines bounds the log lines that wait for a slow log.
const maxLogLines = 1024

// notifier calls what belongs to the program (observer, log) in a goroutine of
// its own: either may block without holding up a keep-alive.
type notifier struct {
	log      *slog.Logger
	observer *Observer
	wake     chan struct{} // capacity 1

	mu      sync.Mutex
	calls   []func()
	lines   int
	lost    int // log lines dropped
	ack     time.Duration
	acked   bool
	stopped bool
}

func newNotifier(log *slog.Logger, o *Observer) *notifier {
	return &notifier{log: log, observer: o, wake: make(chan struct{}, 1)}
}

// run calls in order until stop has been called and nothing waits.
func (n *notifier) run() {
	for range n.wake {
		for {
			calls, ack, acked, stopped := n.take()
			for _, f := range calls {
				f()
			}
			if acked {
				n.observer.KeepAliveAcked(ack)
			}
			if len(calls) > 0 || acked {
				continue
			}
			if stopped {
				return
			}
			break
		}
	}
}

func (n *notifier) take() (calls []func(), ack time.Duration, acked, stopped bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	calls, n.calls = n.calls, nil
	ack, acked = n.ack, n.acked
	n.acked, n.lines = false, 0
	if n.lost > 0 {
		lost := n.lost
		n.lost = 0
		calls = append(calls, func() { n.log.Warn("log lines were dropped: the log is too slow", "lines", lost) })
	}
	return calls, ack, acked, n.stopped
}

func (n *notifier) signal() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *notifier) call(f func()) {
	n.mu.Lock()
	n.calls = append(n.calls, f)
	n.mu.Unlock()
	n.signal()
}

// say writes a log line, or counts it if the log cannot keep up.
func (n *notifier) say(l logLine) {
	n.mu.Lock()
	if n.lines < maxLogLines {
		n.lines++
		n.calls = append(n.calls, func() { n.log.Log(context.Background(), l.level, l.msg, l.args...) })
	} else {
		n.lost++
	}
	n.mu.Unlock()
	n.signal()
}

// confirmed tells the newest acknowledgement only: nobody needs an older one,
// and an observer that never returns must not fill the memory.
func (n *notifier) confirmed(sent time.Duration) {
	if n.observer.KeepAliveAcked == nil {
		return
	}
	n.mu.Lock()
	n.ack, n.acked = max(n.ack, sent), true
	n.mu.Unlock()
	n.signal()
}

func (n *notifier) granted(ls []*Lease, at time.Duration) {
	if len(ls) == 0 {
		return
	}
	ls = slices.Clone(ls) // the loop uses its own again
	n.call(func() {
		for _, l := range ls {
			n.observer.Granted(l, at)
		}
	})
}

func (n *notifier) ended(l *Lease, cause error, at time.Duration) {
	if f := n.observer.ContextEnd; f != nil {
		n.call(func() { f(l, cause, at) })
	}
}

// stop lets run return when all has been told.
func (n *notifier) stop() {
	n.mu.Lock()
	n.stopped = true
	n.mu.Unlock()
	n.signal()
}
