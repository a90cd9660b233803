package gossip

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// lookAround returns the addresses at which members are up, and how many of
// those are other servers and workers.
func (s *seeker) lookAround(now time.Time) (up map[string]bool, servers, workers int) {
	up = map[string]bool{s.g.local: true}
	var crew []Member
	for _, m := range s.g.table.all() {
		if !m.Up() || m.Name == s.g.cfg.Name {
			continue
		}
		up[m.Addr] = true
		if m.Meta.Role == RoleServer {
			servers++
			s.see(m, now)
		} else {
			crew = append(crew, m)
		}
	}
	if s.g.cfg.Meta.Role == RoleServer && !now.Before(s.workersAt) {
		s.workersAt = now.Add(time.Second)
		s.seeWorkers(crew, now)
	}
	return up, servers, len(crew)
}

// seeWorkers notes the workers that have been up for longest: they will stay,
// and the list does not change with each that comes and goes.
func (s *seeker) seeWorkers(crew []Member, now time.Time) {
	slices.SortFunc(crew, func(a, b Member) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name)) })
	for _, m := range crew[:min(len(crew), maxWorkers)] {
		s.see(m, now)
	}
	var known []string
	for addr, t := range s.targets {
		if t.worker && !t.seed && !t.trying {
			known = append(known, addr)
		}
	}
	slices.SortFunc(known, func(a, b string) int { return s.targets[b].seen.Compare(s.targets[a].seen) })
	for _, addr := range known[min(len(known), maxWorkers):] {
		delete(s.targets, addr)
	}
}

// see notes that a member is up.
func (s *seeker) see(m Member, now time.Time) {
	t := s.targets[m.Addr]
	if t == nil {
		t = &target{}
		s.targets[m.Addr] = t
	}
	t.name, t.worker, t.cluster = m.Name, m.Meta.Role == RoleWorker, m.Meta.ClusterID
	t.seen, t.failed = now, 0
	// Should it vanish, the first try comes a moment later, not all at once.
	t.next = now.Add(jitter(firstRetry))
}

// remember forgets what is not worth a try any more, and keeps the rest on disk.
func (s *seeker) remember(now time.Time) {
	var peers []knownPeer
	for addr, t := range s.targets {
		m, ok := s.g.table.get(t.name)
		moved := ok && (m.Status == Left || m.Up() && m.Addr != addr)
		if moved || now.Sub(t.seen) > rememberFor {
			t.name, t.worker = "", false
		}
		if t.name == "" && !t.seed {
			delete(s.targets, addr)
			continue
		}
		if t.name != "" {
			peers = append(peers, knownPeer{name: t.name, addr: addr})
		}
	}
	slices.SortFunc(peers, comparePeers)
	peers = peers[:min(len(peers), maxKnown)]
	if len(peers) > 0 && !slices.Equal(peers, s.saved) {
		s.saved = peers
		s.g.savePeers(peers)
	}
}
