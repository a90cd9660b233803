package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// nameServer answers DNS queries for IPv4 addresses of hosts, on UDP.
type nameServer struct {
	conn net.PacketConn
	done chan struct{}

	mu    sync.Mutex
	hosts map[string]net.IP
}

// serveNames makes this process ask a name server of its own until the test
// ends. Nothing else may look names up meanwhile: not for parallel tests.
func serveNames(t *testing.T) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &nameServer{conn: conn, done: make(chan struct{}), hosts: map[string]net.IP{}}
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		conn.Close()
		<-n.done
	})
	go func() {
		defer close(n.done)
		b := make([]byte, 1500)
		for {
			size, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if answer := n.answer(b[:size]); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return n
}

func (n *nameServer) set(host, ip string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[host] = net.ParseIP(ip).To4()
}

// answer is that to one question (RFC 1035 §4.1): the address, with a time to
// live of nothing; no address of another type; or that there is no such name.
func (n *nameServer) answer(query []byte) []byte {
	const head, typeA, noSuchName = 12, 1, 3
	if len(query) < head {
		return nil
	}
	at, labels := head, []string{}
	for at < len(query) && query[at] > 0 {
		size := int(query[at])
		if at+1+size >= len(query) {
			return nil
		}
		labels = append(labels, string(query[at+1:at+1+size]))
		at += 1 + size
	}
	if at+5 > len(query) {
		return nil
	}
	n.mu.Lock()
	ip := n.hosts[strings.ToLower(strings.Join(labels, "."))]
	n.mu.Unlock()
	answer := append([]byte{}, query[:at+5]...) // without what else was asked
	clear(answer[2:head])
	answer[2], answer[5] = 0x84, 1 // an answer, with authority, to one question
	switch {
	case ip == nil:
		answer[3] = noSuchName
	case binary.BigEndian.Uint16(query[at+1:]) == typeA:
		answer[7] = 1
		answer = append(answer, 0xc0, head, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4)
		answer = append(answer, ip...)
	}
	return answer
}

// O-41: servers know each other by names, in Raft's configuration, in gossip and
// for gRPC, and so does a client. One comes back at another address, and its
// name is changed. All look names up with each dial: nobody is restarted.
// Not parallel: the whole process asks the test's name server.
func TestPeerBehindANameThatChanges(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs all of 127.0.0.0/8 on the loopback interface, as Linux has it")
	}
	dns := serveNames(t)
	c := calm(t, 3)
	hosts := []string{"127.0.0.11", "127.0.0.2", "127.0.0.13"}
	at := func(i int, ip string) {
		cfg := &c.configs[i]
		for _, addr := range []*string{&cfg.GRPCAddr, &cfg.RaftAddr, &cfg.GossipAddr, &cfg.HTTPAddr} {
			*addr = net.JoinHostPort(ip, port(t, *addr))
		}
		dns.set(cfg.Advertise, ip)
	}
	var named []string
	for i := range c.configs {
		cfg := &c.configs[i]
		cfg.Advertise = cfg.ID + ".test"
		c.gossip[i] = net.JoinHostPort(cfg.Advertise, port(t, cfg.GossipAddr))
		named = append(named, net.JoinHostPort(cfg.Advertise, port(t, cfg.GRPCAddr)))
		at(i, hosts[i])
	}
	c.startAll()
	raftAddr := net.JoinHostPort("s2.test", port(t, c.configs[1].RaftAddr))
	cl, err := client.Dial(t.Context(), client.Config{Servers: named[1]})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	direct, err := cl.Open(named[1])
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	answers := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		st, err := leaseholdv1.NewClusterServiceClient(direct).GetStatus(ctx, &leaseholdv1.GetStatusRequest{}, grpc.WaitForReady(true))
		return err == nil && st.GetServerId() == "s2"
	}
	if !answers() {
		t.Fatal("s2 does not answer under its name")
	}
	create := func(name string) {
		t.Helper()
		eventually(t, 20*time.Second, "keyspace "+name+" is there", func() bool {
			_, err := cl.Keyspaces().CreateKeyspace(t.Context(), &leaseholdv1.CreateKeyspaceRequest{Name: name, Partitions: 1, TtlMs: 10_000})
			return err == nil || leaseholdv1.ReasonOf(err) == leaseholdv1.ReasonExists
		})
	}
	create("before")

	for _, ip := range []string{"127.0.0.22", "127.0.0.2"} { // and back
		c.vanish(1)
		at(1, ip)
		began := time.Now()
		c.start(1)
		c.ready()
		for _, i := range []int{0, 2} {
			eventually(t, 10*time.Second, "s2 is reached at "+ip, func() bool { return c.peer(i, "s2").GetGossip() == "alive" })
			if p := c.peer(i, "s2"); p.GetRaftAddr() != raftAddr || c.group(i) != "s1 s2 s3" {
				t.Errorf("%s knows s2 at %s in %s, want it at %s", c.configs[i].ID, p.GetRaftAddr(), c.group(i), raftAddr)
			}
		}
		took := time.Since(began)
		if !answers() {
			t.Errorf("s2 does not answer under its name at %s", ip)
		}
		// Whoever leads of s1 and s3 now needs s2 for each entry.
		c.vanish(2)
		create("at-" + ip)
		c.has(1, "before", "at-"+ip)
		c.start(2)
		c.ready()
		t.Logf("ready, and reached by all, %v after its start at %s", took.Round(time.Millisecond), ip)
		if took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
	}
}

func port(t *testing.T, addr string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(fmt.Errorf("port of %q: %w", addr, err))
	}
	return p
}
