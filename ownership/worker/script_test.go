package worker

import (
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// wait blocks until ok holds; the test's deadline bounds it.
func (c *cluster) wait(what string, ok func() bool) {
	c.t.Helper()
	late := time.After(10 * time.Minute)
	for {
		c.mu.Lock()
		done, changed := ok(), c.changed
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-late:
			c.t.Fatalf("never came: %s", what)
		}
	}
}

func (c *cluster) changedLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// only returns the one session that is alive.
func (c *cluster) only() *peerSession {
	c.t.Helper()
	var found *peerSession
	c.wait("a session with a stream", func() bool {
		found = nil
		for _, s := range c.sessions {
			if s.out != nil && time.Now().Before(s.deadline) {
				found = s
			}
		}
		return found != nil
	})
	return found
}

// grant gives partitions of the first keyspace to a session.
func (c *cluster) grant(s *peerSession, partitions ...uint32) (tokens []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.grantLocked(s, partitions...)
}

func (c *cluster) grantLocked(s *peerSession, partitions ...uint32) (tokens []uint64) {
	c.index++
	for _, p := range partitions {
		c.token++
		s.held[leaseAt{1, p}] = c.token
		tokens = append(tokens, c.token)
	}
	c.pushLocked(s, &leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_Changes{Changes: &leaseholdv1.LeaseChanges{
		Index: c.index, Granted: []*leaseholdv1.Leases{{KeyspaceId: 1, Partitions: partitions, Tokens: tokens}},
	}}})
	return tokens
}

func (c *cluster) drain(s *peerSession, d time.Duration, partitions ...uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index++
	g := &leaseholdv1.Leases{KeyspaceId: 1, DrainMs: d.Milliseconds()}
	for _, p := range partitions {
		g.Partitions = append(g.Partitions, p)
		g.Tokens = append(g.Tokens, s.held[leaseAt{1, p}])
	}
	c.pushLocked(s, &leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_Changes{Changes: &leaseholdv1.LeaseChanges{
		Index: c.index, Drain: []*leaseholdv1.Leases{g},
	}}})
}

// bar supersedes or evicts a session.
func (c *cluster) bar(s *peerSession, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.barred = reason
	c.pushLocked(s, closedMessage(reason))
}

func closedMessage(reason string) *leaseholdv1.AttachResponse {
	return &leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_Closed{Closed: &leaseholdv1.SessionClosed{
		Error: &leaseholdv1.ErrorDetail{Reason: reason},
	}}}
}

func (c *cluster) pushLocked(s *peerSession, m *leaseholdv1.AttachResponse) {
	if s.out != nil {
		s.out <- m
	}
}

// held lists what the servers believe a session holds.
func (c *cluster) held(s *peerSession) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(s.held)
}

// seen is the last keep-alive that arrived.
func (c *cluster) seen() []*leaseholdv1.KeepAliveRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*leaseholdv1.KeepAliveRequest(nil), c.sees...)
}

func (c *cluster) release(s *peerSession, m *leaseholdv1.ReleaseLeases) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releases = append(c.releases, m)
	answer := &leaseholdv1.LeasesReleased{Request: m.GetRequest()}
	for _, r := range m.GetLeases() {
		at := leaseAt{r.GetKeyspaceId(), r.GetPartition()}
		if s.held[at] != r.GetToken() {
			answer.Refused = append(answer.Refused, r)
			continue
		}
		delete(s.held, at)
	}
	c.changedLocked()
	if s.barred != "" {
		return
	}
	c.pushLocked(s, &leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_Released{Released: answer}})
	c.closeIfLeftLocked(s)
}

func (c *cluster) closeIfLeftLocked(s *peerSession) {
	if s.leaving && len(s.held) == 0 {
		s.deadline = time.Time{}
		c.pushLocked(s, closedMessage(leaseholdv1.ReasonLeft))
	}
}

func (c *cluster) leave(s *peerSession, m *leaseholdv1.LeaveSession) {
	c.mu.Lock()
	c.leaves = append(c.leaves, m)
	s.leaving = true
	var partitions []uint32
	for at := range s.held {
		partitions = append(partitions, at.partition)
	}
	noDrain := c.noDrain
	c.closeIfLeftLocked(s)
	c.changedLocked()
	c.mu.Unlock()
	if !noDrain && len(partitions) > 0 {
		c.drain(s, 30*time.Second, partitions...)
	}
}
