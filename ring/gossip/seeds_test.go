package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// O-33: a server starts while none of its seeds can be reached, for a minute.
// It goes on trying, not too often, and is there soon after they are.
func TestBootWhileAllSeedsAreAway(t *testing.T) {
	for name, withSelf := range map[string]bool{"others": false, "itself and others": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				others := h.startCrew(2, 2)
				own := fmt.Sprintf("10.0.0.%d:%d", h.next, memnetPort)
				h.net.split(func(addr string) bool { return addr == own })
				late := h.start(RoleServer, "s3", seeds(others[0], others[1]), func(c *Config) {
					if withSelf {
						c.Seeds = append([]string{own}, c.Seeds...)
					}
				})
				<-time.After(time.Minute)
				if n := len(late.Members()); n != 1 {
					t.Fatalf("it sees %s through a cut", describe(late))
				}
				tries := late.counts.get(func(c *counting) int { return c.failed })
				if tries < 20 || tries > 100 {
					t.Errorf("%d tries at two seeds in a minute", tries)
				}
				if log := late.log.String(); !strings.Contains(log, others[0].LocalAddr()) || strings.Count(log, "\n") > 20 {
					t.Errorf("the log does not say it, or not briefly:\n%s", log)
				}
				h.net.heal()
				took := h.waitFor(5*time.Second, "it is there", func() bool { return only(append(slices.Clone(others), late)) })
				t.Logf("there %v after the seeds, %d tries before", took, tries)
			})
		})
	}
}

// O-33: a server whose only seed is itself waits to be found, and does not fill
// the log.
func TestOnlySeedIsItself(t *testing.T) {
	inBubble(t, func(h *harness) {
		own := fmt.Sprintf("10.0.0.%d:%d", h.next, memnetPort)
		first := h.start(RoleServer, "s1", func(c *Config) { c.Seeds = []string{own} })
		<-time.After(time.Minute)
		if n := first.counts.get(func(c *counting) int { return c.failed + c.rejoined }); n > 0 || len(first.Members()) != 1 {
			t.Errorf("%d tries at itself; sees %s", n, describe(first))
		}
		if n := strings.Count(first.log.String(), "\n"); n > 5 {
			t.Errorf("%d log lines:\n%s", n, first.log.String())
		}
		second := h.start(RoleServer, "s2", seeds(first))
		h.waitAllAlive(5*time.Second, first, second)
	})
}

// names is a resolver for tests.
type names struct {
	mu    sync.Mutex
	ips   map[string][]net.IP
	asked int
}

func (n *names) lookup(_ context.Context, host string) ([]net.IP, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	if ip := net.ParseIP(host); ip != nil {
		return []net.IP{ip}, nil
	}
	if ips := n.ips[host]; len(ips) > 0 {
		return ips, nil
	}
	return nil, errors.New("no such host")
}

func (n *names) set(host string, of ...*testMember) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ips == nil {
		n.ips = make(map[string][]net.IP)
	}
	n.ips[host] = nil
	for _, m := range of {
		n.ips[host] = append(n.ips[host], m.port.ip)
	}
}

func (h *harness) startNamed(n *names, role Role, id string, seeds ...string) *testMember {
	h.resolver = n.lookup
	defer func() { h.resolver = nil }()
	return h.start(role, id, func(c *Config) { c.Seeds = seeds })
}

// O-41: a seed is a name. At first nothing is known of it, then it stands for
// one server, then for that server's new address, after everybody has been cut
// off from everybody. It is looked up again at each round of tries.
func TestSeedNameChangesItsAddress(t *testing.T) {
	inBubble(t, func(h *harness) {
		var dns names
		s1 := h.start(RoleServer, "s1")
		s2 := h.startNamed(&dns, RoleServer, "s2", "s1.test:7402")
		<-time.After(20 * time.Second)
		if n := len(s2.Members()); n != 1 {
			t.Fatalf("it sees %s without an address", describe(s2))
		}
		dns.set("s1.test", s1)
		took := h.waitAllAlive(10*time.Second, s1, s2)
		t.Logf("found %v after the name", took)

		s1.crash()
		<-time.After(ForgetAfter + time.Minute)
		s1 = h.start(RoleServer, "s1", seeds())
		dns.set("s1.test", s1)
		took = h.waitAllAlive(10*time.Second, s1, s2)
		t.Logf("found %v after the name had another address", took)
		dns.mu.Lock()
		defer dns.mu.Unlock()
		if dns.asked > 200 {
			t.Errorf("%d look-ups", dns.asked)
		}
	})
}

// O-41: one name of two cannot be looked up when the other one can. It is not
// given up for that.
func TestSeedNameThatIsMissingAtFirst(t *testing.T) {
	inBubble(t, func(h *harness) {
		var dns names
		s1, s2 := h.start(RoleServer, "s1"), h.start(RoleServer, "s2", seeds())
		dns.set("s1.test", s1)
		s3 := h.startNamed(&dns, RoleServer, "s3", "s1.test:7402", "s2.test:7402")
		h.waitAllAlive(5*time.Second, s1, s3)
		<-time.After(time.Minute)
		dns.set("s2.test", s2)
		h.waitAllAlive(15*time.Second, s1, s2, s3)
	})
}

// O-34: a name with two addresses, of which one is nobody's, and a cluster that
// speaks IPv6.
func TestSeedNameWithTwoAddressesAndIPv6(t *testing.T) {
	inBubble(t, func(h *harness) {
		var dns names
		v6 := func(last byte) net.IP { return net.IP{0xfd, 15: last} }
		h.ip = v6(1)
		s1 := h.start(RoleServer, "s1")
		if s1.LocalAddr() != "[fd00::1]:7402" {
			t.Fatalf("it tells others %s", s1.LocalAddr())
		}
		dns.set("cluster.test", s1)
		dns.ips["cluster.test"] = append([]net.IP{v6(99)}, dns.ips["cluster.test"]...)
		h.ip = v6(2)
		s2 := h.startNamed(&dns, RoleServer, "s2", "cluster.test:7402")
		h.ip = v6(3)
		w := h.start(RoleWorker, "w1", func(c *Config) { c.Seeds = []string{"[fd00::1]:7402"} })
		h.waitAllAlive(10*time.Second, s1, s2, w)
		if !s1.Probe(context.Background(), "w/w1") {
			t.Error("no answer over IPv6")
		}
		w.crash()
		h.waitFor(2*time.Second, "a death is seen over IPv6", func() bool { return s1.sees(w, Dead) && s2.sees(w, Dead) })
	})
}

// O-34: each form of an address works or is refused with the value and a form
// that would do.
func TestAddressForms(t *testing.T) {
	for _, c := range []struct {
		bind, advertise, seed string
		local                 string // start of what others are told
		want                  string // in the refusal
	}{
		{bind: "127.0.0.1:0", local: "127.0.0.1:"},
		{bind: "localhost:0", local: "127.0.0.1:"},
		{bind: "[::1]:0", local: "[::1]:"},
		{bind: "0.0.0.0:0", advertise: "127.0.0.1", local: "127.0.0.1:"},
		{bind: ":0", advertise: "127.0.0.1", local: "127.0.0.1:"},
		{bind: "[::]:0", advertise: "::1", local: "[::1]:"},
		{bind: "[::]:0", advertise: "[::1]", local: "[::1]:"},
		{bind: "[::]:0", advertise: "[::1]:7000", local: "[::1]:7000"},
		{bind: "127.0.0.1:0", advertise: "localhost:7000", local: "127.0.0.1:7000"},
		{bind: "127.0.0.1:0", seed: "[fd00::1]:7402", local: "127.0.0.1:"},
		{bind: "::1", want: `"::1"`},
		{bind: "127.0.0.1", want: "missing port"},
		{bind: "127.0.0.1:70000", want: "not 0 to 65535"},
		{bind: "[fe80::1%lo]:0", want: "zone"},
		{bind: "127.0.0.1:0", advertise: "fe80::1%lo", want: "zone"},
		{bind: "127.0.0.1:0", advertise: "0.0.0.0", want: "nobody can reach"},
		{bind: "127.0.0.1:0", advertise: "[::]:7402", want: "nobody can reach"},
		{bind: "127.0.0.1:0", advertise: "127.0.0.1:70000", want: "not 0 to 65535"},
		{bind: "127.0.0.1:0", seed: "::1", want: "[::1]:7402"},
		{bind: "127.0.0.1:0", seed: "10.0.0.1", want: "10.0.0.1:7402"},
		{bind: "127.0.0.1:0", seed: "fd00::1,10.0.0.1:7402", want: "host:port"},
		{bind: "127.0.0.1:0", seed: "[fe80::1%lo]:7402", want: "zone"},
		{bind: "127.0.0.1:0", seed: "10.0.0.1:0", want: "host:port"},
		{bind: "127.0.0.1:0", seed: "10.0.0.1:70000", want: "host:port"},
	} {
		t.Run(c.bind+" "+c.advertise+" "+c.seed, func(t *testing.T) {
			cfg := Config{Label: "l", Meta: Meta{Role: RoleServer, ID: "a"}, BindAddr: c.bind, Advertise: c.advertise}
			if c.seed != "" {
				cfg.Seeds = []string{c.seed}
			}
			g, err := New(cfg)
			if c.want != "" {
				if err == nil {
					err = errors.Join(errors.New("accepted"), g.Shutdown(t.Context()))
				}
				if !strings.Contains(err.Error(), c.want) {
					t.Fatalf("got %q, want it to say %q", err, c.want)
				}
				return
			}
			if err != nil && strings.Contains(c.bind, "::") && noIPv6() {
				t.Skipf("this machine has no IPv6: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(g.LocalAddr(), c.local) {
				t.Errorf("others are told %s", g.LocalAddr())
			}
			if err := g.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func noIPv6() bool {
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		return true
	}
	ln.Close()
	return false
}

// O-02, O-40: all servers come back at other addresses, and know each other's
// at best. No worker has one of these. The servers have written down workers.
func TestServersThatAllMovedFindTheirWorkers(t *testing.T) {
	for name, joined := range map[string]bool{"servers know each other": true, "servers know nobody": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			inBubble(t, func(h *harness) {
				file := func(i int) func(*Config) {
					return func(c *Config) { c.KnownPeersFile = filepath.Join(dir, fmt.Sprint(i)) }
				}
				var servers, workers []*testMember
				for i := range 3 {
					servers = append(servers, h.start(RoleServer, fmt.Sprintf("s%d", i+1), file(i)))
				}
				for i := range 20 {
					workers = append(workers, h.start(RoleWorker, fmt.Sprintf("w%02d", i)))
				}
				h.waitAllAlive(20*time.Second, append(slices.Clone(servers), workers...)...)
				for i := range servers {
					h.waitFor(10*time.Second, "the file is full", func() bool {
						b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i)))
						return err == nil && strings.Count(string(b), "\nw/") == maxWorkers && strings.Count(string(b), "\ns/") == 2
					})
				}
				for _, s := range servers {
					s.crash()
				}
				for _, w := range workers[:10] { // some of those that were written down
					w.crash()
				}
				<-time.After(10 * time.Second)
				living := slices.Clone(workers[10:])
				at := fmt.Sprintf("10.0.0.%d:%d", h.next, memnetPort)
				for i := range 3 {
					living = append(living, h.start(RoleServer, fmt.Sprintf("s%d", i+1), file(i), bootAt(1000), func(c *Config) {
						c.Seeds = nil
						if joined {
							c.Seeds = []string{at}
						}
					}))
				}
				took := h.waitAllAlive(10*time.Second, living...)
				t.Logf("together %v after the last server's start", took)
			})
		})
	}
}
