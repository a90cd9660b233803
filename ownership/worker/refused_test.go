package worker

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// refusedLines takes the lines about refused tokens out of a log.
type refusedLines struct {
	mu    sync.Mutex
	lines int
	total uint64
}

func (h *refusedLines) Enabled(context.Context, slog.Level) bool { return true }
func (h *refusedLines) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *refusedLines) WithGroup(string) slog.Handler            { return h }
func (h *refusedLines) Handle(_ context.Context, r slog.Record) error {
	if !strings.HasPrefix(r.Message, "guards refused") {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines++
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "stale" || a.Key == "other_owner" {
			h.total += a.Value.Uint64()
		}
		return true
	})
	return nil
}

func (h *refusedLines) seen() (lines int, total uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lines, h.total
}

// rejections adds up the worker's series of that name.
func rejections(t *testing.T, w *metrics.Worker) (n float64) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(w)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "leasehold_worker_fencing_rejections_total" {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// O-84: a fenced worker that goes on for a minute with 5,000 writes a second. All
// are refused and counted; the log gets a line every ten seconds that says how
// many there were.
func TestFencedZombieDoesNotFloodTheLog(t *testing.T) {
	const writes, each = 60_000, 5 // every millisecond
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		book, series := &refusedLines{}, metrics.NewWorker()
		w := b.join(func(c *Config) { c.Logger, c.Metrics = slog.New(book), series })
		guard := fence.NewMemory(w.Fencing())
		newer := fence.Stamp{Keyspace: "orders", Partition: 1, Token: 1 << 40, Owner: "w2"}
		if err := guard.Claim(t.Context(), []fence.Stamp{newer}); err != nil {
			t.Fatal(err)
		}
		zombie := make(chan int, 1)
		b.run(func(ctx context.Context, l *Lease) error {
			refused := 0
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for range writes {
				<-tick.C
				for range each {
					if err := guard.Do(l.Stamp(), func() error { return nil }); err != nil {
						refused++
					}
				}
			}
			zombie <- refused
			return untilDone(ctx, l)
		})
		b.c.grant(b.c.only(), 1)
		if n := <-zombie; n != writes*each {
			t.Errorf("%d of %d writes were refused", n, writes*each)
		}
		b.finish()
		lines, total := book.seen()
		if lines < 6 || lines > 8 {
			t.Errorf("%d lines in a minute, want one every ten seconds", lines)
		}
		if total != writes*each {
			t.Errorf("the lines tell of %d refusals, want %d", total, writes*each)
		}
		if n := rejections(t, series); n != writes*each {
			t.Errorf("%v refusals are counted, want %d", n, writes*each)
		}
	})
}

// O-84: the valid owner's writes do not wait for those of a zombie that are
// refused, counted and told of.
func TestZombieDoesNotSlowTheOwner(t *testing.T) {
	w, err := newTestWorker()
	if err != nil {
		t.Fatal(err)
	}
	guard := fence.NewMemory(w.Fencing())
	owner := fence.Stamp{Keyspace: "orders", Partition: 1, Token: 34, Owner: "w2"}
	stale := fence.Stamp{Keyspace: "orders", Partition: 1, Token: 33, Owner: "w1"}
	if err := guard.Claim(t.Context(), []fence.Stamp{owner}); err != nil {
		t.Fatal(err)
	}
	var at atomic.Bool
	refused := 0
	var zombie sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	zombie.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			for range 5 {
				if !at.Load() {
					break
				}
				if guard.Do(stale, func() error { return nil }) == nil {
					t.Error("an old token was accepted")
				}
				refused++
			}
		}
	})
	// In turns, so that a busy machine slows both alike.
	const writes, turn = 600, 20
	var quiet, beside []time.Duration
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := range 2 * writes {
		at.Store(i/turn%2 == 1)
		<-tick.C
		began := time.Now()
		if err := guard.Do(owner, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); at.Load() {
			beside = append(beside, took)
		} else {
			quiet = append(quiet, took)
		}
	}
	stop()
	zombie.Wait()
	if refused < writes {
		t.Errorf("only %d writes were refused beside %d of the owner's", refused, writes)
	}
	slices.Sort(quiet)
	slices.Sort(beside)
	before, with := quiet[writes/2], beside[writes/2]
	t.Logf("median of a write %v, beside a zombie's %v", before, with)
	if with > 3*before+10*time.Microsecond {
		t.Errorf("the owner's writes take %v beside a zombie's, %v without", with, before)
	}
	if n := int(w.engine.core.fencing.Stale()); n != refused {
		t.Errorf("%d refusals are counted, want %d", n, refused)
	}
}

// Leases that a session's end took are told under the next one, and whose they
// are is told with them: the servers count what adds to what they know.
func TestWhatEndedASessionIsToldUnderTheNext(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		series := metrics.NewWorker()
		b.join(func(c *Config) { c.Metrics = series })
		b.run(untilDone)
		first := b.c.only()
		b.c.grant(first, 1, 2)
		b.seen.started(t, 2)
		b.c.mu.Lock()
		b.c.keepAlive = func(*leaseholdv1.KeepAliveRequest) error {
			return refusedWith(codes.Unavailable, leaseholdv1.ReasonNoLeader, "")
		}
		b.c.mu.Unlock()
		b.seen.ended(t, 2)
		pass(10 * time.Second)
		b.c.mu.Lock()
		b.c.keepAlive = nil
		b.c.mu.Unlock()
		pass(30 * time.Second)
		second := b.c.only()
		if second.id == first.id {
			t.Fatal("the session has lived on")
		}
		said := b.c.seen()
		last := said[len(said)-1]
		if last.GetSessionId() != second.id || last.GetProcess() != first.id || last.GetLost().GetExpired() != 2 {
			t.Errorf("the next session, %d after %d, says %v", second.id, first.id, last)
		}
		b.finish()
	})
}

// newTestWorker is one that has joined nothing.
func newTestWorker() (*Worker, error) {
	cfg, err := Config{ID: "w1", Servers: "127.0.0.1:1", Metrics: metrics.NewWorker()}.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Worker{cfg: cfg, servers: newDirectory(cfg)}, nil
}
