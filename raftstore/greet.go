package raftstore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// helloDeadline bounds how long an accepted connection may take to say hello.
const helloDeadline = 2 * time.Second

// greeter speaks both sides of the hello for one server.
//
// What it is for: Raft counts on a server remembering its votes and its log. One
// that lost them, or has those of another cluster, must not be taken for the
// server that others mean. They dial an address; only the answer says who is
// there now.
type greeter struct {
	self    raft.ServerID
	feature state.Feature
	version string
	log     *slog.Logger
	members *members
	level   func() state.Feature // of the cluster
	cluster func() string        // empty: not known yet
	metrics Observer
	// certified is Config.Certified; nil: nobody is asked for a certificate.
	certified func(net.Conn) (server string, err error)
	// alone reports whether this server has heard of no leader for long. Only then
	// may somebody with a certificate who is not in the configuration be its leader.
	alone func() bool
	// leader is the one that Raft knows, or "", and newest its newest configuration,
	// committed or not; not ok: Raft does not run yet.
	leader func() raft.ServerID
	newest func() (conf raft.Configuration, ok bool)

	// outdated is the index of a committed configuration that another server
	// knows and this one is not in.
	outdated atomic.Uint64
	repeats  *repeats // of what is logged about callers

	mu      sync.Mutex
	claimed string // cluster of the first server that called while ours was not known
	refused map[raft.ServerID]refusal
}

// refusal is what a server said when this one last called it.
type refusal struct {
	text string
	at   time.Time
}

// refusalsKept is how long a refusal counts. Who has work with a server calls it
// far more often.
const refusalsKept = 30 * time.Second

// refusedError ends a connection that the other side, or ours, did not want.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// call says hello on a connection that this server has dialled to reach the
// server called to.
func (g *greeter) call(conn net.Conn, to raft.ServerID, timeout time.Duration) error {
	err := g.exchange(conn, to, timeout)
	var refused *refusedError
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		delete(g.refused, to)
	case errors.As(err, &refused):
		g.refused[to] = refusal{refused.text, time.Now()}
	}
	return err
}

func (g *greeter) exchange(conn net.Conn, to raft.ServerID, timeout time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if text := g.impostor(conn, to); text != "" {
		g.metrics.CallerRefused()
		g.note("another server answers where one was meant", "to", string(to), "cause", text)
		return &refusedError{text: text}
	}
	ours := g.clusterID()
	h := hello{cluster: ours, from: g.self, to: to, feature: g.feature, version: g.version}
	if _, err := conn.Write(h.encode()); err != nil {
		return fmt.Errorf("say hello to %s: %w", to, err)
	}
	w, err := readWelcome(conn)
	switch {
	case err != nil:
		return fmt.Errorf("say hello to %s: %w", to, err)
	case w.code > helloStranger:
		return &refusedError{text: cmp.Or(w.text, fmt.Sprintf("refused for reason %d", w.code))}
	case w.self != to:
		return &refusedError{text: notMe(w.self, to)}
	case ours != "" && w.cluster != "" && ours != w.cluster:
		return &refusedError{text: foreign(w.self, w.cluster, g.self, ours)}
	case w.code == helloStranger:
		raise(&g.outdated, w.index)
	}
	return conn.SetDeadline(time.Time{})
}

// welcome answers the hello on a connection that was accepted, and returns who
// said it.
func (g *greeter) welcome(conn net.Conn) (caller, error) {
	if err := conn.SetDeadline(time.Now().Add(helloDeadline)); err != nil {
		return caller{}, err
	}
	h, err := readHello(conn)
	if err != nil {
		if errors.Is(err, errHello) {
			g.note("connection is not from a server of this system", "from", conn.RemoteAddr(), "cause", err)
		}
		return caller{}, err
	}
	w := g.answer(conn, &h)
	if _, err := conn.Write(w.encode()); err != nil {
		return caller{}, err
	}
	if w.code > helloStranger {
		g.note("refused a server's connection", "from", string(h.from), "cause", w.text)
		return caller{}, &refusedError{text: w.text}
	}
	c := caller{id: h.from}
	if !g.admits(&c) { // if it is known to have been removed, it has been told
		return caller{}, &refusedError{text: notInGroup}
	}
	return c, conn.SetDeadline(time.Time{})
}

// answer judges a caller by its certificate first: nothing else that an impostor
// says counts.
func (g *greeter) answer(conn net.Conn, h *hello) welcome {
	if text := g.impostor(conn, h.from); text != "" {
		g.metrics.CallerRefused()
		return welcome{code: helloDenied, self: g.self, text: text}
	}
	return g.judge(h)
}

// judge decides whether the caller is one of us who means us.
func (g *greeter) judge(h *hello) welcome {
	w := welcome{cluster: g.clusterID(), self: g.self}
	switch level := g.level(); {
	case h.cluster != "" && w.cluster != "" && h.cluster != w.cluster:
		w.code, w.text = helloForeign, foreign(g.self, w.cluster, h.from, h.cluster)
	case h.to != g.self:
		w.code, w.text = helloNotMe, notMe(g.self, h.to)
	case h.feature < level:
		w.code, w.text = helloTooOld, fmt.Sprintf(
			"the cluster is at feature level %d, server %s (version %s) knows up to %d: upgrade it",
			level, splitID(h.from), cmp.Or(h.version, "unknown"), h.feature)
	default:
		conf, index := g.members.committed()
		if index > 0 && !contains(conf, h.from) {
			w.code, w.index = helloStranger, index
		}
		g.claim(h.cluster)
	}
	return w
}

func foreign(a raft.ServerID, ofA string, b raft.ServerID, ofB string) string {
	return fmt.Sprintf("server %s belongs to cluster %s, server %s to cluster %s: they cannot be joined; "+
		"to move a server into another cluster, stop it and empty its data directory", splitID(a), ofA, splitID(b), ofB)
}

func notMe(is, meant raft.ServerID) string {
	if a, b := splitID(is), splitID(meant); a.ID == b.ID {
		return fmt.Sprintf("server %s has another data directory now, %s instead of %s: "+
			"what the old one held is gone, it must be added again and the old one removed", a.ID, a.Store, b.Store)
	}
	return fmt.Sprintf("server %s answers at the address of server %s", splitID(is), splitID(meant))
}

// claim binds a server that belongs to no cluster yet to the first one that
// calls it, until it knows its own: the log of two must not mix.
func (g *greeter) claim(cluster string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.claimed == "" {
		g.claimed = cluster
	}
}

func (g *greeter) clusterID() string {
	if id := g.cluster(); id != "" {
		return id
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.claimed
}

// removed reports whether the group is known to go on without this server:
// another one has told it of a configuration newer than any that is known here.
func (g *greeter) removed() bool { return g.outdated.Load() > g.members.newest() }

// refusals says why those servers refuse this one.
func (g *greeter) refusals(by []raft.Server) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []string
	for _, srv := range by {
		if r, ok := g.refused[srv.ID]; ok && time.Since(r.at) < refusalsKept && !slices.Contains(all, r.text) {
			all = append(all, r.text)
		}
	}
	return strings.Join(all, "; ")
}

// note logs what is wrong with a caller, who may call often.
func (g *greeter) note(msg string, args ...any) {
	held, ok := g.repeats.pass(msg + fmt.Sprint(args[1]))
	if !ok {
		return
	}
	if held > 0 {
		args = append(args, "repeated", held)
	}
	g.log.Warn(msg, args...)
}

// raise makes v at least to.
func raise(v *atomic.Uint64, to uint64) {
	for now := v.Load(); now < to && !v.CompareAndSwap(now, to); now = v.Load() {
	}
}

func contains(conf raft.Configuration, id raft.ServerID) bool {
	return slices.ContainsFunc(conf.Servers, func(srv raft.Server) bool { return srv.ID == id })
}
