package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/server"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// dev is a real server in this process, on loopback and in memory.
type dev struct {
	t      testing.TB
	addr   string
	client *client.Client
}

func startDev(t testing.TB) *dev {
	t.Helper()
	cfg := server.DevConfig()
	cfg.GRPCAddr, cfg.RaftAddr, cfg.GossipAddr, cfg.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.Logger = slog.New(slog.DiscardHandler)
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	select {
	case <-s.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the server is not ready")
	}
	cl, err := client.Dial(context.Background(), client.Config{Servers: s.Addrs().GRPC})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	return &dev{t, s.Addrs().GRPC, cl}
}

func (d *dev) keyspace(name string, partitions uint32, ttl time.Duration) {
	d.t.Helper()
	_, err := d.client.Keyspaces().CreateKeyspace(context.Background(), &leaseholdv1.CreateKeyspaceRequest{
		Name: name, Partitions: partitions, TtlMs: ttl.Milliseconds(), Takeover: leaseholdv1.Takeover_TAKEOVER_STRICT,
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// opened waits until so many sessions have been opened.
func (d *dev) opened(n int) {
	d.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(30 * time.Second)
	for {
		r, err := d.client.Events().ListEvents(context.Background(), &leaseholdv1.ListEventsRequest{})
		if err != nil {
			d.t.Fatal(err)
		}
		seen := 0
		for _, e := range r.GetItems() {
			if e.GetKind() == "session_open" {
				seen++
			}
		}
		if seen >= n {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			d.t.Fatalf("%d sessions were opened, want %d", seen, n)
		}
	}
}

// live counts handlers that run, and is told of each change.
type live struct {
	n       atomic.Int64
	changed chan struct{}
}

func newLive() *live { return &live{changed: make(chan struct{}, 1)} }

func (c *live) add(n int64) {
	c.n.Add(n)
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *live) handle(ctx context.Context, l *worker.Lease) error {
	c.add(1)
	defer c.add(-1)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.Draining():
		return nil
	}
}

func (c *live) reach(t testing.TB, n int64) {
	t.Helper()
	late := time.After(time.Minute)
	for c.n.Load() != n {
		select {
		case <-c.changed:
		case <-late:
			t.Fatalf("%d handlers run, want %d", c.n.Load(), n)
		}
	}
}

// cable is a network connection that can be pulled.
type cable struct {
	mu    sync.Mutex
	out   bool
	conns []net.Conn
}

func (c *cable) dial(ctx context.Context, addr string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out {
		return nil, errors.New("network is unreachable")
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cable) pull() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = true
	for _, conn := range c.conns {
		conn.Close()
	}
}

func (c *cable) plug() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = false
}

func (d *dev) run(cfg worker.Config, keyspace string, h worker.Handler) (stop context.CancelFunc, done chan error) {
	d.t.Helper()
	cfg.Servers, cfg.Logger = d.addr, slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	w, err := worker.Join(ctx, cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	done = make(chan error, 1)
	go func() { done <- w.Run(ctx, keyspace, h) }()
	return cancel, done
}

// O-16, on a real server: a second live process is refused, a worker that lost
// touch is replaced, hears of it and stays out.
func TestRestartUnderTheSameID(t *testing.T) {
	d := startDev(t)
	d.keyspace("orders", 16, 10*time.Second)
	first, second, c := newLive(), newLive(), &cable{}
	stop, done := d.run(worker.Config{ID: "w1", Gossip: worker.GossipOff, Dialer: c.dial}, "orders", first.handle)
	defer stop()
	first.reach(t, 16)

	stop2, done2 := d.run(worker.Config{ID: "w1", Gossip: worker.GossipOff}, "orders", second.handle)
	var inUse *worker.IDInUseError
	if err := <-done2; !errors.As(err, &inUse) || inUse.Addr == "" {
		t.Fatalf("second live worker: Run = %v", err)
	}
	stop2()
	if first.n.Load() != 16 {
		t.Error("the first worker was disturbed")
	}

	c.pull()
	stop2, done2 = d.run(worker.Config{ID: "w1", Gossip: worker.GossipOff}, "orders", second.handle)
	d.opened(2) // or the first would be back before, and the second the one too many
	c.plug()
	if err := <-done; !errors.Is(err, worker.ErrSuperseded) {
		t.Errorf("the replaced worker: Run = %v", err)
	}
	second.reach(t, 16)
	stop2()
	if err := <-done2; err != nil {
		t.Errorf("Run = %v", err)
	}
}

func TestEvictionEndsTheWorker(t *testing.T) {
	d := startDev(t)
	d.keyspace("orders", 8, 10*time.Second)
	l := newLive()
	stop, done := d.run(worker.Config{ID: "w1", Gossip: worker.GossipOff}, "orders", l.handle)
	defer stop()
	l.reach(t, 8)
	if _, err := d.client.Workers().EvictWorker(t.Context(), &leaseholdv1.EvictWorkerRequest{Id: "w1"}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, worker.ErrEvicted) {
		t.Errorf("Run = %v", err)
	}
	l.reach(t, 0)
}

// With nothing configured but a server, the worker becomes a gossip member.
func TestGossipAutoFindsTheServers(t *testing.T) {
	d := startDev(t)
	d.keyspace("orders", 4, 10*time.Second)
	l := newLive()
	stop, done := d.run(worker.Config{ID: "w1"}, "orders", l.handle)
	l.reach(t, 4)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(45 * time.Second)
	for said := ""; said != "alive"; {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("the server sees the worker's gossip as %q", said)
		}
		ws, err := d.client.Workers().ListWorkers(t.Context(), &leaseholdv1.ListWorkersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if len(ws.GetItems()) == 1 {
			said = ws.GetItems()[0].GetGossip()
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

// BenchmarkAssign has workers with sessions join a keyspace and measures until
// the handler of every partition runs.
func BenchmarkAssign(b *testing.B) {
	const workers, partitions = 20, 20_000
	for b.Loop() {
		b.StopTimer()
		d := startDev(b)
		d.keyspace("warm", workers, 10*time.Second)
		d.keyspace("orders", partitions, 10*time.Second)
		warm, l := newLive(), newLive()
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		var ws []*worker.Worker
		run := func(w *worker.Worker, keyspace string, h worker.Handler) {
			all.Go(func() {
				if err := w.Run(ctx, keyspace, h); err != nil {
					b.Error(err)
				}
			})
		}
		for i := range workers {
			w, err := worker.Join(ctx, worker.Config{Servers: d.addr, ID: fmt.Sprint("w", i), Gossip: worker.GossipOff, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			ws = append(ws, w)
			run(w, "warm", warm.handle)
		}
		for n := 0; n < workers; {
			list, err := d.client.Workers().ListWorkers(ctx, &leaseholdv1.ListWorkersRequest{})
			if err != nil {
				b.Fatal(err)
			}
			n = len(list.GetItems())
		}
		b.StartTimer()
		for _, w := range ws {
			run(w, "orders", l.handle)
		}
		l.reach(b, partitions)
		b.StopTimer()
		cancel()
		all.Wait()
		b.StartTimer()
	}
}
