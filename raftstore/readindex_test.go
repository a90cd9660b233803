package raftstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// fakeOffice lets a test answer each heartbeat.
type fakeOffice struct {
	commit  atomic.Uint64
	last    uint64
	deposed atomic.Bool
	self    bool
	others  []raft.ServerID
	asked   map[raft.ServerID]chan chan bool // closed without a value: an error
	over    chan struct{}
}

func newFakeOffice(others ...raft.ServerID) *fakeOffice {
	o := &fakeOffice{self: true, others: others, asked: map[raft.ServerID]chan chan bool{}, over: make(chan struct{})}
	for _, id := range others {
		o.asked[id] = make(chan chan bool, 10)
	}
	return o
}

func (o *fakeOffice) inOffice(uint64) bool { return !o.deposed.Load() }
func (o *fakeOffice) commitIndex() uint64  { return o.commit.Load() }

func (o *fakeOffice) lastIndex() uint64 { return o.last }

func (o *fakeOffice) voters() (self bool, others []raft.Server) {
	for _, id := range o.others {
		others = append(others, raft.Server{ID: id})
	}
	return o.self, others
}

func (o *fakeOffice) ask(to raft.Server, _ uint64) (bool, error) {
	answer := make(chan bool)
	o.asked[to.ID] <- answer
	select {
	case yes, ok := <-answer:
		if ok {
			return yes, nil
		}
	case <-o.over:
	}
	return false, errors.New("connection reset")
}

// outcome of a round, as seen now.
func (r *readRound) outcome() string {
	synctest.Wait()
	select {
	case <-r.done:
		if r.ok {
			return "confirmed"
		}
		return "refused"
	default:
		return "open"
	}
}

func TestReadCountsOnlyAnswersToLaterRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q readRounds
		o := newFakeOffice("b", "c")
		q.open(1, o)
		defer q.close()
		o.commit.Store(10)
		first := q.join()
		lateB, lateC := <-o.asked["b"], <-o.asked["c"]
		lateB <- true
		if got := first.outcome(); got != "confirmed" || first.index != 10 {
			t.Fatalf("one of two followers has answered: %s, index %d", got, first.index)
		}
		o.commit.Store(20)
		second := q.join()
		againB := <-o.asked["b"]
		lateC <- true // c answers what it was asked before the second read began
		if got := second.outcome(); got != "open" || second.index != 20 {
			t.Fatalf("an answer to an earlier request was counted: %s, index %d", got, second.index)
		}
		(<-o.asked["c"]) <- true
		if got := second.outcome(); got != "confirmed" {
			t.Errorf("after the answer to a later request: %s", got)
		}
		againB <- true
		close(o.over)
	})
}

func TestReadRounds(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, q *readRounds, o *fakeOffice){
		"those who come meanwhile share the next": func(t *testing.T, q *readRounds, o *fakeOffice) {
			first := q.join()
			o.commit.Store(7)
			second := q.join()
			if second == first || q.join() != second {
				t.Error("joined a round that had begun, or not the next")
			}
			(<-o.asked["b"]) <- true
			if first.outcome() != "confirmed" || second.outcome() != "open" || second.index != 7 {
				t.Errorf("first %s, second %s at %d", first.outcome(), second.outcome(), second.index)
			}
			(<-o.asked["b"]) <- true
			if got := second.outcome(); got != "confirmed" {
				t.Errorf("second %s", got)
			}
		},
		"a server that refuses ends the round": func(t *testing.T, q *readRounds, o *fakeOffice) {
			first, second := q.join(), q.join()
			lateB, lateC := <-o.asked["b"], <-o.asked["c"]
			lateB <- false
			if got := first.outcome(); got != "refused" {
				t.Errorf("first %s", got)
			}
			lateC <- true // of the first round
			if got := second.outcome(); got != "open" {
				t.Errorf("second %s", got)
			}
			(<-o.asked["b"]) <- false
			if got := second.outcome(); got != "refused" {
				t.Errorf("second %s", got)
			}
		},
		"the one that answered last is asked first, the other when it does not": func(t *testing.T, q *readRounds, o *fakeOffice) {
			first := q.join()
			slow, c := <-o.asked["b"], <-o.asked["c"]
			c <- true
			if got := first.outcome(); got != "confirmed" {
				t.Errorf("first %s", got)
			}
			second := q.join()
			(<-o.asked["c"]) <- true
			if got := second.outcome(); got != "confirmed" {
				t.Errorf("second %s", got)
			}
			q.join()
			synctest.Wait()
			if len(o.asked["b"]) != 0 || len(o.asked["c"]) != 1 {
				t.Errorf("%d and %d were asked", len(o.asked["b"]), len(o.asked["c"]))
			}
			slow <- true
			time.Sleep(askMore)
			synctest.Wait()
			if len(o.asked["b"]) != 1 {
				t.Error("nobody else was asked after a while without an answer")
			}
		},
		"an error is no answer": func(t *testing.T, q *readRounds, o *fakeOffice) {
			first := q.join()
			close(<-o.asked["b"])
			close(<-o.asked["c"])
			if got := first.outcome(); got != "open" {
				t.Errorf("after two errors: %s", got)
			}
			(<-o.asked["c"]) <- true
			if got := first.outcome(); got != "confirmed" {
				t.Errorf("after another try: %s", got)
			}
		},
		"the end of the term ends all": func(t *testing.T, q *readRounds, o *fakeOffice) {
			first, second := q.join(), q.join()
			synctest.Wait()
			q.close()
			if first.outcome() != "refused" || second.outcome() != "refused" || q.join() != nil {
				t.Errorf("first %s, second %s", first.outcome(), second.outcome())
			}
		},
		"a leader that has been deposed is not confirmed": func(t *testing.T, q *readRounds, o *fakeOffice) {
			first := q.join()
			o.deposed.Store(true)
			(<-o.asked["b"]) <- true
			if got := first.outcome(); got != "refused" {
				t.Errorf("first %s", got)
			}
		},
		"a leader without a vote does not count": func(t *testing.T, q *readRounds, o *fakeOffice) {
			o.self = false
			first := q.join()
			(<-o.asked["b"]) <- true
			if got := first.outcome(); got != "open" {
				t.Errorf("one of two voters: %s", got)
			}
			(<-o.asked["c"]) <- true
			if got := first.outcome(); got != "confirmed" {
				t.Errorf("both voters: %s", got)
			}
		},
		"alone nobody is asked": func(t *testing.T, q *readRounds, o *fakeOffice) {
			o.others = nil
			if got := q.join().outcome(); got != "confirmed" {
				t.Errorf("alone: %s", got)
			}
		},
		"two of five are not enough": func(t *testing.T, q *readRounds, o *fakeOffice) {
			for _, id := range []raft.ServerID{"d", "e"} {
				o.others, o.asked[id] = append(o.others, id), make(chan chan bool, 1)
			}
			first := q.join()
			(<-o.asked["d"]) <- true
			if got := first.outcome(); got != "open" {
				t.Errorf("two of five: %s", got)
			}
			(<-o.asked["b"]) <- true
			if got := first.outcome(); got != "confirmed" {
				t.Errorf("three of five: %s", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var q readRounds
				o := newFakeOffice("b", "c")
				q.open(1, o)
				test(t, &q, o)
				q.close()
				close(o.over)
				q.asking.Wait()
			})
		})
	}
}

func TestAnAttestationIsOneAcknowledgement(t *testing.T) {
	for name, c := range map[string]struct {
		others  []raft.ServerID
		from    raft.ServerID
		term    uint64
		change  func(*fakeOffice)
		granted bool
	}{
		"one of three":            {others: []raft.ServerID{"b", "c"}, from: "b", term: 4, granted: true},
		"of two":                  {others: []raft.ServerID{"b"}, from: "b", term: 4, granted: true},
		"one of five":             {others: []raft.ServerID{"b", "c", "d", "e"}, from: "b", term: 4},
		"of an earlier term":      {others: []raft.ServerID{"b", "c"}, from: "b", term: 3},
		"of a later term":         {others: []raft.ServerID{"b", "c"}, from: "b", term: 5},
		"of no voter":             {others: []raft.ServerID{"b", "c"}, from: "x", term: 4},
		"to a leader deposed":     {others: []raft.ServerID{"b", "c"}, from: "b", term: 4, change: func(o *fakeOffice) { o.deposed.Store(true) }},
		"to one without its vote": {others: []raft.ServerID{"b", "c"}, from: "b", term: 4, change: func(o *fakeOffice) { o.self = false }},
	} {
		t.Run(name, func(t *testing.T) {
			var q readRounds
			o := newFakeOffice(c.others...)
			o.commit.Store(12)
			if c.change != nil {
				c.change(o)
			}
			q.open(4, o)
			defer q.close()
			index, ok := q.attested(c.from, c.term)
			if ok != c.granted || ok && index != 12 {
				t.Errorf("%v at %d, want %v", ok, index, c.granted)
			}
		})
	}
}

func TestReadersShareARoundAndWriteNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var beats atomic.Int64
		c := newCluster(t, 3, func(_ *server, c *Config) {
			c.hooks.sending = func(_ raft.ServerID, req *raft.AppendEntriesRequest) {
				if isHeartbeat(req) {
					beats.Add(1)
				}
			}
		})
		defer c.stopAll()
		l := c.leader().store
		before, beat := l.Status().LastIndex, beats.Load()
		start := time.Now()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if err := l.Read(t.Context(), func(*state.State) {}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took > 5*time.Millisecond {
			t.Errorf("1000 readers took %v", took)
		}
		if n := l.Status().LastIndex - before; n > 0 {
			t.Errorf("1000 readers took %d entries", n)
		}
		if n := beats.Load() - beat; n < 2 || n > 8 {
			t.Errorf("1000 readers took %d heartbeats", n)
		}
	})
}

func TestReadsDoNotWaitForDisks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, lossy)
		defer c.stopAll()
		c.do(mark("a"))
		l := c.leader()
		for _, s := range c.servers {
			if s != l {
				defer s.vfs.hangSyncs()()
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { _, _ = l.store.Propose(ctx, mark("b")) }()
		time.Sleep(50 * time.Millisecond) // both followers' main loops hang in it
		start := time.Now()
		seen := false
		if err := l.store.Read(ctx, func(st *state.State) { seen = marked(st, "a") }); err != nil || !seen {
			t.Errorf("seen: %v, %v", seen, err)
		}
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

func TestReadsFailWhenTheLeadershipEnds(t *testing.T) {
	for name, end := range map[string]func(c *cluster, l *server){
		"by a transfer": func(c *cluster, l *server) {
			if err := l.store.TransferLeadership(c.t.Context()); err != nil {
				c.t.Error(err)
			}
		},
		"by silence": func(c *cluster, l *server) {
			c.net.stall(l.addr)
			time.Sleep(2 * time.Second)
			c.net.resume(l.addr)
		},
		"by a stop": func(_ *cluster, l *server) { l.stop(); <-l.done },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3)
				defer c.stopAll()
				c.do(mark("a"))
				l := c.leader()
				var wg sync.WaitGroup
				for i := range 20 {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * 37 * time.Microsecond)
						for {
							start := time.Now()
							err := l.store.Read(context.Background(), func(*state.State) {})
							var not *NotLeaderError
							switch {
							case err == nil:
								time.Sleep(200 * time.Microsecond)
								continue
							case !errors.As(err, &not) && !errors.Is(err, ErrStopped):
								t.Errorf("%v", err)
							case time.Since(start) > 600*time.Millisecond:
								t.Errorf("told after %v", time.Since(start))
							}
							return
						}
					})
				}
				time.Sleep(5 * time.Millisecond)
				end(c, l)
				wg.Wait()
			})
		})
	}
}

func TestReadsGoOnWhileAFollowerIsAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, unsynced)
		defer c.stopAll()
		l, f := c.leader(), c.follower()
		slowest := func(what string, during func()) {
			stop, done := make(chan struct{}), make(chan struct{})
			var worst time.Duration
			go func() {
				defer close(done)
				for {
					select {
					case <-stop:
						return
					default:
					}
					start := time.Now()
					if err := l.store.Read(t.Context(), func(*state.State) {}); err != nil {
						t.Errorf("%s: %v", what, err)
					}
					worst = max(worst, time.Since(start))
					time.Sleep(time.Millisecond)
				}
			}()
			during()
			close(stop)
			<-done
			if worst > 20*time.Millisecond {
				t.Errorf("%s: a read took %v", what, worst)
			}
		}
		slowest("a follower that is silent", func() {
			c.net.stall(f.addr)
			time.Sleep(3 * time.Second)
			c.net.resume(f.addr)
			time.Sleep(time.Second)
		})
		slowest("a follower that restarts", func() {
			f.crash()
			time.Sleep(time.Second)
			f.start()
			time.Sleep(3 * time.Second)
		})
	})
}
