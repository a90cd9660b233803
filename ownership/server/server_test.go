package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// crew are workers in this process that write down what they hold.
type crew struct {
	t       *testing.T
	servers string
	mu      sync.Mutex
	live    map[uint32]map[string]uint64 // partition → worker → token of a live context
	highest map[uint32]uint64
	starts  int
}

func newCrew(t *testing.T, servers string) *crew {
	return &crew{t: t, servers: servers, live: map[uint32]map[string]uint64{}, highest: map[uint32]uint64{}}
}

// join starts a worker and returns how to stop it with SIGTERM's meaning.
func (c *crew) join(id, keyspace string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	w, err := worker.Join(ctx, worker.Config{Servers: c.servers, ID: id, Logger: testLogger(c.t, id)})
	if err != nil {
		c.t.Fatalf("join %s: %v", id, err)
	}
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, keyspace, c.handler(id)) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, worker.ErrShutdown) {
				c.t.Errorf("worker %s: %v", id, err)
			}
		})
	}
	c.t.Cleanup(stop)
	return stop
}

func (c *crew) handler(id string) worker.Handler {
	return func(ctx context.Context, l *worker.Lease) error {
		p, token := l.Partition(), uint64(l.Token())
		c.mu.Lock()
		if c.live[p] == nil {
			c.live[p] = map[string]uint64{}
		}
		if len(c.live[p]) > 0 {
			c.t.Errorf("partition %d: %s starts under token %d while %v", p, id, token, c.live[p])
		}
		if token <= c.highest[p] {
			c.t.Errorf("partition %d: token %d after %d", p, token, c.highest[p])
		}
		c.highest[p] = token
		c.live[p][id] = token
		c.starts++
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			delete(c.live[p], id)
			c.mu.Unlock()
		}()
		select {
		case <-l.Draining():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *crew) held(id string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, owners := range c.live {
		if _, ok := owners[id]; ok || id == "" && len(owners) > 0 {
			n++
		}
	}
	return n
}

func (c *crew) tokens() map[uint32]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[uint32]uint64{}
	for p, owners := range c.live {
		for _, token := range owners {
			out[p] = token
		}
	}
	return out
}

func TestOneServerServesWorkers(t *testing.T) {
	c := newCluster(t, 1)
	c.startAll()
	createKeyspace(t, c.client(), "orders", 32, 3*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
	crew := newCrew(t, c.servers())
	crew.join("w1", "orders")
	eventually(t, 10*time.Second, "w1 holds all", func() bool { return crew.held("w1") == 32 })
	stop := crew.join("w2", "orders")
	eventually(t, 30*time.Second, "w2 has its share", func() bool { return crew.held("w2") >= 14 && crew.held("") == 32 })
	stop()
	eventually(t, 10*time.Second, "w1 holds all again", func() bool { return crew.held("w1") == 32 })

	resp, err := http.Get("http://" + c.running[0].Addrs().HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	for _, series := range []string{`leasehold_partitions{keyspace="orders",state="owned"} 32`, "\nleasehold_raft_is_leader 1\n", `leasehold_lease_grants_total{keyspace="orders"}`} {
		if !strings.Contains(string(body), series) {
			t.Errorf("metrics do not have %s", series)
		}
	}
}

func TestThreeServersFormAndSurvive(t *testing.T) {
	c := newCluster(t, 3)
	c.startAll()
	createKeyspace(t, c.client(), "orders", 64, 20*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
	crew := newCrew(t, c.servers())
	for _, id := range []string{"w1", "w2", "w3"} {
		crew.join(id, "orders")
	}
	eventually(t, 40*time.Second, "all is held evenly", func() bool {
		return crew.held("") == 64 && crew.held("w1") >= 21 && crew.held("w2") >= 21 && crew.held("w3") >= 21
	})
	before := crew.tokens()
	unmoved := func(when string) {
		t.Helper()
		after := crew.tokens()
		for p, token := range before {
			if after[p] != token {
				t.Errorf("%s: partition %d went from token %d to %d", when, p, token, after[p])
			}
		}
	}
	for i := range c.configs {
		c.stopServer(i)
		c.leader()
		c.start(i)
		c.ready()
		unmoved("after the restart of server " + c.configs[i].ID)
	}
	c.stopAll()
	c.startAll()
	eventually(t, 10*time.Second, "all is held", func() bool { return crew.held("") == 64 })
	unmoved("after the restart of all")
}
