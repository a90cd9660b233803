package server

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// O-67, as far as there is no router: two workers swap their endpoints. Every
// server names the owner and the endpoint of now, with the log index to compare
// answers by; nobody repeats the old address.
func TestEndpointsSwappedBetweenTwoWorkers(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 3)
	cl := c.client()
	createCold(t, cl, "orders", 8, 10*time.Second)
	const x, y = "10.0.0.1:9000", "10.0.0.2:9000"
	join := func(id, endpoint string) *hand {
		return startHand(t, worker.Config{Servers: c.servers(), ID: id, Endpoint: endpoint, Gossip: worker.GossipOff}, "orders", untilTold)
	}
	located := func(i int) (owners, endpoints map[string]string, index uint64) {
		owners, endpoints = map[string]string{}, map[string]string{}
		for p := range uint32(8) {
			code, m := c.postJSON(i, leaseholdv1.PartitionService_GetPartition_FullMethodName, map[string]any{"keyspace": "orders", "partition": p})
			owner, _ := m["owner"].(string)
			endpoint, _ := m["endpoint"].(string)
			if code != http.StatusOK || owner == "" {
				return nil, nil, 0
			}
			owners[owner], endpoints[endpoint] = endpoint, owner
		}
		p, err := cl.Partitions().Locate(t.Context(), &leaseholdv1.LocateRequest{Keyspace: "orders", Key: []byte("k")})
		if err != nil {
			t.Fatalf("locate: %v", err)
		}
		owners[p.GetOwner()] = p.GetEndpoint() // must be right as the others are
		return owners, endpoints, p.GetIndex()
	}
	a, b := join("a", x), join("b", y)
	eventually(t, 20*time.Second, "both own some", func() bool { o, _, _ := located(0); return o["a"] == x && o["b"] == y })
	_, _, before := located(0)
	a.cancel()
	b.cancel()
	for _, h := range []*hand{a, b} {
		if err := h.wait(); err != nil {
			t.Fatal(err)
		}
	}
	join("b", x)
	join("a", y)
	for i := range 3 {
		eventually(t, 30*time.Second, "the new endpoints are named", func() bool {
			owners, endpoints, index := located(i)
			for owner, endpoint := range owners {
				if want := map[string]string{"a": y, "b": x}[owner]; endpoint != want {
					t.Fatalf("server %d: %s is at %s, not at %s", i, owner, want, endpoint)
				}
			}
			return len(owners) == 2 && len(endpoints) == 2 && index > before
		})
	}
}

// nastyKeys are O-70's.
var nastyKeys = []string{"", "\x00", "a\x00b", "\xff", strings.Repeat("k", 1<<20), "\u00e9", "e\u0301", "a ", "a", "a/../b", "😀"}

// O-70: a key belongs to the same partition for a server, for its JSON twin,
// for a follower, and for the owner's library: the lease that contains it is
// that of the partition named, and no other does.
func TestNastyKeysGiveTheSamePartitionEverywhere(t *testing.T) {
	t.Parallel()
	const partitions = 97
	c := quickCluster(t, 3)
	cl := c.client()
	createCold(t, cl, "orders", partitions, 20*time.Second)
	leases := make(chan *worker.Lease, partitions)
	startHand(t, worker.Config{Servers: c.servers(), ID: "w1", Gossip: worker.GossipOff}, "orders", func(ctx context.Context, l *worker.Lease) error {
		leases <- l
		return untilTold(ctx, l)
	})
	var held []*worker.Lease
	for len(held) < partitions {
		select {
		case l := <-leases:
			held = append(held, l)
		case <-time.After(time.Minute):
			t.Fatalf("only %d leases", len(held))
		}
	}
	seen := map[uint32]string{}
	for _, key := range nastyKeys {
		p, err := cl.Partitions().Locate(t.Context(), &leaseholdv1.LocateRequest{Keyspace: "orders", Key: []byte(key)})
		if err != nil {
			t.Fatalf("%.20q: %v", key, err)
		}
		for i := range 3 {
			code, m := c.postJSON(i, leaseholdv1.PartitionService_Locate_FullMethodName, map[string]any{"keyspace": "orders", "key": base64.StdEncoding.EncodeToString([]byte(key))})
			if n, _ := m["partition"].(float64); code != http.StatusOK || uint32(n) != p.GetPartition() || m["range_first"] != p.GetRangeFirst() {
				t.Errorf("%.20q at server %d as JSON: %d %.200v, want %d", key, i, code, m, p.GetPartition())
			}
		}
		for _, l := range held {
			if l.Contains([]byte(key)) != (l.Partition() == p.GetPartition()) {
				t.Errorf("%.20q: the lease of partition %d contains it: %v; the server says %d", key, l.Partition(), l.Contains([]byte(key)), p.GetPartition())
			}
		}
		seen[p.GetPartition()] = key
	}
	if len(seen) < len(nastyKeys)-2 {
		t.Errorf("%d keys in %d partitions: they seem to be normalised", len(nastyKeys), len(seen))
	}
}
