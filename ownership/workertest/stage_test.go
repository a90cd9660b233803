package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/server"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"github.com/leasehold-dev/leasehold/ownership/workertest"
)

// Every story is about partition 0 of a keyspace of one.
const (
	stageTTL    = 5 * time.Second // longer than a busy machine stalls
	stageBudget = time.Second     // to drain
)

// stage is a server that a story is played on.
type stage interface {
	config(id string) worker.Config // of a new process
	own(id string)                  // have the partition granted to a worker
	drain(id string)                // ask the owner to finish within stageBudget
	cut(id string)                  // the processes made so far
	mend(id string)
	expired(id string) // wait until the session is over
	opened(id string)  // wait until the worker id has a session of a second process
	evict(id string)
	revoke()
	ledger() []string // what happened to the lease
}

// played is a workertest server.
type played struct {
	t   *testing.T
	srv *workertest.Server
}

func (p *played) config(id string) worker.Config { return p.srv.Config(id) }
func (p *played) drain(string) {
	_, token, _ := p.srv.Owner("orders", 0)
	p.srv.Drain(token, stageBudget)
}
func (p *played) cut(id string)     { p.srv.LoseConnection(id) }
func (p *played) mend(id string)    { p.srv.RestoreConnection(id) }
func (p *played) expired(id string) { p.srv.AwaitExpired(id) }
func (p *played) evict(id string)   { p.srv.Evict(id) }
func (p *played) revoke() {
	_, token, _ := p.srv.Owner("orders", 0)
	p.srv.Revoke(token)
}

func (p *played) own(id string) {
	if _, token, ok := p.srv.Owner("orders", 0); ok {
		p.srv.AwaitReleased(token)
	}
	p.srv.Grant(id, "orders", 0)
}

func (p *played) opened(string) {
	await(p.t, "the second session", func() bool {
		n := 0
		for _, e := range p.srv.History() {
			if e.Kind == workertest.KindSessionOpen {
				n++
			}
		}
		return n == 2
	})
}

func (p *played) ledger() (out []string) {
	for _, e := range p.srv.History() {
		if e.Keyspace != "" {
			out = append(out, line(e.Kind, e.Worker, e.Cause))
		}
	}
	return out
}

// line leaves out why a server wanted what it wanted: there it is a controller,
// here a test.
func line(kind, worker, cause string) string {
	if kind != workertest.KindRelease {
		return kind + " " + worker
	}
	return kind + " " + worker + " " + cause
}

// await polls: the two servers have different ways to tell.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !within(time.Minute, ok) {
		t.Fatalf("never came: %s", what)
	}
}

// settled gives a server a moment to carry out what was asked of it.
func settled(ok func() bool) { within(20*time.Second, ok) }

func within(most time.Duration, ok func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(most)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			return false
		}
	}
	return true
}

// realServer is shared by the stories, which have names of their own on it.
type realServer struct {
	addr   string
	client *client.Client
}

func startReal(t *testing.T) *realServer {
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
	cl, err := client.Dial(t.Context(), client.Config{Servers: s.Addrs().GRPC})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	return &realServer{s.Addrs().GRPC, cl}
}

// genuine is a stage on the real server.
type genuine struct {
	*realServer
	t        *testing.T
	prefix   string
	keyspace uint32 // its name is gone once it is deleted

	mu    sync.Mutex
	wires []*wire
}

func (g *genuine) name(id string) string { return g.prefix + "." + id }

func (g *genuine) create(mode leaseholdv1.Takeover) {
	budget := stageBudget.Milliseconds()
	ks, err := g.client.Keyspaces().CreateKeyspace(g.t.Context(), &leaseholdv1.CreateKeyspaceRequest{
		Name: g.name("orders"), Partitions: 1, TtlMs: stageTTL.Milliseconds(), Takeover: mode, HandoffTimeoutMs: &budget,
	})
	if err != nil {
		g.t.Fatal(err)
	}
	g.keyspace = ks.GetId()
}

func (g *genuine) config(id string) worker.Config {
	w := &wire{}
	g.mu.Lock()
	g.wires = append(g.wires, w)
	g.mu.Unlock()
	return worker.Config{
		Servers: g.addr, ID: g.name(id), Gossip: worker.GossipOff, Dialer: w.dial,
		Logger: slog.New(slog.DiscardHandler), Observer: &worker.Observer{},
	}
}

func (g *genuine) own(string) {} // it places by itself

func (g *genuine) drain(id string) {
	if _, err := g.client.Workers().DrainWorker(g.t.Context(), &leaseholdv1.DrainWorkerRequest{Id: g.name(id)}); err != nil {
		g.t.Error(err)
	}
}

func (g *genuine) evict(id string) {
	if _, err := g.client.Workers().EvictWorker(g.t.Context(), &leaseholdv1.EvictWorkerRequest{Id: g.name(id)}); err != nil {
		g.t.Error(err)
	}
}

// revoke deletes the keyspace, which is when the servers take fenced leases
// back from a worker that is alive.
func (g *genuine) revoke() {
	if _, err := g.client.Keyspaces().DeleteKeyspace(g.t.Context(), &leaseholdv1.DeleteKeyspaceRequest{Name: g.name("orders")}); err != nil {
		g.t.Error(err)
	}
}

func (g *genuine) cut(string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.wires {
		w.set(true)
	}
}

func (g *genuine) mend(string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.wires {
		w.set(false)
	}
}

func (g *genuine) events() []*leaseholdv1.Event {
	r, err := g.client.Events().ListEvents(g.t.Context(), &leaseholdv1.ListEventsRequest{})
	if err != nil {
		g.t.Fatal(err)
	}
	return r.GetItems()
}

func (g *genuine) count(kind, id string) (n int) {
	for _, e := range g.events() {
		if e.GetKind() == kind && e.GetWorker() == g.name(id) {
			n++
		}
	}
	return n
}

func (g *genuine) expired(id string) {
	await(g.t, "the session's end", func() bool { return g.count("session_expire", id) > 0 })
}

func (g *genuine) opened(id string) {
	await(g.t, "the second session", func() bool { return g.count("session_open", id) == 2 })
}

func (g *genuine) ledger() (out []string) {
	for _, e := range g.events() {
		if e.GetKeyspaceId() == g.keyspace && e.Partition != nil {
			out = append(out, line(e.GetKind(), strings.TrimPrefix(e.GetWorker(), g.prefix+"."), e.GetCause()))
		}
	}
	return out
}

// wire is a network connection that can be cut.
type wire struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (w *wire) dial(ctx context.Context, addr string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return nil, errors.New("network is unreachable")
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		w.conns = append(w.conns, c)
	}
	return c, err
}

func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if cut {
		for _, c := range w.conns {
			c.Close()
		}
		w.conns = nil
	}
}

// diary is what the handlers of a story saw, in order.
type diary struct {
	t      testing.TB
	prefix string

	mu     sync.Mutex
	lines  []string
	leases int
	last   uint64 // token
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if d.prefix != "" {
		text = strings.ReplaceAll(text, d.prefix+".", "")
	}
	d.lines = append(d.lines, text)
}

func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, "\n\t")
}

func (d *diary) await(text string) {
	d.t.Helper()
	await(d.t, text, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, l := range d.lines {
			if strings.Contains(l, text) {
				return true
			}
		}
		return false
	})
}

// begin notes a new lease and gives it a number.
func (d *diary) begin(l *worker.Lease) int {
	d.mu.Lock()
	d.leases++
	n, token := d.leases, uint64(l.Token())
	if token <= d.last {
		d.t.Errorf("token %d after %d", token, d.last)
	}
	d.last = token
	d.mu.Unlock()
	d.note("lease %d starts: TTL %v, of %d partitions", n, l.TTL(), l.Partitions())
	return n
}
