package state

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestExpiryIsNeverEarlyInRealTime has real time go by, leaders that measure
// it as they should, entries built in one term and logged in another, and
// attempts to expire everybody all the time. No session may end before its
// TTL has passed in real time since it was opened or last renewed.
func TestExpiryIsNeverEarlyInRealTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		settings := DefaultSettings()
		settings.TTL = 3 * time.Second
		var now, measured time.Duration // real time, and where the leader's last clock entry was
		index, term, clocked := uint64(1), uint64(1), false
		s.Apply(index, term, &Batch{Commands: []Command{
			&Bootstrap{ClusterID: "c"}, &CreateKeyspace{Name: "k", Partitions: 1, Settings: settings},
		}})
		elapsed := func() time.Duration {
			d := now - measured
			if measured = now; !clocked {
				clocked, d = true, 0
			}
			return d
		}
		alive := map[SessionID]time.Duration{} // real time of the last renewal
		for range rapid.IntRange(5, 80).Draw(t, "steps") {
			now += time.Duration(rapid.SampledFrom([]int{0, 1, 200, 900, 1000, 2500, 7000}).Draw(t, "pass")) * time.Millisecond
			index++
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				term, clocked = term+1, false
			case 1:
				id := SessionID(index)
				r := s.Apply(index, term, &Batch{Commands: []Command{&OpenSession{Session: id, Worker: "w" + time.Duration(index).String(), Keyspaces: []string{"k"}}}})
				if r[0].Err != nil {
					t.Fatal(r[0].Err)
				}
				alive[id] = now
			case 2:
				k := &KeepAlive{Term: term, Elapsed: elapsed()}
				for x := range s.Sessions() {
					if rapid.Bool().Draw(t, "renew") {
						k.Sessions = append(k.Sessions, x.ID)
					}
				}
				s.Apply(index, term, &Batch{Commands: []Command{k}})
				for _, id := range k.Sessions {
					alive[id] = now
				}
			case 3: // built in an earlier term
				k := &KeepAlive{Term: term - 1, Elapsed: time.Second}
				for x := range s.Sessions() {
					k.Sessions = append(k.Sessions, x.ID)
					alive[x.ID] = now
				}
				s.Apply(index, term, &Batch{Commands: []Command{k}})
			default:
				e := &Expire{Term: term, Elapsed: elapsed()}
				for x := range s.Sessions() {
					e.Sessions = append(e.Sessions, Expiry{x.ID, x.Renewal})
				}
				r := s.Apply(index, term, &Batch{Commands: []Command{e}})
				for i, x := range r[0].Sessions {
					if id := e.Sessions[i].Session; x.Err == nil && now-alive[id] < settings.TTL {
						t.Fatalf("session %d ended %s after its last renewal", id, now-alive[id])
					}
				}
			}
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestExpiryIsNotLateEither: with a leader that ticks, a session ends within
// a tick of its deadline.
func TestExpiryIsNotLateEither(t *testing.T) {
	s := crowd(t, 4, 1)
	tick := func(index uint64, d time.Duration) {
		s.Apply(index, 1, &Batch{Commands: []Command{&Tick{Term: 1, Elapsed: d}}})
	}
	tick(2, 0)
	s.Apply(3, 1, &Batch{Commands: []Command{&KeepAlive{Term: 1, Elapsed: 300 * time.Millisecond, Sessions: []SessionID{1}}}})
	for i := range uint64(9) {
		tick(4+i, time.Second)
	}
	expire := &Expire{Term: 1, Elapsed: 999 * time.Millisecond, Sessions: []Expiry{{1, 3}}}
	if r := s.Apply(20, 1, &Batch{Commands: []Command{expire}}); ReasonOf(r[0].Sessions[0].Err) != ReasonConflict {
		t.Fatalf("a millisecond before its deadline: %v", r[0].Sessions[0].Err)
	}
	expire.Elapsed = time.Millisecond
	if r := s.Apply(21, 1, &Batch{Commands: []Command{expire}}); r[0].Sessions[0].Err != nil {
		t.Fatalf("at its deadline: %v", r[0].Sessions[0].Err)
	}
}
