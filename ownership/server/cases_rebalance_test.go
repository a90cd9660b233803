package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// createCold makes a keyspace that waits for the workers of its cold start.
func createCold(t *testing.T, cl *client.Client, name string, partitions uint32, ttl time.Duration) {
	t.Helper()
	delay := (2 * time.Second).Milliseconds()
	create(t, cl, &leaseholdv1.CreateKeyspaceRequest{
		Name: name, Partitions: partitions, TtlMs: ttl.Milliseconds(), InitialDelayMs: &delay,
	})
}

func ids(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("w%d", i+1))
	}
	return all
}

// O-22: one of the workers leaves. The others are not interrupted once, and
// what it held is granted once: three partitions on three workers, and thirty
// on ten.
func TestOneWorkerLeavesAndNobodyElseIsInterrupted(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	cl := c.client()
	type group struct {
		keyspace      string
		size, workers int
		starts        int // of handlers, before one leaves
		crew          *crew
		leaver        string
		stop          func()
		before        map[uint32]uint64
		left          map[uint32]bool
	}
	groups := []*group{{keyspace: "three", size: 3, workers: 3}, {keyspace: "thirty", size: 30, workers: 10}}
	for _, g := range groups {
		createCold(t, cl, g.keyspace, uint32(g.size), 10*time.Second)
		g.crew, g.left, g.leaver = newCrew(t, c.servers()), map[uint32]bool{}, g.keyspace+"-2"
		var names []string
		for i := range g.workers {
			names = append(names, fmt.Sprintf("%s-%d", g.keyspace, i+1))
		}
		g.stop = g.crew.joinAll(g.keyspace, names...)[g.leaver]
		eventually(t, 30*time.Second, "each has its share", func() bool {
			for _, n := range g.crew.shares(names) {
				if n != g.size/g.workers {
					return false
				}
			}
			return true
		})
		g.before, g.starts = g.crew.tokens(), g.crew.begun()
		for p := range g.before {
			g.left[p] = g.crew.owner(p) == g.leaver
		}
	}
	begin := c.revision(cl)
	for _, g := range groups {
		g.stop()
		eventually(t, 10*time.Second, "all is held again", func() bool { return g.crew.held("") == g.size })
	}
	groups[0].crew.quiet(3500 * time.Millisecond) // past the wait of a balance move
	for _, g := range groups {
		for p, token := range g.crew.tokens() {
			if moved := token != g.before[p]; moved != g.left[p] {
				t.Errorf("partition %d: token %d, then %d; it was the leaver's: %v", p, g.before[p], token, g.left[p])
			}
		}
		if n := g.crew.begun() - g.starts; n != g.size/g.workers {
			t.Errorf("%d handlers were started for the %d partitions that moved", n, g.size/g.workers)
		}
	}
	for _, e := range c.eventsAfter(cl, begin, "drain", "release", "revoke", "expire") {
		if leaver := e.GetKeyspace() + "-2"; e.GetWorker() != leaver && e.GetFrom() != leaver {
			t.Errorf("%s interrupts %s", e.GetKind(), e.GetWorker())
		}
	}
}

// quiet lets time go by and fails when a handler starts meanwhile.
func (c *crew) quiet(d time.Duration) {
	c.t.Helper()
	before := c.begun()
	<-time.After(d)
	if n := c.begun() - before; n != 0 {
		c.t.Errorf("%d handlers were started in %v of peace", n, d)
	}
}

// settled waits until something is so and no handler has started for longer than
// a balance move waits: workers that come late, as they do on a busy machine,
// are given theirs after the cold start.
func (c *crew) settled(limit time.Duration, what string, ok func() bool) {
	c.t.Helper()
	starts, since := -1, time.Now()
	eventually(c.t, limit, what, func() bool {
		if n := c.begun(); n != starts || !ok() {
			starts, since = n, time.Now()
		}
		return time.Since(since) > 4*time.Second
	})
}

// begun counts the handlers that were started so far.
func (c *crew) begun() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.starts
}

// O-24: fifty partitions, one after the other slow to start, for far longer
// than the TTL. Keep-alives go on, nothing moves, and the start can be watched.
func TestFiftySlowStartsStarveNoKeepAlive(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	cl := c.client()
	const ttl = 3 * time.Second
	createKeyspace(t, cl, "orders", 50, ttl, leaseholdv1.Takeover_TAKEOVER_STRICT)
	begin := c.revision(cl)
	var one sync.Mutex // a resource that serves one at a time
	var started, ended atomic.Int32
	startHand(t, worker.Config{Servers: c.servers(), ID: "w1", Gossip: worker.GossipOff}, "orders", func(ctx context.Context, l *worker.Lease) error {
		one.Lock()
		<-time.After(150 * time.Millisecond)
		one.Unlock()
		l.Ready()
		started.Add(1)
		defer ended.Add(1)
		return untilTold(ctx, l)
	})
	seen := map[int32]bool{}
	eventually(t, 30*time.Second, "all have started", func() bool { n := started.Load(); seen[n] = true; return n == 50 })
	if len(seen) < 10 {
		t.Errorf("the starts were not one after the other: %d steps", len(seen))
	}
	if n := ended.Load(); n > 0 {
		t.Errorf("%d handlers ended", n)
	}
	if n := len(c.eventsAfter(cl, begin, "session_open")); n != 1 {
		t.Errorf("%d sessions", n)
	}
	if n := len(c.eventsAfter(cl, begin, "grant")); n != 50 {
		t.Errorf("%d grants of 50 partitions", n)
	}
	if w := c.workersByID(cl)["w1"]; w.GetHeld() != 50 || w.GetTtlMs() != ttl.Milliseconds() {
		t.Errorf("worker = %v", w)
	}
}

// O-26: room for 120 of 121 partitions. 120 are owned, the one that is not is
// named with its reason, as JSON too, and a gauge shows it; nothing moves. With
// room for all, all are owned.
func TestCapacityBelowThePartitionsIsNamed(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	cl := c.client()
	createCold(t, cl, "tight", 121, 10*time.Second)
	createCold(t, cl, "fits", 120, 10*time.Second)
	held := map[string]*atomic.Int32{"tight": {}, "fits": {}}
	for keyspace, n := range held {
		for _, id := range ids(3) {
			startHand(t, worker.Config{Servers: c.servers(), ID: keyspace + "-" + id, Capacity: 40, Gossip: worker.GossipOff}, keyspace, func(ctx context.Context, l *worker.Lease) error {
				n.Add(1)
				defer n.Add(-1)
				return untilTold(ctx, l)
			})
		}
	}
	eventually(t, 30*time.Second, "what fits is held", func() bool { return held["tight"].Load() == 120 && held["fits"].Load() == 120 })
	begin := c.revision(cl)
	var orphan *leaseholdv1.Partition
	eventually(t, 5*time.Second, "the one without an owner is told with its reason", func() bool {
		orphan = nil
		for _, p := range c.partitions(cl, "tight") {
			if p.GetOwner() != "" {
				continue
			}
			if orphan != nil {
				t.Errorf("partitions %d and %d have no owner", orphan.GetPartition(), p.GetPartition())
			}
			orphan = p
		}
		return orphan.GetState() == leaseholdv1.PartitionState_PARTITION_STATE_UNOWNED && strings.Contains(orphan.GetReason(), "capacity")
	})
	code, m := c.postJSON(0, leaseholdv1.PartitionService_GetPartition_FullMethodName, map[string]any{"keyspace": "tight", "partition": orphan.GetPartition()})
	if reason, _ := m["reason"].(string); code != http.StatusOK || !strings.Contains(reason, "capacity") {
		t.Errorf("as JSON: %d %v", code, m)
	}
	for _, series := range []string{
		`leasehold_partitions{keyspace="tight",state="owned"} 120`, `leasehold_partitions{keyspace="tight",state="unowned"} 1`,
		`leasehold_partitions{keyspace="fits",state="owned"} 120`, `leasehold_partitions{keyspace="fits",state="unowned"} 0`,
	} {
		eventually(t, 5*time.Second, "the metrics have "+series, func() bool { return strings.Contains(c.metrics(0), series) })
	}
	<-time.After(3500 * time.Millisecond) // past the wait of a balance move; minutes of it are the planner's test
	if moves := c.eventsAfter(cl, begin, "grant", "drain", "release", "revoke"); len(moves) > 0 {
		t.Errorf("%d moves with nothing to gain, the first: %v", len(moves), moves[0])
	}
}
