package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// What the tests of formation and membership share.

// freshCluster prepares n servers with short elections; none is started.
func freshCluster(t *testing.T, n int) *cluster {
	t.Helper()
	c := newCluster(t, n)
	for i := range c.configs {
		c.configs[i].ElectionTimeout = election(n)
	}
	return c
}

// calm is a cluster that no pause of a busy machine makes elect anew: what its
// tests say of terms is about servers, not about the machine.
func calm(t *testing.T, n int) *cluster {
	t.Helper()
	c := freshCluster(t, n)
	for i := range c.configs {
		c.configs[i].ElectionTimeout = 1500 * time.Millisecond
	}
	return c
}

// join adds the configuration of one more server, which knows the others'
// gossip addresses and expects nothing.
func (c *cluster) join(id string) (i int) {
	c.t.Helper()
	cfg := c.configs[0]
	cfg.ID, cfg.DataDir = id, filepath.Join(c.t.TempDir(), id)
	cfg.GRPCAddr, cfg.RaftAddr, cfg.GossipAddr = freeAddr(c.t), freeAddr(c.t), freeAddr(c.t)
	cfg.Join, cfg.BootstrapExpect = c.gossip, 0
	cfg.Logger = testLogger(c.t, id)
	c.configs, c.running, c.ran = append(c.configs, cfg), append(c.running, nil), append(c.ran, false)
	return len(c.configs) - 1
}

// moved gives a server new addresses, all of them.
func (c *cluster) moved(i int) {
	c.t.Helper()
	cfg := &c.configs[i]
	cfg.GRPCAddr, cfg.RaftAddr, cfg.GossipAddr = freeAddr(c.t), freeAddr(c.t), freeAddr(c.t)
	if i < len(c.gossip) {
		c.gossip[i] = cfg.GossipAddr
	}
}

// wipe empties the data directory of a stopped server.
func (c *cluster) wipe(i int) {
	c.t.Helper()
	if err := os.RemoveAll(c.configs[i].DataDir); err != nil {
		c.t.Fatal(err)
	}
}

// vanish stops a server without a goodbye: for the others it is a crash.
func (c *cluster) vanish(i int) {
	c.t.Helper()
	r := c.running[i]
	c.running[i] = nil
	if err := r.gossip.Shutdown(context.Background()); err != nil {
		c.t.Fatal(err)
	}
	r.stop()
	<-r.done
}

// api is a connection to one server, whether it runs or not.
func (c *cluster) api(i int) leaseholdv1.ClusterServiceClient {
	c.t.Helper()
	conn := c.connect(i)
	c.t.Cleanup(func() { conn.Close() })
	return leaseholdv1.NewClusterServiceClient(conn)
}

func (c *cluster) connect(i int) *grpc.ClientConn {
	c.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+c.configs[i].GRPCAddr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		c.t.Fatal(err)
	}
	return conn
}

func (c *cluster) status(i int) *leaseholdv1.Status {
	c.t.Helper()
	conn := c.connect(i) // for one call of hundreds: it does not stay open
	defer conn.Close()
	st, err := leaseholdv1.NewClusterServiceClient(conn).GetStatus(c.t.Context(), &leaseholdv1.GetStatusRequest{}, grpc.WaitForReady(true))
	if err != nil {
		c.t.Fatalf("status of server %d: %v", i, err)
	}
	return st
}

// peers are the servers of the group as server i knows it.
func (c *cluster) peers(i int) []*leaseholdv1.Peer {
	c.t.Helper()
	conn := c.connect(i)
	defer conn.Close()
	r, err := leaseholdv1.NewClusterServiceClient(conn).ListPeers(c.t.Context(), &leaseholdv1.ListPeersRequest{}, grpc.WaitForReady(true))
	if err != nil {
		c.t.Fatalf("peers of server %d: %v", i, err)
	}
	return r.GetItems()
}

// group is peers in short: voters as id, others as (id).
func (c *cluster) group(i int) string {
	c.t.Helper()
	var ids []string
	for _, p := range c.peers(i) {
		id := p.GetServerId()
		if !p.GetVoter() {
			id = "(" + id + ")"
		}
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}

// why is what a server says of its readiness.
func (c *cluster) why(i int) string {
	ready, reason := c.running[i].Readiness()
	if ready {
		return "ready"
	}
	return reason
}

// says waits until a server gives a reason.
func (c *cluster) says(i int, part string) {
	c.t.Helper()
	eventually(c.t, 20*time.Second, fmt.Sprintf("%s says %q", c.configs[i].ID, part), func() bool { return strings.Contains(c.why(i), part) })
}

// seen waits until the gossip of all the others that run shows a server, with
// where it is reached.
func (c *cluster) seen(id string) {
	c.t.Helper()
	eventually(c.t, 20*time.Second, "all see "+id, func() bool {
		return !slices.ContainsFunc(c.running, func(r *running) bool {
			if r == nil || r.ID() == id {
				return false
			}
			m, ok := r.gossip.Member(gossip.Name(gossip.RoleServer, id))
			return !ok || !m.Up() || m.Meta.GRPCAddr == ""
		})
	})
}

// steady makes a call again that was refused because nobody led, which on a
// busy machine can be so at any time.
func (c *cluster) steady(call func() error) (err error) {
	c.t.Helper()
	eventually(c.t, 20*time.Second, "a leader answers", func() bool {
		err = call()
		return err == nil || !leaseholdv1.DetailOf(err).Retryable()
	})
	return err
}

// never looks for a while whether something happens.
func never(t *testing.T, limit time.Duration, what string, bad func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(limit); ; {
		if bad() {
			t.Fatalf("it happened that %s", what)
		}
		select {
		case <-tick.C:
		case <-end:
			return
		}
	}
}

// put creates keyspaces, one log entry each, and tries again when an election
// on a busy machine comes in between.
func (c *cluster) put(names ...string) {
	c.t.Helper()
	cl := c.client()
	for _, name := range names {
		var err error
		eventually(c.t, 20*time.Second, "keyspace "+name+" is there", func() bool {
			_, err = cl.Keyspaces().CreateKeyspace(c.t.Context(), &leaseholdv1.CreateKeyspaceRequest{Name: name, Partitions: 1, TtlMs: 10_000})
			return err == nil || leaseholdv1.ReasonOf(err) == leaseholdv1.ReasonExists
		})
	}
}

// has wants keyspaces in the state of one server, which may be a moment behind.
func (c *cluster) has(i int, names ...string) {
	c.t.Helper()
	eventually(c.t, 15*time.Second, fmt.Sprintf("%s has keyspaces %v", c.configs[i].ID, names), func() bool {
		have := map[string]bool{}
		for _, k := range c.status(i).GetKeyspaces() {
			have[k.GetName()] = true
		}
		return !slices.ContainsFunc(names, func(name string) bool { return !have[name] })
	})
}

// logbook keeps what a server logs.
type logbook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logbook) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// logged makes a server write into a book.
func (c *cluster) logged(i int) *logbook {
	book := &logbook{}
	var w io.Writer = book
	if os.Getenv("LEASEHOLD_TEST_LOG") != "" {
		w = io.MultiWriter(book, os.Stderr)
	}
	c.configs[i].Logger = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo})).With("server", c.configs[i].ID)
	return book
}

// refusal is the reason of an error of the API, with its message.
func refusal(err error) string {
	d := leaseholdv1.DetailOf(err)
	if d == nil {
		return fmt.Sprint(err)
	}
	return d.GetReason() + ": " + d.GetMessage()
}

func wantRefusal(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(refusal(err), part) {
			t.Errorf("%s: %s, want it to say %q", what, refusal(err), part)
		}
	}
}
