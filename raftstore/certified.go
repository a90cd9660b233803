package raftstore

import (
	"fmt"
	"net"

	"github.com/hashicorp/raft"
)

const notInGroup = "it is not in the group of servers"

// impostor says why the certificate at the other end of a connection is not that of
// a server, or "".
func (g *greeter) impostor(conn net.Conn, server raft.ServerID) string {
	if g.certified == nil {
		return ""
	}
	want := splitID(server).ID
	switch name, err := g.certified(conn); {
	case err != nil:
		return err.Error()
	case name != want:
		return fmt.Sprintf("the certificate is that of server %s, not of %s", name, want)
	}
	return ""
}

// tooMuch counts and logs a request that was not read.
func (g *greeter) tooMuch(from raft.ServerID, err error) {
	g.metrics.FrameRefused()
	g.note("refused a server's request", "from", string(from), "cause", err)
}

// caller is who is at the other end of an accepted connection.
type caller struct {
	id     raft.ServerID
	member bool // of the newest configuration, when it was looked for last
}

// admits reports whether a caller that has proven its name may make requests. With
// certificates it must be in the newest configuration, if there is one.
func (g *greeter) admits(c *caller) bool {
	if g.certified == nil {
		return true
	}
	conf, ok := g.newest()
	c.member = contains(conf, c.id)
	return c.member || ok && len(conf.Servers) == 0 || ok && g.bears(c.id)
}

// stays reports whether a caller may make another request: it may have been removed
// since the last one, or was borne as a leader and turns out to be none.
func (g *greeter) stays(c *caller) bool {
	if g.certified == nil {
		return true
	}
	conf, _ := g.newest()
	was := c.member
	if c.member = contains(conf, c.id); c.member || len(conf.Servers) == 0 {
		return true
	}
	if was {
		return g.bears(c.id)
	}
	leader := g.leader()
	return leader == "" || leader == c.id
}

// bears reports whether somebody who is not in the configuration is heard all the
// same: it is, or may be, the leader of a group that has changed while this server
// was away.
func (g *greeter) bears(id raft.ServerID) bool {
	if g.leader() == id || g.alone() {
		return true
	}
	g.metrics.CallerRefused()
	g.note("refused a server's connection", "from", string(id), "cause", notInGroup)
	return false
}
