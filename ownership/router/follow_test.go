package router

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

var storms = flag.Int("router.storms", 12, "how many storms the routers are sent through")

// bubble runs a test in synctest, whose clock moves when all wait.
func bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, fn)
}

// within advances the clock until ok or the limit.
func within(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); {
		if time.Since(began) > limit {
			t.Fatalf("after %v it is still not so that %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond) // of the bubble's clock
		synctest.Wait()
	}
}

// twoWorkers is a cluster with a keyspace of 8 partitions, all owned.
func twoWorkers(t *testing.T, servers int) *fake {
	f := newFake(t, servers)
	f.do(func() {
		f.openLocked(1, "w1", "10.0.1.1:9000")
		f.openLocked(2, "w2", "10.0.1.2:9000")
		f.createLocked("orders", 8)
		for p := range 8 {
			f.grantLocked("orders", p, uint64(1+p%2))
		}
	})
	return f
}

func mustAgree(t *testing.T, f *fake, r *Router) {
	t.Helper()
	synctest.Wait()
	if err := f.agrees(r, "orders"); err != nil {
		t.Fatal(err)
	}
}

func TestTableFollowsTheEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoWorkers(t, 3)
		r := f.router(Config{})
		if _, err := r.Lookup("orders", []byte("k")); !errors.Is(err, ErrNotReady) {
			t.Errorf("before there is a table: %v", err)
		}
		ready(t, r)
		mustAgree(t, f, r)
		f.do(func() { f.moveLocked("orders", 3, 1) })
		mustAgree(t, f, r)
		f.do(func() { f.drainLocked("orders", 3) })
		mustAgree(t, f, r)
		f.do(func() { f.index++; f.endLocked("expire", "orders", 3, "expired") })
		mustAgree(t, f, r)
		var none *NoOwnerError
		if _, err := r.At("orders", 3); !errors.As(err, &none) || !errors.Is(err, ErrNoOwner) || !strings.Contains(none.Reason, "run out") || none.Token == 0 {
			t.Errorf("without an owner: %v", err)
		}
		if _, err := r.Lookup("bills", nil); !errors.Is(err, ErrUnknownKeyspace) {
			t.Errorf("a keyspace that is not followed: %v", err)
		}
		if _, err := r.At("orders", 8); !errors.Is(err, ErrPartition) {
			t.Errorf("a partition too many: %v", err)
		}
		if s := r.Stats(); !s.Ready || s.Stale || s.Lists != 1 || s.Watches != 1 || s.Partitions != 8 || s.Server != f.addrs[0] || s.Age > DefaultHeartbeat {
			t.Errorf("stats %+v", s)
		}
	})
}

// The events that a break swallowed are gone from the servers' ledger: only a
// new list can tell.
func TestAGapInTheEventsIsListed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoWorkers(t, 1)
		r := f.router(Config{})
		ready(t, r)
		f.stop(0)
		synctest.Wait()
		f.do(func() {
			f.moveLocked("orders", 0, 2)
			f.moveLocked("orders", 1, 1)
			f.compactLocked()
		})
		f.start(0)
		within(t, 10*time.Second, "the router agrees", func() bool { return f.agrees(r, "orders") == nil })
		if s := r.Stats(); s.Lists != 2 {
			t.Errorf("listed %d times, want 2", s.Lists)
		}
	})
}

// A server that is lost costs no list: the next one goes on where it stopped.
func TestALostServerIsReplacedWithoutAList(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoWorkers(t, 3)
		r := f.router(Config{})
		ready(t, r)
		f.do(func() { f.leader = 1 })
		f.stop(0)
		synctest.Wait()
		f.do(func() { f.moveLocked("orders", 0, 2) })
		within(t, 5*time.Second, "the router agrees", func() bool { return f.agrees(r, "orders") == nil })
		if s := r.Stats(); s.Lists != 1 || s.Server != f.addrs[1] {
			t.Errorf("stats %+v", s)
		}
	})
}

// A stopped process keeps its connection and says nothing.
func TestASilentServerIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoWorkers(t, 3)
		r := f.router(Config{Heartbeat: 500 * time.Millisecond})
		ready(t, r)
		f.net.swallow(f.addrs[0])
		f.do(func() { f.leader = 1; f.moveLocked("orders", 0, 2) })
		began := time.Now()
		within(t, 10*time.Second, "the router agrees", func() bool { return f.agrees(r, "orders") == nil })
		if d := time.Since(began); d < time.Second || d > 6*time.Second {
			t.Errorf("left after %v", d)
		}
	})
}

// O-69: the server that is followed answers, and is cut off from its peers.
func TestAnIsolatedServerIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoWorkers(t, 3)
		f.do(func() { f.leader = 2 })
		f.stop(2) // the leader cannot be reached, so a follower is followed
		r := f.router(Config{})
		ready(t, r)
		at := slices.IndexFunc([]int{0, 1}, f.watching)
		f.do(func() {
			f.ages[at], f.behind[at] = 6*time.Second, f.revision
			f.moveLocked("orders", 0, 2)
		})
		within(t, 10*time.Second, "the router agrees", func() bool { return f.agrees(r, "orders") == nil })
		if f.watching(at) || r.Age() > 2*DefaultHeartbeat {
			t.Errorf("still at the isolated server, age %v", r.Age())
		}
	})
}

// With no server at all the table stays and says how old it is.
func TestTheTableOutlivesTheServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoWorkers(t, 3)
		r := f.router(Config{})
		ready(t, r)
		for i := range 3 {
			f.stop(i)
		}
		time.Sleep(time.Minute)
		if at, err := r.At("orders", 0); err != nil || at.Owner != "w1" {
			t.Errorf("after a minute alone: %+v, %v", at, err)
		}
		if s := r.Stats(); s.Age < 59*time.Second || s.Age > 62*time.Second || !s.Stale || s.Server != "" {
			t.Errorf("stats %+v", s)
		}
		f.do(func() { f.moveLocked("orders", 0, 2) })
		for i := range 3 {
			f.start(i)
		}
		within(t, 10*time.Second, "the router agrees", func() bool { return f.agrees(r, "orders") == nil })
		if s := r.Stats(); s.Stale || s.Lists != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestEventsOutOfOrderAndTwiceChangeNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoWorkers(t, 1)
		var told []*pb.Event
		rnd := rand.New(rand.NewPCG(1, 2))
		f.mangle = func(evs []*pb.Event) []*pb.Event {
			told = append(told, evs...)
			if len(told) > 0 {
				for range 5 {
					evs = append(evs, told[rnd.IntN(len(told))])
				}
			}
			rnd.Shuffle(len(evs), func(i, k int) { evs[i], evs[k] = evs[k], evs[i] })
			return evs
		}
		r := f.router(Config{})
		ready(t, r)
		for n := range 200 {
			f.do(func() {
				for range 1 + rnd.IntN(4) {
					p := rnd.IntN(8)
					switch rnd.IntN(4) {
					case 0:
						if f.spaces["orders"].rows[p].session != 0 {
							f.drainLocked("orders", p)
						}
					case 1:
						if f.spaces["orders"].rows[p].session != 0 {
							f.index++
							f.endLocked("release", "orders", p, "yield")
						}
					default:
						f.moveLocked("orders", p, uint64(1+rnd.IntN(2)))
					}
				}
			})
			synctest.Wait()
			if err := f.agrees(r, "orders"); err != nil {
				t.Fatalf("round %d: %v", n, err)
			}
		}
		if s := r.Stats(); s.Old == 0 || s.Lists != 1 {
			t.Errorf("stats %+v: nothing was out of order", s)
		}
	})
}

// The keyspace is deleted and another one of that name created, of another
// size: tokens go on rising, and no event of the old one touches the new one.
func TestKeyspaceDeletedAndCreatedAgain(t *testing.T) {
	for _, others := range []string{"", "bills"} {
		bubble(t, func(t *testing.T) {
			f := twoWorkers(t, 1)
			names := []string{"orders"}
			if others != "" {
				names = append(names, others)
			}
			var old []*pb.Event
			r := f.router(Config{Keyspaces: names})
			ready(t, r)
			before, _ := r.At("orders", 0)
			f.do(func() { f.drainLocked("orders", 0); f.removeLocked("orders"); old = slices.Clone(f.events) })
			synctest.Wait()
			if _, err := r.At("orders", 0); !errors.Is(err, ErrUnknownKeyspace) {
				t.Errorf("while it is gone: %v", err)
			}
			f.do(func() {
				f.createLocked("orders", 3)
				f.mangle = func(evs []*pb.Event) []*pb.Event { return append(evs, old...) }
			})
			mustAgree(t, f, r)
			if at, err := r.At("orders", 0); !errors.Is(err, ErrNoOwner) || at.Token != 0 {
				t.Errorf("new and not granted yet: %+v, %v", at, err)
			}
			f.do(func() { f.grantLocked("orders", 0, 2); f.grantLocked("orders", 1, 1) })
			mustAgree(t, f, r)
			if at, err := r.At("orders", 0); err != nil || at.Token <= before.Token {
				t.Errorf("after %+v came %+v, %v", before, at, err)
			}
			if _, err := r.At("orders", 3); !errors.Is(err, ErrPartition) {
				t.Errorf("the old size is still known: %v", err)
			}
		})
	}
}

func TestAKeyspaceThatDoesNotExistYet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake(t, 1)
		r := f.router(Config{})
		ready(t, r)
		if _, err := r.Lookup("orders", nil); !errors.Is(err, ErrUnknownKeyspace) {
			t.Errorf("before it exists: %v", err)
		}
		f.do(func() { f.openLocked(1, "w1", "a:1"); f.createLocked("orders", 4); f.grantLocked("orders", 2, 1) })
		mustAgree(t, f, r)
	})
}

// A wiped cluster at the same addresses is another one: the same keyspace id
// means nothing there.
func TestAnotherClusterIsListedAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoWorkers(t, 1)
		r := f.router(Config{})
		ready(t, r)
		f.stop(0)
		synctest.Wait()
		f.do(func() {
			f.cluster, f.spaces, f.lastID, f.events = "c2", map[string]*fakeSpace{}, 0, nil
			f.revision, f.first, f.index = 3, 3, 2
			f.createLocked("orders", 8)
			f.grantLocked("orders", 0, 2)
		})
		f.start(0)
		within(t, 10*time.Second, "the router agrees", func() bool { return f.agrees(r, "orders") == nil })
	})
}

// A server that has not come as far as the table is left for another, and not
// listed from.
func TestAServerThatLagsIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoWorkers(t, 3)
		f.do(func() { f.behind[1] = f.revision - 3 })
		r := f.router(Config{})
		ready(t, r)
		f.do(func() { f.leader = 1 })
		f.stop(0)
		synctest.Wait()
		f.do(func() { f.moveLocked("orders", 5, 1) })
		within(t, 20*time.Second, "the router agrees", func() bool { return f.agrees(r, "orders") == nil })
		within(t, 20*time.Second, "it follows the server that does not lag", func() bool { return r.Stats().Server == f.addrs[2] })
		// Three times in a row the one that lags may be all that answers: then
		// there is one more list.
		if s := r.Stats(); s.Lists > 2 {
			t.Errorf("stats %+v", s)
		}
	})
}

// After any storm of grants, drains, ends, deletions, stopped servers and lost
// ledgers, all routers have the cluster's table.
func TestRoutersAgreeAfterAStorm(t *testing.T) {
	for n := range *storms {
		seed := uint64(n)
		if *storms > 1 && n > *storms/2 {
			seed = rand.Uint64()
		}
		bubble(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			f := twoWorkers(t, 3)
			f.do(func() { f.openLocked(3, "w3", "10.0.1.3:9000") })
			var routers []*Router
			for i := range 3 {
				routers = append(routers, f.router(Config{AnyServer: i == 1, Keyspaces: [][]string{{"orders"}, {"orders", "bills"}, {"orders"}}[i]}))
			}
			for range 10 + rnd.IntN(50) {
				f.storm(rnd)
				if rnd.IntN(3) == 0 {
					time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
				}
			}
			for i := range f.servers {
				if f.servers[i] == nil {
					f.start(i)
				}
			}
			for i, r := range routers {
				within(t, time.Minute, fmt.Sprintf("router %d agrees, seed %d", i, seed), func() bool { return f.agrees(r, "orders") == nil })
			}
		})
	}
}

// storm does one thing to the cluster.
func (f *fake) storm(rnd *rand.Rand) {
	at := rnd.IntN(len(f.servers))
	switch n := rnd.IntN(20); {
	case n == 0 && f.servers[at] != nil:
		f.stop(at)
	case n == 1 && f.servers[at] == nil:
		f.start(at)
	case n == 2:
		f.do(func() { f.leader = at })
	case n == 3:
		f.do(f.compactLocked)
	case n == 4:
		f.do(func() {
			if f.spaces["orders"] == nil {
				f.createLocked("orders", 1+rnd.IntN(300))
			} else {
				f.removeLocked("orders")
			}
		})
	default:
		f.do(func() {
			ks := f.spaces["orders"]
			if ks == nil {
				return
			}
			for range 1 + rnd.IntN(30) {
				p := rnd.IntN(len(ks.rows))
				switch owned := ks.rows[p].session != 0; {
				case owned && rnd.IntN(3) == 0:
					f.drainLocked("orders", p)
				case owned && rnd.IntN(3) == 0:
					f.index++
					f.endLocked([]string{"release", "expire", "revoke"}[rnd.IntN(3)], "orders", p, "")
				default:
					f.moveLocked("orders", p, uint64(1+rnd.IntN(3)))
				}
			}
		})
	}
}
