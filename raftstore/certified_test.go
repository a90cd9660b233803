package raftstore

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// certified gives each server the certificate of its own name, whatever the address
// that a test calls from says in names.
func certified(names map[string]string) option {
	return func(s *server, c *Config) {
		c.Certified = func(conn net.Conn) (string, error) {
			at := conn.(*memConn).to
			if name, ok := names[at]; ok {
				if name == "" {
					return "", errors.New("the other side's certificate: its role is worker")
				}
				return name, nil
			}
			for _, other := range s.c.servers {
				if other.addr == at {
					return other.id, nil
				}
			}
			return "", errors.New("there is none")
		}
	}
}

// refusals counts who was refused.
type refusals struct {
	noObserver
	callers, frames atomic.Int64
}

func (r *refusals) CallerRefused() { r.callers.Add(1) }
func (r *refusals) FrameRefused()  { r.frames.Add(1) }

// calls says hello from an address, and returns the answer. The connection is open
// if the caller is let in.
func (c *cluster) calls(from string, to *server, as Peer) (net.Conn, welcome, error) {
	c.t.Helper()
	conn, err := c.net.at(from).Dial(to.addr, time.Second)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	h := hello{cluster: to.store.ClusterID(), from: as.raftID(), to: to.peer().raftID(), feature: state.MaxFeature}
	if _, err := conn.Write(h.encode()); err != nil {
		return conn, welcome{}, err
	}
	w, err := readWelcome(conn)
	return conn, w, err
}

// vote is a request that a server answers whoever asks.
func vote(t *testing.T, conn net.Conn) error {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write(request(t, kindPreVote, &raft.RequestPreVoteRequest{RPCHeader: header, Term: 1})); err != nil {
		return err
	}
	dec := codec.NewDecoder(bufio.NewReader(conn), &codec.MsgpackHandle{})
	var failed string
	if err := dec.Decode(&failed); err != nil {
		return err
	}
	return dec.Decode(new(raft.RequestPreVoteResponse))
}

// cut reports whether the other side has ended a connection on which nothing is to
// come.
func cut(conn net.Conn) bool {
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, err := conn.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// O-90: what a caller may do on the Raft port depends on the name in its
// certificate, not on what it says.
func TestO90CallersAreWhoTheirCertificatesSay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen refusals
		c := newCluster(t, 3, onDisk, certified(map[string]string{
			"10.0.0.90:1": "", "10.0.0.91:1": "s9", "10.0.0.92:1": "s2", "10.0.0.93:1": "s1",
		}), func(_ *server, conf *Config) { conf.Metrics = &seen })
		defer c.stopAll()
		c.do(mark("x"))
		if n := seen.callers.Load(); n != 0 {
			t.Fatalf("servers refuse each other %d times", n)
		}
		one := c.servers[0]
		for name, call := range map[string]struct {
			from string
			as   Peer
			code helloCode
			text string
		}{
			"no server at all":          {"10.0.0.90:1", c.servers[1].peer(), helloDenied, "role is worker"},
			"another one":               {"10.0.0.91:1", c.servers[1].peer(), helloDenied, "that of server s9, not of s2"},
			"one that is not in":        {"10.0.0.91:1", Peer{ID: "s9", Store: "99"}, helloStranger, ""},
			"an emptied one":            {"10.0.0.92:1", Peer{ID: "s2", Store: "99"}, helloStranger, ""},
			"itself":                    {"10.0.0.92:1", c.servers[1].peer(), helloOK, ""},
			"itself, which is meant to": {"10.0.0.93:1", one.peer(), helloOK, ""},
		} {
			before := seen.callers.Load()
			conn, w, err := c.calls(call.from, one, call.as)
			if err != nil || w.code != call.code || !strings.Contains(w.text, call.text) {
				t.Errorf("%s: answered %+v, %v", name, w, err)
			}
			if let := call.code == helloOK; cut(conn) == let || (vote(t, conn) == nil) != let || (seen.callers.Load() == before) != let {
				t.Errorf("%s: let in is not %v, counted %d", name, let, seen.callers.Load()-before)
			}
			conn.Close()
		}
	})
}

// Who answers must be the server that was meant.
func TestO90AnswerOfAnotherServerIsRefused(t *testing.T) {
	for name, err := range map[string]error{"s3": nil, "": errors.New("its role is worker")} {
		var seen refusals
		g := testGreeter("s1#aa", "c1")
		g.metrics = &seen
		g.certified = func(net.Conn) (string, error) { return name, err }
		a, b := net.Pipe()
		var refused *refusedError
		if err := g.call(a, "s2#bb", time.Second); !errors.As(err, &refused) {
			t.Errorf("call of %q: %v", name, err)
		}
		_ = a.Close()
		if said, err := io.ReadAll(b); len(said) > 0 || err != nil || seen.callers.Load() != 1 {
			t.Errorf("%q was told %q, %v", name, said, err)
		}
	}
}

// O-90: a server that has been removed keeps its certificate, and loses its
// connections.
func TestO90RemovedServerIsSentAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, certified(map[string]string{"10.0.0.93:1": "s3"}))
		defer c.stopAll()
		c.do(mark("x"))
		s := c.servers[2]
		if c.leader() == s {
			c.change("transfer", func(ctx context.Context, at *Store) error { return at.TransferLeadership(ctx) })
			c.leader()
		}
		for _, other := range c.servers[:2] {
			conn, _, err := c.calls("10.0.0.93:1", other, s.peer())
			if err == nil {
				err = vote(t, conn)
			}
			if err != nil {
				t.Fatalf("a member is not heard: %v", err)
			}
			defer func() {
				if err := vote(t, conn); err == nil {
					t.Errorf("%s hears a server that was removed, on an older connection", other.id)
				}
				conn.Close()
			}()
		}
		c.change("remove", func(ctx context.Context, at *Store) error { return at.RemovePeer(ctx, s.peer()) })
		c.within(5*time.Second, "word of the removal", func() bool {
			return len(c.servers[0].store.Status().Peers) == 2 && len(c.servers[1].store.Status().Peers) == 2
		})
		c.do(nudge())
		time.Sleep(time.Second)
		for _, other := range c.servers[:2] {
			conn, w, err := c.calls("10.0.0.93:1", other, s.peer())
			if err != nil || w.code != helloStranger {
				t.Errorf("%s answers %+v, %v", other.id, w, err)
			}
			if !cut(conn) {
				t.Errorf("%s hears a server that was removed", other.id)
			}
			conn.Close()
		}
		c.within(time.Minute, "word at the removed server", func() bool { return s.store.Status().Removed })
	})
}

// A server that was down while the whole group was replaced listens to a leader that
// it has never heard of, once it is clear that none it knows will come.
func TestReturningServerHearsAnUnknownLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts := []option{onDisk, byGossip, certified(nil)}
		c := newCluster(t, 3, opts...)
		defer c.stopAll()
		c.do(mark("x"))
		l := c.leader()
		var away *server
		for _, s := range c.servers {
			if s != l {
				away = s
			}
		}
		away.crash()
		for _, addr := range []string{"10.0.0.4:7401", "10.0.0.5:7401"} {
			s := c.join(addr, opts...)
			c.change("add", func(ctx context.Context, at *Store) error { return at.AddPeer(ctx, s.peer()) })
			c.within(time.Minute, "promotion", func() bool {
				return c.leader().store.PromotePeer(t.Context(), s.peer()) == nil
			})
		}
		for _, s := range c.servers[:3] { // nobody is left whom it knows
			if s == away {
				continue
			}
			c.within(time.Minute, "another leader", func() bool {
				if c.leader() == s {
					_ = s.store.TransferLeadership(t.Context())
				}
				return c.leader() != s
			})
			gone := s.peer()
			c.change("remove", func(ctx context.Context, at *Store) error { return at.RemovePeer(ctx, gone) })
			s.crash()
		}
		c.do(mark("y"))
		away.start()
		began := time.Now()
		c.within(time.Minute, "what it has missed", func() (ok bool) {
			away.store.View(func(st *state.State) { ok = marked(st, "y") })
			return ok
		})
		t.Logf("it has caught up after %v", time.Since(began))
	})
}

// A request that no server makes ends the connection before Raft has seen it, and
// nothing else.
func TestForgedRequestsEndTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen refusals
		c := newCluster(t, 3, onDisk, func(_ *server, conf *Config) { conf.Metrics = &seen })
		defer c.stopAll()
		c.do(mark("x"))
		l := c.leader()
		term := l.store.Term()
		for i, forged := range [][]byte{
			append([]byte{kindAppend, 0x81, 0xa7}, "Entries\xdd\xff\xff\xff\xff"...),
			append([]byte{kindVote, 0x81, 0xa9}, "Candidate\xc6\xff\xff\xff\xff"...),
			{99},
		} {
			conn, _, err := c.calls("10.0.0.93:1", l, c.follower().peer())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = conn.Write(forged)
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("%d is answered", i)
			}
			conn.Close()
			if n := seen.frames.Load(); n != int64(i)+1 {
				t.Errorf("%d: counted %d", i, n)
			}
		}
		c.do(mark("y"))
		if c.leader() != l || l.store.Term() != term {
			t.Error("the leader has changed")
		}
	})
}
