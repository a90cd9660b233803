package worker

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is one worker against a scripted cluster, in a bubble of fake time.
type bench struct {
	t    *testing.T
	c    *cluster
	w    *Worker
	log  *logBook
	stop context.CancelFunc // ends Run's context
	done chan error         // Run's result
	seen *evidence
}

// inBubble runs a test in fake time and stops the servers at its end.
func inBubble(t *testing.T, ttl time.Duration, servers int, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ttl, servers)
		b := &bench{t: t, c: c, log: &logBook{}, seen: newEvidence()}
		f(b)
		c.stop()
	})
}

func (b *bench) join(change ...func(*Config)) *Worker {
	b.t.Helper()
	cfg := Config{
		Servers: b.c.list(), ID: "w1", Gossip: GossipOff, Dialer: b.c.net.dial,
		Clock: bootclock.Monotonic(), Logger: slog.New(b.log), Observer: b.seen.observer(),
	}
	for _, f := range change {
		f(&cfg)
	}
	w, err := Join(b.t.Context(), cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.w = w
	return w
}

// run starts a Run of "orders" whose handler notes what it sees.
func (b *bench) run(h Handler, opts ...Option) {
	ctx, cancel := context.WithCancel(b.t.Context())
	b.stop = cancel
	b.done = make(chan error, 1)
	w := b.w
	go func() { b.done <- w.Run(ctx, "orders", h, opts...) }()
}

// finish ends the Run in an orderly way and returns its result.
func (b *bench) finish() error {
	b.stop()
	return <-b.done
}

// untilDone is the plainest handler: it works until it is told to stop.
func untilDone(ctx context.Context, l *Lease) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.Draining():
		return nil
	}
}

// evidence is what an observer wrote down.
type evidence struct {
	mu      sync.Mutex
	starts  []event
	ends    []event
	returns []event
	acks    []time.Duration
	changed chan struct{}
}

type event struct {
	l     *Lease
	at    time.Duration
	cause error
}

func newEvidence() *evidence { return &evidence{changed: make(chan struct{})} }

func (e *evidence) note(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *evidence) observer() *Observer {
	return &Observer{
		ContextStart: func(l *Lease, at time.Duration) {
			e.note(func() { e.starts = append(e.starts, event{l, at, nil}) })
		},
		ContextEnd: func(l *Lease, cause error, at time.Duration) {
			e.note(func() { e.ends = append(e.ends, event{l, at, cause}) })
		},
		HandlerReturn: func(l *Lease, err error, at time.Duration) {
			e.note(func() { e.returns = append(e.returns, event{l, at, err}) })
		},
		KeepAliveAcked: func(sent time.Duration) { e.note(func() { e.acks = append(e.acks, sent) }) },
	}
}

// wait blocks until ok holds of the evidence.
func (e *evidence) wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late := time.After(10 * time.Minute)
	for {
		e.mu.Lock()
		done, changed := ok(), e.changed
		e.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("never came: %s", what)
		}
	}
}

func (e *evidence) started(t *testing.T, n int) {
	t.Helper()
	e.wait(t, "started handlers", func() bool { return len(e.starts) >= n })
}

func (e *evidence) ended(t *testing.T, n int) []event {
	t.Helper()
	e.wait(t, "ended contexts", func() bool { return len(e.ends) >= n })
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]event(nil), e.ends...)
}

func (e *evidence) lastAck() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.acks[len(e.acks)-1]
}

func (e *evidence) counts() (starts, ends, returns int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.starts), len(e.ends), len(e.returns)
}

// logBook keeps log lines.
type logBook struct {
	mu    sync.Mutex
	lines []string
}

func (b *logBook) Enabled(context.Context, slog.Level) bool { return true }
func (b *logBook) Handle(_ context.Context, r slog.Record) error {
	var s strings.Builder
	s.WriteString(r.Level.String() + " " + r.Message)
	r.Attrs(func(a slog.Attr) bool {
		s.WriteString(" " + a.String())
		return true
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, s.String())
	return nil
}
func (b *logBook) WithAttrs([]slog.Attr) slog.Handler { return b }
func (b *logBook) WithGroup(string) slog.Handler      { return b }

func (b *logBook) has(part string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		if strings.Contains(l, part) {
			return true
		}
	}
	return false
}

// pass lets fake time go on.
func pass(d time.Duration) { <-time.After(d) }

func contains(s, part string) bool { return strings.Contains(s, part) }

func (e *evidence) lastAckOr(d time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.acks) == 0 {
		return d
	}
	return e.acks[len(e.acks)-1]
}
