package server

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/router"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// startRouter runs a router until the test ends, and waits for its table.
func startRouter(t *testing.T, cfg router.Config) *router.Router {
	t.Helper()
	r, err := router.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("router: %+v", r.Stats())
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("router: %v", err)
		}
	})
	wait, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	if err := r.WaitReady(wait); err != nil {
		t.Fatal(err)
	}
	return r
}

// served is a worker that answers HTTP for the partitions it holds.
type served struct {
	*hand
	held router.Holdings
	hits atomic.Int64 // requests that reached its address
	srv  *http.Server
}

// serve joins a worker whose HTTP server listens at addr.
func (c *cluster) serve(t *testing.T, id, addr string, where router.Locator) *served {
	t.Helper()
	s := &served{}
	answer := router.NotOwner(&s.held, where, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", id, body)
	}))
	s.srv = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		answer.ServeHTTP(w, r)
	})}
	var l net.Listener
	eventually(t, 10*time.Second, "the address is free", func() bool {
		var err error
		l, err = net.Listen("tcp", addr)
		return err == nil
	})
	go s.srv.Serve(l)
	t.Cleanup(func() { s.srv.Close() })
	s.hand = startHand(t, worker.Config{Servers: c.servers(), ID: id, Endpoint: addr, Gossip: worker.GossipOff}, "orders", func(ctx context.Context, l *worker.Lease) error {
		defer s.held.Add(l.Keyspace(), l.Partition(), uint64(l.Token()), l.Check)()
		return untilTold(ctx, l)
	})
	return s
}

// stop ends the worker and its server.
func (s *served) stop(t *testing.T) {
	t.Helper()
	s.cancel()
	if err := s.wait(); err != nil {
		t.Fatal(err)
	}
	s.srv.Close()
}

// frozen stands between a proxy and the truth: a table that no event reaches.
// Its router hears of nothing but hints, as one does in the moment after a
// move.
func (c *cluster) frozen(t *testing.T, keyspace string) *router.Router {
	t.Helper()
	l := newLine()
	r := startRouter(t, router.Config{Servers: c.servers(), Keyspaces: []string{keyspace}, Dialer: l.dial, Heartbeat: time.Minute, StaleAfter: time.Hour})
	l.freeze()
	t.Cleanup(l.thaw)
	return r
}

// O-67: two workers swap their ports. The proxy's table still names the old
// address, behind which the other worker answers now: it says who the owner
// is, and the request succeeds with one more hop. No address is asked twice.
func TestPortsSwappedBetweenTwoWorkers(t *testing.T) {
	t.Parallel()
	const partitions = 8
	c := quickCluster(t, 3)
	createCold(t, c.client(), "orders", partitions, 10*time.Second)
	current := startRouter(t, router.Config{Servers: c.servers(), Keyspaces: []string{"orders"}})
	x, y := freeAddr(t), freeAddr(t)
	// settled: each owns its half, so that nothing moves any more, is known to be
	// where it is, and has begun its handlers, which is after its leases are known.
	settled := func(owners map[string]*served, endpoints map[string]string) func() bool {
		return func() bool {
			owned := map[string]int{}
			for p := range uint32(partitions) {
				at, err := current.At("orders", p)
				if err != nil || at.Endpoint != endpoints[at.Owner] {
					return false
				}
				if token, ok := owners[at.Owner].held.Holds("orders", p); !ok || token != at.Token {
					return false
				}
				owned[at.Owner]++
			}
			return owned["a"] == partitions/2
		}
	}
	a, b := c.serve(t, "a", x, current), c.serve(t, "b", y, current)
	eventually(t, 90*time.Second, "both own their half", settled(map[string]*served{"a": a, "b": b}, map[string]string{"a": x, "b": y}))
	old := c.frozen(t, "orders")
	p, err := router.NewProxy(router.ProxyConfig{Router: old, Keyspace: "orders", Key: func(r *http.Request) ([]byte, error) { return []byte(r.URL.Path), nil }})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(p)
	defer p.CloseIdleConnections()
	defer front.Close()
	post := func(path string) (string, error) {
		resp, err := front.Client().Post(front.URL+path, "text/plain", strings.NewReader("body of "+path))
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK {
			return "", fmt.Errorf("%s: %s", resp.Status, body)
		}
		return string(body), err
	}
	// A path for each partition.
	paths := map[uint32]string{}
	for n := 0; len(paths) < partitions; n++ {
		path := fmt.Sprintf("/customers/%d", n)
		q, err := old.Partition("orders", []byte(path))
		if err != nil {
			t.Fatal(err)
		}
		paths[q] = path
	}
	for _, path := range paths {
		if _, err := post(path); err != nil {
			t.Fatalf("before the swap: %v", err)
		}
	}
	before := map[uint32]router.Route{}
	for q := range paths {
		before[q], _ = old.At("orders", q)
	}
	a.stop(t)
	b.stop(t)
	p.CloseIdleConnections() // they are broken; noticing that is not this test's
	b2, a2 := c.serve(t, "b", x, current), c.serve(t, "a", y, current)
	eventually(t, 90*time.Second, "both own their half at the other address", settled(map[string]*served{"a": a2, "b": b2}, map[string]string{"a": y, "b": x}))

	swapped := 0
	for q, path := range paths {
		now, _ := current.At("orders", q)
		hits := a2.hits.Load() + b2.hits.Load()
		wrong := map[string]*served{x: b2, y: a2}[before[q].Endpoint]
		atWrong := wrong.hits.Load()
		got, err := post(path)
		if want := now.Owner + " body of " + path; err != nil || got != want {
			t.Errorf("partition %d: %q, %v; want %q", q, got, err, want)
		}
		moved := now.Endpoint != before[q].Endpoint
		if moved {
			swapped++
		}
		if n := a2.hits.Load() + b2.hits.Load() - hits; n != map[bool]int64{true: 2, false: 1}[moved] {
			t.Errorf("partition %d, moved %v: %d requests were sent", q, moved, n)
		}
		if n := wrong.hits.Load() - atWrong; moved && n != 1 {
			t.Errorf("partition %d: the wrong address was asked %d times", q, n)
		}
		if _, err := post(path); err != nil || moved && wrong.hits.Load() != atWrong+1 {
			t.Errorf("partition %d: the next request went to the wrong address again, %v", q, err)
		}
	}
	if s := p.Stats(); swapped == 0 || s.Retried != uint64(swapped) || s.Failed != 0 {
		t.Errorf("%d partitions had their owner elsewhere, stats %+v", swapped, s)
	}
}

// O-70: the router finds the partition that servers, their JSON and the owner's
// lease find, whatever bytes a key has.
func TestNastyKeysAreRoutedToTheirPartition(t *testing.T) {
	t.Parallel()
	const partitions = 97
	c := quickCluster(t, 3)
	cl := c.client()
	createCold(t, cl, "orders", partitions, 20*time.Second)
	var mu sync.Mutex
	leases := map[uint32]*worker.Lease{}
	startHand(t, worker.Config{Servers: c.servers(), ID: "w1", Endpoint: "10.0.0.1:9000", Gossip: worker.GossipOff}, "orders", func(ctx context.Context, l *worker.Lease) error {
		mu.Lock()
		leases[l.Partition()] = l
		mu.Unlock()
		return untilTold(ctx, l)
	})
	r := startRouter(t, router.Config{Servers: c.servers(), Keyspaces: []string{"orders"}})
	eventually(t, 20*time.Second, "all are owned", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for p := range uint32(partitions) {
			if _, err := r.At("orders", p); err != nil || leases[p] == nil {
				return false
			}
		}
		return true
	})
	for _, key := range nastyKeys {
		at, err := r.Lookup("orders", []byte(key))
		if err != nil {
			t.Errorf("%.20q: %v", key, err)
			continue
		}
		p, err := cl.Partitions().Locate(t.Context(), &leaseholdv1.LocateRequest{Keyspace: "orders", Key: []byte(key)})
		if err != nil || p.GetPartition() != at.Partition || p.GetToken() != at.Token || p.GetOwner() != at.Owner || p.GetEndpoint() != at.Endpoint {
			t.Errorf("%.20q (%.20s): router %+v, server %v, %v", key, hex.EncodeToString([]byte(key)), at, p, err)
		}
		code, m := c.postJSON(1, leaseholdv1.PartitionService_Locate_FullMethodName, map[string]any{"keyspace": "orders", "key": base64.StdEncoding.EncodeToString([]byte(key))})
		if n, _ := m["partition"].(float64); code != http.StatusOK || uint32(n) != at.Partition {
			t.Errorf("%.20q: router %d, JSON %d %.200v", key, at.Partition, code, m)
		}
		mu.Lock()
		l := leases[at.Partition]
		mu.Unlock()
		if !l.Contains([]byte(key)) || uint64(l.Token()) != at.Token {
			t.Errorf("%.20q: the lease of partition %d with token %d does not contain it, router %+v", key, l.Partition(), l.Token(), at)
		}
	}
}

// O-68, O-69 for a router: the leader is killed, then the server it follows is
// lost, while workers come and go. The table stays, no lookup fails that should
// not, and in the end it is what the servers have. Routers follow different
// servers and agree.
func TestRoutersAgreeAfterLeadersWereLost(t *testing.T) {
	t.Parallel()
	const partitions = 64
	c := quickCluster(t, 3)
	cl := c.client()
	createCold(t, cl, "orders", partitions, 10*time.Second)
	join := func(id string) *hand {
		return startHand(t, worker.Config{Servers: c.servers(), ID: id, Endpoint: id + ":9000", Gossip: worker.GossipOff}, "orders", untilTold)
	}
	join("w1")
	join("w2")
	var routers []*router.Router
	for i := range 3 {
		routers = append(routers, startRouter(t, router.Config{Servers: c.servers(), Keyspaces: []string{"orders"}, AnyServer: i > 0, Heartbeat: 200 * time.Millisecond, Logger: testLogger(t, fmt.Sprint("router", i))}))
	}
	agree := func() bool {
		for _, p := range c.partitions(cl, "orders") {
			for _, r := range routers {
				at, err := r.At("orders", p.GetPartition())
				if err != nil || at.Owner != p.GetOwner() || at.Endpoint != p.GetEndpoint() || at.Token != p.GetToken() {
					return false
				}
			}
		}
		return true
	}
	eventually(t, 20*time.Second, "all routers have the servers' table", agree)
	tokens := make([]uint64, partitions)
	for round := range 2 {
		leader := c.leader()
		c.stopServer(leader)
		join(fmt.Sprint("w", 3+round))
		for p := range uint32(partitions) {
			at, err := routers[0].At("orders", p)
			if err != nil || at.Token < tokens[p] {
				t.Errorf("while there is no leader: %+v, %v", at, err)
			}
			tokens[p] = at.Token
		}
		c.leader()
		eventually(t, 90*time.Second, "the new worker owns some, and all routers know", func() bool {
			owns := false
			for p := range uint32(partitions) {
				at, _ := routers[0].At("orders", p)
				owns = owns || at.Owner == fmt.Sprint("w", 3+round)
			}
			return owns && agree()
		})
		c.start(leader)
		c.ready()
	}
	for i, r := range routers {
		eventually(t, 10*time.Second, "a router hears of its server", func() bool { return !r.Stats().Stale })
		if s := r.Stats(); s.Lists != 1 {
			t.Errorf("router %d: %+v; a lost server should cost no list", i, s)
		}
	}
}
