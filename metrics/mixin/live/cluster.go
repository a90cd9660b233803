package live

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// Keyspace is the name of the keyspace that a cluster is started with.
const Keyspace = "orders"

// ElectionTimeout of the servers, and the TTL of the keyspace: the shortest
// that the election timeout allows.
const (
	ElectionTimeout = time.Second
	TTL             = 6 * ElectionTimeout
)

// callTimeout bounds each call of the cluster that a condition makes.
const callTimeout = 5 * time.Second

// Options of a cluster. The zero value of a field is its default.
type Options struct {
	// Servers is how many there are: 3.
	Servers int
	// Workers is how many run from the start: 3, named w1, w2, … A negative
	// number means none.
	Workers int
	// Partitions of the keyspace: 48.
	Partitions uint32
	// Takeover of the keyspace: fenced.
	Takeover leaseholdv1.Takeover
	// ServerFlags are given to each server after those of this package.
	ServerFlags []string
}

// Cluster is a number of servers and workers.
type Cluster struct {
	Servers []*Server
	Workers []*Worker

	tb     testing.TB
	dir    string
	client *client.Client
}

// Server is one of the servers.
type Server struct {
	*Process
	ID, GRPC, HTTP string
}

// Worker is one of the workers, a program of this package.
type Worker struct {
	*Process
	ID   string
	HTTP string // address of its metrics
}

// Start starts a cluster, makes the keyspace and waits until every partition
// has an owner. All of it ends with the test.
func Start(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	o = o.withDefaults()
	c := &Cluster{tb: tb, dir: tempDir(tb)}
	c.startServers(o)
	cl, err := client.New(client.Config{Servers: c.Addrs()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = cl.Close() })
	c.client = cl
	Await(tb, 30*time.Second, "keyspace created", func() error {
		ctx, cancel := context.WithTimeout(tb.Context(), callTimeout)
		defer cancel()
		_, err := cl.Keyspaces().CreateKeyspace(ctx, &leaseholdv1.CreateKeyspaceRequest{
			Name: Keyspace, Partitions: o.Partitions, TtlMs: TTL.Milliseconds(), Takeover: o.Takeover,
		})
		if err != nil { // but perhaps only the answer was late
			if _, missing := cl.Keyspaces().GetKeyspace(ctx, &leaseholdv1.GetKeyspaceRequest{Name: Keyspace}); missing == nil {
				return nil
			}
		}
		return err
	})
	for i := range o.Workers {
		c.AddWorker(fmt.Sprintf("w%d", i+1))
	}
	if o.Workers > 0 {
		c.AwaitOwned(time.Minute)
	}
	return c
}

func (o Options) withDefaults() Options {
	if o.Servers == 0 {
		o.Servers = 3
	}
	if o.Workers == 0 {
		o.Workers = 3
	}
	if o.Partitions == 0 {
		o.Partitions = 48
	}
	if o.Takeover == 0 {
		o.Takeover = leaseholdv1.Takeover_TAKEOVER_FENCED
	}
	return o
}

// tempDir is a directory of the test with a short name.
func tempDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "live")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (c *Cluster) startServers(o Options) {
	c.tb.Helper()
	binary := Binary(c.tb)
	ports := FreePorts(c.tb, 4*o.Servers)
	var gossip []string
	for i := range o.Servers {
		gossip = append(gossip, ports[4*i+2])
	}
	for i := range o.Servers {
		id, p := "s"+strconv.Itoa(i+1), ports[4*i:]
		line := []string{binary, "server", "--id", id, "--data-dir", filepath.Join(c.dir, id),
			"--grpc-addr", p[0], "--raft-addr", p[1], "--gossip-addr", p[2], "--http-addr", p[3],
			"--join", strings.Join(gossip, ","), "--bootstrap-expect", strconv.Itoa(o.Servers),
			"--election-timeout", ElectionTimeout.String()}
		s := &Server{Process: newProcess(c.tb, c.dir, id, append(line, o.ServerFlags...)...), ID: id, GRPC: p[0], HTTP: p[3]}
		s.Start()
		c.Servers = append(c.Servers, s)
	}
}

// Addrs are the gRPC addresses of the servers, separated by commas, as
// --server takes them.
func (c *Cluster) Addrs() string {
	var all []string
	for _, s := range c.Servers {
		all = append(all, s.GRPC)
	}
	return strings.Join(all, ",")
}

// Client reaches the cluster, whoever leads.
func (c *Cluster) Client() *client.Client { return c.client }

// AddWorker starts one more worker and waits until it serves its metrics.
func (c *Cluster) AddWorker(id string) *Worker {
	c.tb.Helper()
	addr := FreePorts(c.tb, 1)[0]
	w := &Worker{ID: id, HTTP: addr, Process: newProcess(c.tb, c.dir, id, workerBinary(c.tb), "-servers", c.Addrs(), "-id", id,
		"-keyspace", Keyspace, "-http-addr", addr, "-ledger", filepath.Join(c.dir, "ledger.db"))}
	w.Start()
	Await(c.tb, 30*time.Second, id+" serves", func() error { return get("http://"+addr+"/metrics", nil) })
	c.Workers = append(c.Workers, w)
	return w
}

// StandStill stops the worker's process, between two writes, until GoOn.
func (w *Worker) StandStill() { w.Signal(syscall.SIGUSR1) }

// GoOn ends StandStill. Call it when the worker is known to stand still.
func (w *Worker) GoOn() { w.Signal(syscall.SIGCONT) }

// Leader is the server that the cluster says leads. It waits for one.
func (c *Cluster) Leader() *Server {
	c.tb.Helper()
	var leader *Server
	Await(c.tb, 30*time.Second, "a leader", func() error {
		ctx, cancel := context.WithTimeout(c.tb.Context(), callTimeout)
		defer cancel()
		st, err := c.client.Cluster().GetStatus(ctx, &leaseholdv1.GetStatusRequest{})
		if err != nil {
			return err
		}
		for _, s := range c.Servers {
			if s.ID == st.GetLeaderId() {
				leader = s
				return nil
			}
		}
		return fmt.Errorf("leader %q", st.GetLeaderId())
	})
	return leader
}

// AwaitOwned waits until every partition has an owner.
func (c *Cluster) AwaitOwned(within time.Duration) {
	c.tb.Helper()
	Await(c.tb, within, "every partition has an owner", func() error {
		ctx, cancel := context.WithTimeout(c.tb.Context(), callTimeout)
		defer cancel()
		list, err := c.client.Partitions().ListPartitions(ctx, &leaseholdv1.ListPartitionsRequest{Keyspace: Keyspace, Unowned: true})
		if err == nil && len(list.GetItems()) > 0 {
			err = fmt.Errorf("%d have none", len(list.GetItems()))
		}
		return err
	})
}

// Held is how many partitions a worker has.
func (c *Cluster) Held(worker string) (int, error) {
	ctx, cancel := context.WithTimeout(c.tb.Context(), callTimeout)
	defer cancel()
	list, err := c.client.Partitions().ListPartitions(ctx, &leaseholdv1.ListPartitionsRequest{Keyspace: Keyspace, Worker: worker})
	return len(list.GetItems()), err
}
