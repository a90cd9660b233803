package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/api"
	"github.com/leasehold-dev/leasehold/ownership/auth"
	"github.com/leasehold-dev/leasehold/ownership/controller"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// world is a real state machine with a real API over it, and everything else made
// up. Its wall clock goes with the logical one.
type world struct {
	api.Store      // nil: what is not below is not used
	api.Controller // nil, too

	api   *api.API
	begin time.Time

	mu      sync.RWMutex
	state   *state.State
	index   uint64
	leader  string
	age     time.Duration
	blocked map[state.SessionID]bool // what the plan has against them
	members []gossip.Member
}

const term = 5

// tester is a *testing.T or a *rapid.T.
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func newWorld(t tester) *world {
	t.Helper()
	w := &world{state: state.New(), begin: time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC), leader: "s1", blocked: map[state.SessionID]bool{}}
	a, err := api.New(api.Config{
		Store: w, Controller: w, ServerID: "s1", ElectionTimeout: time.Second, Clock: w, Wall: w.wall,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.api = a
	w.apply(&state.Announce{Term: term, Server: state.Server{ID: "s1"}}, &state.Bootstrap{ClusterID: "c", FirstToken: 1000})
	return w
}

func (w *world) apply(cmds ...state.Command) []state.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.index++
	return w.state.Apply(w.index, term, &state.Batch{Wall: w.begin.Add(w.state.Now()), Commands: cmds})
}

func (w *world) wall() time.Time {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.begin.Add(w.state.Now())
}

func (w *world) Now() time.Duration { return w.wall().Sub(w.begin) }

func (w *world) View(fn func(*state.State)) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	fn(w.state)
}

func (w *world) LeaderID() (string, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.leader, w.leader != ""
}

func (w *world) IsLeader() bool { id, _ := w.LeaderID(); return id == "s1" }

func (w *world) LastContact() time.Duration {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.age
}

func (w *world) HasState() bool       { return true }
func (w *world) ClusterID() string    { return "c" }
func (w *world) Self() raftstore.Peer { return raftstore.Peer{ID: "s1"} }

func (w *world) Status() raftstore.Status {
	id, _ := w.LeaderID()
	return raftstore.Status{
		State: "leader", LeaderID: id, Term: term,
		Peers: []raftstore.PeerStatus{{Peer: raftstore.Peer{ID: "s1", RaftAddr: "127.0.0.1:7401"}, Voter: true}},
	}
}

func (w *world) Why(_ state.KeyspaceID, _ uint32, l state.Lease) (r controller.Reason, err error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.blocked[l.Session] {
		r.Code = controller.CodeBlocked
	}
	return r, nil
}

func (w *world) Blocked(state.KeyspaceID) func(uint32, state.Lease) bool {
	if len(w.blocked) == 0 {
		return nil
	}
	return func(_ uint32, l state.Lease) bool { return w.blocked[l.Session] }
}

func (w *world) Members() []gossip.Member { return w.members }

func (w *world) console(t tester, change ...func(*Config)) *Console {
	t.Helper()
	cfg := Config{Source: w.api, Gossip: w, Server: "s1", Version: "v1", CLIServer: "127.0.0.1:7400", Wall: w.wall}
	for _, c := range change {
		c(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// keyspace and session make what most tests begin with.
func (w *world) keyspace(name string, partitions uint32) {
	set := state.DefaultSettings()
	set.InitialDelay = 0
	w.apply(&state.CreateKeyspace{Name: name, Partitions: partitions, Settings: set})
}

func (w *world) session(id state.SessionID, worker string, keyspaces ...string) {
	w.apply(&state.OpenSession{Session: id, Worker: worker, Keyspaces: keyspaces})
}

// move gives a partition to a session, whoever had it.
func (w *world) move(name string, p uint32, to state.SessionID) {
	var l state.Lease
	var id state.KeyspaceID
	w.View(func(s *state.State) {
		if ks, ok := s.KeyspaceByName(name); ok {
			id, l = ks.ID, ks.Lease(p)
		}
	})
	if l.Session != 0 {
		w.apply(&state.Release{Session: l.Session, Items: []state.LeaseRef{{Keyspace: id, Partition: p, Token: l.Token}}, Cause: state.CauseYield})
	}
	w.apply(&state.Grant{Term: term, Keyspace: id, Items: []state.GrantItem{{Partition: p, LastToken: l.Token, Session: to}}, Cause: state.CauseBalance})
}

// call asks the API the way a page does.
func (w *world) call(t tester, method string, req map[string]any, answer any) {
	body, _ := json.Marshal(req)
	r := httptest.NewRequest(http.MethodPost, "/leasehold.v1."+method, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	out := httptest.NewRecorder()
	w.api.HTTPHandler(auth.Open(w.api)).ServeHTTP(out, r)
	if out.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", method, out.Code, out.Body)
	}
	if err := json.Unmarshal(out.Body.Bytes(), answer); err != nil {
		t.Fatalf("%s: %v in %s", method, err, out.Body)
	}
}

// page is what a browser has put together from the messages.
type page struct {
	seq      uint64
	keyspace string
	sections map[string]json.RawMessage
	owners   []string
	owner    []int
	state    []int
	since    []int64
	churn    []int
	events   []uint64 // revisions
	fulls    int
	deltas   int
}

type wireMessage struct {
	Seq        uint64
	At         int64
	Keyspace   string
	Partitions *struct {
		N       int
		Omitted bool
		Owners  []string
		Owner   []int
		State   []int
		Since   []int64
		Churn   []int
		Changed [][5]int64
	}
	Events []struct {
		Revision string
		Kind     string
	}
}

// take folds one message in, as store.js does.
func (p *page) take(msg []byte) error {
	head, data, ok := bytes.Cut(bytes.TrimSuffix(msg, []byte("\n\n")), []byte("\ndata: "))
	kind := string(bytes.TrimPrefix(head, []byte("event: ")))
	if !ok || bytes.Contains(data, []byte("\n")) {
		return fmt.Errorf("no event of one line: %.80q", msg)
	}
	var m wireMessage
	var sections map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("%w in %s", err, data)
	}
	if err := json.Unmarshal(data, &sections); err != nil {
		return err
	}
	switch kind {
	case "full":
		*p = page{sections: map[string]json.RawMessage{}, keyspace: m.Keyspace, fulls: p.fulls + 1, deltas: p.deltas}
		p.owners, p.owner, p.state, p.since, p.churn = m.Partitions.Owners, m.Partitions.Owner, m.Partitions.State, m.Partitions.Since, m.Partitions.Churn
	case "delta":
		p.deltas++
		if m.Seq != p.seq+1 {
			return fmt.Errorf("message %d follows %d", m.Seq, p.seq)
		}
		if m.Partitions != nil {
			p.owners = append(p.owners, m.Partitions.Owners...)
			for _, c := range m.Partitions.Changed {
				i := c[0]
				p.owner[i], p.state[i], p.since[i], p.churn[i] = int(c[1]), int(c[2]), c[3], int(c[4])
			}
		}
	default:
		return fmt.Errorf("event %q", kind)
	}
	p.seq = m.Seq
	for name, raw := range sections {
		p.sections[name] = raw
	}
	for _, e := range m.Events {
		var rev uint64
		fmt.Sscan(e.Revision, &rev)
		if n := len(p.events); n > 0 && rev <= p.events[n-1] {
			return fmt.Errorf("event %d follows %d", rev, p.events[n-1])
		}
		p.events = append(p.events, rev)
	}
	return nil
}
