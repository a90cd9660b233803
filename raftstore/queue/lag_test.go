package queue

import (
	"testing"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// A follower that lags sees the holder go, but not yet that the next one's
// session has ended, too: it must not let it in.
func TestOldStateLetsNobodyIn(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, g *group) {
		leader, follower := g.servers[0], g.servers[1]
		a := leader.acquire("L", g.session(1)).in()
		b := follower.acquire("L", g.session(2))
		b.waits()
		follower.lags = true
		g.delete(a.Key)
		g.end(2)
		follower.step() // the deletion alone
		b.waits()
		follower.catchUp()
		b.fails(mvcc.ErrLeaseNotFound)
	})
}

// The same for the very first look, when the follower learns of the place late.
func TestLateFirstLookLetsNobodyIn(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, g *group) {
		follower := g.servers[1]
		follower.lags = true
		a := follower.acquire("L", g.session(1))
		g.end(1)
		follower.step() // the session
		a.waits()
		follower.step() // its place
		a.waits()
		follower.catchUp()
		a.fails(mvcc.ErrLeaseNotFound)
	})
}

func TestFollowerWaitsForItsOwnState(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, g *group) {
		follower := g.servers[1]
		follower.lags = true
		first := follower.acquire("L", g.session(1))
		second := follower.acquire("L", g.session(2))
		first.waits()
		follower.catchUp()
		p := first.in()
		second.waits()
		g.delete(p.Key)
		second.waits()
		follower.catchUp()
		second.in()
	})
}

// A snapshot from the leader takes the place of the events between.
func TestSnapshotInTheMiddleOfAWait(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, g *group) {
		leader, follower := g.servers[0], g.servers[1]
		a := leader.acquire("L", g.session(1)).in()
		b, c, d := follower.acquire("L", g.session(2)), follower.acquire("L", g.session(3)), follower.acquire("L", g.session(4))
		follower.lags = true
		g.delete(a.Key)
		g.end(2)
		g.propose(&state.Compact{Revision: revisionOf(leader)})
		follower.restore(leader)
		follower.lags = false
		b.fails(mvcc.ErrLeaseNotFound)
		p := c.in()
		d.waits()
		g.delete(p.Key)
		d.in()
	})
}

func revisionOf(r *replica) (rev int64) {
	r.View(func(s *state.State) { rev = s.Keys().Revision() })
	return rev
}
