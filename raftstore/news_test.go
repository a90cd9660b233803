package raftstore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// heardNews records news, and lets a test hold them back.
type heardNews struct {
	news
	mu   sync.Mutex
	sent []string
	hold chan struct{}
	err  error
}

func newHeardNews(term uint64, o office) *heardNews {
	h := &heardNews{}
	h.followers = map[raft.ServerID]*listener{}
	h.send = func(id raft.ServerID, _ raft.ServerAddress, req *raft.AppendEntriesRequest, _ *raft.AppendEntriesResponse) error {
		h.mu.Lock()
		h.sent = append(h.sent, fmt.Sprintf("%s: term %d, entry %d of term %d, committed %d", id, req.Term, req.PrevLogEntry, req.PrevLogTerm, req.LeaderCommitIndex))
		hold := h.hold
		h.mu.Unlock()
		if hold != nil {
			<-hold
		}
		return h.err
	}
	h.open(term, o)
	return h
}

// heard returns what was sent since it was last asked.
func (h *heardNews) heard() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	sent := h.sent
	h.sent = nil
	return sent
}

// append is a request of Raft's from begin to end.
func (h *heardNews) append(id raft.ServerID, o outcome) {
	h.begins(id, "", o.term)
	h.ended(id, o)
}

func TestNews(t *testing.T) {
	for name, test := range map[string]func(h *heardNews, o *fakeOffice) (want []string){
		"no more than the follower holds": func(h *heardNews, o *fakeOffice) []string {
			h.append("b", outcome{term: 5, last: 8, logTerm: 3, told: 5})
			o.commit.Store(20)
			h.committed()
			return []string{"b: term 5, entry 8 of term 3, committed 8"}
		},
		"no more than is committed": func(h *heardNews, o *fakeOffice) []string {
			h.append("b", outcome{term: 5, last: 8, logTerm: 3, told: 5})
			o.commit.Store(7)
			h.committed()
			h.committed()
			return []string{"b: term 5, entry 8 of term 3, committed 7"}
		},
		"nothing that it knows": func(h *heardNews, o *fakeOffice) []string {
			o.commit.Store(8)
			h.append("b", outcome{term: 5, last: 8, logTerm: 3, told: 8})
			h.committed()
			return nil
		},
		"nothing while a request may tell it": func(h *heardNews, o *fakeOffice) []string {
			h.append("b", outcome{term: 5, last: 8, logTerm: 3, told: 5})
			h.begins("b", "", 5)
			o.commit.Store(8)
			h.committed()
			h.ended("b", outcome{term: 5, last: 9, logTerm: 5, told: 8})
			return nil
		},
		"nothing while there is more to send": func(h *heardNews, o *fakeOffice) []string {
			h.append("b", outcome{term: 5, last: 8, logTerm: 3, told: 5})
			o.commit.Store(8)
			o.last = 9
			h.committed()
			h.append("b", outcome{term: 5, last: 9, logTerm: 5, told: 8})
			return nil
		},
		"but when it did not": func(h *heardNews, o *fakeOffice) []string {
			h.append("b", outcome{term: 5, last: 8, logTerm: 3, told: 5})
			h.begins("b", "", 5)
			o.commit.Store(8)
			h.committed()
			h.ended("b", outcome{term: 5, unknown: true, told: 8})
			return []string{"b: term 5, entry 8 of term 3, committed 8"}
		},
		"nothing to one that refused": func(h *heardNews, o *fakeOffice) []string {
			h.append("b", outcome{term: 5, last: 8, logTerm: 3, told: 5})
			h.append("b", outcome{term: 5})
			o.commit.Store(8)
			h.committed()
			return nil
		},
		"nothing about an earlier term": func(h *heardNews, o *fakeOffice) []string {
			h.append("b", outcome{term: 4, last: 8, logTerm: 3, told: 5})
			o.commit.Store(8)
			h.committed()
			h.begins("b", "", 4)
			h.begins("b", "", 5)
			h.ended("b", outcome{term: 4, last: 9, logTerm: 4, told: 5})
			h.ended("b", outcome{term: 5, last: 3, logTerm: 2, told: 2})
			return []string{"b: term 5, entry 3 of term 2, committed 3"}
		},
		"what was committed before the office was open": func(h *heardNews, o *fakeOffice) []string {
			h.close()
			h.append("b", outcome{term: 6, last: 8, logTerm: 6, told: 5})
			o.commit.Store(8)
			h.committed()
			h.open(6, o)
			return []string{"b: term 6, entry 8 of term 6, committed 8"}
		},
		"whatever became of a request of an earlier term": func(h *heardNews, o *fakeOffice) []string {
			h.begins("b", "", 4)
			h.append("b", outcome{term: 5, last: 8, logTerm: 3, told: 5})
			o.commit.Store(8)
			h.committed()
			synctest.Wait()
			h.open(6, o) // b is forgotten
			h.ended("b", outcome{term: 4, unknown: true})
			return []string{"b: term 5, entry 8 of term 3, committed 8"}
		},
		"nothing once it is deposed": func(h *heardNews, o *fakeOffice) []string {
			h.append("b", outcome{term: 5, last: 8, logTerm: 3, told: 5})
			o.commit.Store(8)
			o.deposed.Store(true)
			h.committed()
			return nil
		},
		"nothing after the term": func(h *heardNews, o *fakeOffice) []string {
			h.append("b", outcome{term: 5, last: 8, logTerm: 3, told: 5})
			o.commit.Store(8)
			h.close()
			h.committed()
			return nil
		},
		"not again when it was lost": func(h *heardNews, o *fakeOffice) []string {
			h.err = errors.New("connection reset")
			h.append("b", outcome{term: 5, last: 8, logTerm: 3, told: 5})
			o.commit.Store(8)
			h.committed()
			synctest.Wait()
			h.committed()
			return []string{"b: term 5, entry 8 of term 3, committed 8"}
		},
		"the latest in one": func(h *heardNews, o *fakeOffice) []string {
			h.hold = make(chan struct{})
			h.append("b", outcome{term: 5, last: 20, logTerm: 5, told: 5})
			for i := range uint64(10) {
				o.commit.Store(10 + i)
				h.committed()
				synctest.Wait()
			}
			close(h.hold)
			return []string{"b: term 5, entry 20 of term 5, committed 10", "b: term 5, entry 20 of term 5, committed 19"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newFakeOffice()
				h := newHeardNews(5, o)
				want := test(h, o)
				if got := h.heard(); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("told %q, want %q", got, want)
				}
			})
		})
	}
}

func TestFollowersLearnOfACommitAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told, sent atomic.Int64
		c := newCluster(t, 3, func(_ *server, c *Config) {
			c.hooks.telling = func(_ raft.ServerID, req *raft.AppendEntriesRequest) {
				told.Add(1)
				if req.LeaderCommitIndex > req.PrevLogEntry {
					t.Errorf("told that %d is committed, with entry %d", req.LeaderCommitIndex, req.PrevLogEntry)
				}
			}
			c.hooks.sending = func(raft.ServerID, *raft.AppendEntriesRequest) { sent.Add(1) }
		})
		defer c.stopAll()
		l := c.leader()
		time.Sleep(time.Second)
		var slowest time.Duration
		before := told.Load()
		const writes = 50
		for i := range writes {
			start := time.Now()
			rs, err := l.store.Propose(t.Context(), mark(fmt.Sprintf("k%d", i)))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range c.servers {
				if err := s.store.WaitApplied(t.Context(), rs[0].Index); err != nil {
					t.Fatal(err)
				}
			}
			slowest = max(slowest, time.Since(start))
			time.Sleep(time.Duration(i) * 7 * time.Millisecond)
		}
		if slowest > 3*time.Millisecond { // of links that take 0.1 ms
			t.Errorf("applied everywhere after %v", slowest)
		}
		if n := told.Load() - before; n > 2*writes {
			t.Errorf("%d writes were told %d times", writes, n)
		}
		// With nothing to tell nothing is told.
		before = told.Load()
		time.Sleep(time.Hour)
		if n := told.Load() - before; n > 0 {
			t.Errorf("told %d times in an idle hour", n)
		}
	})
}

func TestHangingDiskTellsNoNews(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l atomic.Pointer[server]
		c := newCluster(t, 3, onDisk, lossy, func(s *server, c *Config) {
			c.hooks.telling = func(_ raft.ServerID, req *raft.AppendEntriesRequest) {
				if l.Load() == s {
					t.Error("told while the disk hangs")
				}
			}
		})
		defer c.stopAll()
		old := c.leader()
		time.Sleep(time.Second)
		resume := old.vfs.hangSyncs()
		go func() { _, _ = old.store.Propose(t.Context(), mark("x")) }()
		time.Sleep(2*time.Second + time.Millisecond)
		l.Store(old)
		tr := old.store.transport
		for id := range tr.news.followers {
			if err := tr.tell(id, "", &raft.AppendEntriesRequest{}, &raft.AppendEntriesResponse{}); !errors.Is(err, ErrDiskHangs) {
				t.Errorf("%v", err)
			}
		}
		l.Store(nil)
		resume()
	})
}
