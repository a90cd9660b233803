package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

func TestMain(m *testing.M) {
	asWriter()
	nextPort.Store(rand.Uint32N(20_000)) // two runs at a time look in different places
	goleak.VerifyTestMain(m)
}

// cluster is a set of real servers in this process: real sockets on loopback,
// real files, real time.
type cluster struct {
	t       *testing.T
	dir     string
	gossip  []string
	configs []Config
	running []*running
	ran     []bool      // has been started before
	tls     *tls.Config // of the test's own clients; nil: plain
}

type running struct {
	*Server
	stop context.CancelFunc
	done chan error
}

// newCluster prepares n servers with fixed gossip addresses; start starts one.
func newCluster(t *testing.T, n int) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), running: make([]*running, n), ran: make([]bool, n)}
	for range n {
		c.gossip = append(c.gossip, freeAddr(t))
	}
	for i := range n {
		cfg := DefaultConfig()
		cfg.ID = fmt.Sprintf("s%d", i+1)
		cfg.DataDir = filepath.Join(c.dir, cfg.ID)
		cfg.GRPCAddr, cfg.RaftAddr, cfg.HTTPAddr = freeAddr(t), freeAddr(t), "127.0.0.1:0"
		cfg.GossipAddr = c.gossip[i]
		cfg.BootstrapExpect = n
		if n > 1 {
			cfg.Join = c.gossip
		}
		cfg.InitialDelay = 0
		cfg.ShutdownTimeout = 5 * time.Second
		cfg.Logger = testLogger(t, cfg.ID)
		c.configs = append(c.configs, cfg)
	}
	t.Cleanup(func() {
		c.stopAll()
	})
	return c
}

func (c *cluster) start(i int) *Server {
	c.t.Helper()
	s, err := New(c.configs[i])
	for tries := 0; errors.Is(err, syscall.EADDRINUSE) && tries < 200; tries++ {
		// Somebody took the port since it was chosen, or since this server stopped: a
		// connection of another process, say. One that never ran may go elsewhere.
		time.Sleep(50 * time.Millisecond)
		if !c.ran[i] {
			c.configs[i].GRPCAddr, c.configs[i].RaftAddr = freeAddr(c.t), freeAddr(c.t)
		}
		s, err = New(c.configs[i])
	}
	if err != nil {
		c.t.Fatalf("start server %d: %v", i, err)
	}
	c.ran[i] = true
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Server: s, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- s.Run(ctx) }()
	c.running[i] = r
	return s
}

func (c *cluster) startAll() {
	for i := range c.configs {
		c.start(i)
	}
	c.ready()
}

// ready waits for every running server.
func (c *cluster) ready() {
	c.t.Helper()
	for i, r := range c.running {
		if r == nil {
			continue
		}
		select {
		case <-r.Ready():
		case err := <-r.done:
			c.running[i] = nil
			c.t.Fatalf("server %d ended: %v", i, err)
		case <-time.After(time.Minute):
			_, why := r.Readiness()
			c.t.Fatalf("server %d is not ready after a minute: %s", i, why)
		}
	}
}

func (c *cluster) stopServer(i int) {
	r := c.running[i]
	if r == nil {
		return
	}
	c.running[i] = nil
	r.stop()
	if err := <-r.done; err != nil && !errors.Is(err, context.Canceled) {
		c.t.Errorf("server %d stopped with %v", i, err)
	}
}

// stopAll stops all servers at the same time.
func (c *cluster) stopAll() {
	var all sync.WaitGroup
	for i := range c.running {
		all.Go(func() { c.stopServer(i) })
	}
	all.Wait()
}

func (c *cluster) servers() string {
	list := ""
	for _, cfg := range c.configs {
		list += cfg.GRPCAddr + ","
	}
	return list[:len(list)-1]
}

func (c *cluster) client() *client.Client {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cl, err := client.Dial(ctx, client.Config{Servers: c.servers(), TLS: c.tls})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { cl.Close() })
	return cl
}

// leader waits until one of the running servers leads.
func (c *cluster) leader() int {
	c.t.Helper()
	at := -1
	eventually(c.t, 15*time.Second, "a server leads", func() bool {
		for i, r := range c.running {
			if r != nil && r.store.IsLeader() {
				at = i
				return true
			}
		}
		return false
	})
	return at
}

func createKeyspace(t *testing.T, cl *client.Client, name string, partitions uint32, ttl time.Duration, takeover leaseholdv1.Takeover) {
	t.Helper()
	create(t, cl, &leaseholdv1.CreateKeyspaceRequest{
		Name: name, Partitions: partitions, TtlMs: ttl.Milliseconds(), Takeover: takeover,
	})
}

// create makes a keyspace. What an election on a busy machine has left open is
// asked for again, and may have been done the first time.
func create(t *testing.T, cl *client.Client, r *leaseholdv1.CreateKeyspaceRequest) {
	t.Helper()
	open := false
	eventually(t, 20*time.Second, "keyspace "+r.GetName()+" is there", func() bool {
		_, err := cl.Keyspaces().CreateKeyspace(t.Context(), r)
		if err == nil || open && leaseholdv1.ReasonOf(err) == leaseholdv1.ReasonExists {
			return true
		}
		if open = errors.Is(err, client.ErrUnknownOutcome); !open {
			t.Fatalf("create keyspace: %v", err)
		}
		return false
	})
}

// eventually polls a condition of the real world with a ticker; it is the only
// wait these tests have. The limit is for a machine with nothing else to do: a
// busy one gets three times as long.
func eventually(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(3 * limit)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after %v it is still not so that %s", 3*limit, what)
		}
	}
}

// nextPort is where freeAddr goes on looking: below what the kernel gives to
// outgoing connections, which would take an address between its choice and its
// use, and never twice the same.
var nextPort atomic.Uint32

// freeAddr is a loopback address that is free for TCP and UDP.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 12_000+nextPort.Add(1)%20_000)
		tcp, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		udp, err := net.ListenPacket("udp", addr)
		tcp.Close()
		if err != nil {
			continue
		}
		udp.Close()
		return addr
	}
	t.Fatal("no free port between 12000 and 32000")
	return ""
}

func testLogger(t *testing.T, server string) *slog.Logger {
	w := io.Discard
	if os.Getenv("LEASEHOLD_TEST_LOG") != "" {
		w = os.Stderr
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})).With("server", server)
}
