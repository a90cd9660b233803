package gossip

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// believed tells whether all others see m alive, at its address and as itself.
func believed(m *testMember, others []*testMember) bool {
	return !slices.ContainsFunc(others, func(o *testMember) bool {
		got, _ := o.Member(m.cfg.Name)
		return !o.sees(m, Alive) || got.Meta.Boot != m.cfg.Meta.Boot
	})
}

// O-32: a server is killed and started again at another address before the
// others have noticed, or right after. It does not have to wait until they have
// forgotten the old one.
func TestKilledServerIsBelievedAtItsNewAddress(t *testing.T) {
	for _, after := range []time.Duration{0, 300 * time.Millisecond, 700 * time.Millisecond, 1200 * time.Millisecond, 1900 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			inBubble(t, func(h *harness) {
				all := h.startCrew(3, 4)
				others := slices.Delete(slices.Clone(all), 1, 2)
				killed := time.Now()
				all[1].crash()
				<-time.After(after)
				reborn := h.start(RoleServer, "s2")
				took := h.waitFor(2*time.Second, "all believe the new address", func() bool { return believed(reborn, others) })
				t.Logf("believed %v after the start, %v after the kill", took, time.Since(killed))
				for range 60 {
					<-time.After(time.Second)
					if !believed(reborn, others) || !allAlive(append(slices.Clone(others), reborn)) {
						t.Fatalf("not believed any more: %s", describe(all[0]))
					}
				}
			})
		})
	}
}

// conflicts collects what OnConflict is told.
type conflicts struct {
	mu  sync.Mutex
	all []Conflict
}

func (c *conflicts) add(x Conflict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, x)
}

func (c *conflicts) any(match func(Conflict) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.all, match)
}

// O-31: a second server is started with the id of a running one. Nobody
// believes it, and both are told who the other is, so that they can ask.
func TestSecondServerOfOneNameIsTold(t *testing.T) {
	inBubble(t, func(h *harness) {
		var heard [4]conflicts
		tell := func(i int) func(*Config) { return func(c *Config) { c.OnConflict = heard[i].add } }
		var servers []*testMember
		for i := range 3 {
			servers = append(servers, h.start(RoleServer, fmt.Sprintf("s%d", i+1), tell(i), withGRPC(i)))
		}
		h.waitAllAlive(20*time.Second, servers...)
		twin := h.start(RoleServer, "s1", tell(3), withGRPC(3), seeds(servers[1]))
		<-time.After(10 * time.Second)
		if !allAlive(servers) {
			t.Fatalf("the running servers are disturbed: %s", describe(servers[1]))
		}
		is := func(mine bool, held, other *testMember) func(Conflict) bool {
			return func(c Conflict) bool {
				return c.Name == "s/s1" && c.Mine == mine && c.Addr == held.LocalAddr() && c.Meta.GRPCAddr == held.cfg.Meta.GRPCAddr &&
					c.OtherAddr == other.LocalAddr() && c.OtherMeta.GRPCAddr == other.cfg.Meta.GRPCAddr
			}
		}
		if !heard[3].any(is(true, twin, servers[0])) {
			t.Errorf("the twin is not told of the first: %+v", heard[3].all)
		}
		if !heard[1].any(is(false, servers[0], twin)) {
			t.Errorf("another server is not told of the twin: %+v", heard[1].all)
		}
		if n := twin.Stats().Conflicts; n == 0 {
			t.Error("the twin counts no conflict")
		}
		// The twin gives up: nothing is left of it.
		twin.crash()
		<-time.After(5 * time.Second)
		if !allAlive(servers) {
			t.Fatalf("the end of the twin disturbs: %s", describe(servers[1]))
		}
	})
}

func withGRPC(i int) func(*Config) {
	return func(c *Config) { c.Meta.GRPCAddr = fmt.Sprintf("10.1.0.%d:7400", i+1) }
}

// O-37: boot generations of servers are times. One whose clock was a day or ten
// years ahead, or stood at 0, dies, and starts with the right time, at its old
// address or another: it is there at once, and its death later is seen as any
// other.
func TestServerWhoseClockWasWrongComesBack(t *testing.T) {
	now := uint64(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	day := uint64(24 * time.Hour)
	for name, wrong := range map[string]uint64{"a day ahead": now + day, "ten years ahead": now + 3650*day, "0": 0, "negative": -day} {
		for _, moved := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s moved=%t", name, moved), func(t *testing.T) {
				inBubble(t, func(h *harness) {
					others := h.startCrew(2, 2)
					ahead := h.start(RoleServer, "odd", bootAt(wrong))
					h.waitFor(10*time.Second, "it is there", func() bool { return believed(ahead, others) })
					ahead.crash()
					h.waitFor(2*time.Second, "its death is seen", func() bool { return !ahead.upIn(others) })
					if !moved {
						h.next--
					}
					right := h.start(RoleServer, "odd", bootAt(now))
					h.waitFor(3*time.Second, "it is there with the right time", func() bool { return believed(right, others) })
					right.crash()
					h.waitFor(2*time.Second, "its death is seen again", func() bool { return !right.upIn(others) })
					<-time.After(ForgetAfter + time.Second)
					if _, known := others[0].Member("s/odd"); known {
						t.Error("it is not forgotten")
					}
				})
			})
		}
	}
}
