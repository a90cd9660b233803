package gossip

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Label and key keep out who is configured for another cluster. Two clusters
// that were given the same ones (the default label, a copied unit file) differ
// in their ids alone, and one wrong seed would make one cluster of them. So
// whoever knows its cluster refuses who is known to be of another, in each way
// that memberlist learns of a member. Who does not know its cluster yet is
// refused by nobody, and forgets strangers when it learns it.

const (
	// foreignText starts every such refusal; log.go knows it by that.
	foreignText = "it belongs to cluster "
	// A stranger comes again every few seconds, for as long as a seed is wrong.
	strangerEvery = time.Hour
	maxStrangers  = 64
)

// strangers remembers of whom the log has heard.
type strangers struct {
	mu   sync.Mutex
	said map[string]time.Time
}

// first tells whether the log should hear of this one. Beyond maxStrangers they
// are only counted.
func (s *strangers) first(key string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.said[key]; ok && now.Sub(at) < strangerEvery {
		return false
	}
	for k, at := range s.said {
		if now.Sub(at) >= strangerEvery {
			delete(s.said, k)
		}
	}
	if len(s.said) >= maxStrangers {
		return false
	}
	if s.said == nil {
		s.said = make(map[string]time.Time)
	}
	s.said[key] = now
	return true
}

// clusterID is the cluster that we belong to, "" before it is known.
func (g *Gossip) clusterID() string { return *g.cluster.Load() }

// foreign tells whether a member is known to be of another cluster than ours.
func (g *Gossip) foreign(m Meta) bool {
	own := g.clusterID()
	return own != "" && m.ClusterID != "" && m.ClusterID != own
}

// checkCluster refuses a node of another cluster, and says so once. It is
// called with memberlist's lock held.
func (g *Gossip) checkCluster(n *memberlist.Node, m Meta) error {
	addr := nodeAddr(n)
	// The others may still repeat what we said of ourselves before we changed.
	if !g.foreign(m) || n.Name == g.cfg.Name && addr == g.local {
		return nil
	}
	if g.strangers.first(n.Name+" "+addr+" "+m.ClusterID, time.Now()) {
		g.log.Warn("gossip refuses a member of another cluster: a seed, or an address that was ours, leads there",
			"member", n.Name, "addr", addr, "its_cluster", m.ClusterID, "our_cluster", g.clusterID())
	}
	return fmt.Errorf("%s%s, this is cluster %s", foreignText, m.ClusterID, g.clusterID())
}

// refused counts a node that was kept out.
func (g *Gossip) refused() {
	g.stats.strangers.Add(1)
	g.cfg.Observer.Rejected(rejectedStranger)
}

// dropStrangers takes those of other clusters off the table. Those who are up
// are in memberlist's list too, which nothing can be taken off: it has to be
// made anew.
func (g *Gossip) dropStrangers() {
	changed, up := g.table.drop(func(m *Member) bool { return m.Name != g.cfg.Name && g.foreign(m.Meta) })
	if changed {
		g.noteChange()
	}
	if up {
		signal(g.again)
	}
}

// startOver says goodbye to all and begins anew with an empty list, the way a
// restart of the process would. It is rare: a server that was no member of a
// cluster, and had seen two, has become one of the first.
func (g *Gossip) startOver(in *instance) (*instance, error) {
	g.log.Info("gossip starts over without the members of other clusters", "our_cluster", g.clusterID())
	g.goodbye(in.ml)
	in.delegate.retired.Store(true)
	if err := in.ml.Shutdown(); err != nil {
		return nil, fmt.Errorf("stop gossip to start over: %w", err)
	}
	if _, err := g.changeMeta(func(m *Meta) { m.Leaving = false }); err != nil {
		return nil, fmt.Errorf("start gossip over: %w", err)
	}
	g.table.drop(func(*Member) bool { return true })
	g.seeker.again.Store(true)
	next, err := g.join()
	if err != nil {
		return nil, fmt.Errorf("start gossip over: %w", err)
	}
	g.noteChange()
	return next, nil
}
