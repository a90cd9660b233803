package server

import (
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// What a run of the simulation leaves behind, for the judges. Times are true
// ones since the start of the run, whatever the clocks of the processes say.

type noteKind string

const (
	noteStart  noteKind = "context starts"
	noteEnd    noteKind = "context ends"
	noteAck    noteKind = "keep-alive acknowledged" // sent: when it was sent
	notePause  noteKind = "process stopped"
	noteResume noteKind = "process continued"
	noteCrash  noteKind = "process killed"
	noteAccept noteKind = "guard accepts"
	noteRefuse noteKind = "guard refuses"
	noteAppend noteKind = "unguarded write"
	noteFault  noteKind = "fault" // what: which
	noteKilled noteKind = "leader killed"
	noteCalm   noteKind = "calm" // what: begin, end
)

// note is one thing that happened. process numbers worker processes, each
// start of one anew.
type note struct {
	at        time.Duration
	kind      noteKind
	process   int
	keyspace  string
	partition uint32
	token     uint64
	sent      time.Duration
	what      string
}

func (n note) String() string {
	return fmt.Sprintf("%9.3fs p%-3d %s %s/%d token %d %s", n.at.Seconds(), n.process, n.kind, n.keyspace, n.partition, n.token, n.what)
}

type place struct {
	keyspace  string
	partition uint32
}

// simHistory is written by all workers and by the storm.
type simHistory struct {
	began time.Time

	mu    sync.Mutex
	notes []note
	dead  map[int]bool
	live  map[place]map[int]uint64 // process → token of a live context
	count map[noteKind]int
}

func newSimHistory() *simHistory {
	return &simHistory{began: time.Now(), dead: map[int]bool{}, live: map[place]map[int]uint64{}, count: map[noteKind]int{}}
}

func (h *simHistory) now() time.Duration { return time.Since(h.began) }

// add writes a note down, unless its process has died. A zero time is now.
func (h *simHistory) add(n note) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead[n.process] {
		return
	}
	if n.at == 0 {
		n.at = h.now()
	}
	at := place{n.keyspace, n.partition}
	switch n.kind {
	case noteStart:
		if h.live[at] == nil {
			h.live[at] = map[int]uint64{}
		}
		h.live[at][n.process] = n.token
	case noteEnd:
		if h.live[at][n.process] == n.token {
			delete(h.live[at], n.process)
		}
	case noteCrash:
		h.dead[n.process] = true
		for _, of := range h.live {
			delete(of, n.process)
		}
	}
	h.count[n.kind]++
	h.notes = append(h.notes, n)
}

// holds reports whether a process has a live context under a token.
func (h *simHistory) holds(at place, process int, token uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return token != 0 && h.live[at][process] == token
}

// evidence is what the judges look at.
type evidence struct {
	notes   []note
	ledger  []state.Event
	began   time.Time
	names   map[state.KeyspaceID]string
	process map[state.SessionID]int // who opened the session
	pace    simPace
	strict  map[string]bool // keyspaces
}

// when tells the true time of a ledger line; servers have no other wall clock.
func (e *evidence) when(x *state.Event) time.Duration {
	return time.UnixMilli(x.Wall).Sub(e.began)
}

// ruling is what a judge found: how often it could compare anything, and what
// was wrong.
type ruling struct {
	checked int
	wrong   []string
}

func (r *ruling) blame(format string, args ...any) {
	if len(r.wrong) < 20 {
		r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
	}
}
