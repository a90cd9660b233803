package gossip

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testLabel = "test-cluster"

// harness runs members in one bubble.
type harness struct {
	t    *testing.T
	net  *memnet
	next int
	all  []*testMember

	ip       net.IP // of the next member, if set
	resolver func(context.Context, string) ([]net.IP, error)
}

// open gives the next member its transport.
func (h *harness) open() *memport {
	if ip := h.ip; ip != nil {
		h.ip = nil
		return h.net.listenOn(ip)
	}
	defer func() { h.next++ }()
	return h.net.listen(h.next)
}

type testMember struct {
	*Gossip
	port     *memport
	counts   *counting
	log      *syncBuffer
	finished chan error
	cancel   context.CancelFunc
}

// inBubble runs f with fake time and stops whatever it left running.
func inBubble(t *testing.T, f func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t, net: newMemnet(), next: 1}
		defer h.stopAll() // also when f fails
		f(h)
	})
}

func (h *harness) stopAll() {
	h.net.heal()
	for _, m := range h.all {
		m.port.freeze(false)
		m.crash()
	}
	// memberlist does not wait for its own timers and connections. A part of a stream
	// that was lost ten times in a row is on its way for minutes.
	<-time.After(time.Hour)
}

func (h *harness) start(role Role, id string, change ...func(*Config)) *testMember {
	h.t.Helper()
	port := h.open()
	m := &testMember{port: port, counts: &counting{rejected: make(map[string]int)}, log: &syncBuffer{}, finished: make(chan error, 1)}
	cfg := Config{
		Label:     testLabel,
		Meta:      Meta{Role: role, ID: id, Boot: uint64(h.next), Version: "test"},
		Transport: port,
		Observer:  m.counts,
		Logger:    slog.New(slog.NewTextHandler(m.log, nil)),
	}
	if len(h.all) > 0 {
		cfg.Seeds = []string{h.all[0].LocalAddr()}
	}
	for _, f := range change {
		f(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	if h.resolver != nil {
		g.lookup = h.resolver
	}
	m.Gossip = g
	ctx, cancel := context.WithCancel(h.t.Context())
	m.cancel = cancel
	go func() { m.finished <- g.Run(ctx) }()
	h.all = append(h.all, m)
	return m
}

func (h *harness) startServers(n int) []*testMember {
	h.t.Helper()
	var servers []*testMember
	for i := range n {
		servers = append(servers, h.start(RoleServer, fmt.Sprintf("s%d", i+1)))
	}
	h.waitAllAlive(20*time.Second, servers...)
	return servers
}

// crash stops the member without a word.
func (m *testMember) crash() {
	_ = m.Shutdown(context.Background())
	m.cancel()
}

// waitFor waits until cond holds, at most limit of fake time, and returns how
// long it took.
func (h *harness) waitFor(limit time.Duration, what string, cond func() bool) time.Duration {
	h.t.Helper()
	start := time.Now()
	for !cond() {
		if time.Since(start) > limit {
			for _, m := range h.all {
				h.t.Logf("%s sees %s", m.cfg.Name, describe(m))
			}
			h.t.Fatalf("not within %v: %s", limit, what)
		}
		<-time.After(5 * time.Millisecond)
	}
	return time.Since(start)
}

func (h *harness) waitAllAlive(limit time.Duration, members ...*testMember) time.Duration {
	h.t.Helper()
	return h.waitFor(limit, "all members see each other alive", func() bool { return allAlive(members) })
}

func allAlive(members []*testMember) bool {
	for _, m := range members {
		for _, other := range members {
			if !m.sees(other, Alive) {
				return false
			}
		}
	}
	return true
}

func (m *testMember) sees(other *testMember, s Status) bool {
	got, ok := m.Member(other.cfg.Name)
	return ok && got.Status == s && got.Addr == other.LocalAddr()
}

func describe(m *testMember) string {
	var b bytes.Buffer
	for _, x := range m.Members() {
		fmt.Fprintf(&b, "%s=%s@%s ", x.Name, x.Status, x.Addr)
	}
	return b.String()
}

// counting is an Observer that remembers.
type counting struct {
	mu        sync.Mutex
	rejected  map[string]int
	rejoined  int
	failed    int
	conflicts int
	udpFailed int
	alive     int
	gone      int
	worst     int // most that were dead at once
	bounces   int
	probes    int
}

func (c *counting) Members(alive, leaving, left, dead int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alive, c.gone, c.worst = alive, left+dead, max(c.worst, dead)
}

func (c *counting) Rejected(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rejected[reason]++
}

func (c *counting) Rejoined(ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok {
		c.rejoined++
	} else {
		c.failed++
	}
}

func (c *counting) Conflict() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conflicts++
}

func (c *counting) UDPFailed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.udpFailed++
}

func (c *counting) Probed(bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probes++
}

func (c *counting) Bounced() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bounces++
}

func (c *counting) get(f func(*counting) int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f(c)
}

func (c *counting) rejectedFor(reason string) int {
	return c.get(func(c *counting) int { return c.rejected[reason] })
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
