package queue

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func TestOneAfterTheOtherWithRisingTokens(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, g *group) {
		s := g.servers[0]
		var calls []*call
		for id := range state.SessionID(5) {
			calls = append(calls, s.acquire("lock", g.session(id+10)))
		}
		var last uint64
		for i, c := range calls {
			p := c.in()
			if p.Token <= last {
				t.Fatalf("place %d has token %d after %d", i, p.Token, last)
			}
			last = p.Token
			for _, later := range calls[i+1:] {
				later.waits()
			}
			g.delete(p.Key)
		}
		if n := s.q.Waiting(); n != 0 || len(s.q.lines) != 0 {
			t.Fatalf("%d wait, %d lines are kept", n, len(s.q.lines))
		}
	})
}

// The server must not hand a lock to a session that ended while it waited, and
// must tell it at once.
func TestSessionOfAWaiterEndsWhileItWaits(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, g *group) {
		s := g.servers[0]
		a, b, c := s.acquire("L", g.session(1)), s.acquire("L", g.session(2)), s.acquire("L", g.session(3))
		held := a.in()
		b.waits()
		g.end(2)
		b.fails(mvcc.ErrLeaseNotFound)
		c.waits()
		g.delete(held.Key)
		if p := c.in(); p.Token <= held.Token {
			t.Fatalf("token %d after %d", p.Token, held.Token)
		}
		s.acquire("L", 99).fails(mvcc.ErrLeaseNotFound)
	})
}

// Only keys of the form count: names that are prefixes of each other, and
// ordinary keys below them, never block.
func TestOrdinaryKeysAndLongerNamesNeverBlock(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, g *group) {
		s := g.servers[0]
		one, other := g.session(0x1), g.session(0xab)
		for _, key := range []string{"path/1", "path/ab/1", "path/", "path", "path/x", "path/01", "path/AB", "path/11111111111111111"} {
			g.put(key, 0)
		}
		g.put("path/2", one)       // of another session than it names
		g.put("path/deep/1", one)  // of a deeper name
		g.put("path/notes", other) // attached, but no session's hex
		g.put("path/ab/ab", other) // the place of another lock
		g.put("path/00ab", other)  // leading zeros
		g.put("pathology/1", one)  // not below the name
		g.put("path/-ab", other)   // another number
		s.acquire("path", other).in()
		var places []Place
		for i, name := range []string{"a", "a/", "a/b", "ab"} {
			places = append(places, s.acquire(name, g.session(state.SessionID(100+i))).in())
		}
		g.delete(places[0].Key)
		for i, p := range places[1:] {
			if !g.has(p.Key) {
				t.Errorf("unlocking %q removed %q", places[0].Key, places[i+1].Key)
			}
		}
		// The ordinary key at the very place of a session is not waited at.
		g.put("own/ab", 0)
		c := s.acquire("own", other)
		var ordinary *NotPlaceError
		if err := c.ended(); !errors.As(err, &ordinary) {
			t.Fatalf("got %v, want a NotPlaceError", err)
		}
	})
}

func TestWaiterInTheMiddleDies(t *testing.T) {
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprintf("before the release %v", before), func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, g *group) {
				s := g.servers[0]
				var cs [4]*call
				for i := range cs {
					cs[i] = s.acquire("L", g.session(state.SessionID(i+1)))
				}
				a := cs[0].in()
				if before {
					g.end(2)
					cs[1].fails(mvcc.ErrLeaseNotFound)
					cs[2].waits()
					g.delete(a.Key)
				} else {
					g.delete(a.Key)
					cs[1].in()
					cs[2].waits()
					g.end(2)
				}
				p := cs[2].in()
				cs[3].waits()
				// The same session finds its place again, before and after.
				if again := s.acquire("L", 3).in(); again.Token != p.Token || again.Created != p.Created {
					t.Fatalf("asked again: %+v, had %+v", again, p)
				}
				d := s.acquire("L", 4)
				d.waits()
				g.delete(p.Key)
				if one, two := cs[3].in(), d.in(); one.Token != two.Token {
					t.Fatalf("one session has tokens %d and %d", one.Token, two.Token)
				}
			})
		})
	}
}

func TestOneReleaseWakesOneOfAThousand(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, g *group) {
		s := g.servers[0]
		const n = 1000
		calls := make([]*call, n)
		for i := range calls {
			calls[i] = s.acquire("L", g.session(state.SessionID(i+1)))
		}
		p := calls[0].in()
		for i := 1; i < 20; i++ {
			had := s.q.Delivered()
			g.delete(p.Key)
			synctest.Wait()
			if woken := s.q.Delivered() - had; woken != 1 {
				t.Fatalf("release %d woke %d", i, woken)
			}
			p = calls[i].in()
		}
		// One in the middle ends: it alone hears of it.
		had := s.q.Delivered()
		g.end(500)
		calls[499].fails(mvcc.ErrLeaseNotFound)
		if woken := s.q.Delivered() - had; woken != 1 {
			t.Fatalf("the end of one session woke %d", woken)
		}
		for _, c := range calls[20:] {
			c.cancel(errGaveUp)
		}
		synctest.Wait()
		if left := s.q.Waiting(); left != 0 {
			t.Fatalf("%d wait still", left)
		}
		g.servers[0].View(func(st *state.State) {
			if st.Keys().Len() != 1 { // the holder's
				t.Errorf("%d keys are left", st.Keys().Len())
			}
		})
	})
}

func TestCancelledCallTakesItsPlaceAway(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, g *group) {
		s := g.servers[0]
		a := s.acquire("L", g.session(1)).in()
		b := s.acquire("L", g.session(2))
		c := s.acquire("L", g.session(3))
		b.cancel(errGaveUp)
		b.fails(errGaveUp)
		if g.has(KeyOf([]byte("L"), 2)) {
			t.Fatal("the cancelled call's key is still there")
		}
		// A place that was there before the call stays.
		again := s.acquire("L", 3)
		again.cancel(errGaveUp)
		again.fails(errGaveUp)
		if !g.has(KeyOf([]byte("L"), 3)) {
			t.Fatal("a second call took the first one's key away")
		}
		c.waits()
		// So does one that another server's call made, or etcd's library.
		g.session(4)
		g.put("L/4", 4)
		d := s.acquire("L", 4)
		d.cancel(errGaveUp)
		d.fails(errGaveUp)
		if !g.has(KeyOf([]byte("L"), 4)) {
			t.Fatal("a call took a key away that was there before it")
		}
		g.delete(a.Key)
		c.in()
	})
}

// The call that made a place goes, another of the same session waits on: the
// place goes with the last.
func TestCancelledCallLeavesThePlaceToAnother(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, g *group) {
		s := g.servers[0]
		a := s.acquire("L", g.session(1)).in()
		first, second := s.acquire("L", g.session(2)), s.acquire("L", 2)
		token := g.token("L/2")
		first.cancel(errGaveUp)
		first.fails(errGaveUp)
		second.waits()
		if g.token("L/2") != token {
			t.Fatal("the key went under the second call")
		}
		second.cancel(errGaveUp)
		second.fails(errGaveUp)
		if g.has(KeyOf([]byte("L"), 2)) {
			t.Fatal("the key outlived the last call")
		}
		g.delete(a.Key)
	})
}

// A retry that comes before the cancelled call has cleaned up asks anew.
func TestPlaceOfACancelledCallIsAskedForAgain(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, g *group) {
		one, two := g.servers[0], g.servers[1]
		a := one.acquire("L", g.session(1)).in()
		b := one.acquire("L", g.session(2))
		retry := two.acquire("L", 2) // finds the place of b, on another server
		b.cancel(errGaveUp)
		b.fails(errGaveUp)
		retry.waits()
		g.delete(a.Key)
		retry.in()
	})
}

func TestDeletedKeyEndsTheWait(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, g *group) {
		s := g.servers[0]
		s.acquire("L", g.session(1)).in()
		b := s.acquire("L", g.session(2))
		g.delete(KeyOf([]byte("L"), 2))
		b.fails(ErrPlaceGone)
		// Taken from its session, it is an ordinary key.
		c := s.acquire("L", g.session(3))
		g.put("L/3", 0)
		c.fails(ErrPlaceGone)
	})
}

func TestDeposedLeaderKeepsThePlace(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, g *group) {
		s := g.servers[0]
		s.acquire("L", g.session(1)).in()
		b := s.acquire("L", g.session(2))
		b.cancel(errDeposed)
		b.fails(errDeposed)
		if !g.has(KeyOf([]byte("L"), 2)) {
			t.Fatal("the place is gone")
		}
	})
}

func TestSemaphoreLetsSoManyIn(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, g *group) {
		s := g.servers[0]
		var cs []*call
		for i := range 6 {
			cs = append(cs, s.acquire("sem", g.session(state.SessionID(i+1)), slots(3)))
		}
		first := []Place{cs[0].in(), cs[1].in(), cs[2].in()}
		cs[3].waits()
		g.delete(first[1].Key)
		cs[3].in()
		cs[4].waits()
		g.end(6) // behind those who are in
		cs[5].fails(mvcc.ErrLeaseNotFound)
		cs[4].waits()
		g.delete(first[0].Key)
		cs[4].in()
	})
}

func TestNoWaitGivesThePlaceUp(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, g *group) {
		g.servers[1].lags = true
		s := g.servers[0]
		held := s.acquire("L", g.session(1), noWait).in()
		c := s.acquire("L", g.session(2), noWait)
		if err := c.ended(); err != nil || c.place.Acquired || c.place.Ahead != 1 {
			t.Fatalf("got %+v, %v", c.place, err)
		}
		if g.has(KeyOf([]byte("L"), 2)) {
			t.Fatal("the place was not given up")
		}
		// One that was there before stays.
		waiting := s.acquire("L", 2)
		again := s.acquire("L", 2, noWait)
		if err := again.ended(); err != nil || again.place.Acquired {
			t.Fatalf("got %+v, %v", again.place, err)
		}
		waiting.waits()
		// A server that lags looks when it has the place in its state.
		far := g.servers[1].acquire("L", g.session(3), noWait)
		far.waits()
		g.servers[1].catchUp()
		if err := far.ended(); err != nil || far.place.Ahead != 2 {
			t.Fatalf("got %+v, %v", far.place, err)
		}
		g.servers[1].lags = false
		g.delete(held.Key)
		waiting.in()
	})
}

// etcd's own library makes keys of the same form: they and ours stand in one
// queue.
func TestKeysOfEtcdsLibraryStandInTheQueue(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, g *group) {
		s := g.servers[0]
		g.session(0xa1)
		g.session(0xa3)
		g.put("L/a1", 0xa1)
		ours := s.acquire("L", g.session(0xa2))
		g.put("L/a3", 0xa3)
		last := s.acquire("L", g.session(0xa4))
		ours.waits()
		g.delete([]byte("L/a1"))
		p := ours.in()
		g.delete(p.Key)
		last.waits()
		g.end(0xa3)
		last.in()
		// Asked through us, a key that the library made has no token.
		g.session(0xa5)
		g.put("M/a5", 0xa5)
		if p := s.acquire("M", 0xa5).in(); p.Token != 0 {
			t.Fatalf("token %d out of nothing", p.Token)
		}
	})
}

func TestStopEndsEveryWaitAndKeepsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 1)
		g.run()
		s := g.servers[0]
		s.acquire("L", g.session(1)).in()
		b := s.acquire("L", g.session(2))
		o := s.q.Observe([]byte("L"))
		defer o.Stop()
		s.q.stop()
		b.fails(ErrStopped)
		if !g.has(KeyOf([]byte("L"), 2)) {
			t.Fatal("the place is gone")
		}
		s.acquire("L", g.session(3)).fails(ErrStopped)
		if _, _, err := o.First(); !errors.Is(err, ErrStopped) {
			t.Fatalf("the observer goes on: %v", err)
		}
	})
}

func TestObserverSeesTheFirst(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, g *group) {
		s := g.servers[0]
		o := s.q.Observe([]byte("E"))
		defer o.Stop()
		expect := func(changed bool, key string) {
			t.Helper()
			synctest.Wait()
			select {
			case <-o.Changed():
				if !changed {
					t.Fatal("a change was told that is none")
				}
			default:
				if changed {
					t.Fatal("no change was told")
				}
			}
			kv, _, err := o.First()
			got := ""
			if kv != nil {
				got = string(kv.Key)
			}
			if err != nil || got != key {
				t.Fatalf("first is %q, %v, want %q", got, err, key)
			}
			if alone, _, _ := s.q.First([]byte("E")); alone != kv && string(alone.Key) != key {
				t.Fatalf("looked at alone, the first is %q", alone.Key)
			}
		}
		expect(false, "")
		g.put("E/x", 0)
		expect(false, "")
		a := s.acquire("E", g.session(1)).in()
		expect(true, "E/1")
		b := s.acquire("E", g.session(2))
		expect(false, "E/1")
		s.acquire("E", 1, func(r *Request) { r.Update, r.Value = true, []byte("new") }).in()
		expect(true, "E/1")
		g.delete(a.Key)
		expect(true, "E/2")
		g.end(2)
		expect(true, "")
		b.in()
	})
}
