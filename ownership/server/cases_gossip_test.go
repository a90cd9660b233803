package server

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// crash ends a server without a goodbye, as far as a server in this process can.
func (c *cluster) crash(i int) {
	c.t.Helper()
	r := c.running[i]
	c.running[i] = nil
	if err := r.gossip.Shutdown(context.Background()); err != nil {
		c.t.Error(err)
	}
	r.stop()
	<-r.done // it says that gossip ended by itself
}

// knownPeers counts what a server has written down for its next start.
func knownPeers(dir string) int {
	b, err := os.ReadFile(filepath.Join(dir, "known-peers"))
	if err != nil {
		return 0
	}
	return bytes.Count(b, []byte("\ns/")) + bytes.Count(b, []byte("\nw/"))
}

// O-02, O-40: all servers are killed and come back three seconds later, none at
// an address that a worker was configured with or has ever heard of. They find
// the workers in their files, and the workers' gossip shows them the servers.
func TestWorkersFindServersThatAllMoved(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 3)
	createKeyspace(t, c.client(), "orders", 12, 40*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
	crew := newCrew(t, c.servers())
	for _, id := range []string{"w1", "w2", "w3"} {
		crew.join(id, "orders")
	}
	eventually(t, 40*time.Second, "all is held and every server knows the workers", func() bool {
		for _, r := range c.running {
			for _, id := range []string{"w1", "w2", "w3"} {
				if m, ok := r.gossip.Member(gossip.Name(gossip.RoleWorker, id)); !ok || m.Meta.ClusterID == "" {
					return false
				}
			}
		}
		return crew.held("w1") == 4 && crew.held("w2") == 4 && crew.held("w3") == 4
	})
	before := crew.tokens()
	for _, cfg := range c.configs {
		eventually(t, 10*time.Second, cfg.ID+" has written down the workers", func() bool { return knownPeers(cfg.DataDir) == 2+3 })
	}
	for i := range c.configs {
		c.crash(i)
	}
	down := time.After(3 * time.Second)
	for i := range c.configs {
		c.gossip[i] = freeAddr(t)
	}
	for i := range c.configs {
		cfg := &c.configs[i]
		cfg.GRPCAddr, cfg.RaftAddr, cfg.GossipAddr, cfg.Join = freeAddr(t), freeAddr(t), c.gossip[i], c.gossip
	}
	<-down
	back := time.Now()
	for i := range c.configs {
		c.start(i)
	}
	c.ready()
	cl := c.client()
	eventually(t, 15*time.Second, "the workers are with the moved servers", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		ws, err := cl.Workers().ListWorkers(ctx, &leaseholdv1.ListWorkersRequest{})
		attached := 0
		for _, w := range ws.GetItems() {
			if w.GetAttached() {
				attached++
			}
		}
		return err == nil && attached == 3
	})
	t.Logf("workers found the servers %v after those were started", time.Since(back).Round(time.Millisecond))
	if after := crew.tokens(); len(after) != 12 {
		t.Errorf("%d of 12 partitions are held", len(after))
	} else {
		for p, token := range before {
			if after[p] != token {
				t.Errorf("partition %d went from token %d to %d", p, token, after[p])
			}
		}
	}
}

// O-30: two clusters with the same label and the same server names. A server of
// B comes back with an address of A among its seeds. Members stay three and
// three, both sides name the other cluster, and nothing changes its owner.
func TestTwoClustersAndOneWrongSeedStayTwo(t *testing.T) {
	t.Parallel()
	a, b := quickCluster(t, 3), quickCluster(t, 3)
	var crews []*crew
	for i, c := range []*cluster{a, b} {
		createKeyspace(t, c.client(), "orders", 8, 30*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
		crew := newCrew(t, c.servers())
		crew.join([]string{"worker-of-a", "worker-of-b"}[i], "orders")
		crews = append(crews, crew)
	}
	for i, c := range crews {
		eventually(t, 40*time.Second, "all is held and gossip is whole", func() bool {
			return c.held("") == 8 && whole([]*cluster{a, b}[i])
		})
	}
	before := []map[uint32]uint64{crews[0].tokens(), crews[1].tokens()}
	b.stopServer(1)
	b.configs[1].Join = append([]string{a.gossip[0]}, b.gossip...)
	b.start(1)
	b.ready()
	eventually(t, 20*time.Second, "B is whole again and both have refused", func() bool {
		return whole(b) && b.running[1].gossip.Stats().Strangers > 0 && a.running[0].gossip.Stats().Strangers > 0
	})
	// The wrong seed has been refused; a second look would come in a minute.
	for i, c := range []*cluster{a, b} {
		for _, r := range c.running {
			if members := r.gossip.Members(); len(members) != 3+1 || slices.ContainsFunc(members, func(m gossip.Member) bool { return m.Meta.ClusterID != r.store.ClusterID() }) {
				t.Errorf("cluster %d sees %+v", i, members)
			}
		}
		eventually(t, 20*time.Second, "a cluster is whole", func() bool { return whole(c) }) // a busy machine doubts members
		after := crews[i].tokens()
		for p, token := range before[i] {
			if after[p] != token {
				t.Errorf("cluster %d: partition %d went from token %d to %d", i, p, token, after[p])
			}
		}
	}
	if x, y := a.running[0].store.ClusterID(), b.running[0].store.ClusterID(); x == y {
		t.Errorf("both are cluster %s", x)
	}
}

// whole tells whether each server's gossip shows its own cluster's three servers
// and one worker, and nobody else.
func whole(c *cluster) bool {
	for _, r := range c.running {
		members := r.gossip.Members()
		for _, m := range members {
			if !m.Up() || m.Meta.ClusterID != r.store.ClusterID() {
				return false
			}
		}
		if len(members) != 3+1 {
			return false
		}
	}
	return true
}
