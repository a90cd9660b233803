package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// The cases_*_test.go files turn failures of comparable systems into trials of
// real servers and real workers. They wait far more than they work, so they
// run beside each other; a cluster of theirs has short elections, which allow
// short TTLs. Of several servers one elects anew whenever a busy machine stands
// still for that long, so these have the usual timeout.
const quickElection = 200 * time.Millisecond

func election(servers int) time.Duration {
	if servers == 1 {
		return quickElection
	}
	return DefaultConfig().ElectionTimeout
}

func quickCluster(t *testing.T, n int) *cluster {
	t.Helper()
	c := freshCluster(t, n)
	c.startAll()
	return c
}

// line is a worker's connection to the servers. Frozen, it passes nothing on
// and says nothing of it, as when packets are dropped; cut, it breaks.
type line struct {
	mu    sync.Mutex
	gate  chan struct{} // closed: passes
	down  bool
	conns []net.Conn
}

func newLine() *line {
	l := &line{gate: make(chan struct{})}
	close(l.gate)
	return l
}

func (l *line) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = make(chan struct{})
}

func (l *line) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gate:
	default:
		close(l.gate)
	}
}

// cut breaks what is open and refuses what comes, as the end of a process
// looks from outside.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for _, c := range l.conns {
		c.Close()
	}
}

func (l *line) dial(ctx context.Context, addr string) (net.Conn, error) {
	l.mu.Lock()
	gate, down := l.gate, l.down
	l.mu.Unlock()
	if down {
		return nil, errors.New("network is unreachable")
	}
	select {
	case <-gate:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &lineConn{Conn: conn, line: l, closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		conn.Close()
		return nil, errors.New("network is unreachable")
	}
	l.conns = append(l.conns, c)
	return c, nil
}

type lineConn struct {
	net.Conn
	line   *line
	once   sync.Once
	closed chan struct{}
}

func (c *lineConn) pass() error {
	c.line.mu.Lock()
	gate := c.line.gate
	c.line.mu.Unlock()
	select {
	case <-gate:
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

func (c *lineConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if stuck := c.pass(); stuck != nil {
		return 0, stuck
	}
	return n, err
}

func (c *lineConn) Write(p []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *lineConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// hand is a worker of a test, with a handler of its own.
type hand struct {
	*worker.Worker
	cancel context.CancelFunc
	done   chan error
}

func startHand(t *testing.T, cfg worker.Config, keyspace string, h worker.Handler, opts ...worker.Option) *hand {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = testLogger(t, cfg.ID)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w, err := worker.Join(ctx, cfg)
	if err != nil {
		t.Fatalf("join %s: %v", cfg.ID, err)
	}
	x := &hand{Worker: w, cancel: cancel, done: make(chan error, 1)}
	go func() { x.done <- w.Run(ctx, keyspace, h, opts...) }()
	t.Cleanup(func() {
		cancel()
		x.wait()
	})
	return x
}

// wait returns how Run ended, again and again.
func (x *hand) wait() error {
	err := <-x.done
	x.done <- err
	return err
}

// untilTold is a handler that works until it is asked or forced to stop.
func untilTold(ctx context.Context, l *worker.Lease) error {
	select {
	case <-l.Draining():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// joinAll starts several workers, and stops them at once when the test ends.
func (c *crew) joinAll(keyspace string, ids ...string) map[string]func() {
	stops := map[string]func(){}
	for _, id := range ids {
		stops[id] = c.join(id, keyspace)
	}
	c.t.Cleanup(func() {
		var all sync.WaitGroup
		for _, stop := range stops {
			all.Go(stop)
		}
		all.Wait()
	})
	return stops
}

// owner is the worker whose context of p is live, or "".
func (c *crew) owner(p uint32) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.live[p] {
		return id
	}
	return ""
}

func (c *cluster) workersByID(cl *client.Client) map[string]*leaseholdv1.Worker {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r, err := cl.Workers().ListWorkers(ctx, &leaseholdv1.ListWorkersRequest{})
	if err != nil {
		c.t.Fatalf("list workers: %v", err)
	}
	out := map[string]*leaseholdv1.Worker{}
	for _, w := range r.GetItems() {
		if out[w.GetId()].GetState() != "live" { // not the one that it has superseded
			out[w.GetId()] = w
		}
	}
	return out
}

func (c *cluster) partitions(cl *client.Client, keyspace string) []*leaseholdv1.Partition {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r, err := cl.Partitions().ListPartitions(ctx, &leaseholdv1.ListPartitionsRequest{Keyspace: keyspace})
	if err != nil {
		c.t.Fatalf("list partitions: %v", err)
	}
	return r.GetItems()
}

// revision is where the events that follow begin.
func (c *cluster) revision(cl *client.Client) uint64 {
	c.t.Helper()
	r, err := cl.Events().ListEvents(context.Background(), &leaseholdv1.ListEventsRequest{Limit: 1})
	if err != nil {
		c.t.Fatalf("list events: %v", err)
	}
	return r.GetRevision()
}

// eventsAfter are those of the given kinds, of all kinds if none is given.
func (c *cluster) eventsAfter(cl *client.Client, revision uint64, kinds ...string) (out []*leaseholdv1.Event) {
	c.t.Helper()
	r, err := cl.Events().ListEvents(context.Background(), &leaseholdv1.ListEventsRequest{Limit: 10_000})
	if err != nil {
		c.t.Fatalf("list events: %v", err)
	}
	for _, e := range r.GetItems() {
		if e.GetRevision() > revision && (len(kinds) == 0 || slices.Contains(kinds, e.GetKind())) {
			out = append(out, e)
		}
	}
	return out
}

// postJSON calls the JSON twin of a method on one server. Without a leader,
// which on a busy machine can happen between any two calls, it tries again as a
// caller would.
func (c *cluster) postJSON(i int, method string, body any) (code int, m map[string]any) {
	c.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, 15*time.Second, "a server answers "+method, func() bool {
		code, m = c.postOnce(i, method, data)
		return code != http.StatusServiceUnavailable && code != 0
	})
	return code, m
}

func (c *cluster) postOnce(i int, method string, data []byte) (int, map[string]any) {
	c.t.Helper()
	resp, err := http.Post("http://"+c.running[i].Addrs().HTTP+method, "application/json", bytes.NewReader(data))
	if err != nil { // refused before all was sent: the answer may be lost with the connection
		c.t.Logf("%s: %v", method, err)
		return 0, nil
	}
	defer resp.Body.Close()
	var m map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		c.t.Fatalf("%s answered %d and no JSON: %v", method, resp.StatusCode, err)
	}
	return resp.StatusCode, m
}

func (c *cluster) metrics(i int) string {
	c.t.Helper()
	resp, err := c.http().Get(c.url(i, "/metrics"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(body)
}
