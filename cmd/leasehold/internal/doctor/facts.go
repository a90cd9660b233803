package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// Facts are what Collect has seen.
type Facts struct {
	// Apart is the time between the two looks.
	Apart time.Duration
	// Servers are those that were named and those that they named, sorted by id.
	Servers []Server
	// Lists, of the leader if it answers. Stale: of another server, and what
	// workers say of themselves is not in them.
	Keyspaces  []*pb.Keyspace
	Workers    []*pb.Worker
	Unowned    []*pb.Partition // without an owner, or blocked; of each keyspace at most MaxUnowned
	Stale      bool
	ListsError error // nothing answered for them
	// Holding is for how long a worker holds a partition, the longest that was
	// seen; only of workers whose guards have checked nothing.
	Holding map[string]time.Duration
}

// Server is one of the cluster, whether it answers or not.
type Server struct {
	ID   string // as it calls itself, or as others do; empty: nobody knows
	Addr string // gRPC
	// First and Second are the two looks.
	First, Second Look
}

// Look is what one server answered in one round.
type Look struct {
	Err    error // of the status; then nothing else is there
	Status *pb.Status
	Peers  *pb.ListPeersResponse
	// PeersErr and HealthErr are why those are nil, if the server has said so.
	PeersErr, HealthErr error
	// Health is nil when the server does not know the call or did not answer it.
	Health *pb.ServerHealth
	// Clock is when Health was asked for, on the clocks of who asks: the
	// shortest of a few tries.
	Clock Bracket
}

// Bracket is the time within which an answer was made.
type Bracket struct {
	Sent, Received time.Duration // monotonic
	SentAt         time.Time     // wall clock
}

// Up tells whether the server answered in the second round.
func (s *Server) Up() bool { return s.Second.Err == nil && s.Second.Status != nil }

// answers counts the rounds in which the server answered.
func (s *Server) answers() (n int) {
	for _, l := range []Look{s.First, s.Second} {
		if l.Err == nil && l.Status != nil {
			n++
		}
	}
	return n
}

// health is of the second look; nil when there is none.
func (s *Server) health() *pb.ServerHealth {
	if !s.Up() {
		return nil
	}
	return s.Second.Health
}

// name is what people call the server.
func (s *Server) name() string {
	if s.ID != "" {
		return s.ID
	}
	return s.Addr
}

// up are the servers that answered in the second round.
func (f *Facts) up() (out []*Server) {
	for i := range f.Servers {
		if f.Servers[i].Up() {
			out = append(out, &f.Servers[i])
		}
	}
	return out
}

// Answered tells whether any server did.
func (f *Facts) Answered() bool { return len(f.up()) > 0 }

// leader is the server that leads, as itself says; nil: none that answers.
func (f *Facts) leader() (found *Server) {
	for _, s := range f.up() {
		st := s.Second.Status
		if st.GetLeaderId() == st.GetServerId() && st.GetLeaderId() != "" &&
			(found == nil || st.GetTerm() > found.Second.Status.GetTerm()) {
			found = s
		}
	}
	return found
}

// witness is whose view of the Raft configuration counts: the leader's, else
// that of the server which has applied most.
func (f *Facts) witness() *Server {
	if l := f.leader(); l != nil {
		return l
	}
	var best *Server
	for _, s := range f.up() {
		if len(s.Second.Peers.GetItems()) > 0 && (best == nil || s.Second.Status.GetAppliedIndex() > best.Second.Status.GetAppliedIndex()) {
			best = s
		}
	}
	return best
}

// peers are the Raft configuration of the second look.
func (f *Facts) peers() []*pb.Peer {
	w := f.witness()
	if w == nil {
		return nil
	}
	return w.Second.Peers.GetItems()
}

// byID finds a server; nil: it is not known.
func (f *Facts) byID(id string) *Server {
	for i := range f.Servers {
		if f.Servers[i].ID == id {
			return &f.Servers[i]
		}
	}
	return nil
}

// election is the election timeout, 500 ms where nobody has said.
func (f *Facts) election() time.Duration {
	for _, s := range f.up() {
		if ms := s.Second.Status.GetElectionTimeoutMs(); ms > 0 {
			return time.Duration(ms) * time.Millisecond
		}
	}
	return 500 * time.Millisecond
}

// quorum is how many votes decide, of how many, and how many voters answer or
// are heard by the leader.
func (f *Facts) quorum() (need, voters, alive int) {
	for _, p := range f.peers() {
		if !p.GetVoter() {
			continue
		}
		voters++
		if f.alive(p) {
			alive++
		}
	}
	return voters/2 + 1, voters, alive
}

// alive tells whether a server of the configuration answers us, or the leader.
func (f *Facts) alive(p *pb.Peer) bool {
	if s := f.byID(p.GetServerId()); s != nil && s.Up() {
		return true
	}
	return f.heardByLeader(p)
}

// heardByLeader tells whether the leader has lately had an answer of it.
func (f *Facts) heardByLeader(p *pb.Peer) bool {
	ago, ok := contact(p)
	return f.leader() != nil && ok && ago < contacts*f.election()
}

// contact is when the leader last had an answer of a server. One that is too
// old to say leaves the field 0, and the id of the data directory empty.
func contact(p *pb.Peer) (ago time.Duration, ok bool) {
	ms := p.GetLastContactMs()
	return time.Duration(ms) * time.Millisecond, ms > 0 || ms == 0 && p.GetStoreId() != ""
}

// contacts is how many election timeouts without an answer make a server count
// as silent.
const contacts = 4

// keyspace finds one by name; nil: it is not known.
func (f *Facts) keyspace(name string) *pb.Keyspace {
	for _, k := range f.Keyspaces {
		if k.GetName() == name {
			return k
		}
	}
	return nil
}

// sortServers puts them in the order of ids, those without one last. Of two
// addresses of one server the one that answered is first.
func sortServers(all []Server) {
	slices.SortFunc(all, func(a, b Server) int {
		switch {
		case (a.ID == "") != (b.ID == ""):
			if a.ID == "" {
				return 1
			}
			return -1
		case a.ID != b.ID:
			return strings.Compare(a.ID, b.ID)
		}
		return cmp.Or(cmp.Compare(b.answers(), a.answers()), strings.Compare(a.Addr, b.Addr))
	})
}

// Summary says what was looked at, in a line.
func (f *Facts) Summary() string {
	leader := "no leader"
	if l := f.leader(); l != nil {
		leader = "leader " + l.name()
	}
	out := fmt.Sprintf("%d of %s, %s, %s apart", len(f.up()), plural(len(f.Servers), "server"), leader, f.Apart.Round(time.Millisecond))
	if f.ListsError == nil && f.Answered() {
		out += fmt.Sprintf(", %s, %s", plural(len(f.Keyspaces), "keyspace"), plural(len(f.Workers), "worker"))
	}
	if c := ClockRates(f); c.Fast != "" {
		out += fmt.Sprintf(", clock rates within %s, give or take %s", percent(c.Likely), percent(c.Error))
	}
	if f.Stale {
		out += " (lists from a follower, they may be old)"
	}
	return out
}
