package gossip

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// Two living processes with one name: nobody is disturbed, both ends are told.
func TestConflictIsCountedAndHarmsNobody(t *testing.T) {
	inBubble(t, func(h *harness) {
		servers := h.startServers(3)
		first := h.start(RoleWorker, "twin")
		h.waitAllAlive(20*time.Second, append(slices.Clone(servers), first)...)
		second := h.start(RoleWorker, "twin")
		<-time.After(30 * time.Second)
		for _, s := range servers {
			if !s.sees(first, Alive) {
				t.Fatalf("%s does not see the first any more: %s", s.cfg.Name, describe(s))
			}
			if s.sees(second, Alive) {
				t.Fatalf("%s took the second for the first", s.cfg.Name)
			}
		}
		conflicts := func(m *testMember) int { return m.counts.get(func(c *counting) int { return c.conflicts }) }
		if conflicts(servers[0]) == 0 || conflicts(second) == 0 {
			t.Fatalf("conflicts counted: %d by a server, %d by the second, want some", conflicts(servers[0]), conflicts(second))
		}
		if n := strings.Count(servers[0].log.String(), "Conflicting address"); n > 6 {
			t.Fatalf("%d log lines about one conflict in 30 s", n)
		}
	})
}

func TestOtherClusterIsRefused(t *testing.T) {
	key := []byte("0123456789abcdef")
	for _, c := range []struct {
		name   string
		change func(*Config)
		reason string // for which the servers count
	}{
		{"label", func(c *Config) { c.Label = "another-cluster" }, rejectedLabel},
		{"no key", func(c *Config) { c.Keys = nil }, rejectedDecrypt},
		{"other key", func(c *Config) { c.Keys = [][]byte{[]byte("fedcba9876543210")} }, rejectedDecrypt},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				withKey := func(c *Config) { c.Keys = keysOf(key) }
				a := h.start(RoleServer, "a", withKey)
				b := h.start(RoleServer, "b", withKey)
				h.waitAllAlive(20*time.Second, a, b)
				stranger := h.start(RoleWorker, "stranger", withKey, c.change)
				<-time.After(time.Minute)
				for _, m := range []*testMember{a, b} {
					if _, known := m.Member("w/stranger"); known {
						t.Fatalf("the stranger appears: %s", describe(m))
					}
				}
				if all := stranger.Members(); len(all) != 1 {
					t.Fatalf("the stranger knows others: %s", describe(stranger))
				}
				if a.counts.rejectedFor(c.reason) == 0 {
					t.Fatalf("nothing counted as %s", c.reason)
				}
				if log := stranger.log.String(); !strings.Contains(log, "label or gossip key may differ") {
					t.Fatalf("the stranger is not told why:\n%s", log)
				}
				if n := strings.Count(a.log.String(), "kind="+c.reason); n < 1 || n > 12 {
					t.Fatalf("the refusal makes %d log lines in a minute, want a few:\n%s", n, a.log.String())
				}
			})
		})
	}
}

// Somebody who passes label and key, but whose meta says another cluster or
// nonsense, stays out as well.
func TestStrangerWithoutOurMetaIsRefused(t *testing.T) {
	inBubble(t, func(h *harness) {
		a := h.start(RoleServer, "a")
		d := &delegate{g: a.Gossip}
		foreign, err := encodeMeta("another", Meta{Role: RoleWorker, ID: "x"})
		if err != nil {
			t.Fatal(err)
		}
		good, err := encodeMeta(testLabel, Meta{Role: RoleWorker, ID: "x"})
		if err != nil {
			t.Fatal(err)
		}
		for name, n := range map[string]*memberlist.Node{
			"no meta":       {Name: "w/x"},
			"other cluster": {Name: "w/x", Meta: foreign},
			"other name":    {Name: "w/y", Meta: good},
			"other role":    {Name: "s/x", Meta: good},
			"odd name":      {Name: "x", Meta: good},
		} {
			if d.NotifyAlive(n) == nil {
				t.Errorf("%s: accepted", name)
			}
			if d.NotifyMerge([]*memberlist.Node{n}) == nil {
				t.Errorf("%s: merged", name)
			}
		}
		if err := d.NotifyAlive(&memberlist.Node{Name: "w/x", Meta: good}); err != nil {
			t.Errorf("one of ours: %v", err)
		}
		if got, stats := a.counts.rejectedFor(rejectedStranger), a.Stats(); got != 10 || stats.Strangers != 10 {
			t.Errorf("%d strangers counted, %+v, want 5 as members and 5 in a merge", got, stats)
		}
	})
}

func TestGarbagePacketsAreCountedAndIgnored(t *testing.T) {
	for name, key := range map[string][]byte{"plain": nil, "encrypted": []byte("0123456789abcdef")} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				withKey := func(c *Config) { c.Keys = keysOf(key) }
				a, b := h.start(RoleServer, "a", withKey), h.start(RoleServer, "b", withKey)
				h.waitAllAlive(20*time.Second, a, b)
				random := rand.New(rand.NewPCG(1, 2))
				sent := 0
				for range 2000 {
					p := make([]byte, 1+random.IntN(200))
					for i := range p {
						p[i] = byte(random.Uint32())
					}
					if random.IntN(2) == 0 { // passes the label check
						p, _ = memberlist.AddLabelHeaderToPacket(p, testLabel)
					}
					a.port.push(&memberlist.Packet{Buf: p, From: address("10.9.9.9:1")})
					sent++
					if sent%100 == 0 {
						<-time.After(10 * time.Millisecond)
					}
				}
				<-time.After(5 * time.Second)
				if !allAlive([]*testMember{a, b}) {
					t.Fatal("garbage made a member disappear")
				}
				total := 0
				for _, reason := range []string{rejectedLabel, rejectedDecrypt, rejectedDecode, rejectedOverflow} {
					total += a.counts.rejectedFor(reason)
				}
				if total < sent*8/10 {
					t.Fatalf("%d of %d packets counted", total, sent)
				}
				if lines := strings.Count(a.log.String(), "\n"); lines > 60 {
					t.Fatalf("garbage wrote %d log lines", lines)
				}
				if n := len(a.Members()); n != 2 {
					t.Fatalf("garbage made members: %s", describe(a))
				}
			})
		})
	}
}

func TestBadConfigurationIsRefused(t *testing.T) {
	good := func() Config {
		return Config{Label: "l", BindAddr: "127.0.0.1:0", Meta: Meta{Role: RoleServer, ID: "a"}}
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"key of 15 bytes":   {func(c *Config) { c.Keys = [][]byte{make([]byte, 15)} }, "key of 15 bytes: want 16, 24 or 32"},
		"key of 33 bytes":   {func(c *Config) { c.Keys = [][]byte{make([]byte, 33)} }, "key of 33 bytes: want 16, 24 or 32"},
		"no label":          {func(c *Config) { c.Label = "" }, "label has 0 bytes"},
		"long label":        {func(c *Config) { c.Label = strings.Repeat("l", 256) }, "label has 256 bytes"},
		"no id":             {func(c *Config) { c.Meta.ID = "" }, "s/ID or w/ID"},
		"slash in the id":   {func(c *Config) { c.Meta.ID = "a/b" }, "s/ID or w/ID"},
		"no role":           {func(c *Config) { c.Meta.Role = "" }, "does not belong to"},
		"name of another":   {func(c *Config) { c.Name = "s/b" }, "does not belong to"},
		"no bind address":   {func(c *Config) { c.BindAddr = "" }, "bind address is empty"},
		"bind without port": {func(c *Config) { c.BindAddr = "127.0.0.1" }, "missing port"},
		"bind to port 1e6":  {func(c *Config) { c.BindAddr = "127.0.0.1:1000000" }, "not 0 to 65535"},
		"seed without port": {func(c *Config) { c.Seeds = []string{"host"} }, `seed "host" is not host:port`},
		"long address":      {func(c *Config) { c.Meta.GRPCAddr = strings.Repeat("x", 256) }, "grpc address has 256 bytes"},
		"long altogether": {func(c *Config) {
			c.Meta.GRPCAddr, c.Meta.RaftAddr, c.Meta.HTTPAddr = strings.Repeat("x", 250), strings.Repeat("x", 250), strings.Repeat("x", 250)
		}, "must be at most 512"},
		"advertise nonsense": {func(c *Config) { c.Advertise = "127.0.0.1:99999" }, "not 0 to 65535"},
		"foreign address":    {func(c *Config) { c.BindAddr = "192.0.2.1:0" }, "listen for gossip on"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good()
			c.change(&cfg)
			g, err := New(cfg)
			if err == nil {
				err = errors.Join(errors.New("accepted"), g.Shutdown(context.Background()))
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %q, want it to say %q", err, c.want)
			}
		})
	}
}
