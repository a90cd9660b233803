package server

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// wedge is a handler that ignores whatever it is told until it is let go.
type wedge struct {
	once sync.Once
	free chan struct{}
}

func (w *wedge) handle(context.Context, *worker.Lease) error {
	<-w.free
	return nil
}

func (w *wedge) letGo() { w.once.Do(func() { close(w.free) }) }

// O-28: the handlers of a worker are deadlocked while its session is healthy.
// An operator drains it: fenced partitions move at the handoff timeout, strict
// ones show as stuck, and move within a TTL once it is evicted. The bar
// outlives a leader change and the worker's restart, until it is lifted.
func TestWedgedWorkerIsDrainedAndStaysBarred(t *testing.T) {
	t.Parallel()
	for _, mode := range []leaseholdv1.Takeover{leaseholdv1.Takeover_TAKEOVER_STRICT, leaseholdv1.Takeover_TAKEOVER_FENCED} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			c := quickCluster(t, 3)
			cl := c.client()
			handoff, ttl := int64(500), 4*time.Second
			create(t, cl, &leaseholdv1.CreateKeyspaceRequest{
				Name: "orders", Partitions: 8, TtlMs: ttl.Milliseconds(), Takeover: mode, HandoffTimeoutMs: &handoff,
			})
			stuck := &wedge{free: make(chan struct{})}
			t.Cleanup(stuck.letGo)
			cfg := worker.Config{Servers: c.servers(), ID: "bad", Gossip: worker.GossipOff, ShutdownTimeout: time.Second}
			bad := startHand(t, cfg, "orders", stuck.handle)
			t.Cleanup(stuck.letGo) // before the worker is waited for
			held := func(id string) (n int) {
				for _, p := range c.partitions(cl, "orders") {
					if p.GetOwner() == id {
						n++
					}
				}
				return n
			}
			eventually(t, 10*time.Second, "bad holds all", func() bool { return held("bad") == 8 })
			startHand(t, worker.Config{Servers: c.servers(), ID: "good", Gossip: worker.GossipOff}, "orders", untilTold)
			eventually(t, 10*time.Second, "good is there", func() bool { return c.workersByID(cl)["good"].GetAttached() })
			begun := time.Now()
			if _, err := cl.Workers().DrainWorker(t.Context(), &leaseholdv1.DrainWorkerRequest{Id: "bad"}); err != nil {
				t.Fatal(err)
			}
			if mode == leaseholdv1.Takeover_TAKEOVER_STRICT {
				eventually(t, 10*time.Second, "the stuck ones are named", func() bool {
					n := 0
					for _, p := range c.partitions(cl, "orders") {
						if p.GetOwner() == "bad" && p.GetState() == leaseholdv1.PartitionState_PARTITION_STATE_DRAINING && p.GetReason() != "" {
							n++
						}
					}
					return n == 8
				})
				eventually(t, 10*time.Second, "the session of the wedged worker is healthy", func() bool {
					w := c.workersByID(cl)["bad"]
					return w.GetAttached() && w.GetDraining() && w.GetHeld() == 8
				})
				begun = time.Now()
				if _, err := cl.Workers().EvictWorker(t.Context(), &leaseholdv1.EvictWorkerRequest{Id: "bad"}); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, 15*time.Second, "good holds all", func() bool { return held("good") == 8 })
			if took := time.Since(begun); took > ttl+5*time.Second {
				t.Errorf("it took %v", took)
			}
			stuck.letGo()
			bad.cancel()
			if err := bad.wait(); err != nil && !errors.Is(err, worker.ErrEvicted) {
				t.Errorf("the wedged worker ended with %v", err)
			}

			if mode == leaseholdv1.Takeover_TAKEOVER_STRICT {
				return // what follows knows no mode
			}

			at := c.leader()
			c.stopServer(at)
			c.leader()
			back := startHand(t, cfg, "orders", untilTold)
			eventually(t, 15*time.Second, "bad is back", func() bool { return c.workersByID(cl)["bad"].GetAttached() })
			c.start(at)
			c.ready()
			<-time.After(3500 * time.Millisecond) // past the wait of a balance move
			if w := c.workersByID(cl)["bad"]; w.GetHeld() != 0 || !w.GetDraining() {
				t.Errorf("after a leader change and a restart: %v", w)
			}
			if _, err := cl.Workers().UndrainWorker(t.Context(), &leaseholdv1.UndrainWorkerRequest{Id: "bad"}); err != nil {
				t.Fatal(err)
			}
			if w := c.workersByID(cl)["bad"]; w.GetDraining() {
				t.Errorf("still barred: %v", w)
			}
			eventually(t, 60*time.Second, "bad is served again", func() bool { return held("bad") > 0 })
			back.cancel()
			if err := back.wait(); err != nil {
				t.Errorf("its end: %v", err)
			}
		})
	}
}

// O-16: a worker is killed and started again, twenty times, one right after
// the other, with a strict and a fenced keyspace. None is refused, each is
// another session, tokens only rise, and the last one holds everything.
func TestTwentyRestartsUnderOneID(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	cl := c.client()
	createKeyspace(t, cl, "strict", 2, 5*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
	createKeyspace(t, cl, "fenced", 2, 5*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	type partition struct {
		keyspace string
		number   uint32
	}
	var mu sync.Mutex
	highest, sessions := map[partition]uint64{}, map[uint64]bool{}
	handler := func(ctx context.Context, l *worker.Lease) error {
		p, token := partition{l.Keyspace(), l.Partition()}, uint64(l.Token())
		mu.Lock()
		if token <= highest[p] {
			t.Errorf("%v: token %d after %d", p, token, highest[p])
		}
		highest[p] = max(highest[p], token)
		mu.Unlock()
		return untilTold(ctx, l)
	}
	for i := range 20 {
		l := newLine()
		h := startHand(t, worker.Config{Servers: c.servers(), ID: "w1", Gossip: worker.GossipOff, Dialer: l.dial}, "strict", handler)
		other := make(chan error, 1)
		go func() { other <- h.Run(context.Background(), "fenced", handler) }()
		t.Cleanup(func() {
			h.cancel()
			<-other
		})
		eventually(t, 15*time.Second, "the new process is in with both", func() bool {
			select {
			case err := <-h.done:
				h.done <- err
				t.Fatalf("restart %d ended: %v", i, err)
			default:
			}
			w := c.workersByID(cl)["w1"]
			if !w.GetAttached() || len(w.GetKeyspaces()) < 2 {
				return false
			}
			fresh := !sessions[w.GetSessionId()]
			sessions[w.GetSessionId()] = true
			return fresh
		})
		if i == 19 {
			begun := time.Now()
			eventually(t, 60*time.Second, "the last one holds everything", func() bool { return c.workersByID(cl)["w1"].GetHeld() == 4 })
			t.Logf("it took %v", time.Since(begun))
			continue
		}
		l.cut() // killed, as far as others can tell
		h.cancel()
	}
	if len(sessions) != 20 {
		t.Errorf("%d sessions", len(sessions))
	}
}
