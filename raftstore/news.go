package raftstore

import (
	"sync"

	"github.com/hashicorp/raft"
)

// news tells followers at once what has been committed. Raft itself lets them
// know with the next entry, or after CommitTimeout, and whoever watches or reads
// there would wait for that.
//
// A follower of Raft's takes everything in its log for committed up to the index
// that it is told, also entries of an earlier leader's that were never committed.
// So the request has to prove what it speaks of: it names an entry that this
// follower is known to hold, which Raft compares, and tells of no commit beyond
// that one.
type news struct {
	// send delivers one request.
	send func(id raft.ServerID, addr raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error

	telling sync.WaitGroup

	mu        sync.Mutex
	office    office
	term      uint64 // in which this server is in office; 0: it is not
	followers map[raft.ServerID]*listener
}

// listener is a follower, as its answers to Raft's own requests show it.
type listener struct {
	addr     raft.ServerAddress
	term     uint64 // of those requests
	held     uint64 // the last entry that it is known to hold; 0: none
	heldTerm uint64 // of that entry
	told     uint64 // it knows that this much is committed
	appends  int    // requests of that term that are under way: they may tell it
	busy     bool   // news are under way
}

// open begins a term in office.
func (n *news) open(term uint64, o office) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.term, n.office = term, o
	for id, f := range n.followers {
		if f.term < term && f.appends == 0 && !f.busy {
			delete(n.followers, id) // it may have been removed meanwhile
			continue
		}
		n.tellLocked(id, f) // the term's first entries were committed before this
	}
}

// close ends it.
func (n *news) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.term = 0
}

// committed tells everyone who does not know yet.
func (n *news) committed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.term == 0 {
		return
	}
	for id, f := range n.followers {
		n.tellLocked(id, f)
	}
}

// begins notes that Raft sends a request, which is not a heartbeat.
func (n *news) begins(id raft.ServerID, addr raft.ServerAddress, term uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.followers[id]
	if f == nil {
		f = &listener{}
		n.followers[id] = f
	}
	if term > f.term {
		f.term, f.held, f.told, f.appends = term, 0, 0, 0
	}
	if term == f.term {
		f.addr = addr
		f.appends++
	}
}

// outcome is what a request of Raft's says about a follower.
type outcome struct {
	term    uint64
	unknown bool   // no answer came
	last    uint64 // the entry that it holds now, and all before it; 0: it refused
	logTerm uint64 // of that entry
	told    uint64 // it was told that this much is committed
}

func appended(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, err error) outcome {
	o := outcome{term: req.Term, unknown: err != nil}
	if !o.unknown && resp.Success {
		o.last, o.logTerm, o.told = req.PrevLogEntry, req.PrevLogTerm, req.LeaderCommitIndex
		if n := len(req.Entries); n > 0 {
			o.last, o.logTerm = req.Entries[n-1].Index, req.Entries[n-1].Term
		}
	}
	return o
}

func installed(req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, err error) outcome {
	o := outcome{term: req.Term, unknown: err != nil}
	if !o.unknown && resp.Success {
		o.last, o.logTerm, o.told = req.LastLogIndex, req.LastLogTerm, req.LastLogIndex
	}
	return o
}

// ended notes what came of a request. Those of an earlier term say nothing, and may
// hang for long, on a connection that was cut.
func (n *news) ended(id raft.ServerID, o outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.followers[id]
	if f == nil || o.term != f.term {
		return
	}
	f.appends--
	switch {
	case o.unknown:
	case o.last == 0:
		f.held = 0
	case o.last >= f.held:
		f.held, f.heldTerm = o.last, o.logTerm
	}
	if !o.unknown {
		f.told = max(f.told, min(o.told, f.held))
	}
	n.tellLocked(id, f)
}

// tellLocked lets a goroutine tell one follower, if there is anything to tell and
// nobody is at it.
func (n *news) tellLocked(id raft.ServerID, f *listener) {
	if f.busy || n.nextLocked(f) == nil {
		return
	}
	f.busy = true
	n.telling.Go(func() { n.tell(id, f) })
}

// nextLocked makes the request that is due; nil if there is none.
func (n *news) nextLocked(f *listener) *raft.AppendEntriesRequest {
	if n.term == 0 || n.term != f.term || f.appends > 0 || f.held <= f.told {
		return nil
	}
	if n.office.lastIndex() > f.held {
		return nil // Raft is about to send more, and tells it with that
	}
	commit := min(n.office.commitIndex(), f.held)
	// Looked at after the index: what a later leader commits is not of this log.
	if commit <= f.told || !n.office.inOffice(n.term) {
		return nil
	}
	return &raft.AppendEntriesRequest{Term: f.term, PrevLogEntry: f.held, PrevLogTerm: f.heldTerm, LeaderCommitIndex: commit}
}

// tell tells one follower until it knows all. What does not arrive is not tried
// again: Raft's own requests will tell.
func (n *news) tell(id raft.ServerID, f *listener) {
	for {
		n.mu.Lock()
		req := n.nextLocked(f)
		if req == nil {
			f.busy = false
			n.mu.Unlock()
			return
		}
		f.told = req.LeaderCommitIndex
		addr := f.addr
		n.mu.Unlock()
		_ = n.send(id, addr, req, &raft.AppendEntriesResponse{})
	}
}

// tell sends news of a commit. They count for nothing else.
func (t *transport) tell(id raft.ServerID, addr raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := t.disk.gate(); err != nil {
		return err
	}
	req.RPCHeader = t.header()
	if t.telling != nil {
		t.telling(id, req)
	}
	return t.inner.AppendEntries(id, addr, req, resp)
}
