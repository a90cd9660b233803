package server

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// Connections that begin no handshake, thousands of them, from one machine and from
// many: those who are connected do not notice, and whoever comes is let in.
func TestHalfOpenConnectionsAreInNobodysWay(t *testing.T) {
	const each = 5000 / 2
	if _, _, files := processFigures(); files > 0 && files < 3*each+1000 {
		t.Skipf("%d open files are too few for this", files)
	}
	c, ca := secureCluster(t, 1)
	c.startAll()
	createKeyspace(t, c.client(), "orders", 4, 6*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	w := startHand(t, worker.Config{Servers: c.servers(), ID: "w1", TLS: ca.Client(ca.Worker("w1")), Gossip: worker.GossipOff}, "orders", untilTold)
	owned := func() float64 { return c.scrape(0)[`leasehold_partitions{keyspace="orders",state="owned"}`] }
	eventually(t, 20*time.Second, "the worker has all partitions", func() bool { return owned() == 4 })
	granted := c.scrape(0)[`leasehold_lease_grants_total{keyspace="orders"}`]

	addrs := c.running[0].Addrs()
	began := time.Now()
	for i := range each {
		for _, to := range []string{addrs.GRPC, addrs.Raft} {
			from := net.IPv4(127, 0, byte(1+i%20), 1)
			if i%2 == 0 {
				from = net.IPv4(127, 0, 0, 9)
			}
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: 10 * time.Second}
			conn, err := d.DialContext(t.Context(), "tcp", to)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
	}
	opened := time.Since(began)
	series := c.scrape(0)
	if now := series[`leasehold_connections{listener="grpc"}`]; now > 2*256 {
		t.Errorf("%v connections are held", now)
	}
	if series[`leasehold_limit_rejections_total{limit="handshakes"}`] == 0 {
		t.Error("nothing was refused")
	}
	began = time.Now()
	eventually(t, 20*time.Second, "a newcomer is served", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		cl, err := client.Dial(ctx, client.Config{Servers: c.servers(), TLS: ca.Client(ca.Reader("new"))})
		if err != nil {
			return false
		}
		defer cl.Close()
		_, err = cl.Keyspaces().ListKeyspaces(ctx, &leaseholdv1.ListKeyspacesRequest{})
		return err == nil
	})
	t.Logf("%d connections in %v; a newcomer was served after %v", 2*each, opened, time.Since(began))
	if owned() != 4 || c.scrape(0)[`leasehold_lease_grants_total{keyspace="orders"}`] != granted {
		t.Error("the worker has lost a partition")
	}
	select {
	case err := <-w.done:
		t.Errorf("the worker ended: %v", err)
	default:
	}
}
