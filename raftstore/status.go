package raftstore

import (
	"time"

	"github.com/hashicorp/raft"
)

// Status is a server's view of the group.
type Status struct {
	ServerID string
	// State is "leader", "follower", "candidate", or "stopped".
	State    string
	Term     uint64
	LeaderID string // empty: none known
	// LastContact is how long ago this server last heard of a leader: the age of
	// what View shows. 0 on the leader; -1: never.
	LastContact  time.Duration
	AppliedIndex uint64 // of the state
	CommitIndex  uint64
	LastIndex    uint64 // of the log
	Peers        []PeerStatus
	// Removed: this server has state, but the group goes on without it. It then
	// asks nobody for votes.
	Removed bool
	// Refused says why servers of the group refuse this one's connections; empty
	// when none has done so lately.
	Refused string
}

// PeerStatus is one server of the group, this one included.
type PeerStatus struct {
	Peer
	Voter bool
	// LastContact is how long ago the server last answered this one, if this one
	// is the leader; -1: not since it leads, or this one does not lead.
	LastContact time.Duration
	// LastIndex of its log, as far as the leader knows; 0: not known.
	LastIndex uint64
}

// Status may be called at any time.
func (s *Store) Status() Status {
	st := Status{ServerID: s.self.ID, State: "stopped", LastContact: -1, AppliedIndex: s.appliedIndex.Load()}
	r := s.running()
	if r == nil {
		return st
	}
	switch r.State() {
	case raft.Leader:
		st.State, st.LastContact = "leader", 0
	case raft.Candidate:
		st.State = "candidate"
	case raft.Follower:
		st.State = "follower"
	}
	if last := r.LastContact(); st.State != "leader" && !last.IsZero() {
		st.LastContact = time.Since(last)
	}
	_, id := r.LeaderWithID()
	st.LeaderID = splitID(id).ID
	st.Term, st.CommitIndex, st.LastIndex = r.CurrentTerm(), r.CommitIndex(), r.LastIndex()
	conf := r.GetConfiguration().Configuration()
	st.Removed, st.Refused = s.removed(r, conf), s.greeter.refusals(conf.Servers)
	for _, srv := range conf.Servers {
		p := PeerStatus{
			Peer:        peerOf(srv),
			Voter:       srv.Suffrage == raft.Voter,
			LastContact: -1,
		}
		switch {
		case srv.ID == s.self.raftID():
			p.LastContact, p.LastIndex = 0, st.LastIndex
		case st.State == "leader":
			p.LastContact, p.LastIndex = s.transport.contact(srv.ID)
		}
		st.Peers = append(st.Peers, p)
	}
	return st
}

// removed reports whether the group goes on without this server: another one
// has told so, or it is not in the newest configuration that it knows and no
// leader turns to it, as one does with a server that is still to be added.
func (s *Store) removed(r *raft.Raft, conf raft.Configuration) bool {
	if s.greeter.removed() {
		return true
	}
	if len(conf.Servers) == 0 || contains(conf, s.self.raftID()) || r.State() == raft.Leader {
		return false
	}
	heard := r.LastContact()
	if heard.IsZero() {
		heard = s.since
	}
	return time.Since(heard) > 2*s.cfg.ElectionTimeout
}

// aloneAfter is after how many election timeouts without a leader a server takes it
// that the group may have changed without it. Any leader that it knows would have
// been elected by then.
const aloneAfter = 10

// alone reports whether there has been no leader here for long.
func (s *Store) alone() bool {
	s.lifeMu.Lock()
	r, last := s.raft, s.since
	s.lifeMu.Unlock()
	if r == nil || r.State() == raft.Leader {
		return false
	}
	if heard := r.LastContact(); heard.After(last) {
		last = heard
	}
	return time.Since(last) > aloneAfter*s.cfg.ElectionTimeout
}

// leaderRaftID is the leader that this server knows of, or "".
func (s *Store) leaderRaftID() raft.ServerID {
	r := s.running()
	if r == nil {
		return ""
	}
	_, id := r.LeaderWithID()
	return id
}

// newestMembers is the newest configuration that is in the log, committed or not.
func (s *Store) newestMembers() (conf raft.Configuration, ok bool) {
	r := s.running()
	if r == nil {
		return raft.Configuration{}, false
	}
	return r.GetConfiguration().Configuration(), true
}

// LeaderID returns the id of the leader that this server knows of.
func (s *Store) LeaderID() (id string, ok bool) {
	r := s.running()
	if r == nil {
		return "", false
	}
	_, lid := r.LeaderWithID()
	return splitID(lid).ID, lid != ""
}

func (s *Store) leaderID() string {
	id, _ := s.LeaderID()
	return id
}

// IsLeader reports whether this server leads and has taken office: proposals
// and reads are possible here.
func (s *Store) IsLeader() bool {
	if s.leading.Load() == 0 {
		return false
	}
	r := s.running()
	return r != nil && r.State() == raft.Leader
}

// Term is the present one; 0 before Run.
func (s *Store) Term() uint64 {
	if r := s.running(); r != nil {
		return r.CurrentTerm()
	}
	return 0
}

// LastContact is Status.LastContact.
func (s *Store) LastContact() time.Duration {
	r := s.running()
	if r == nil {
		return -1
	}
	if r.State() == raft.Leader {
		return 0
	}
	if last := r.LastContact(); !last.IsZero() {
		return time.Since(last)
	}
	return -1
}
