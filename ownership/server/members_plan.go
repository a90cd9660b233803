package server

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore"
)

// Who is in the Raft group is decided by operators: at the formation, with raft
// add and raft remove. What follows from it is done by the leader, one change
// at a time: a server that moved gets its new address into the configuration,
// one that came back with an empty data directory takes the place of its former
// self, one that has kept up for a while becomes a voter. Presence alone lets
// nobody in: a name that is not in the configuration, because it never was or
// because it was removed, is left alone.

const (
	// lostElections is how many election timeouts a server must have been silent
	// before an empty one of its name is let in beside it.
	lostElections = 10
	// steadyElections is how many election timeouts a server must have kept up
	// without a break before it becomes a voter.
	steadyElections = 20
	// contactElections is how many of silence are a break.
	contactElections = 3
)

// changeOp is what is done to the configuration.
type changeOp string

const (
	opAdd     changeOp = "add"
	opMove    changeOp = "move"
	opPromote changeOp = "promote"
	opRemove  changeOp = "remove"
)

// change is one change of the configuration, and why.
type change struct {
	op     changeOp
	peer   raftstore.Peer
	reason string
}

// storeKey is a server with one data directory, wherever it is.
type storeKey struct{ id, store string }

func keyOf(p raftstore.Peer) storeKey { return storeKey{p.ID, p.Store} }

// look is what the leader sees at one moment.
type look struct {
	at        time.Duration // on a clock that never goes back
	self      raftstore.Peer
	peers     []raftstore.PeerStatus    // the configuration
	seen      map[string]raftstore.Peer // servers alive in gossip, by id
	lastIndex uint64                    // of the leader's log
}

// planner decides about the configuration during one term. It remembers what
// takes several looks to tell; it is pure.
type planner struct {
	election time.Duration // timeout
	began    time.Duration // the first look
	mark     uint64        // the end of the leader's log at the look before
	steady   map[storeKey]time.Duration
}

func newPlanner(election time.Duration) *planner {
	return &planner{election: election, began: -1, steady: map[storeKey]time.Duration{}}
}

// plan returns the one change to make now, if there is one.
func (p *planner) plan(l look) (change, bool) {
	p.watch(l)
	for _, decide := range []func(look) (change, bool){p.move, p.dropSurplus, p.replace, p.promote, p.admit} {
		if c, ok := decide(l); ok {
			return c, true
		}
	}
	return change{}, false
}

// watch notes who keeps up: who has answered lately, and has all that the
// leader had at the look before.
func (p *planner) watch(l look) {
	if p.began < 0 {
		p.began = l.at
	}
	present := map[storeKey]bool{}
	for _, s := range l.peers {
		k := keyOf(s.Peer)
		present[k] = true
		if !p.inContact(s) || s.LastIndex < p.mark || p.mark == 0 {
			delete(p.steady, k)
		} else if _, ok := p.steady[k]; !ok {
			p.steady[k] = l.at
		}
	}
	maps.DeleteFunc(p.steady, func(k storeKey, _ time.Duration) bool { return !present[k] })
	p.mark = l.lastIndex
}

func (p *planner) inContact(s raftstore.PeerStatus) bool {
	return s.LastContact >= 0 && s.LastContact <= contactElections*p.election
}

// lost tells whether a server has been silent for so long that its name may be
// used by another. A new leader has heard of nobody yet and waits as long.
func (p *planner) lost(l look, s raftstore.PeerStatus) bool {
	limit := lostElections * p.election
	if s.LastContact < 0 {
		return l.at-p.began >= limit
	}
	return s.LastContact >= limit
}

// kept is for how long a server has kept up.
func (p *planner) kept(l look, peer raftstore.Peer) (time.Duration, bool) {
	since, ok := p.steady[keyOf(peer)]
	return l.at - since, ok
}

func (p *planner) steadyNow(l look, peer raftstore.Peer) bool {
	d, ok := p.kept(l, peer)
	return ok && d >= steadyElections*p.election
}

// move writes down where a server is now.
func (p *planner) move(l look) (change, bool) {
	for _, s := range l.peers {
		now, ok := l.seen[s.ID]
		if keyOf(s.Peer) == keyOf(l.self) {
			now, ok = l.self, true
		}
		if ok && keyOf(now) == keyOf(s.Peer) && now.RaftAddr != "" && now.RaftAddr != s.RaftAddr {
			return change{opMove, now, fmt.Sprintf("it was at %s", s.RaftAddr)}, true
		}
	}
	return change{}, false
}

// dropSurplus takes out non-voters that nobody needs: a data directory that was
// replaced before it had caught up, or one whose former self is back.
func (p *planner) dropSurplus(l look) (change, bool) {
	for _, s := range l.peers {
		if s.Voter {
			continue
		}
		for _, twin := range twins(l, s.Peer) {
			switch {
			case twin.Voter && p.inContact(twin):
				return change{opRemove, s.Peer, fmt.Sprintf("voter %s is back", twin.Peer)}, true
			case !twin.Voter && p.lost(l, s) && !p.lost(l, twin):
				return change{opRemove, s.Peer, fmt.Sprintf("its data directory was replaced by %s", twin.Store)}, true
			}
		}
	}
	return change{}, false
}

// twins are the other data directories of a server's name.
func twins(l look, peer raftstore.Peer) (out []raftstore.PeerStatus) {
	for _, s := range l.peers {
		if s.ID == peer.ID && s.Store != peer.Store {
			out = append(out, s)
		}
	}
	return out
}

// replace takes out a voter that is lost when the empty server of its name has
// caught up: until then a vote of its own would only make the quorum larger.
func (p *planner) replace(l look) (change, bool) {
	for _, s := range l.peers {
		if !s.Voter || keyOf(s.Peer) == keyOf(l.self) || !p.lost(l, s) {
			continue
		}
		for _, twin := range twins(l, s.Peer) {
			if p.steadyNow(l, twin.Peer) {
				return change{opRemove, s.Peer, fmt.Sprintf("its data directory was replaced by %s, which has caught up", twin.Store)}, true
			}
		}
	}
	return change{}, false
}

func (p *planner) promote(l look) (change, bool) {
	for _, s := range l.peers {
		if s.Voter || !p.steadyNow(l, s.Peer) || slices.ContainsFunc(twins(l, s.Peer), isVoter) {
			continue
		}
		return change{opPromote, s.Peer, fmt.Sprintf("it has kept up for %v", steadyElections*p.election)}, true
	}
	return change{}, false
}

func isVoter(s raftstore.PeerStatus) bool { return s.Voter }

// admit lets in the empty server of a name that is in the group when its former
// self is lost. Whether it is empty is asked before it is done.
func (p *planner) admit(l look) (change, bool) {
	for _, id := range slices.Sorted(maps.Keys(l.seen)) {
		peer := l.seen[id]
		if peer.Store == "" || peer.RaftAddr == "" {
			continue
		}
		var old []raftstore.PeerStatus
		known := false
		for _, s := range l.peers {
			if s.ID == id {
				old = append(old, s)
				known = known || s.Store == peer.Store
			}
		}
		if known || len(old) == 0 || slices.ContainsFunc(old, func(s raftstore.PeerStatus) bool { return !p.lost(l, s) }) {
			continue
		}
		return change{opAdd, peer, fmt.Sprintf("it takes the place of data directory %s, which has been silent for %v", old[0].Store, lostElections*p.election)}, true
	}
	return change{}, false
}

// notes say what is being done with each server, for people.
func (p *planner) notes(l look) map[storeKey]string {
	out := map[storeKey]string{}
	for _, s := range l.peers {
		if note := p.note(l, s); note != "" {
			out[keyOf(s.Peer)] = note
		}
	}
	return out
}

func (p *planner) note(l look, s raftstore.PeerStatus) string {
	old := twins(l, s.Peer)
	replaced := slices.IndexFunc(old, func(t raftstore.PeerStatus) bool { return t.Voter != s.Voter })
	switch kept, ok := p.kept(l, s.Peer); {
	case s.Voter && replaced >= 0:
		return fmt.Sprintf("to be removed when data directory %s has caught up", old[replaced].Store)
	case s.Voter && p.lost(l, s):
		return "no answer: bring it back, or remove it"
	case s.Voter:
		return ""
	case ok:
		return fmt.Sprintf("has kept up for %v of %v, then a voter", min(kept, steadyElections*p.election).Round(100*time.Millisecond), steadyElections*p.election)
	case !p.inContact(s):
		return "does not answer"
	}
	return fmt.Sprintf("catching up, %d entries behind", cmp.Or(l.lastIndex-min(s.LastIndex, l.lastIndex), 1))
}
