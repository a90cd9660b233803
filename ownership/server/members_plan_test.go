package server

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore"
)

var update = flag.Bool("update", false, "rewrite testdata")

// Stories are text files of blocks: commands, a line of dashes, and what they
// print, up to an empty line. Run with -update to rewrite what they print. The
// election timeout is 500 ms.
//
//	voter s1#a leads           (in the configuration; leads: it is the leader)
//	joins s4#d                 (in it without a vote)
//	answers s2#b s3#c          (from now on, with all entries)
//	silent s2#b                (from now on)
//	behind s4#d 50             (answers, but lacks entries)
//	gossip s3#x                (shows this one under its name, at address s3:1)
//	gossip s3#c s3:2           (at another address)
//	vanish s3                  (from gossip)
//	restart s2#b               (another term: s2 leads and has heard of nobody)
//	entries 10                 (are added to the log)
//	run 12s                    (looks twice a second, does what is decided)
//	notes
func TestMembershipStories(t *testing.T) {
	files, err := filepath.Glob("testdata/members/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := tellMembers(t, string(src))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got != string(src) && !*update {
				t.Errorf("the story goes differently:\n%s", got)
			}
		})
	}
}

func tellMembers(t *testing.T, src string) string {
	var out strings.Builder
	s := &memberStory{
		planner: newPlanner(500 * time.Millisecond), log: 100,
		heard: map[storeKey]time.Duration{}, answers: map[storeKey]uint64{}, seen: map[string]raftstore.Peer{},
	}
	printed := false // skipping old output
	for line := range strings.Lines(src) {
		line = strings.TrimRight(line, "\n")
		switch {
		case printed && line != "":
			continue
		case line == "----":
			printed = true
			fmt.Fprintf(&out, "----\n%s", s.out.String())
			s.out.Reset()
			continue
		}
		printed = false
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.do(strings.Fields(line)); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	return out.String()
}

// memberStory is a group as the leader sees it.
type memberStory struct {
	*planner
	now     time.Duration
	log     uint64
	self    raftstore.Peer
	peers   []raftstore.PeerStatus
	heard   map[storeKey]time.Duration // when each last answered this leader
	answers map[storeKey]uint64        // who answers, and how many entries it lacks
	seen    map[string]raftstore.Peer
	out     strings.Builder
}

func peerNamed(name string) raftstore.Peer {
	id, store, _ := strings.Cut(name, "#")
	return raftstore.Peer{ID: id, Store: store, RaftAddr: id + ":1"}
}

func (s *memberStory) do(f []string) error {
	peer := raftstore.Peer{}
	if len(f) > 1 {
		peer = peerNamed(f[1])
	}
	switch f[0] {
	case "voter", "joins":
		s.peers = append(s.peers, raftstore.PeerStatus{Peer: peer, Voter: f[0] == "voter"})
		if len(f) > 2 {
			s.self = peer
		}
	case "answers":
		for _, name := range f[1:] {
			s.answers[keyOf(peerNamed(name))] = 0
		}
	case "silent":
		delete(s.answers, keyOf(peer))
	case "behind":
		n, err := strconv.ParseUint(f[2], 10, 64)
		s.answers[keyOf(peer)] = n
		return err
	case "gossip":
		if len(f) > 2 {
			peer.RaftAddr = f[2]
		}
		s.seen[peer.ID] = peer
	case "vanish":
		delete(s.seen, f[1])
	case "restart":
		s.self, s.planner = peer, newPlanner(500*time.Millisecond)
		clear(s.heard)
	case "entries":
		n, err := strconv.ParseUint(f[1], 10, 64)
		s.log += n
		return err
	case "run":
		d, err := time.ParseDuration(f[1])
		s.run(d)
		return err
	case "notes":
		for _, p := range s.peers {
			fmt.Fprintf(&s.out, "%s: %s\n", p.Peer, s.notes(s.look())[keyOf(p.Peer)])
		}
	default:
		return fmt.Errorf("unknown command")
	}
	return nil
}

func (s *memberStory) look() look {
	for i := range s.peers {
		p := &s.peers[i]
		k := keyOf(p.Peer)
		lacks, ok := s.answers[k]
		if ok {
			s.heard[k], p.LastIndex = s.now, s.log-lacks
		}
		p.LastContact = -1
		if at, ok := s.heard[k]; ok {
			p.LastContact = s.now - at
		}
		if k == keyOf(s.self) {
			p.LastContact, p.LastIndex = 0, s.log
		}
	}
	return look{at: s.now, self: s.self, peers: slices.Clone(s.peers), seen: s.seen, lastIndex: s.log}
}

func (s *memberStory) run(d time.Duration) {
	for end := s.now + d; s.now < end; s.now += 500 * time.Millisecond {
		c, ok := s.plan(s.look())
		if !ok {
			continue
		}
		fmt.Fprintf(&s.out, "%v: %s %s at %s: %s\n", s.now, c.op, c.peer, c.peer.RaftAddr, c.reason)
		at := slices.IndexFunc(s.peers, func(p raftstore.PeerStatus) bool { return keyOf(p.Peer) == keyOf(c.peer) })
		switch c.op {
		case opAdd:
			s.peers = append(s.peers, raftstore.PeerStatus{Peer: c.peer})
		case opMove:
			s.peers[at].Peer = c.peer
		case opPromote:
			s.peers[at].Voter = true
		case opRemove:
			s.peers = slices.Delete(s.peers, at, at+1)
		}
	}
}
